#include "tsdiag/ops.hpp"

#include <fmt/format.h>

#include <string>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

std::string text(const Shape& s) { return fmt::format("({}, {}, {})", s.batch, s.rows, s.cols); }

[[noreturn]] void misfit(const char* op, const Tensor& a, const Tensor& b) {
    throw ShapeError(fmt::format("{} of {} and {}: the shapes do not fit", op, text(a.shape()),
                                 text(b.shape())));
}

void same_kind(const char* op, const Tensor& a, const Tensor& b) {
    if (!a.defined() || !b.defined()) throw ShapeError(fmt::format("{}: an operand is empty", op));
    if (a.type() != b.type())
        throw ShapeError(fmt::format("{}: float32 and float64 do not mix", op));
    check(&a.backend() == &b.backend(), "operands on two backends");
}

bool extends(Index a, Index b) { return b == a || b == 1; }

Tensor normalise(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                 bool centre) {
    for (const Tensor* t : {&weight, &bias})
        if (t->defined()) {
            same_kind("norm", x, *t);
            if (t->shape() != Shape{1, 1, x.cols()}) misfit("norm", x, *t);
        }
    Tensor out = Tensor::empty(x.backend(), x.shape(), x.type());
    x.backend().normalise_rows(out.view(), x.view(), weight.defined() ? &weight.view() : nullptr,
                               bias.defined() ? &bias.view() : nullptr, eps, centre);
    return out;
}

void require_visible(const char* op, const Tensor& p, const Visible& visible) {
    if (visible.everything()) return;
    const auto rows = static_cast<std::size_t>(p.rows());
    if (visible.first.size() != rows || visible.last.size() != rows)
        throw ShapeError(
            fmt::format("{}: {} visible ranges for {} rows", op, visible.first.size(), rows));
    for (std::size_t i = 0; i < rows; ++i)
        check(0 <= visible.first[i] && visible.first[i] <= visible.last[i] &&
                  visible.last[i] <= p.cols(),
              "visible range outside the row");
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Transpose t, double alpha) {
    same_kind("matmul", a, b);
    const Index inner_a = t == Transpose::first ? a.rows() : a.cols();
    const Index inner_b = t == Transpose::second ? b.cols() : b.rows();
    if (inner_a != inner_b || b.batch() < 1 || a.batch() % b.batch() != 0) misfit("matmul", a, b);
    const Shape shape{a.batch(), t == Transpose::first ? a.cols() : a.rows(),
                      t == Transpose::second ? b.rows() : b.cols()};
    Tensor out = Tensor::empty(a.backend(), shape, a.type());
    a.backend().matmul(out.view(), a.view(), b.view(), t, alpha);
    return out;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    Tensor y = matmul(x, weight, Transpose::second);
    if (!bias.defined()) return y;
    same_kind("linear", y, bias);
    if (bias.shape() != Shape{1, 1, y.cols()}) misfit("linear", y, bias);
    y.backend().binary(Binary::add, y.view(), y.view(), bias.view());  // y is still ours alone
    return y;
}

Tensor map(Unary op, const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().unary(op, out.view(), a.view());
    return out;
}

Tensor zip(Binary op, const Tensor& a, const Tensor& b) {
    same_kind("elementwise operation", a, b);
    if (!extends(a.batch(), b.batch()) || !extends(a.rows(), b.rows()) ||
        !extends(a.cols(), b.cols()))
        misfit("elementwise operation", a, b);
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().binary(op, out.view(), a.view(), b.view());
    return out;
}

Tensor affine(const Tensor& a, double alpha, double beta) {
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().affine(out.view(), a.view(), alpha, beta);
    return out;
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
    return normalise(x, weight, bias, eps, true);
}
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
    return normalise(x, weight, {}, eps, false);
}

Tensor row_sum(const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), {a.batch(), a.rows(), 1}, a.type());
    a.backend().row_sum(out.view(), a.view());
    return out;
}

Tensor column_sum(const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), {a.batch(), 1, a.cols()}, a.type());
    a.backend().column_sum(out.view(), a.view());
    return out;
}
Tensor column_mean(const Tensor& a) {
    return scale(column_sum(a), 1.0 / static_cast<double>(a.rows()));
}
Tensor subtract_column_mean(const Tensor& a) { return subtract(a, column_mean(a)); }

