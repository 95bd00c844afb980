#include <fmt/format.h>

#include <algorithm>

#include "ops_check.hpp"
#include "record.hpp"
#include "tsdiag/error.hpp"

/// Ops that rearrange elements.
namespace tsdiag {

using ops::misfit, ops::same_kind, ops::text;

Tensor gather_rows(const Tensor& table, std::span<const Index> rows) {
    if (table.batch() != 1) throw ShapeError("gather_rows of a batched table");
    for (const Index r : rows)
        if (r < 0 || r >= table.rows())
            throw ShapeError(fmt::format("row {} of a table with {} rows", r, table.rows()));
    Tensor out =
        Tensor::empty(table.backend(), {1, Index(rows.size()), table.cols()}, table.type());
    table.backend().gather_rows(out.view(), table.view(), rows);
    if (!table.tracked()) return out;
    const std::vector<Index> taken(rows.begin(), rows.end());
    return record(out, {{table, [taken, count = table.rows()](const Tensor& g, const Saved&) {
                             return scatter_add_rows(g, taken, count);
                         }}});
}

Tensor scatter_add_rows(const Tensor& a, std::span<const Index> rows, Index count) {
    if (a.batch() != 1 || a.rows() != std::ssize(rows))
        throw ShapeError(
            fmt::format("scatter_add_rows: {} rows for {}", rows.size(), text(a.shape())));
    for (const Index r : rows)
        if (r < 0 || r >= count)
            throw ShapeError(fmt::format("row {} of a table with {} rows", r, count));
    Tensor out = Tensor::empty(a.backend(), {1, count, a.cols()}, a.type());
    a.backend().scatter_add_rows(out.view(), a.view(), rows);
    if (!a.tracked()) return out;
    const std::vector<Index> taken(rows.begin(), rows.end());
    return record(out,
                  {{a, [taken](const Tensor& g, const Saved&) { return gather_rows(g, taken); }}});
}

Tensor pick(const Tensor& a, std::span<const Index> columns) {
    if (a.batch() != 1 || a.rows() != std::ssize(columns))
        throw ShapeError(fmt::format("pick: {} columns for {}", columns.size(), text(a.shape())));
    std::vector<Index> flat;
    for (const Index c : columns) {
        if (c < 0 || c >= a.cols())
            throw ShapeError(fmt::format("pick: column {} of {}", c, text(a.shape())));
        flat.push_back(std::ssize(flat) * a.cols() + c);
    }
    return gather_rows(contiguous(a).reshape({1, a.shape().count(), 1}), flat);
}

namespace {

/// Parts of a tensor along one axis, in their order.
struct Axis {
    const char* op;
    Index Shape::*extent;
    Tensor (Tensor::*range)(Index first, Index count) const;
};

Tensor concatenated(const Axis& axis, std::span<const Tensor> parts) {
    const Tensor& head = parts.front();
    Shape shape = head.shape();
    shape.*axis.extent = 0;
    for (const Tensor& p : parts) {
        same_kind(axis.op, head, p);
        Shape like = p.shape();
        like.*axis.extent = shape.*axis.extent;
        if (like != shape) misfit(axis.op, head, p);
        shape.*axis.extent += p.shape().*axis.extent;
    }
    Tensor out = Tensor::empty(head.backend(), shape, head.type());
    Index at = 0;
    for (const Tensor& p : parts) {
        const Index count = p.shape().*axis.extent;
        head.backend().unary(Unary::copy, (out.detached().*axis.range)(at, count).view(), p.view());
        if (p.tracked() || out.tracked())
            out = record(out, {{out, [](const Tensor& g, const Saved&) { return g; }},
                               {p, [at, count, range = axis.range](const Tensor& g, const Saved&) {
                                    return (g.*range)(at, count);
                                }}});
        at += count;
    }
    return out;
}

}  // namespace

Tensor concat_rows(std::span<const Tensor> parts) {
    return concatenated({"concat_rows", &Shape::rows, &Tensor::row_range}, parts);
}
Tensor concat_cols(std::span<const Tensor> parts) {
    return concatenated({"concat_cols", &Shape::cols, &Tensor::col_range}, parts);
}
Tensor concat_batches(std::span<const Tensor> parts) {
    if (parts.size() == 1) return parts.front();
    return concatenated({"concat_batches", &Shape::batch, &Tensor::batch_range}, parts);
}

Tensor random_tensor(const Backend& backend, Shape shape, Type type, Law law, const Rng& rng,
                     double offset, double scale) {
    Tensor out = Tensor::empty(backend, shape, type);
    if (shape.count() > 0) backend.draw(out.view(), law, rng.seed(), rng.stream(), offset, scale);
    return out;
}

Tensor zeros(const Backend& backend, Shape shape, Type type) {
    const auto fill = [](auto values) { std::fill(values.begin(), values.end(), 0); };
    return type == Type::f32
               ? Tensor::filled(backend, shape, [&](std::span<float> v) { fill(v); })
               : Tensor::filled(backend, shape, [&](std::span<double> v) { fill(v); });
}

Tensor place(const Tensor& a, Shape shape, Index batch, Index row, Index col) {
    Tensor out = zeros(a.backend(), shape, a.type());
    const auto part = [=, inner = a.shape()](const Tensor& whole) {
        return whole.batch_range(batch, inner.batch)
            .row_range(row, inner.rows)
            .col_range(col, inner.cols);
    };
    a.backend().unary(Unary::copy, part(out).view(), a.view());
    if (!a.tracked()) return out;
    return record(out, {{a, [part](const Tensor& g, const Saved&) { return part(g); }}});
}

Tensor expand(const Tensor& a, Shape shape) {
    if (a.shape() == shape) return a;
    return add(zeros(a.backend(), shape, a.type()), a);
}

namespace {
/// Sums of `batches` groups of neighbouring batches.
Tensor fold_batches(const Tensor& a, Index batches) {
    const Index group = a.batch() / batches, rows = a.rows(), cols = a.cols();
    return column_sum(contiguous(a).reshape({batches, group, rows * cols}))
        .reshape({batches, rows, cols});
}
}  // namespace

Tensor reduce_to(const Tensor& a, Shape shape) {
    Tensor out = a;
    if (shape.cols == 1 && out.cols() != 1) out = row_sum(out);
    if (shape.rows == 1 && out.rows() != 1) out = column_sum(out);
    if (shape.batch > 0 && shape.batch != out.batch() && out.batch() % shape.batch == 0)
        out = fold_batches(out, shape.batch);
    if (out.shape() != shape)
        throw ShapeError(
            fmt::format("reduce_to: {} does not extend {}", text(a.shape()), text(shape)));
    return out;
}

Tensor repeat_batches(const Tensor& a, Index times) {
    if (times == 1) return a;
    Tensor out = Tensor::empty(a.backend(), {a.batch() * times, a.rows(), a.cols()}, a.type());
    for (Index k = 0; k < out.batch(); ++k)
        a.backend().unary(Unary::copy, out.batch_range(k, 1).view(),
                          a.batch_range(k / times, 1).view());
    if (!a.tracked()) return out;
    return record(out, {{a, [shape = a.shape()](const Tensor& g, const Saved&) {
                             return fold_batches(g, shape.batch);
                         }}});
}

Tensor contiguous(const Tensor& a) { return a.contiguous() ? a : map(Unary::copy, a); }

Tensor cast(const Tensor& a, Type type) {
    if (a.type() == type) return a;
    Tensor out = Tensor::empty(a.backend(), a.shape(), type);
    a.backend().convert(out.view(), a.view());
    if (!a.tracked()) return out;
    return record(
        out, {{a, [from = a.type()](const Tensor& g, const Saved&) { return cast(g, from); }}});
}

Tensor transpose(const Tensor& a) {
    Tensor out = Tensor::empty(a.backend(), {a.batch(), a.cols(), a.rows()}, a.type());
    a.backend().transpose(out.view(), a.view());
    if (!a.tracked()) return out;
    return record(out, {{a, [](const Tensor& g, const Saved&) { return transpose(g); }}});
}

Tensor split_heads(const Tensor& a, Index heads) {
    if (a.batch() == 1) return a.split_heads(heads);
    if (heads < 1 || a.cols() % heads != 0)
        throw ShapeError(fmt::format("{} heads do not divide a {} tensor", heads, text(a.shape())));
    Tensor out =
        Tensor::empty(a.backend(), {a.batch() * heads, a.rows(), a.cols() / heads}, a.type());
    if (out.shape().count() > 0) a.backend().split_heads(out.view(), a.view());
    if (!a.tracked()) return out;
    return record(out, {{a, [samples = a.batch()](const Tensor& g, const Saved&) {
                             return merge_heads(g, samples);
                         }}});
}

Tensor merge_heads(const Tensor& a, Index samples) {
    if (samples < 1 || a.batch() % samples != 0)
        throw ShapeError(
            fmt::format("{} samples do not divide a {} tensor", samples, text(a.shape())));
    const Index heads = a.batch() / samples;
    Tensor out = Tensor::empty(a.backend(), {samples, a.rows(), heads * a.cols()}, a.type());
    if (out.shape().count() > 0) a.backend().merge_heads(out.view(), a.view());
    if (!a.tracked()) return out;
    return record(out,
                  {{a, [heads](const Tensor& g, const Saved&) { return split_heads(g, heads); }}});
}

Tensor rotate(const Tensor& a, std::span<const double> position, std::span<const double> frequency,
              bool interleaved) {
    if (Index(position.size()) != a.rows() || 2 * Index(frequency.size()) > a.cols())
        throw ShapeError(fmt::format("rotate: {} positions and {} frequencies for a tensor {}",
                                     position.size(), frequency.size(), text(a.shape())));
    Tensor out = Tensor::empty(a.backend(), a.shape(), a.type());
    a.backend().rotate(out.view(), a.view(), position, frequency, interleaved);
    if (!a.tracked()) return out;
    const std::vector<double> at(position.begin(), position.end());
    std::vector<double> back;  // the transpose of a rotation is the opposite rotation
    for (const double f : frequency) back.push_back(-f);
    return record(
        out,
        {{a, [=](const Tensor& g, const Saved&) { return rotate(g, at, back, interleaved); }}});
}

}  // namespace tsdiag
