#include "score.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "tsdiag/error.hpp"
#include "tsdiag/parallel.hpp"
#include "visible.hpp"

namespace tsdiag::variants {
namespace {

/// Whether the positions are 0, 1, 2, ...
bool consecutive(const AttentionInput& in) {
    for (std::size_t i = 0; i < in.position.size(); ++i)
        if (in.position[i] != double(i)) return false;
    return true;
}

class ScoreAttention final : public AttentionOperator {
  public:
    ScoreAttention(AttentionInput in, ScoreRule rule) : in_(std::move(in)), rule_(std::move(rule)) {
        known_.row_stochastic = rule_.row_stochastic;
        known_.causal = in_.causal;
        known_.plain_logits = rule_.plain_logits && !in_.bias.defined() &&
                              !in_.windows.bias.defined() && rule_.alibi.empty();
        known_.constant_terms = !rule_.terms || rule_.constant_terms;
        if (in_.windows.ends.size() > 1)
            known_.blocks = in_.windows.ends;
        else if (consecutive(in_) && rule_.block > 0)
            for (Index end = 0; end < tokens();)
                known_.blocks.push_back(end = std::min(end + rule_.block, tokens()));
    }

    RowBlock rows(Index first, Index count) const override {
        RowBlock block;
        block.first = first;
        block.memory = memory();
        block.visible = seen(in_, rule_.block, first, count);
        Logits logits;
        logits.s = products(block.visible, first, count);
        if (in_.bias.defined()) logits.bias = in_.bias.row_range(first, count);
        const auto also = [&](const Tensor& term) {
            logits.bias = logits.bias.defined() ? add(term, logits.bias) : term;
        };
        if (!rule_.alibi.empty()) also(alibi(first, count));
        if (rule_.terms) also(terms(block.visible, first, count));
        if (in_.windows.bias.defined()) also(window_bias(first, count, 0, tokens()));
        rule_.fill(std::move(logits), block);
        return block;
    }
    Structure structure() const override { return known_; }
    Index heads() const override { return in_.q.batch(); }
    Index tokens() const override { return in_.q.rows(); }
    Index columns() const override { return in_.k.rows(); }
    Type type() const override { return in_.q.type(); }
    const Backend& backend() const override { return in_.q.backend(); }

  protected:
    Tensor product(const Tensor& v) const override {
        if (rule_.product) return rule_.product(v);
        const bool windows = !in_.windows.ends.empty();
        if (windows && rule_.heads_alike && rule_.alibi.empty() && in_.k.batch() == heads() &&
            v.batch() == heads() && !in_.bias.defined())
            return by_windows(v);
        const bool tracked = in_.q.tracked() || in_.k.tracked() || v.tracked();
        const bool alone = rule_.fill_alone && rule_.alibi.empty() && !rule_.terms && !tracked &&
                           !in_.bias.defined() && backend().host_memory() &&
                           team() == nullptr;  // which shares the rows
        if (windows || (rule_.block > 0 && !alone))
            return rule_.alibi.empty() ? by_chunks(v) : Tensor();
        return alone ? by_heads(v) : Tensor();
    }

