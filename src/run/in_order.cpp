#include <omp.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>

#include "recorder.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

void Recorder::scalar(const Place& at, std::string_view metric, const Value& value) {
    entries_.push_back({at, std::string(metric), value});
}
void Recorder::point(const Place& at, std::string_view curve, double x, const Value& y) {
    entries_.push_back({at, std::string(curve), y, x, true});
}
void Recorder::matrix(Map map) { maps_.push_back(std::move(map)); }

void Recorder::replay(Sink& out) const {
    for (const Entry& e : entries_)
        e.is_point ? out.point(e.at, e.name, e.x, e.value) : out.scalar(e.at, e.name, e.value);
    for (const Map& map : maps_) out.matrix(map);
}

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

void each_trial(Index count, Sink& out, const std::function<void(Index, Sink&)>& trial,
                const std::function<void(double)>& done) {
    Meter meter(double(std::max<Index>(count, 1)), done);
    in_order(count, [&](Index i) {
        const auto said = std::make_shared<Recorder>();
        trial(i, *said);
        meter.add(1);
        return [said, &out] { said->replay(out); };
    });
}

}  // namespace tsdiag
