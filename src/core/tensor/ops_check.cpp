#include "ops_check.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"

namespace tsdiag::ops {

std::string text(const Shape& s) { return fmt::format("({}, {}, {})", s.batch, s.rows, s.cols); }

void misfit(const char* op, const Tensor& a, const Tensor& b) {
    throw ShapeError(fmt::format("{} of {} and {}: the shapes do not fit", op, text(a.shape()),
                                 text(b.shape())));
}

void same_kind(const char* op, const Tensor& a, const Tensor& b) {
    if (!a.defined() || !b.defined()) throw ShapeError(fmt::format("{}: an operand is empty", op));
    if (a.type() != b.type())
        throw ShapeError(fmt::format("{}: float32 and float64 do not mix", op));
    check(&a.backend() == &b.backend(), "operands on two backends");
}

void require_visible(const char* op, const Tensor& p, const Visible& visible) {
    if (visible.everything()) return;
    const auto rows = std::size_t(p.rows());
    if (visible.first.size() != rows || visible.last.size() != rows)
        throw ShapeError(
            fmt::format("{}: {} visible ranges for {} rows", op, visible.first.size(), rows));
    for (std::size_t i = 0; i < rows; ++i)
        check(0 <= visible.first[i] && visible.first[i] <= visible.last[i] &&
                  visible.last[i] <= p.cols(),
              "visible range outside the row");
}

}  // namespace tsdiag::ops
