#include "tsdiag/profile.hpp"

#include <algorithm>
#include <array>
#include <ctime>

namespace tsdiag {
namespace {

constexpr std::array cost_names{"phase", "forward", "backward", "shared", "metric"};

/// Of all threads of this process.
double processor_seconds() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

}  // namespace

std::string_view name(Cost cost) { return cost_names[std::size_t(cost)]; }

Profile::Profile()
    : start_(std::chrono::steady_clock::now()), processor_start_(processor_seconds()) {}

Profile::Moment Profile::now() const {
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(),
            processor_seconds() - processor_start_};
}

void Profile::mark(Cost cost, std::string_view what, Index layer) {
    const Moment here = now();
    const bool same = !spans_.empty() && spans_.back().cost == cost && spans_.back().name == what &&
                      spans_.back().layer == layer;
    if (same)
        spans_.back().to = here;
    else
        spans_.push_back({cost, std::string(what), layer, last_, here});
    last_ = here;
}

std::vector<Profile::Total> Profile::totals() const {
    std::vector<Total> out;
    for (const Span& span : spans_) {
        auto at = std::ranges::find_if(
            out, [&](const Total& t) { return t.cost == span.cost && t.name == span.name; });
        if (at == out.end()) at = out.insert(at, {span.cost, span.name});
        at->seconds += span.to.seconds - span.from.seconds;
        at->processor += span.to.processor - span.from.processor;
    }
    std::ranges::stable_sort(out, [](const Total& a, const Total& b) {
        return a.cost != b.cost ? a.cost < b.cost : a.processor > b.processor;
    });
    return out;
}

double Profile::forward() const {
    double sum = 0;
    for (const Total& t : totals())
        if (t.cost == Cost::forward) sum += t.processor;
    return sum;
}

Json Profile::trace() const {
    constexpr double micro = 1e6;
    Json::Array events;
    for (std::size_t track = 0; track < cost_names.size(); ++track) {
        Json event;
        event.set("name", "thread_name").set("ph", "M").set("pid", 1).set("tid", Index(track));
        events.push_back(std::move(event.set("args", Json().set("name", cost_names[track]))));
    }
    for (const Span& span : spans_) {
        Json args;
        if (span.layer >= 0) args.set("layer", span.layer);
        args.set("processor_us", micro * (span.to.processor - span.from.processor));
        Json event;
        event.set("name", span.name).set("cat", name(span.cost)).set("ph", "X");
        event.set("ts", micro * span.from.seconds)
            .set("dur", micro * (span.to.seconds - span.from.seconds));
        event.set("pid", 1).set("tid", Index(span.cost));
        events.push_back(std::move(event.set("args", std::move(args))));
    }
    return Json().set("traceEvents", std::move(events)).set("displayTimeUnit", "ms");
}

}  // namespace tsdiag
