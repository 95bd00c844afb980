#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "features.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"
#include "visible.hpp"

namespace tsdiag::variants {

extern const AttentionEntry transformer_ls;

namespace {

constexpr std::array transformer_ls_options{
    or_word("auto",
            whole_option("segment", "auto", "w, positions per segment; auto: 8 (causal: 512)", 1)),
    or_word("auto",
            whole_option("rank", "auto",
                         "r, projected keys (causal: per chunk); auto: 32 (causal: 1)", 1, 1e5)),
    whole_option("chunk", "16", "l, positions per chunk of a causal projection", 1),
    switch_option(
        "dual_ln", "1",
        "1: a layer norm without weight of the keys and another of the projected keys, heads "
        "concatenated; that of the values is omitted, because P V is linear in V"),
    seed_option("seed of W, U(-1, 1) / sqrt(d) for each head, if a model has "
                "none")};

Index rank_of(const Options& options, bool causal) {
    return options.number("rank") ? options.count("rank") : causal ? 1 : 32;
}

/// W of the heads of keys, one below the other, as a linear map of the layer's input.  Its bias
/// would be one number of a row of T before the softmax: it cancels.
std::vector<LearnedParameter> learned_projection(const AttentionOptions& given,
                                                 const LearnedFor& model) {
    const Index rank = rank_of(Options(transformer_ls, given), model.causal);
    return {{.name = "projection",
             .matrix = true,
             .shape = {1, model.kv_heads * rank, model.width},
             .law = Law::uniform,
             .spread = 1 / std::sqrt(double(model.width))}};
}

/// Scores of the projection, T K, the logits with keys and projected keys, and B T.
AttentionCost cost_of_both_ranges(const AttentionOptions& given, const AttentionSizes& s) {
    const Options options(transformer_ls, given);
    const Index n = s.tokens, w = s.head_dim, length = options.count("chunk");
    const Shape learned = s.shape_of("projection");
    const Index rank = learned.rows > 0 ? learned.rows / s.kv_heads : rank_of(options, s.causal);
    const Index chunks = s.causal ? (n - 1) / length : 1;
    const Index projected = s.causal ? chunks * length : n;  // tokens
    const double scores =
        learned.rows > 0 ? product_flops(n, s.width, rank) : product_flops(projected, w, rank);
    const double of_keys = scores + product_flops(rank, projected, w),
                 of_rows = product_flops(n, w, chunks * rank) + product_flops(n, rank, projected);
    return {.flops = double(s.kv_heads) * of_keys + double(s.heads) * of_rows + s.pairs(w)};
}

/// X W of each head of keys, (h', n, r): of the parameter `projection`; empty: there is none.
Tensor scores_of_input(const AttentionInput& in) {
    const Tensor w = parameter(in, "projection");
    if (!w.defined()) return {};
    const Index h = in.k.batch() / in.samples;
    if (!in.x.defined() || in.x.cols() != w.cols() || w.rows() % h != 0)
        throw ShapeError(
            fmt::format("attention 'transformer_ls': a projection ({}, {}) of an input of {} "
                        "columns, expected ({} r, columns)",
                        w.rows(), w.cols(), in.x.defined() ? in.x.cols() : 0, h));
    return split_heads(matmul(in.x, w, Transpose::second), h);
}

/// W of each head of keys of a sample, (h', d, r): the parameter `proj`, or drawn.
Tensor head_projections(const Options& options, const AttentionInput& in) {
    const Index h = in.k.batch() / in.samples, d = in.k.cols();
    Tensor given = parameter(in, "proj");
    if (!given.defined()) {
        const Index r = rank_of(options, in.causal);
        return drawn_uniform(options.rng(in), h * d, r, 1 / std::sqrt(double(d)), in.q.backend(),
                             in.q.type())
            .reshape({h, d, r});
    }
    if (given.rows() == d && given.batch() == h) return given;
    throw ShapeError(
        fmt::format("attention 'transformer_ls': a projection ({}, {}, {}), expected ({}, {}, r), "
                    "one per key head",
                    given.batch(), given.rows(), given.cols(), h, d));
}

/// Tokens [first, last) of one chunk of positions, and their part of T.
struct Chunk {
    Index number = 0, first = 0, last = 0;
    Tensor weights = {};  ///< (h', r, last - first), rows sum to 1
};

class LongShort final : public AttentionOperator {
  public:
    LongShort(AttentionInput in, const Options& options) : in_(std::move(in)) {
        known_.row_stochastic = true;
        known_.causal = in_.causal;
        known_.plain_logits = false;
        const bool norms = options.is("dual_ln", "1");
        keys_ = norms ? normed(in_.k) : in_.k;
        look_around(options.number("segment") ? options.count("segment") : in_.causal ? 512 : 8);
        find_chunks(options.count("chunk"));
        const Tensor scores = scores_of_input(in_);  // whose parameter has a derivative, if 0
        if (chunks_.empty()) return;
        project(options, scores);
        const Tensor projected = projected_of(in_.k);  // (h', c r, d)
        projected_ = norms ? normed(projected) : projected;
    }

