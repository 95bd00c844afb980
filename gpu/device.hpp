#pragma once

/// The language of the kernels: CUDA, or its emulation on the host (emulator.hpp), which runs the
/// same source under sanitizers on a machine without a device.
#ifdef TSDIAG_EMULATED
#include "emulator.hpp"
#define TSDIAG_UNROLL
#define TSDIAG_UNROLL_BY_8
#define TSDIAG_LAUNCH(kernel, grid, block, ...) \
    ::tsdiag::gpu::emulator::launch(#kernel, kernel, grid, block, __VA_ARGS__)
#else
#include <cuda_runtime.h>

#include <algorithm>

#include "requests.hpp"
#include "runtime.hpp"
#define TSDIAG_UNROLL _Pragma("unroll")
#define TSDIAG_UNROLL_BY_8 _Pragma("unroll 8")
namespace tsdiag::gpu {
/// A kernel with these arguments, measured while the result lives.
template <class... Arguments>
TimedRequest asked_for(const char* kernel, const Arguments&... arguments) {
    if (!TimedRequest::wanted()) return {};
    return {kernel, (bytes_of_argument(arguments) + ... + 0.0),
            std::max({0.0, elements_of_argument(arguments)...})};
}
}  // namespace tsdiag::gpu
#define TSDIAG_LAUNCH(kernel, grid, block, ...)                              \
    do {                                                                     \
        const auto request = ::tsdiag::gpu::asked_for(#kernel, __VA_ARGS__); \
        kernel<<<unsigned(grid), block>>>(__VA_ARGS__);                      \
        ::tsdiag::gpu::require_launched(#kernel);                            \
    } while (false)
#endif