  private:
    /// P v by heads and the parts of `products`, with the same bits as by blocks of all heads: each
    /// is the work of one thread, whose logits stay in its caches.
    Tensor by_heads(const Tensor& v) const {
        struct Part {
            Index head, first, rows, columns;
        };
        const Visible visible = seen(in_, rule_.block, 0, tokens());
        std::vector<Part> parts;
        for (Index head = 0; head < heads(); ++head)
            visibility::each_part(*this, visible, 0, tokens(), [&](Index i, Index rows, Index end) {
                parts.push_back({head, i, rows, end});
            });
        const Tensor out = Tensor::empty(backend(), {heads(), tokens(), v.cols()}, v.type());
        const auto of_head = [this](const Tensor& x, Index head) {
            return x.batch_range(head / (heads() / x.batch()), 1);
        };
        const auto make = [&](const Part& part) {
            const auto [head, first, rows, columns] = part;
            RowBlock block;
            if (!visible.everything()) block.visible = seen(in_, rule_.block, first, rows);
            Logits logits;
            logits.s =
                matmul(of_head(in_.q, head).row_range(first, rows),
                       of_head(in_.k, head).row_range(0, columns), Transpose::second, in_.scale);
            rule_.fill(std::move(logits), block);
            backend().matmul(of_head(out, head).row_range(first, rows).view(), block.p.view(),
                             of_head(v, head).row_range(0, columns).view(), Transpose::none, 1);
        };
        in_parallel(std::ssize(parts), [&](Index i) { make(parts[std::size_t(i)]); });
        return out;
    }
    /// P v of windows, those with equally many tokens at once, as heads of their own.
    Tensor by_windows(const Tensor& v) const {
        std::map<Index, std::vector<Index>> firsts;  // of the windows of each size
        for (Index first = 0; first < tokens(); first = end_of_chunk(first))
            firsts[end_of_chunk(first) - first].push_back(first);
        std::map<Index, Tensor> rows_of;  // by the first token
        for (const auto& [size, all] : firsts) {
            const Index count = std::ssize(all), h = heads();
            const auto stacked = [&](const Tensor& x) {
                std::vector<Tensor> parts;
                for (std::size_t i = 0, run = 1; i < all.size(); i += run) {
                    for (run = 1; i + run < all.size() && all[i + run] == all[i + run - 1] + size;)
                        ++run;
                    parts.push_back(x.row_range(all[i], Index(run) * size));
                }
                const Tensor one = parts.size() == 1 ? parts.front() : concat_rows(parts);
                return contiguous(one).reshape({h * count, size, x.cols()});
            };
            RowBlock block;
            Logits logits;
            logits.s = matmul(stacked(in_.q), stacked(in_.k), Transpose::second, in_.scale);
            if (in_.windows.bias.defined()) logits.bias = window_bias(all, size);
            rule_.fill(std::move(logits), block);
            const Tensor out =
                contiguous(matmul(block.p, stacked(v))).reshape({h, count * size, v.cols()});
            for (Index i = 0; i < count; ++i)
                rows_of[all[std::size_t(i)]] = out.row_range(i * size, size);
        }
        std::vector<Tensor> parts;
        for (const auto& [first, rows] : rows_of) parts.push_back(rows);
        return concat_rows(parts);
    }
    /// One past the last token of the chunk that begins with `first`.
    Index end_of_chunk(Index first) const {
        if (!in_.windows.ends.empty()) return *std::ranges::upper_bound(in_.windows.ends, first);
        const auto chunk = [&](Index i) {
            return std::floor(position(in_, i) / double(rule_.block));
        };
        Index end = first;
        while (end < tokens() && chunk(end) == chunk(first)) ++end;
        return end;
    }
    /// P v of chunks that see only themselves, each from its own rows and columns.
    Tensor by_chunks(const Tensor& v) const {
        std::vector<Tensor> parts;
        for (Index first = 0, end = 0; first < tokens(); first = end) {
            end = end_of_chunk(first);
            const Index count = end - first;
            RowBlock block;
            block.first = first;
            block.visible = seen(in_, rule_.block, first, count);
            for (Index& i : block.visible.first) i -= first;
            for (Index& i : block.visible.last) i -= first;
            Logits logits;
            logits.s = matmul(in_.q.row_range(first, count), in_.k.row_range(first, count),
                              Transpose::second, in_.scale);
            if (in_.bias.defined())
                logits.bias = in_.bias.row_range(first, count).col_range(first, count);
            if (in_.windows.bias.defined()) {
                const Tensor more = window_bias(first, count, first, count);
                logits.bias = logits.bias.defined() ? add(more, logits.bias) : more;
            }
            rule_.fill(std::move(logits), block);
            parts.push_back(matmul(block.p, v.row_range(first, count)));
        }
        return concat_rows(parts);
    }
    /// scale q k^T; 0 for keys that no row of a part sees.
    Tensor products(const Visible& visible, Index first, Index count) const {
        const Tensor q = in_.q.row_range(first, count);
        if (q.tracked() || in_.k.tracked()) return matmul(q, in_.k, Transpose::second, in_.scale);
        Tensor s = Tensor::empty(backend(), {heads(), count, columns()}, type());
        Visible made{std::vector<Index>(std::size_t(count), 0), {}};
        visibility::each_part(*this, visible, first, count, [&](Index i, Index rows, Index end) {
            backend().matmul(s.row_range(i, rows).col_range(0, end).view(),
                             q.row_range(i, rows).view(), in_.k.row_range(0, end).view(),
                             Transpose::second, in_.scale);
            made.last.insert(made.last.end(), std::size_t(rows), end);
        });
        return visible.everything() ? s : hide(std::move(s), made);
    }
    /// By the parts of `products`, so that no bit depends on the block.
    Tensor terms(const Visible& visible, Index first, Index count) const {
        if (in_.q.tracked() || in_.k.tracked()) return rule_.terms(first, count);
        std::vector<Tensor> parts;
        visibility::each_part(*this, visible, first, count, [&](Index i, Index rows, Index) {
            parts.push_back(rule_.terms(first + i, rows));
        });
        return parts.size() == 1 ? parts.front() : concat_rows(parts);
    }
    /// The row of the table of biases for tokens i and j.
    Index offset(Index i, Index j) const {
        const Windows& w = in_.windows;
        const Index a = w.place[std::size_t(i)], b = w.place[std::size_t(j)];
        const Index down = a / w.side - b / w.side, right = a % w.side - b % w.side;
        return (down + w.side - 1) * (2 * w.side - 1) + right + w.side - 1;
    }
    /// Its entries for these pairs of tokens, for each head a matrix of `rows` rows.
    Tensor biases(const std::vector<Index>& offsets, Index rows) const {
        const Tensor& table = in_.windows.bias;
        const Tensor by_head = contiguous(transpose(gather_rows(table, offsets)));
        return by_head.reshape({table.cols(), rows, std::ssize(offsets) / rows});
    }
    /// The bias of windows of `size` tokens with these first ones, (h windows, size, size).
    Tensor window_bias(const std::vector<Index>& firsts, Index size) const {
        std::vector<Index> offsets;
        for (const Index first : firsts)
            for (Index i = first; i < first + size; ++i)
                for (Index j = first; j < first + size; ++j) offsets.push_back(offset(i, j));
        const Tensor one = biases(offsets, std::ssize(firsts) * size);
        return for_every_sample(one.reshape({one.batch() * std::ssize(firsts), size, size}), in_);
    }
    /// The bias of the places in windows of rows [first, first + count) against columns [from, from
    /// + width), (h, count, width); of rows and columns in different parts any row of the table.
    Tensor window_bias(Index first, Index count, Index from, Index width) const {
        std::vector<Index> offsets;
        offsets.reserve(std::size_t(count * width));
        for (Index i = first; i < first + count; ++i)
            for (Index j = from; j < from + width; ++j) offsets.push_back(offset(i, j));
        return for_every_sample(biases(offsets, count), in_);
    }
    /// -m_h |i - j|, (h, b, n).
    Tensor alibi(Index first, Index count) const {
        const Index n = tokens();
        std::vector<double> values;
        values.reserve(std::size_t(count * n));
        for (Index i = first; i < first + count; ++i)
            for (Index j = 0; j < n; ++j)
                values.push_back(std::abs(position(in_, i) - position(in_, j)));
        const Tensor distance =
            Tensor::from_host(backend(), {1, count, n}, std::span<const double>(values), type());
        const Tensor out = Tensor::empty(backend(), {heads(), count, n}, type());
        for (Index k = 0; k < heads(); ++k)
            backend().affine(out.batch_range(k, 1).view(), distance.view(),
                             -rule_.alibi[std::size_t(k) % rule_.alibi.size()], 0);
        return out;
    }

