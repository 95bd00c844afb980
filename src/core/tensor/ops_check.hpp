#pragma once
#include <string>

#include "tsdiag/ops.hpp"

/// Checks of operands.
namespace tsdiag::ops {

std::string text(const Shape& s);
[[noreturn]] void misfit(const char* op, const Tensor& a, const Tensor& b);
/// Throws `ShapeError` for an empty operand, and where the types differ.
void same_kind(const char* op, const Tensor& a, const Tensor& b);
void require_visible(const char* op, const Tensor& p, const Visible& visible);

}  // namespace tsdiag::ops