    RowBlock rows(Index first, Index count) const override {
        RowBlock block;
        block.first = first;
        const auto [near, far] = weights(first, count, 0, tokens());
        block.p = far.defined() ? add(near, spread(far)) : near;
        if (in_.causal) block.visible = visibility::lower(first, count);
        block.why_no_slope = "P is a softmax over keys and projected keys, times the projection";
        return block;
    }
    Structure structure() const override { return known_; }
    Index heads() const override { return in_.q.batch(); }
    Index tokens() const override { return in_.q.rows(); }
    Type type() const override { return in_.q.type(); }
    const Backend& backend() const override { return in_.q.backend(); }

  protected:
    /// A v + B (T v) by blocks of rows and their nearby keys.
    Tensor product(const Tensor& v) const override {
        constexpr Index block = 64;
        const Tensor projected = chunks_.empty() ? Tensor() : projected_of(v);
        std::vector<Tensor> parts;
        for (Index first = 0; first < tokens(); first += block) {
            const Index count = std::min(block, tokens() - first);
            const Index from = near_.first[std::size_t(first)],
                        to = near_.last[std::size_t(first + count - 1)];
            const auto [near, far] = weights(first, count, from, to);
            const Tensor y = matmul(near, v.row_range(from, to - from));
            parts.push_back(far.defined() ? add(y, matmul(far, projected)) : y);
        }
        return concat_rows(parts);
    }

  private:
    /// T of each chunk, from X W (h', n, r) where that is there.
    void project(const Options& options, const Tensor& of_input) {
        Tensor scores, w;  // (h', r, n) or (h', r, d)
        if (of_input.defined())
            scores = transpose(of_input);
        else
            w = for_every_sample(transpose(head_projections(options, in_)), in_);
        rank_ = w.defined() ? w.rows() : scores.rows();
        for (Chunk& c : chunks_)
            c.weights =
                softmax_rows(w.defined() ? matmul(w, part(in_.k, c), Transpose::second)
                                         : contiguous(scores.col_range(c.first, c.last - c.first)),
                             {});
    }

    /// Rows of A on the keys [from, to) that cover all visible ones, and of B, which may be empty.
    std::pair<Tensor, Tensor> weights(Index first, Index count, Index from, Index to) const {
        const Index near = to - from, far = projected_.defined() ? projected_.rows() : 0;
        const Tensor q = in_.q.row_range(first, count);
        Tensor s = matmul(q, keys_.row_range(from, near), Transpose::second, in_.scale);
        if (in_.bias.defined()) s = add(s, in_.bias.row_range(first, count).col_range(from, near));
        if (far > 0)
            s = concat_cols(
                std::vector<Tensor>{s, matmul(q, projected_, Transpose::second, in_.scale)});
        s = softmax_rows(add(s, mask(first, count, from, to)), {});  // (h, b, near + far)
        return {s.col_range(0, near), far > 0 ? s.col_range(near, far) : Tensor()};
    }

    /// Layer norm over the concatenated heads of a token.
    Tensor normed(const Tensor& x) const {
        constexpr double eps = 1e-5;
        return split_heads(layer_norm(merge_heads(x, in_.samples), {}, {}, eps),
                           x.batch() / in_.samples);
    }

