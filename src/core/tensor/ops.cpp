#include "tsdiag/ops.hpp"

#include "ops_check.hpp"
#include "record.hpp"
#include "tsdiag/error.hpp"

/// Products, binary ops, reductions, softmax, with their derivatives.
namespace tsdiag {

using ops::misfit, ops::require_visible, ops::same_kind;

namespace {

bool extends(Index a, Index b) { return b == a || b == 1; }

/// out = alpha op(a) op(b), whose derivatives are products of the same kind.
Tensor recorded_product(const Tensor& out, const Tensor& a, const Tensor& b, Transpose t,
                        double alpha) {
    const Shape shape_b = b.shape();
    const Index group = a.batch() / b.batch();
    const auto by_a = [=](const Tensor& g, const Saved& saved) {
        const Tensor& other = saved.operands[1];
        if (t == Transpose::none) return matmul(g, other, Transpose::second, alpha);
        if (t == Transpose::second) return matmul(g, other, Transpose::none, alpha);
        return matmul(repeat_batches(other, group), g, Transpose::second, alpha);
    };
    const auto by_b = [=](const Tensor& g, const Saved& saved) {
        const Tensor& other = saved.operands[0];
        const Tensor each = t == Transpose::none     ? matmul(other, g, Transpose::first, alpha)
                            : t == Transpose::second ? matmul(g, other, Transpose::first, alpha)
                                                     : matmul(other, g, Transpose::none, alpha);
        return reduce_to(each, shape_b);
    };
    return record(out, {{a, by_a}, {b, by_b}}, {a, b});
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
    return any_tracked({&a, &b}) ? recorded_product(out, a, b, t, alpha) : out;
}

Tensor matvec(const Tensor& a, const Tensor& x, bool transposed) {
    const Index from = transposed ? a.rows() : a.cols(), to = transposed ? a.cols() : a.rows();
    if (x.shape() != Shape{a.batch(), from, 1} || x.type() != Type::f64)
        throw ShapeError("matvec: " + ops::text(x.shape()) + " is not a float64 vector for " +
                         ops::text(a.shape()));
    const Tensor from_x = contiguous(x);
    Tensor y = Tensor::empty(a.backend(), {a.batch(), to, 1}, Type::f64);
    a.backend().matvec(y.view(), a.view(), from_x.view(), transposed);
    return y;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    // One product of all rows where a derivative will sum over them.
    if (x.batch() > 1 && any_tracked({&x, &weight, &bias})) {
        const Tensor rows = contiguous(x).reshape({1, x.batch() * x.rows(), x.cols()});
        const Tensor y = linear(rows, weight, bias);
        return y.reshape({x.batch(), x.rows(), y.cols()});
    }
    Tensor y = matmul(x, weight, Transpose::second);
    if (!bias.defined()) return y;
    same_kind("linear", y, bias);
    const Shape shape{1, 1, y.cols()};
    if (bias.shape() != shape) misfit("linear", y, bias);
    y.backend().binary(Binary::add, y.view(), y.view(), bias.view());  // y is not shared yet
    if (!any_tracked({&y, &bias})) return y;
    return record(y,
                  {{y, [](const Tensor& g, const Saved&) { return g; }},
                   {bias, [shape](const Tensor& g, const Saved&) { return reduce_to(g, shape); }}});
}

namespace {

/// out = a op b: the cotangents of a and b, b's before it is reduced over broadcast axes.
Tensor recorded_pair(Binary op, const Tensor& out, const Tensor& a, const Tensor& b) {
    const Shape shape = b.shape();
    const auto same = [](const Tensor& g, const Saved&) { return g; };
    const auto sum = [shape](const Tensor& g) { return reduce_to(g, shape); };
    switch (op) {
        case Binary::add:
            return record(
                out, {{a, same}, {b, [sum](const Tensor& g, const Saved&) { return sum(g); }}});
        case Binary::subtract:
            return record(out, {{a, same}, {b, [sum](const Tensor& g, const Saved&) {
                                                return scale(sum(g), -1);
                                            }}});
        case Binary::multiply:
            return record(
                out,
                {{a, [](const Tensor& g, const Saved& s) { return multiply(g, s.operands[1]); }},
                 {b, [sum](const Tensor& g,
                           const Saved& s) { return sum(multiply(g, s.operands[0])); }}},
                {a, b});
        case Binary::divide:
            return record(
                out,
                {{a, [](const Tensor& g, const Saved& s) { return divide(g, s.operands[0]); }},
                 {b,
                  [sum](const Tensor& g, const Saved& s) {
                      return scale(sum(divide(multiply(g, s.result), s.operands[0])), -1);
                  }}},
                {b}, true);
        case Binary::maximum:
            break;
    }
    const auto first = [](const Saved& s) {  // 1 where a is greater
        return map(Unary::step, subtract(s.operands[0], s.operands[1]));
    };
    return record(
        out,
        {{a, [first](const Tensor& g, const Saved& s) { return multiply(g, first(s)); }},
         {b, [first, sum](const Tensor& g,
                          const Saved& s) { return sum(multiply(g, affine(first(s), -1, 1))); }}},
        {a, b});
}

}  // namespace

Tensor zip(Binary op, const Tensor& a, const Tensor& b) {
    same_kind("elementwise operation", a, b);
    if (!extends(a.batch(), b.batch()) || !extends(a.rows(), b.rows()) ||
        !extends(a.cols(), b.cols()))
        misfit("elementwise operation", a, b);
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().binary(op, out.view(), a.view(), b.view());
    return any_tracked({&a, &b}) ? recorded_pair(op, out, a, b) : out;
}

Tensor affine(const Tensor& a, double alpha, double beta) {
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().affine(out.view(), a.view(), alpha, beta);
    if (!a.tracked()) return out;
    return record(out, {{a, [alpha](const Tensor& g, const Saved&) { return scale(g, alpha); }}});
}

namespace {
/// A sum: every term has the cotangent of the sum.
Tensor recorded_sum(const Tensor& out, const Tensor& a) {
    if (!a.tracked()) return out;
    return record(
        out,
        {{a, [shape = a.shape()](const Tensor& g, const Saved&) { return expand(g, shape); }}});
}
}  // namespace

Tensor row_sum(const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), {a.batch(), a.rows(), 1}, a.type());
    a.backend().row_sum(out.view(), a.view());
    return recorded_sum(out, a);
}

