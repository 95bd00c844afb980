#include "power.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag::variants {

Tensor power(const Tensor& s, Index p) {
    Tensor out = s;
    for (Index k = 1; k < p; ++k) out = multiply(out, s);
    return out;
}

Tensor power_scale(const AttentionEntry& entry, const Options& options, const AttentionInput& in) {
    if (options.is("scale", "learned")) {
        const Tensor learned = parameter(in, "scale");
        const Index heads = in.heads_of_a_sample();
        if (!learned.defined())
            throw UsageError(
                fmt::format("attention '{}': scale=learned, but the model has no parameter `scale`",
                            entry.name));
        if (learned.shape().count() != 1 && learned.shape().count() != heads)
            throw ShapeError(
                fmt::format("attention '{}': parameter `scale` has {} numbers, expected 1 or {}",
                            entry.name, learned.shape().count(), heads));
        const Tensor c = contiguous(learned).reshape({learned.shape().count(), 1, 1});
        return c.batch() == 1 ? c : for_every_sample(c, in);
    }
    double c = 1;
    if (options.is("scale", "1/sqrt(N)"))
        c = 1 / std::sqrt(
                    double(in.windows.side > 0 ? in.windows.side * in.windows.side : in.q.rows()));
    else
        c = options.number("scale").value_or(1);
    return Tensor::from_host(in.q.backend(), {1, 1, 1}, std::span<const double>(&c, 1),
                             in.q.type());
}

std::vector<LearnedParameter> learned_scale(const AttentionEntry& entry,
                                            const AttentionOptions& given,
                                            const LearnedFor& model) {
    const Options options(entry, given);
    if (!options.is("scale", "learned")) return {};
    if (const auto start = options.number("start")) return {{"scale", *start}};
    if (!model.drawn) return {{"scale"}};
    if (model.tokens < 1)
        throw UsageError(
            fmt::format("attention '{}': a learned scale starts at 1/sqrt(N), but the model "
                        "accepts any number of tokens N; pass start=NUMBER",
                        entry.name));
    return {{"scale", 1 / std::sqrt(double(model.tokens))}};
}

}  // namespace tsdiag::variants
