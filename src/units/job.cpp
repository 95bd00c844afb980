#include <fmt/format.h>

#include "tsdiag/error.hpp"
#include "tsdiag/units.hpp"

namespace tsdiag {

void JobUnits::begin(Index count) {
    ++stage_;
    count_ = count;
    all_ += count;
    store_.stage(stage_, count);
    if (!complete_) return;
    Index missing = 0;
    for (Index unit = 0; unit < count; ++unit)
        if (!store_.find(stage_, unit)) ++missing;
    if (missing == 0) return;
    std::string others;
    for (const std::string& numerics : store_.other_numerics())
        others += fmt::format("{}{}", others.empty() ? "" : "; ", numerics);
    throw MissingUnits(
        others.empty()
            ? fmt::format("{}: {} of {} units are missing; run the parts that have not ended, or "
                          "the command without --part, which computes the rest.",
                          store_.folder().string(), missing, count)
            : fmt::format(
                  "{}: {} of {} units are missing, and some were computed with others than {}, "
                  "whose last digits differ: {}; run those parts again on like machines, or all "
                  "with --mixed.",
                  store_.folder().string(), missing, count, store_.title().numerics, others));
}

std::optional<std::string_view> JobUnits::find(Index unit) const {
    return store_.find(stage_, unit);
}

void JobUnits::keep(Index unit, std::string_view record, double seconds) {
    store_.keep(stage_, unit, record, seconds);
}

std::optional<std::string_view> JobUnits::find_part(Index unit, Index part) const {
    const auto record = store_.find(stage_, unit, part);
    if (record) ++reused_parts_;
    return record;
}

void JobUnits::keep_part(Index unit, Index part, std::string_view record) {
    store_.keep_part(stage_, unit, part, record);
}

Index JobUnits::next() {
    const Index ticket = tickets_(stage_, count_);
    return ticket < count_ ? ticket : -1;
}

JobUnits::Tickets tickets_of_part(Index part, Index parts) {
    struct State {
        std::mutex mutex;
        Index stage = -1, next = 0;
    };
    return [part, parts, state = std::make_shared<State>()](Index stage, Index) {
        const std::lock_guard lock(state->mutex);
        if (stage != state->stage) {  // single units of many stages go to different parts
            state->stage = stage;
            state->next = (part - 1 + parts - stage % parts) % parts;
        }
        const Index given = state->next;
        state->next += parts;
        return given;
    };
}

}  // namespace tsdiag