Tensor row_max(const Tensor& a) {
    if (a.cols() < 1) throw ShapeError("row_max of " + ops::text(a.shape()) + ": a row is empty");
    Tensor out = Tensor::empty(a.backend(), {a.batch(), a.rows(), 1}, a.type());
    a.backend().row_max(out.view(), a.view());
    if (!a.tracked()) return out;
    // The mask of the maxima is constant where the derivative exists.
    const Tensor below = map(Unary::step, scale(subtract(a.detached(), out), -1));
    const Tensor mask = affine(below, -1, 1), share = divide(mask, row_sum(mask));
    return record(out,
                  {{a, [share](const Tensor& g, const Saved&) { return multiply(share, g); }}});
}

Tensor column_sum(const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), {a.batch(), 1, a.cols()}, a.type());
    a.backend().column_sum(out.view(), a.view());
    return recorded_sum(out, a);
}
Tensor column_mean(const Tensor& a) { return scale(column_sum(a), 1.0 / double(a.rows())); }
Tensor subtract_column_mean(const Tensor& a) { return subtract(a, column_mean(a)); }

Tensor softmax_rows(Tensor s, const Visible& visible) {
    require_visible("softmax_rows", s, visible);
    Tensor p = s.unique() ? s.detached() : map(Unary::copy, s.detached());
    p.backend().softmax_rows(p.view(), visible);
    if (!s.tracked()) return p;
    const auto pullback = [](const Tensor& g, const Saved& saved) {
        const Tensor& out = saved.result;
        return multiply(out, subtract(g, row_sum(multiply(g, out))));
    };
    return record(p, {{s, pullback}}, {}, true);
}

Tensor hide(Tensor p, const Visible& visible) {
    require_visible("hide", p, visible);
    Tensor out = p.unique() ? p.detached() : map(Unary::copy, p.detached());
    out.backend().hide(out.view(), visible);
    if (!p.tracked()) return out;
    return record(out,
                  {{p, [visible](const Tensor& g, const Saved&) { return hide(g, visible); }}});
}

Tensor log_sum_exp(const Tensor& a) {
    const Tensor top = row_max(a.detached());
    const Tensor sum = row_sum(map(Unary::exp, subtract(a.detached(), top)));
    Tensor out = add(map(Unary::log, sum), top);
    if (!a.tracked()) return out;
    const auto pullback = [](const Tensor& g, const Saved& saved) {
        return multiply(softmax_rows(saved.operands[0], {}), g);
    };
    return record(out, {{a, pullback}}, {a});
}

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