    /// The keys near each token: its segment and half a segment, at least one position, on either
    /// side; causal: the last w positions.
    void look_around(Index w) {
        const auto width = double(w), half = double(std::max<Index>(1, w / 2));
        Index from = 0, to = 0;
        for (Index i = 0; i < tokens(); ++i) {
            const double at = position(in_, i), home = width * std::floor(at / width);
            const double low = in_.causal ? at - width + 1 : home - half;
            while (position(in_, from) < low) ++from;
            if (in_.causal) to = i + 1;
            while (to < tokens() && !in_.causal && position(in_, to) < home + width + half) ++to;
            near_.first.push_back(from);
            near_.last.push_back(to);
        }
    }

    /// Which keys are projected: all; causal: each chunk of l positions that lies wholly before a
    /// later token.
    void find_chunks(Index l) {
        const Index n = tokens();
        if (!in_.causal) {
            before_.assign(std::size_t(n), 1);
            chunks_ = {{.number = 0, .first = 0, .last = n}};
            return;
        }
        for (Index i = 0; i < n; ++i) {
            const auto number = Index(std::floor(position(in_, i) / double(l)));
            if (chunks_.empty() || chunks_.back().number != number)
                chunks_.push_back({.number = number, .first = i});
            chunks_.back().last = i + 1;
            before_.push_back(std::ssize(chunks_) - 1);
        }
        chunks_.pop_back();
    }

    static Tensor part(const Tensor& x, const Chunk& c) {
        return x.row_range(c.first, c.last - c.first);
    }
    /// T x, (h' or h, c r, columns of x).
    Tensor projected_of(const Tensor& x) const {
        std::vector<Tensor> parts;
        for (const Chunk& c : chunks_) {
            const Index own = c.weights.batch();
            const Tensor t =
                own % x.batch() == 0 ? c.weights : repeat_batches(c.weights, heads() / own);
            parts.push_back(matmul(t, part(x, c)));
        }
        return concat_rows(parts);
    }
    /// B T, (h, b, n).
    Tensor spread(const Tensor& far) const {
        std::vector<Tensor> parts;
        for (std::size_t c = 0; c < chunks_.size(); ++c)
            parts.push_back(matmul(far.col_range(Index(c) * rank_, rank_), chunks_[c].weights));
        if (const Index end = chunks_.back().last; end < tokens())
            parts.push_back(zeros(backend(), {heads(), far.rows(), tokens() - end}, type()));
        return concat_cols(parts);
    }

    /// Added to the logits of rows by keys [from, to) and projected keys: -inf where one is not
    /// visible.
    Tensor mask(Index first, Index count, Index from, Index to) const {
        const Index near = to - from, all = near + (projected_.defined() ? projected_.rows() : 0);
        std::vector<double> values(std::size_t(count * all),
                                   -std::numeric_limits<double>::infinity());
        for (Index r = 0; r < count; ++r) {
            const auto i = std::size_t(first + r);
            const auto row = values.begin() + r * all;
            std::fill(row + near_.first[i] - from, row + near_.last[i] - from, 0.0);
            std::fill_n(row + near, before_[i] * rank_, 0.0);
        }
        return Tensor::from_host(backend(), {1, count, all}, std::span<const double>(values),
                                 type());
    }

    AttentionInput in_;
    Structure known_;
    Tensor keys_, projected_;  ///< (h', n, d), (h', c r, d); there may be none
    std::vector<Chunk> chunks_;
    Visible near_;
    std::vector<Index> before_;  ///< number of chunks whose projected keys a token sees
    Index rank_ = 0;
};

}  // namespace

const AttentionEntry transformer_ls = {
    .name = "transformer_ls",
    .description =
        "P = A + B T, [A B] = softmax(scale q [LN(K) LN(T K)]^T) over the keys near a token and r "
        "projected keys, T = softmax over tokens of (X W)^T, X the input of the layer, or of (K "
        "W)^T where a model has no parameter `projection`; near: its segment of w positions and "
        "w/2 on either side; causal: the last w positions, and r projected keys of each chunk of l "
        "positions that lies wholly before; a bias is added to the logits of keys",
    .source = "[LS]",
    .options = transformer_ls_options,
    .facts = {.row_stochastic = Holds::always, .slope = Holds::never, .window = false},
    .learned = learned_projection,
    .cost = cost_of_both_ranges,
    .make = [](AttentionInput in) -> std::unique_ptr<AttentionOperator> {
        const Options options(transformer_ls, in.options);
        admit(transformer_ls, in);
        return std::make_unique<LongShort>(std::move(in), options);
    }};

}  // namespace tsdiag::variants
