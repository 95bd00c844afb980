#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "factored.hpp"
#include "features.hpp"
#include "gaussian.hpp"
#include "inverse.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {

extern const AttentionEntry skyformer;

namespace {

constexpr std::array skyformer_options{
    or_word(
        "auto",
        whole_option("landmarks", "auto",
                     "m, the number of tokens drawn with replacement; auto: min(128, n)", 1, 8192)),
    word_option("draw", "halves", "halves all",
                "halves: m/2 from the queries and the rest from the keys, as in the "
                "released code; all: from queries and keys together, as in the text"),
    real_option("gamma", "0.1", "added to the diagonal of M; 0.1 in the released code", 0, 1e6),
    whole_option("iterations", "6", "steps towards the inverse", 1, 1000),
    word_option("init", "original", "original exact", "start of the inverse: as in nystrom"),
    whole_option(redraw_option, "1",
                 "updates of a training after which the landmarks are drawn again, "
                 "0: never; 1 as in the released code"),
    seed_option("seed of the landmarks, which the heads of a layer share")};

/// m of n tokens.
Index landmarks_of(const Options& options, Index n) {
    return options.is("landmarks", "auto") ? std::min<Index>(128, n) : options.count("landmarks");
}

/// Three kernels, the inverse of one with the product that examines it, and the products of all.
AttentionCost cost_of_kernels(const AttentionOptions& given, const AttentionSizes& s) {
    const Options options(skyformer, given);
    const Index n = s.tokens, m = landmarks_of(options, n), w = columns_of_gaussian(s.head_dim);
    const double of_head = 2 * product_flops(n, w, m) + product_flops(m, w, m) +
                           inverse_flops(m, options.count("iterations")) + product_flops(m, m, m) +
                           product_flops(n, m, m);
    return {.flops = double(s.heads) * of_head + s.pairs(m)};
}

/// Row indices into the n queries followed by the n keys.
std::vector<Index> drawn_rows(const Options& options, const AttentionInput& in) {
    const Index n = in.q.rows(), m = landmarks_of(options, n);
    const bool halves = options.is("draw", "halves");
    Rng rng = options.rng(in);
    std::vector<Index> out;
    for (Index i = 0; i < m; ++i) {
        const Index row = Index(rng.below(std::uint64_t(halves ? n : 2 * n)));
        out.push_back(halves && i >= m / 2 ? n + row : row);
    }
    return out;
}

/// The eigenvalues of the matrix times its inverse are in [0, 1] at every step; but for a kernel
/// that is singular to rounding the iteration amplifies rounding by 13/4 a step.
void require_settled(const Options& options, const Tensor& product) {
    const auto far = [](double e) { return !(e <= 2); };
    if (first_nonfinite(product) >= 0 || std::ranges::any_of(largest_moduli(product), far))
        throw UsageError(
            fmt::format("attention 'skyformer': with gamma={} the kernel of the landmarks is too "
                        "close to singular for iterations={}; raise gamma or lower iterations",
                        options.text("gamma"), options.text("iterations")));
}

}  // namespace

const AttentionEntry skyformer = {
    .name = "skyformer",
    .description =
        "P = k(Q, L) D^-1/2 V D^-1/2 k(L, K), k the kernel of kernelized, L drawn among queries "
        "and keys, M = k(L, L), D the row sums of M + gamma I, V some steps of the iteration of "
        "nystrom towards the inverse of D^-1/2 (M + gamma I) D^-1/2",
    .source = "[SKYFORMER] 4.2, 4.4",
    .options = skyformer_options,
    .facts = {.negative_entries = Holds::sometimes,
              .factors = Holds::always,
              .slope = Holds::never,
              .never_causal = "a landmark may be a later token",
              .window = false},
    .cost = cost_of_kernels,
    .make = [](AttentionInput in) {
        const Options options(skyformer, in.options);
        admit(skyformer, in);
        move_to_first_key(skyformer, in);
        const Tensor q = in.q, k = repeat_batches(in.k, in.q.batch() / in.k.batch());
        const Tensor l = rows_of_each_head(concat_rows({q, k}), drawn_rows(options, in));
        const Tensor m = plus_identity(gaussian(l, l, in.scale), *options.number("gamma"));
        const Tensor root = map(Unary::reciprocal, map(Unary::sqrt, row_sum(m)));  // (h, m, 1)
        const Tensor across = transpose(root);
        const Tensor scaled = multiply(multiply(m, root), across);
        const Tensor inverse =
            iterated_inverse(scaled, options.count("iterations"), in.heads_of_a_sample(),
                             options.is("init", "exact"));
        require_settled(options, matmul(scaled.detached(), inverse.detached()));
        return factored_attention(
            skyformer,
            multiply(matmul(multiply(gaussian(q, l, in.scale), across), inverse), across),
            gaussian(k, l, in.scale), false,
            {.why_no_slope = "P is a product of Gaussian kernels"});
    }};

}  // namespace tsdiag::variants
