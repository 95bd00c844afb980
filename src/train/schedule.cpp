#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "tsdiag/error.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag {
namespace {
constexpr std::array<std::string_view, 5> kinds = {"constant", "cosine", "linear", "inverse-sqrt",
                                                   "multistep"};
}

std::string_view name(Schedule::Kind kind) { return kinds[std::size_t(kind)]; }

Schedule::Kind schedule_named(const std::string& name) {
    for (std::size_t i = 0; i < kinds.size(); ++i)
        if (kinds[i] == name) return Schedule::Kind(i);
    throw UsageError(
        fmt::format("--schedule: unknown schedule '{}', expected constant, cosine, linear, "
                    "inverse-sqrt or multistep.",
                    name));
}

double Schedule::at(Index step, Index steps) const {
    const double t = double(step), w = double(warmup);
    const double slow = warmup > 0 ? std::min(1.0, t / w) : 1.0;
    const Index end = length > 0 ? length : steps;
    const double part = end > warmup ? std::clamp((t - w) / double(end - warmup), 0.0, 1.0) : 0.0;
    switch (kind) {
        case Kind::constant:
            return slow * rate;
        case Kind::cosine:
            return slow * rate *
                   (floor + (1 - floor) * (1 + std::cos(std::numbers::pi * part)) / 2);
        case Kind::linear:
            return slow * rate * (floor + (1 - floor) * (1 - part));
        case Kind::inverse_sqrt: {
            const double from = std::max(w, 1.0);
            return slow * rate * std::sqrt(from / std::max(t, from));
        }
        case Kind::multistep:
            return slow * rate *
                   std::pow(factor, double(std::ranges::count_if(
                                        milestones, [&](Index m) { return m < step; })));
    }
    return rate;
}

}  // namespace tsdiag
