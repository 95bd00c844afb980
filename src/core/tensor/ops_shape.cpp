#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

/// By one kernel; by none where the parts lie so in memory.
Tensor concatenated_at_once(const Axis& axis, std::span<const Tensor> parts, Shape shape) {
    const Tensor& head = parts.front();
    const bool outermost = axis.extent == &Shape::batch ||
                           (shape.batch == 1 && (axis.extent == &Shape::rows || shape.rows == 1));
    Tensor out = outermost ? Tensor::joined(parts, shape) : Tensor();
    const bool copies = !out.defined();
    if (copies) out = Tensor::empty(head.backend(), shape, head.type());
    std::vector<View> from, to;
    std::vector<Dependence> on;
    Index at = 0;
    for (const Tensor& p : parts) {
        const Index count = p.shape().*axis.extent;
        if (copies && p.shape().count() > 0) {
            from.push_back(p.view());
            to.push_back((out.*axis.range)(at, count).view());
        }
        on.push_back({p, [at, count, range = axis.range](const Tensor& g, const Saved&) {
                          return (g.*range)(at, count);
                      }});
        at += count;
    }
    if (!to.empty()) head.backend().copy(to, from);
    return record(out, on);
}

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
    if (!head.backend().host_memory()) return concatenated_at_once(axis, parts, shape);
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
    Tensor out = Tensor::empty(backend, shape, type);
    if (shape.count() > 0) backend.fill(out.view(), 0);
    return out;
}

Tensor constant(const Backend& backend, double value, Type type) {
    Tensor out = Tensor::empty(backend, {1, 1, 1}, type);
    backend.fill(out.view(), value);
    return out;
}

Tensor place(const Tensor& a, Shape shape, Index batch, Index row, Index col) {
    if (a.shape() == shape) return a;
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
    if (a.tracked()) return add(zeros(a.backend(), shape, a.type()), a);
    const auto extends = [](Index from, Index to) { return from == to || from == 1; };
    if (!extends(a.batch(), shape.batch) || !extends(a.rows(), shape.rows) ||
        !extends(a.cols(), shape.cols))
        throw ShapeError(
            fmt::format("expand: {} does not become {}", text(a.shape()), text(shape)));
    Tensor out = Tensor::empty(a.backend(), shape, a.type());
    if (shape.count() > 0) a.backend().expand(out.view(), a.view());
    return out;
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
    const bool whole_columns = shape.batch == 1 && shape.rows == 1 && a.batch() > 1;
    if (whole_columns && !a.backend().host_memory() && a.contiguous())  // one sum instead of two
        out = a.reshape({1, a.batch() * a.rows(), a.cols()});
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
    std::vector<View> to, from;
    for (Index k = 0; k < out.batch(); ++k) {
        to.push_back(out.batch_range(k, 1).view());
        from.push_back(a.detached().batch_range(k / times, 1).view());
    }
    if (out.shape().count() > 0) a.backend().copy(to, from);
    if (!a.tracked()) return out;
    return record(out, {{a, [shape = a.shape()](const Tensor& g, const Saved&) {
                             return fold_batches(g, shape.batch);
                         }}});
}

std::vector<Tensor> adjacent(std::span<const Tensor> parts) {
    const Tensor& head = parts.front();
    Index count = 0;
    for (const Tensor& p : parts) {
        same_kind("adjacent", head, p);
        count += p.shape().count();
    }
    if (Tensor::joined(parts, {1, 1, count}).defined()) return {parts.begin(), parts.end()};
    const Tensor all = Tensor::empty(head.backend(), {1, 1, count}, head.type());
    std::vector<Tensor> out;
    std::vector<View> from, to;
    Index at = 0;
    for (const Tensor& p : parts) {
        const Index own = p.shape().count();
        out.push_back(all.col_range(at, own).reshape(p.shape()));
        at += own;
        if (own == 0) continue;
        from.push_back(p.view());
        to.push_back(out.back().view());
    }
    if (!to.empty()) head.backend().copy(to, from);
    return out;
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

namespace {

/// The heads of these parts beside each other.
Tensor merged(std::span<const Tensor> parts, Index samples) {
    const Tensor& one = parts.front();
    Index all = 0;
    std::vector<View> views;
    for (const Tensor& p : parts) {
        all += p.batch() / samples;
        views.push_back(p.view());
    }
    Tensor out = Tensor::empty(one.backend(), {samples, one.rows(), all * one.cols()}, one.type());
    if (out.shape().count() > 0) one.backend().merge_heads(out.view(), views);
    return out;
}

/// The inverse of `with_heads` without bias.
Tensor without_heads(const Tensor& a, Index samples, const std::vector<Index>& heads) {
    std::vector<Tensor> parts;
    Index at = 0;
    for (const Index own : heads) {
        parts.push_back(a.detached().batch_range(at, samples * own));
        at += samples * own;
    }
    Tensor out = merged(parts, samples);
    if (!a.tracked()) return out;
    return record(out, {{a, [heads](const Tensor& g, const Saved&) {
                             return heads.size() == 1 ? split_heads(g, heads.front())
                                                      : ops::with_heads(g, heads, nullptr);
                         }}});
}

}  // namespace

Tensor ops::with_heads(const Tensor& a, const std::vector<Index>& heads, const View* bias) {
    const Index all = std::accumulate(heads.begin(), heads.end(), Index{0});
    if (std::ranges::any_of(heads, [](Index h) { return h < 1; }) || all < 1 || a.cols() % all != 0)
        throw ShapeError(fmt::format("{} heads do not divide a {} tensor", all, text(a.shape())));
    Tensor out = Tensor::empty(a.backend(), {a.batch() * all, a.rows(), a.cols() / all}, a.type());
    if (out.shape().count() > 0) a.backend().split_heads(out.view(), a.view(), bias, heads);
    if (!a.tracked()) return out;
    const auto pullback = [heads, samples = a.batch()](const Tensor& g, const Saved&) {
        return without_heads(g, samples, heads);
    };
    if (heads.size() == 1) return record(out, {{a, pullback}});
    return record(out, {a, pullback}, [heads, samples = a.batch()](std::span<const Tensor> parts) {
        const bool own = std::ranges::equal(parts, heads, {},
                                            [&](const Tensor& p) { return p.batch() / samples; });
        return own ? merged(parts, samples) : without_heads(concat_batches(parts), samples, heads);
    });
}

Tensor split_heads(const Tensor& a, Index heads) {
    return a.batch() == 1 ? a.split_heads(heads) : ops::with_heads(a, {heads}, nullptr);
}

Tensor merge_heads(const Tensor& a, Index samples) {
    if (samples < 1 || a.batch() % samples != 0)
        throw ShapeError(
            fmt::format("{} samples do not divide a {} tensor", samples, text(a.shape())));
    return without_heads(a, samples, {a.batch() / samples});
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
