#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "factored.hpp"
#include "features.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array linformer_options{
    AttentionOption{.name = "length",
                    .fallback = "n/4",
                    .words = "n/4",
                    .numbers = true,
                    .whole = true,
                    .least = 1,
                    .most = 1e6,
                    .description = "k, the number of projected tokens, at most n"},
    AttentionOption{.name = "shared", .fallback = "0", .words = "0 1", .description = "1: F = E"},
    AttentionOption{
        .name = "seed",
        .fallback = "0",
        .numbers = true,
        .whole = true,
        .description = "seed of E and F, U(-1, 1) / sqrt(k), which the heads of a layer share"}};

/// The first n rows of a parameter, or drawn: (1, n, k).
Tensor projection(const AttentionInput& in, std::string_view name, const Rng& rng, Index k) {
    const Index n = in.q.rows();
    const Tensor given = parameter(in, name);
    if (!given.defined())
        return drawn_uniform(rng.fork(name), n, k, 1 / std::sqrt(double(k)), in.q.backend(),
                             in.q.type());
    if (given.rows() < n)
        throw UsageError(
            fmt::format("attention 'linformer': the sample has {} tokens, but the model's "
                        "projections support at most {}",
                        n, given.rows()));
    return given.row_range(0, n);
}

}  // namespace

extern const AttentionEntry linformer;
const AttentionEntry linformer = {
    .name = "linformer",
    .description = "P = softmax(scale Q (E^T K)^T) F^T, E and F n x k",
    .source = "[LINFORMER]",
    .options = linformer_options,
    .facts = {.negative_entries = Holds::sometimes,
              .factors = Holds::always,
              .slope = Holds::never,
              .causal = false,
              .window = false},
    .make = [](AttentionInput in) {
        const Options options(linformer, in.options);
        require_fit(in);
        refuse_causal(linformer, in, "tokens are mixed before the softmax");
        refuse_window(linformer, in);
        refuse_bias(linformer, in);
        const Index n = in.q.rows();
        const Index k =
            options.is("length", "n/4") ? std::max<Index>(1, n / 4) : options.count("length");
        if (k > n)
            throw UsageError(fmt::format(
                "attention 'linformer': length={} is more than the {} tokens of the sample", k, n));
        const Tensor e = projection(in, "proj_k", options.rng(in), k);
        const bool shared = options.is("shared", "1") && !parameter(in, "proj_v").defined();
        const Tensor f = shared ? e : projection(in, "proj_v", options.rng(in), k);
        const Tensor keys =
            matmul(repeat_batches(e, in.k.batch()), in.k, Transpose::first);  // (h', k, w)
        return factored_attention(
            linformer, softmax_rows(matmul(in.q, keys, Transpose::second, in.scale), {}), f, false,
            {.why_no_slope = "P is a softmax of n x k logits times F^T"});
    }};

}  // namespace tsdiag::variants