Tensor gather_rows(const Tensor& table, std::span<const Index> rows) {
    if (table.batch() != 1) throw ShapeError("gather_rows of a batched table");
    for (const Index r : rows)
        if (r < 0 || r >= table.rows())
            throw ShapeError(fmt::format("row {} of a table with {} rows", r, table.rows()));
    Tensor out = Tensor::empty(table.backend(), {1, static_cast<Index>(rows.size()), table.cols()},
                               table.type());
    table.backend().gather_rows(out.view(), table.view(), rows);
    return out;
}

Tensor concat_rows(std::initializer_list<Tensor> parts) {
    const Tensor& head = *parts.begin();
    Shape shape = head.shape();
    shape.rows = 0;
    for (const Tensor& p : parts) {
        same_kind("concat_rows", head, p);
        if (p.batch() != shape.batch || p.cols() != shape.cols) misfit("concat_rows", head, p);
        shape.rows += p.rows();
    }
    Tensor out = Tensor::empty(head.backend(), shape, head.type());
    Index at = 0;
    for (const Tensor& p : parts) {
        head.backend().unary(Unary::copy, out.row_range(at, p.rows()).view(), p.view());
        at += p.rows();
    }
    return out;
}

Tensor contiguous(const Tensor& a) { return a.contiguous() ? a : map(Unary::copy, a); }

Tensor cast(const Tensor& a, Type type) {
    if (a.type() == type) return a;
    const std::vector<double> values = a.to_host<double>();
    return Tensor::from_host(a.backend(), a.shape(), std::span(values), type);
}

Tensor transpose(const Tensor& a) {
    const std::vector<double> in = a.to_host<double>();
    std::vector<double> out(in.size());
    for (Index b = 0; b < a.batch(); ++b)
        for (Index r = 0; r < a.rows(); ++r)
            for (Index c = 0; c < a.cols(); ++c)
                out[static_cast<std::size_t>((b * a.cols() + c) * a.rows() + r)] =
                    in[static_cast<std::size_t>((b * a.rows() + r) * a.cols() + c)];
    return Tensor::from_host(a.backend(), {a.batch(), a.cols(), a.rows()},
                             std::span<const double>(out), a.type());
}

Tensor merge_heads(const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), {1, a.rows(), a.batch() * a.cols()}, a.type());
    a.backend().unary(Unary::copy, out.split_heads(a.batch()).view(), a.view());
    return out;
}

Tensor rotate(const Tensor& a, std::span<const double> position, std::span<const double> frequency,
              bool interleaved) {
    if (static_cast<Index>(position.size()) != a.rows() ||
        2 * static_cast<Index>(frequency.size()) > a.cols())
        throw ShapeError(fmt::format("rotate: {} positions and {} frequencies for a tensor {}",
                                     position.size(), frequency.size(), text(a.shape())));
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().rotate(out.view(), a.view(), position, frequency, interleaved);
    return out;
}

Tensor softmax_rows(Tensor s, const Visible& visible) {
    require_visible("softmax_rows", s, visible);
    Tensor p = s.unique() ? std::move(s) : map(Unary::copy, s);
    p.backend().softmax_rows(p.view(), visible);
    return p;
}

Tensor hide(Tensor p, const Visible& visible) {
    require_visible("hide", p, visible);
    Tensor out = p.unique() ? std::move(p) : map(Unary::copy, p);
    out.backend().hide(out.view(), visible);
    return out;
}

RowStatistics row_statistics(const Tensor& p, const Tensor& slope, bool divided, Index first,
                             const Visible& visible) {
    require_visible("row_statistics", p, visible);
    if (slope.defined() && slope.shape() != p.shape()) misfit("row_statistics", p, slope);
    return p.backend().row_statistics(p.view(), slope.defined() ? &slope.view() : nullptr, divided,
                                      first, visible);
}

StateMoments state_moments(const Tensor& x) {
    if (x.batch() != 1) throw ShapeError("state_moments of a batch");
    return x.backend().state_moments(x.view());
}
double squared_norm(const Tensor& x) { return x.backend().squared_norm(x.view()); }

double dot(const Tensor& a, const Tensor& b) {
    same_kind("dot", a, b);
    if (a.shape() != b.shape()) misfit("dot", a, b);
    const std::vector<double> x = a.to_host<double>(), y = b.to_host<double>();
    double total = 0;
    for (std::size_t i = 0; i < x.size(); ++i) total += x[i] * y[i];
    return total;
}

Index first_nonfinite(const Tensor& x) { return x.backend().first_nonfinite(x.view()); }

}  // namespace tsdiag
