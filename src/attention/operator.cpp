#include <algorithm>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

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

}  // namespace

Tensor AttentionOperator::apply(const Tensor& v, Index block_rows, const RowVisitor& visit) const {
    const Index n = tokens(), h = heads();
    require_rows("attention apply", v, n, block_rows);
    if (v.batch() < 1 || h % v.batch() != 0)
        throw ShapeError("attention apply: values of " + std::to_string(v.batch()) +
                         " heads, expected a divisor of " + std::to_string(h));
    const bool gather = keep_ && !matrix_.defined();
    if (!visit && !gather)
        if (Tensor y = product(v); y.defined()) return y;
    const Tensor out = Tensor::empty(backend(), {h, n, v.cols()}, v.type());
    std::vector<Tensor> recorded;  // of a gradient: the rows are no longer to be written into `out`
    Tensor kept;
    for (Index first = 0; first < n; first += block_rows) {
        const Index count = std::min(block_rows, n - first);
        const RowBlock block = rows(first, count);
        if (block.p.tracked() || v.tracked())
            recorded.push_back(matmul(block.p, v));
        else
            backend().matmul(out.row_range(first, count).view(), block.p.view(), v.view(),
                             Transpose::none, 1);
        if (visit) visit(block);
        if (!gather) continue;
        if (count == n) {
            kept = block.p;
        } else {
            if (!kept.defined()) kept = Tensor::empty(backend(), {h, n, n}, type());
            backend().unary(Unary::copy, kept.row_range(first, count).view(), block.p.view());
        }
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
            matmul(rows(first, count).p, w.row_range(first, count), Transpose::first);
        sum = sum.defined() ? add(sum, part) : part;
    }
    return sum;
}

Tensor AttentionOperator::product(const Tensor&) const { return {}; }
Tensor AttentionOperator::transposed_product(const Tensor&) const { return {}; }

const Tensor& AttentionOperator::matrix() const {
    if (!matrix_.defined()) matrix_ = contiguous(rows(0, tokens()).p);
    return matrix_;
}

}  // namespace tsdiag
