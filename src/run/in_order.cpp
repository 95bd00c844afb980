#include <omp.h>

#include <algorithm>
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
                result_of_unit(
                    &units, unit, [](std::string_view record) { return std::string(record); },
                    [&] { return make(unit); }, std::identity());
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

std::string record_of(const Recorder& said) {
    RecordWriter out;
    said.write(out);
    return out.take();
}

Recorder recorded(std::string_view record) {
    RecordReader in(record, kept_units);
    Recorder said = Recorder::read(in);
    in.end();
    return said;
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
                return record_of(said);
            },
            done);
    Meter meter(double(std::max<Index>(count, 1)), done);
    Index first = 0;  // of those that are not known: what is known at the front needs no thread
    for (; units && first < count; ++first) {
        const auto record = units->find(first);
        if (!record) break;
        try {
            recorded(*record).replay(out);
        } catch (const FormatError&) {
            break;
        }
        meter.add(1);
    }
    in_order(count - first, [&, first](Index after) {
        const Index i = first + after;
        auto said = std::make_shared<const Recorder>(result_of_unit(
            units, i, recorded,
            [&] {
                Recorder made;
                trial(i, made);
                return made;
            },
            record_of));
        meter.add(1);
        return [said = std::move(said), &out] { said->replay(out); };
    });
}

}  // namespace tsdiag
