#pragma once

/// The language of the kernels: CUDA, or its emulation on the host (emulator.hpp), which runs the
/// same source under sanitizers on a machine without a device.
#ifdef TSDIAG_EMULATED
#include "emulator.hpp"
#define TSDIAG_LAUNCH(kernel, grid, block, ...) \
    ::tsdiag::gpu::emulator::launch(#kernel, kernel, grid, block, __VA_ARGS__)
#else
#include <cuda_runtime.h>

#include "runtime.hpp"
#define TSDIAG_LAUNCH(kernel, grid, block, ...)         \
    do {                                                \
        kernel<<<unsigned(grid), block>>>(__VA_ARGS__); \
        ::tsdiag::gpu::require_launched(#kernel);       \
    } while (false)
#endif
