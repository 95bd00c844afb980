#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "factored.hpp"
#include "features.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {

extern const AttentionEntry linformer;

namespace {

constexpr std::array linformer_options{
    or_word("n/4", whole_option("length", "n/4",
                                "k, the number of projected tokens, at most n; n/4 is that of "
                                "the longest input, where a model has one",
                                1, 1e6)),
    switch_option("shared", "0", "1: F = E"),
    switch_option("per_head", "0",
                  "1: each head of keys has its own E and F, as in the code of Nystromformer; 0: "
                  "the heads of a layer share them, as in that of Linformer"),
    seed_option("seed of E and F, U(-1, 1) / sqrt(k), if a model has none: its "
                "inputs may have any length")};

/// k of n tokens.
Index length_of(const Options& options, Index n) {
    return options.is("length", "n/4") ? std::max<Index>(1, n / 4) : options.count("length");
}

/// E and F of a model whose longest input has N tokens, (1, N, k), or of each head of keys one
/// below the other; U(-b, b), b^2 = 3 / (N + k), as the released code draws them.
std::vector<LearnedParameter> learned_projections(const AttentionOptions& given,
                                                  const LearnedFor& model) {
    if (model.longest == 0) return {};
    const Options options(linformer, given);
    const Index k = length_of(options, model.longest);
    if (k > model.longest)
        throw UsageError(
            fmt::format("attention 'linformer': length={} is more than the {} tokens of the "
                        "model's longest input",
                        k, model.longest));
    const Index heads = options.is("per_head", "1") ? model.kv_heads : 1;
    LearnedParameter e{.name = "proj_k",
                       .matrix = true,
                       .shape = {1, heads * model.longest, k},
                       .law = Law::uniform,
                       .spread = std::sqrt(3 / double(model.longest + k))};
    LearnedParameter f = e;
    f.name = "proj_v";
    return options.is("shared", "1") ? std::vector{e} : std::vector{e, f};
}

/// E^T K, the logits with it, and the products of their softmax and F^T.
AttentionCost cost_of_projections(const AttentionOptions& given, const AttentionSizes& s) {
    const Index learned = s.shape_of("proj_k").cols;
    const Index k = learned > 0 ? learned : length_of(Options(linformer, given), s.tokens);
    return {.flops =
                double(s.kv_heads + s.heads) * product_flops(s.tokens, k, s.head_dim) + s.pairs(k)};
}

/// The first n rows of a parameter, or drawn: (heads, n, k), `heads` one or those of the keys of a
/// sample.
Tensor projection(const AttentionInput& in, std::string_view name, const Options& options,
                  Index heads) {
    const Index n = in.q.rows();
    const Tensor given = parameter(in, name);
    const Index k = given.defined() ? given.cols() : length_of(options, n);
    if (k > n)
        throw UsageError(
            fmt::format("attention 'linformer': length={} is more than the {} tokens of the "
                        "sample{}",
                        k, n,
                        given.defined() ? "; give it more tokens, or a random model fewer by "
                                          "tokens=N or length=K"
                                        : ""));
    if (!given.defined())
        return drawn_uniform(options.rng(in).fork(name), heads * n, k, 1 / std::sqrt(double(k)),
                             in.q.backend(), in.q.type())
            .reshape({heads, n, k});
    const Index most = given.rows() / heads;
    if (most < n)
        throw UsageError(
            fmt::format("attention 'linformer': the sample has {} tokens, but the model's "
                        "projections support at most {}",
                        n, most));
    return contiguous(given).reshape({heads, most, k}).row_range(0, n);
}

}  // namespace

const AttentionEntry linformer = {
    .name = "linformer",
    .description = "P = softmax(scale Q (E^T K)^T) F^T, E and F n x k",
    .source = "[LINFORMER]",
    .options = linformer_options,
    .facts = {.negative_entries = Holds::sometimes,
              .factors = Holds::always,
              .slope = Holds::never,
              .never_causal = "tokens are mixed before the softmax",
              .window = false},
    .learned = learned_projections,
    .cost = cost_of_projections,
    .make = [](AttentionInput in) {
        const Options options(linformer, in.options);
        admit(linformer, in);
        const Index own = in.k.batch() / in.samples;
        const Index heads = options.is("per_head", "1") ? own : 1;
        const auto of_all = [&](const Tensor& one) {  // (h', n, k)
            return heads > 1 ? for_every_sample(one, in) : repeat_batches(one, in.k.batch());
        };
        const Tensor e = projection(in, "proj_k", options, heads);
        const bool shared = options.is("shared", "1") && !parameter(in, "proj_v").defined();
        Tensor f = shared ? e : projection(in, "proj_v", options, heads);
        if (heads > 1) f = of_all(f);
        const Tensor keys = matmul(of_all(e), in.k, Transpose::first);  // (h', k, w)
        return factored_attention(
            linformer, softmax_rows(matmul(in.q, keys, Transpose::second, in.scale), {}), f, false,
            {.why_no_slope = "P is a softmax of n x k logits times F^T"});
    }};

}  // namespace tsdiag::variants
