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

namespace {

void require_bias(const Tensor& y, const Tensor& bias) {
    if (!bias.defined()) return;
    same_kind("linear", y, bias);
    if (bias.shape() != Shape{1, 1, y.cols()}) misfit("linear", y, bias);
}
using ops::view_or_null;

/// x W^T, all rows as one product where a derivative will sum over them.
Tensor product(const Tensor& x, const Tensor& weight, bool tracked) {
    if (x.batch() == 1 || !tracked) return matmul(x, weight, Transpose::second);
    const Tensor rows = contiguous(x).reshape({1, x.batch() * x.rows(), x.cols()});
    return matmul(rows, weight, Transpose::second).reshape({x.batch(), x.rows(), weight.rows()});
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    // One product of all rows where a derivative will sum over them.
    if (x.batch() > 1 && any_tracked({&x, &weight, &bias})) {
        const Tensor rows = contiguous(x).reshape({1, x.batch() * x.rows(), x.cols()});
        const Tensor y = linear(rows, weight, bias);
        return y.reshape({x.batch(), x.rows(), y.cols()});
    }
    Tensor y = matmul(x, weight, Transpose::second);
    if (!bias.defined()) return y;
    require_bias(y, bias);
    const Shape shape = bias.shape();
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

namespace {

/// y recorded as y + bias, though its elements are those of y, or will be those of the sum.
Tensor as_sum(const Tensor& y, const Tensor& bias) {
    require_bias(y, bias);
    return bias.defined() && any_tracked({&y, &bias}) ? recorded_pair(Binary::add, y, y, bias) : y;
}

}  // namespace

Tensor linear_map(const Tensor& x, const Tensor& weight, const Tensor& bias, Unary op,
                  const Tensor& added) {
    const bool tracked = any_tracked({&x, &weight, &bias});
    if (!x.backend().fuses() || ((tracked || added.tracked()) && added.defined())) {
        Tensor y = linear(x, weight, bias);
        if (op != Unary::copy) y = map(op, y);
        return added.defined() ? add(added, y) : y;
    }
    Tensor y = product(x, weight, tracked);
    require_bias(y, bias);
    if (added.defined()) {
        same_kind("linear", y, added);
        if (added.shape() != y.shape()) misfit("linear", y, added);
    }
    if (!bias.defined() && op == Unary::copy && !added.defined()) return y;
    if (!tracked) {
        y.backend().map_sum(y.view(), y.view(), view_or_null(bias), op, view_or_null(added),
                            nullptr);
        return y;
    }
    Tensor before = as_sum(y, bias);
    if (op == Unary::copy) {
        y.backend().map_sum(y.view(), y.view(), view_or_null(bias), op, nullptr, nullptr);
        return before;
    }
    const Tensor out = Tensor::empty(y.backend(), y.shape(), y.type());
    y.backend().map_sum(out.view(), y.view(), view_or_null(bias), op, nullptr,
                        bias.defined() ? &y.view() : nullptr);
    return ops::recorded_map(op, out, before);
}

LinearSum linear_sum(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& added,
                     const RowNorm* norm) {
    LinearSum out;
    if (!x.backend().fuses()) {
        out.branch = linear(x, weight, bias);
        out.sum = add(added, out.branch);
        if (norm) out.normed = normalise(out.sum, *norm);
        return out;
    }
    const Tensor y = product(x, weight, any_tracked({&x, &weight, &bias}));
    same_kind("linear", y, added);
    if (added.shape() != y.shape()) misfit("linear", y, added);
    const auto fresh = [&] { return Tensor::empty(y.backend(), y.shape(), y.type()); };
    out.branch = as_sum(y, bias);
    const Tensor sum = fresh(), normed = norm ? fresh() : Tensor();
    if (y.shape().count() > 0)
        y.backend().sum_rows(
            sum.view(), bias.defined() ? &y.view() : nullptr, view_or_null(normed), y.view(),
            view_or_null(bias), added.view(), norm ? view_or_null(norm->weight) : nullptr,
            norm ? view_or_null(norm->bias) : nullptr, norm ? norm->eps : 0, norm && norm->centre);
    out.sum = any_tracked({&added, &out.branch})
                  ? recorded_pair(Binary::add, sum, added, out.branch)
                  : sum;
    if (norm) out.normed = ops::recorded_norm(normed, out.sum, *norm);
    return out;
}

Tensor linear_heads(const Tensor& x, const Tensor& weight, const Tensor& bias, Index heads) {
    if (x.batch() == 1 || x.backend().host_memory() || !bias.defined())
        return split_heads(linear(x, weight, bias), heads);
    const Tensor y = product(x, weight, any_tracked({&x, &weight, &bias}));
    return ops::with_heads(as_sum(y, bias), {heads}, &bias.view());
}

namespace {

/// Weights and biases as one map; no weight where they do not lie so or differ too much.
HeadsMap as_one_map(std::span<const HeadsMap> maps) {
    HeadsMap all{{}, {}, 0};
    std::vector<Tensor> weights, biases;
    const HeadsMap& first = maps.front();
    Index rows = 0;
    for (const HeadsMap& m : maps) {
        if (m.weight.rows() * first.heads != first.weight.rows() * m.heads ||
            m.bias.defined() != first.bias.defined())
            return all;
        weights.push_back(m.weight);
        if (m.bias.defined()) biases.push_back(m.bias);
        rows += m.weight.rows();
        all.heads += m.heads;
    }
    const Shape shape{1, rows, first.weight.cols()}, vector{1, 1, rows};
    if (!Tensor::joined(weights, shape).defined() ||
        (!biases.empty() && !Tensor::joined(biases, vector).defined()))
        return all;
    all.weight = concat_rows(weights);
    if (!biases.empty()) all.bias = concat_cols(biases);
    return all;
}

}  // namespace

std::vector<Tensor> linear_heads(const Tensor& x, std::span<const HeadsMap> maps) {
    std::vector<Tensor> out;
    const HeadsMap all = x.backend().fuses() ? as_one_map(maps) : HeadsMap{{}, {}, 0};
    if (!all.weight.defined()) {
        for (const HeadsMap& m : maps) out.push_back(linear_heads(x, m.weight, m.bias, m.heads));
        return out;
    }
    std::vector<Index> heads;
    for (const HeadsMap& m : maps) heads.push_back(m.heads);
    const Tensor y = product(x, all.weight, any_tracked({&x, &all.weight, &all.bias}));
    Index at = 0;
    if (x.batch() == 1 && !all.bias.defined()) {
        const Index width = y.cols() / all.heads;
        for (const Index count : heads) {
            out.push_back(y.col_range(at, count * width).split_heads(count));
            at += count * width;
        }
        return out;
    }
    const Tensor each = ops::with_heads(as_sum(y, all.bias), heads, view_or_null(all.bias));
    for (const Index count : heads) {
        out.push_back(each.batch_range(at, x.batch() * count));
        at += x.batch() * count;
    }
    return out;
}

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
        if (ops::in_one_pass({&g, &out})) {
            Tensor by_s = Tensor::empty(g.backend(), g.shape(), g.type());
            g.backend().softmax_derivative(by_s.view(), g.view(), out.view());
            return by_s;
        }
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

std::vector<double> dots(const Tensor& a, const Tensor& b) {
    same_kind("dot", a, b);
    if (a.shape() != b.shape()) misfit("dot", a, b);
    if (!a.backend().host_memory()) {
        const Tensor products = multiply(cast(a.detached(), Type::f64), cast(b, Type::f64));
        return column_sum(row_sum(products)).to_host<double>();
    }
    std::vector<double> totals;
    for (Index k = 0; k < a.batch(); ++k)
        totals.push_back(dot(a.batch_range(k, 1), b.batch_range(k, 1)));
    return totals;
}

double dot(const Tensor& a, const Tensor& b) {
    same_kind("dot", a, b);
    if (a.shape() != b.shape()) misfit("dot", a, b);
    const std::vector<double> x = a.to_host<double>(), y = b.to_host<double>();
    double total = 0;
    for (std::size_t i = 0; i < x.size(); ++i) total += x[i] * y[i];
    return total;
}

}  // namespace tsdiag
