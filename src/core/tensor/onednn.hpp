#pragma once
#include <cstdint>
#include <string>

#include "tsdiag/tensor.hpp"

/// Products of oneDNN on the calling thread; without the library none is there.
///
/// Its kernels move the stack pointer to a small part of the heap (backend.hpp, `matmul`): around
/// each call signals that can wait are blocked, and SIGBUS finds an alternate stack.
namespace tsdiag::onednn {

/// op(A) op(B) of m x k and k x n, row-major, A and B transposed where said.
struct Sizes {
    bool transpose_a = false, transpose_b = false;
    Index m = 0, n = 0, k = 0;
};

bool is_here();
/// "oneDNN 2.6.3"; empty without it.
std::string version();

/// c = alpha op(a) op(b), leading dimensions in elements.  False where the library cannot.
bool multiply(const Sizes& s, float alpha, const float* a, Index lda, const float* b, Index ldb,
              float* c, Index ldc);

/// Whether this processor multiplies bfloat16 (AVX-512 BF16, AMX).
bool has_bfloat16();
/// c = op(a) op(b), or c + that, of contiguous bfloat16 with sums in float32; needs
/// `has_bfloat16`.  Throws `BrokenInvariant` where the library refuses.
void multiply(const Sizes& s, const std::uint16_t* a, const std::uint16_t* b, float* c, Index ldc,
              bool add);

}  // namespace tsdiag::onednn
