#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/json.hpp"
#include "tsdiag/tensor.hpp"

/// What the time of a run was spent on.
namespace tsdiag {

/// What a span of time belongs to.
enum class Cost {
    phase,     ///< of the command, but the measurement
    forward,   ///< the model, up to the event that the span is named after
    backward,  ///< the same in a reverse sweep
    shared,    ///< what all probes of an event read: statistics of rows, moments of states
    metric     ///< a metric, or the part of a probe that belongs to several
};
std::string_view name(Cost cost);  ///< "phase", "forward", ...

/// A time line of one thread: it is divided by marks, so that its spans add up to the whole.
/// Metrics that share a computation: the first of them bears it.
class Profile {
  public:
    Profile();

    /// The time since the last mark, or since the beginning, was spent on `what`.
    void mark(Cost cost, std::string_view what, Index layer = -1);

    /// Spans of one name together.
    struct Total {
        Cost cost;
        std::string name;
        double seconds = 0;    ///< by the clock
        double processor = 0;  ///< of all threads of the process
    };
    /// In the order of `Cost`, then the most expensive first.
    std::vector<Total> totals() const;
    /// Processor seconds of the forward pass, the unit of the shares.
    double forward() const;
    /// Chrome's trace-event format, which Perfetto opens: complete events, a track for each `Cost`.
    Json trace() const;

  private:
    struct Moment {
        double seconds = 0, processor = 0;
    };
    struct Span {
        Cost cost;
        std::string name;
        Index layer;
        Moment from, to;
    };
    Moment now() const;

    std::chrono::steady_clock::time_point start_;
    double processor_start_;
    Moment last_;
    std::vector<Span> spans_;
};

}  // namespace tsdiag
