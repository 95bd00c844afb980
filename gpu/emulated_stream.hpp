#pragma once
#include <functional>

/// The streams of a thread of the host (emulated_runtime.cpp).
namespace tsdiag::gpu::emulator {

/// Appends a kernel to that of the thread, or a routine to that of cuSOLVER.
void enqueue(std::function<void()> kernel);
void enqueue_solution(std::function<void()> routine);

/// Whether work is only counted: nothing is computed, and all that is copied to the host is 0.
void only_count(bool count);

}  // namespace tsdiag::gpu::emulator
