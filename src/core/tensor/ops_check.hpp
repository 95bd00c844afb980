#pragma once
#include <string>

#include "record.hpp"
#include "tsdiag/ops.hpp"

/// Checks of operands.
namespace tsdiag::ops {

std::string text(const Shape& s);
[[noreturn]] void misfit(const char* op, const Tensor& a, const Tensor& b);
/// Throws `ShapeError` for an empty operand, and where the types differ.
void same_kind(const char* op, const Tensor& a, const Tensor& b);
void require_visible(const char* op, const Tensor& p, const Visible& visible);

/// Whether a derivative of these may be computed in one pass: on a device, unrecorded.
inline bool in_one_pass(std::initializer_list<const Tensor*> operands) {
    return (*operands.begin())->backend().fuses() && !any_tracked(operands);
}
/// a + bias as heads (Backend::split_heads) by a kernel; bias may be null.
Tensor with_heads(const Tensor& a, const std::vector<Index>& heads, const View* bias);
/// `out`, which has the elements of op(a), or of the norm of x, recorded as such.
Tensor recorded_map(Unary op, const Tensor& out, const Tensor& a);
Tensor recorded_norm(const Tensor& out, const Tensor& x, const RowNorm& norm);
/// Null where x is empty.
inline const View* view_or_null(const Tensor& x) { return x.defined() ? &x.view() : nullptr; }

}  // namespace tsdiag::ops