    AttentionInput in_;
    ScoreRule rule_;
    Structure known_;
};

}  // namespace

void softmax_of_biased(Logits logits, RowBlock& block) {
    block.p = softmax_rows(std::move(logits).biased(), block.visible);
    block.slope = block.p;  // a' = a = exp
    block.divided = true;
}

std::unique_ptr<AttentionOperator> score_attention(AttentionInput input, ScoreRule rule) {
    require_fit(input, rule.memory);
    check(rule.alibi.empty() || std::ssize(rule.alibi) == input.heads_of_a_sample(),
          "one ALiBi slope a head");
    return std::make_unique<ScoreAttention>(std::move(input), std::move(rule));
}

double position(const AttentionInput& in, Index i) {
    return in.position.empty() ? double(i) : in.position[std::size_t(i)];
}

Visible seen(const AttentionInput& in, Index block, Index first, Index count) {
    // Positions ascend, so a row sees one range, and both its ends ascend with the row.
    Visible out;
    if (!in.windows.ends.empty()) {
        for (Index i = first; i < first + count; ++i) {
            const auto end = std::ranges::upper_bound(in.windows.ends, i);
            out.first.push_back(end == in.windows.ends.begin() ? 0 : end[-1]);
            out.last.push_back(*end);
        }
        return out;
    }
    if (!in.causal && in.window == 0 && block == 0) return out;
    const Index keys = in.k.rows(), memory = in.memory();
    const double window = double(in.window), chunk = double(block);
    const auto part = [&](Index i) { return std::floor(position(in, i) / chunk); };
    Index from = 0, to = 0;
    for (Index i = memory + first; i < memory + first + count; ++i) {
        while ((in.window > 0 && position(in, from) <= position(in, i) - window) ||
               (block > 0 && part(from) < part(i)))
            ++from;
        if (in.causal)
            to = i + 1;
        else
            while (to < keys && (in.window == 0 || position(in, to) < position(in, i) + window) &&
                   (block == 0 || part(to) <= part(i)))
                ++to;
        out.first.push_back(from);
        out.last.push_back(to);
    }
    return out;
}

}  // namespace tsdiag::variants
