#include <algorithm>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "visible.hpp"

namespace tsdiag {
namespace {

void require_rows(const char* what, const Tensor& x, Index n, Index block_rows) {
    if (x.rows() != n)
        throw ShapeError(std::string(what) + ": the operand has " + std::to_string(x.rows()) +
                         " rows, expected one for each of the " + std::to_string(n) + " tokens");
    if (block_rows < 1)
        throw ShapeError(std::string(what) + ": a row block of " + std::to_string(block_rows) +
                         " rows, expected at least 1");
}

constexpr Index sampled_rows = 512, sampled_block = 8;
constexpr Index sampled_entries = Index{1} << 23;  // of a block, over all heads

}  // namespace

double AttentionOperator::bytes() const {
    return double(heads()) * double(tokens()) * double(columns()) * double(bytes_of(type()));
}

Index AttentionOperator::rows_at_once(double memory) const {
    constexpr double worth_keys = 64;
    const double row = 3 * bytes() / double(tokens());
    const double rows = std::min(memory, std::max(backend().working_set(), worth_keys * row)) / row;
    const Index part = backend().host_memory() ? rows_of_a_product(row) : 1;
    return std::min(tokens(), std::max(part, Index(rows) / part * part));
}

Index rows_of_a_product(double row_bytes) {
    constexpr double bytes = 16 << 20;
    Index rows = 96;
    while (rows > 12 && double(rows) * row_bytes > bytes) rows /= 2;
    return rows;
}

bool AttentionOperator::sampled() const {
    return tokens() > largest_seen_whole && structure().factors;
}

/// One block from each of as many equal parts, so that every row is equally likely.
void AttentionOperator::show_sample(const RowVisitor& visit) const {
    const Index n = tokens();
    const Index block = std::clamp<Index>(sampled_entries / (heads() * n), 1, sampled_block);
    const Index blocks = (n + block - 1) / block, parts = sampled_rows / block;
    std::shared_ptr<const RowTotals> totals;
    if (std::optional<RowTotals> all = row_totals())
        totals = std::make_shared<const RowTotals>(std::move(*all));
    Rng rng = Rng(0).fork("sampled rows");
    for (Index part = 0; part < parts; ++part) {
        const Index from = part * blocks / parts, to = (part + 1) * blocks / parts;
        const Index first = block * (from + Index(rng.below(std::uint64_t(to - from))));
        RowBlock shown = rows(first, std::min(block, n - first));
        shown.totals = totals;
        visit(shown);
    }
}

Tensor AttentionOperator::apply(const Tensor& v, Index block_rows, const RowVisitor& visit) const {
    const Index n = tokens(), h = heads(), keys = columns();
    require_rows("attention apply", v, keys, block_rows);
    if (v.batch() < 1 || h % v.batch() != 0)
        throw ShapeError("attention apply: values of " + std::to_string(v.batch()) +
                         " heads, expected a divisor of " + std::to_string(h));
    const bool sample = sampled();
    bool gather = keep_ && !matrix_.defined() && !sample;
    if (visit && sample) show_sample(visit);
    if (sample || (!visit && !gather))
        if (Tensor y = product(v); y.defined()) return y;
    const Tensor out = Tensor::empty(backend(), {h, n, v.cols()}, v.type());
    std::vector<Tensor> recorded;  // of a gradient: the rows are no longer to be written into `out`
    Tensor kept;
    if (gather && block_rows < n) {
        try {
            kept = Tensor::empty(backend(), {h, n, keys}, type());
        } catch (const OutOfMemory&) {
            note_shortage("P was not kept");
            gather = false;
        }
    }
    for (Index first = 0; first < n;) {
        const Index count = std::min(block_rows, n - first);
        RowBlock block;
        try {
            block = rows(first, count);
            if (block.p.tracked() || v.tracked()) {
                const Index end = visibility::end(block.visible, keys);
                recorded.push_back(matmul(block.p.col_range(0, end), v.row_range(0, end)));
            } else {
                visibility::each_part(
                    *this, block.visible, first, count, [&](Index i, Index rows, Index end) {
                        backend().matmul(out.row_range(first + i, rows).view(),
                                         block.p.row_range(i, rows).col_range(0, end).view(),
                                         v.row_range(0, end).view(), Transpose::none, 1);
                    });
            }
        } catch (const OutOfMemory&) {
            if (count == 1) throw;
            block_rows = (count + 1) / 2;
            note_shortage("blocks of rows of P were halved");
            gather = gather && kept.defined();
            continue;
        }
        if (visit) visit(block);
        if (gather && count == n)
            kept = block.p;
        else if (gather)
            backend().unary(Unary::copy, kept.row_range(first, count).view(), block.p.view());
        first += count;
    }
    if (gather) matrix_ = kept;
    if (recorded.size() == 1) return recorded.front();
    return recorded.empty() ? out : concat_rows(recorded);
}

Tensor AttentionOperator::apply_transpose(const Tensor& w, Index block_rows) const {
    const Index n = tokens();
    require_rows("attention apply_transpose", w, n, block_rows);
    if (w.batch() != heads())
        throw ShapeError("attention apply_transpose: an operand of " + std::to_string(w.batch()) +
                         " heads, expected " + std::to_string(heads()));
    if (Tensor y = transposed_product(w); y.defined()) return y;
    Tensor sum;
    for (Index first = 0; first < n; first += block_rows) {
        const Index count = std::min(block_rows, n - first);
        const Tensor part =
            matmul(entries(first, count), w.row_range(first, count), Transpose::first);
        sum = sum.defined() ? add(sum, part) : part;
    }
    return sum;
}

Tensor AttentionOperator::product(const Tensor&) const { return {}; }
Tensor AttentionOperator::transposed_product(const Tensor&) const { return {}; }

Tensor AttentionOperator::entries(Index first, Index count) const {
    return matrix_.defined() ? matrix_.row_range(first, count) : rows(first, count).p;
}

const Tensor& AttentionOperator::matrix() const {
    if (!matrix_.defined()) matrix_ = contiguous(rows(0, tokens()).p);
    return matrix_;
}

}  // namespace tsdiag
