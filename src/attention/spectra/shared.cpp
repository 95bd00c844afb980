#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string>

#include "route.hpp"
#include "tsdiag/error.hpp"

/// Heads that the members of a team share.
namespace tsdiag::spectra {
namespace {

/// An estimate as members send it: they run the same program.
struct Sent {
    double value = 0, residual = 0, low = 0, high = 0;
    Index iterations = 0;
    bool found = false, converged = false, has_low = false, has_high = false, on_host = false;
    std::array<char, 27> method{};
};

Sent sent(const std::optional<Estimate>& from) {
    Sent out;
    if (!from) return out;
    check(from->method.size() < out.method.size(), "a method has a short name");
    out = {.value = from->value,
           .residual = from->residual,
           .low = from->low.value_or(0),
           .high = from->high.value_or(0),
           .iterations = from->iterations,
           .found = true,
           .converged = from->converged,
           .has_low = from->low.has_value(),
           .has_high = from->high.has_value(),
           .on_host = from->on_host};
    std::memcpy(out.method.data(), from->method.data(), from->method.size());
    return out;
}

std::optional<Estimate> received(const Sent& from) {
    if (!from.found) return std::nullopt;
    Estimate out{.value = from.value,
                 .method = from.method.data(),
                 .residual = from.residual,
                 .iterations = from.iterations,
                 .converged = from.converged};
    if (from.has_low) out.low = from.low;
    if (from.has_high) out.high = from.high;
    out.on_host = from.on_host;
    return out;
}

}  // namespace

Found shared(const Team* team, Index count, Index each, const std::function<Found(Index)>& of) {
    const Index size = team ? team->size() : 1, rank = team ? team->rank() : 0;
    const auto share = [&](Index member) { return (count - member + size - 1) / size; };
    const std::vector<Found> own =
        stored::for_each_head<Found>(share(rank), [&](Index i) { return of(rank + i * size); });
    auto out = Found(std::size_t(count * each));
    const auto place = [&](int member, Index i) {
        return out.begin() + (member + i * size) * each;
    };
    if (!team) {
        for (Index i = 0; i < count; ++i) std::ranges::copy(own[std::size_t(i)], place(0, i));
        return out;
    }
    std::vector<Sent> mine;
    for (const Found& some : own) std::ranges::transform(some, std::back_inserter(mine), sent);
    const std::vector<std::string> all = team->gather(bytes_of_all(std::span<const Sent>(mine)));
    for (Index member = 0; member < size; ++member) {
        const auto its = values_of_bytes<Sent>(all[std::size_t(member)]);
        check(std::ssize(its) == share(member) * each, "members of a team find the same spectra");
        for (Index i = 0; i < share(member); ++i)
            std::ranges::transform(std::span(its).subspan(std::size_t(i * each), std::size_t(each)),
                                   place(member, i), received);
    }
    return out;
}

}  // namespace tsdiag::spectra
