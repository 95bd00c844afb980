#include <omp.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>

#include "hand_out.hpp"
#include "recorder.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

void Meter::add(double part) {
    const double done = done_.fetch_add(part) + part;
    if (tell_ && omp_get_thread_num() == 0) tell_(std::min(done / whole_, 1.0));
}

namespace {

/// Runs the commits of the workers in order of their index.
class Committer {
  public:
    void hand_in(Index i, std::function<void()> commit) {
        const std::lock_guard lock(mutex_);
        ready_.emplace(i, std::move(commit));
        for (; !ready_.empty() && ready_.begin()->first == next_; ++next_)
            ready_.extract(ready_.begin()).mapped()();
    }
    void fail(Index i) {
        const std::lock_guard lock(mutex_);
        if (!failure_ || i < failed_at_) failure_ = std::current_exception(), failed_at_ = i;
    }
    bool failed() {
        const std::lock_guard lock(mutex_);
        return failure_ != nullptr;
    }
    void rethrow() const {
        if (failure_) std::rethrow_exception(failure_);
    }

  private:
    std::mutex mutex_;
    std::map<Index, std::function<void()>> ready_;  ///< wait for an earlier index
    Index next_ = 0;
    std::exception_ptr failure_;
    Index failed_at_ = 0;
};

}  // namespace

void in_order(Index count, const std::function<std::function<void()>(Index)>& work,
              std::span<const Index> order) {
    Committer committer;
    // Parallel regions inside the work are not nested: one level is active.
#pragma omp parallel for schedule(dynamic, 1)
    for (Index k = 0; k < count; ++k) {
        if (committer.failed()) continue;
        const Index i = order.empty() ? k : order[std::size_t(k)];
        try {
            committer.hand_in(i, work(i));
        } catch (...) {
            committer.fail(i);
        }
    }
    committer.rethrow();
}

void hand_out(Units& units, Index count, bool side_by_side,
              const std::function<std::string(Index)>& make,
              const std::function<void(double)>& tell) {
    Committer committer;  // here for the first failure only
    const auto work = [&] {
        Index unit = 0;
        try {
            while (!committer.failed() && (unit = units.next()) >= 0) {
                if (!units.find(unit)) {
                    const auto start = std::chrono::steady_clock::now();
                    const std::string record = make(unit);
                    units.keep(unit, record, seconds_from(start));
                }
                if (tell && omp_get_thread_num() == 0) tell(double(unit + 1) / double(count));
            }
        } catch (...) {
            committer.fail(unit);
        }
    };
    if (side_by_side) {
#pragma omp parallel
        work();
    } else {
        work();
    }
    committer.rethrow();
}

namespace {

std::string bytes_of(const Recorder& said) {
    RecordWriter out;
    said.write(out);
    return out.take();
}

}  // namespace

void each_trial(Index count, Sink& out, const std::function<void(Index, Sink&)>& trial,
                const std::function<void(double)>& done, Units* units) {
    if (units) units->begin(count);
    if (units && units->hands_out())
        return hand_out(
            *units, count, true,
            [&](Index i) {
                Recorder said;
                trial(i, said);
                return bytes_of(said);
            },
            done);
    Meter meter(double(std::max<Index>(count, 1)), done);
    in_order(count, [&](Index i) {
        const auto said = std::make_shared<Recorder>();
        const auto known = units ? units->find(i) : std::nullopt;
        if (known) {
            RecordReader in(*known, kept_units);
            *said = Recorder::read(in);
            in.end();
        } else {
            const auto start = std::chrono::steady_clock::now();
            trial(i, *said);
            if (units) units->keep(i, bytes_of(*said), seconds_from(start));
        }
        meter.add(1);
        return [said, &out] { said->replay(out); };
    });
}

}  // namespace tsdiag
