#pragma once
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

/// CUDA's threads as fibers: the blocks of a grid run one after the other, the threads of a block
/// take turns and stop where they wait for each other.  A barrier that not all threads reach is an
/// exception.  Not shown: races between warps, whose order is fixed here.
namespace tsdiag::gpu::emulator {

struct Extent {
    unsigned x = 1;
};

enum class Waits { no, for_warp, for_block, done };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    Waits waits = Waits::no;
    Extent thread;
};

struct State {
    Extent block, block_extent, grid_extent;
    std::vector<Fiber> fibers;
    ucontext_t scheduler;
    unsigned current = 0;
    std::function<void()> body;
    std::exception_ptr failure;
    std::vector<std::array<unsigned char, 32 * 16>> exchanged;  ///< by the lanes of each warp
};
inline thread_local State state;  ///< threads of the host launch side by side

constexpr unsigned warp = 32;

inline void wait(Waits how) {
    Fiber& fiber = state.fibers[state.current];
    fiber.waits = how;
    swapcontext(&fiber.context, &state.scheduler);
}

inline void enter() {
    try {
        state.body();
    } catch (...) {
        state.failure = std::current_exception();
    }
    wait(Waits::done);
}

/// Lets warps whose lanes have all arrived go on; true where there was one.
inline bool release_warps(unsigned threads) {
    bool any = false;
    for (unsigned first = 0; first < threads; first += warp) {
        const auto begin = state.fibers.begin() + first,
                   end = state.fibers.begin() + std::min(threads, first + warp);
        const auto arrived =
            std::count_if(begin, end, [](const Fiber& f) { return f.waits == Waits::for_warp; });
        if (arrived == 0) continue;
        if (arrived != end - begin)
            throw std::runtime_error("lanes of a warp part at an operation of the whole warp");
        std::for_each(begin, end, [](Fiber& f) { f.waits = Waits::no; });
        any = true;
    }
    return any;
}

inline void run_block() {
    const unsigned threads = state.block_extent.x;
    state.exchanged.assign((threads + warp - 1) / warp, {});
    for (unsigned t = 0; t < threads; ++t) {
        Fiber& fiber = state.fibers[t];
        fiber.waits = Waits::no;
        fiber.thread = {t};
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, enter, 0);
    }
    for (;;) {
        for (unsigned t = 0; t < threads; ++t) {
            if (state.fibers[t].waits != Waits::no) continue;
            state.current = t;
            swapcontext(&state.scheduler, &state.fibers[t].context);
            if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
        }
        if (release_warps(threads)) continue;
        const auto done = std::count_if(state.fibers.begin(), state.fibers.begin() + threads,
                                        [](const Fiber& f) { return f.waits == Waits::done; });
        if (done == threads) return;
        if (done > 0) throw std::runtime_error("some threads end before a barrier of the block");
        for (unsigned t = 0; t < threads; ++t) state.fibers[t].waits = Waits::no;
    }
}

template <class Kernel, class... Arguments>
void launch(Kernel kernel, std::int64_t grid, int block, Arguments... arguments) {
    constexpr std::size_t stack = std::size_t{256} << 10;
    state.grid_extent = {static_cast<unsigned>(grid)};
    state.block_extent = {static_cast<unsigned>(block)};
    state.fibers.resize(state.block_extent.x);
    for (Fiber& fiber : state.fibers) fiber.stack.resize(stack);
    state.body = [=] { kernel(arguments...); };
    for (unsigned b = 0; b < state.grid_extent.x; ++b) {
        state.block = {b};
        run_block();
    }
}

template <class T>
T from_lane(T value, unsigned lane) {
    static_assert(sizeof(T) <= 16);
    const unsigned own = state.current % warp;
    auto& exchanged = state.exchanged[state.current / warp];
    std::memcpy(&exchanged[own * 16], &value, sizeof value);
    wait(Waits::for_warp);
    T result;
    std::memcpy(&result, &exchanged[lane % warp * 16], sizeof result);
    wait(Waits::for_warp);
    return result;
}

}  // namespace tsdiag::gpu::emulator

using std::cos, std::erf, std::exp, std::expm1, std::log, std::sin, std::sqrt, std::tanh;

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __forceinline__ inline
#define threadIdx \
    (::tsdiag::gpu::emulator::state.fibers[::tsdiag::gpu::emulator::state.current].thread)
#define blockIdx (::tsdiag::gpu::emulator::state.block)
#define blockDim (::tsdiag::gpu::emulator::state.block_extent)
#define gridDim (::tsdiag::gpu::emulator::state.grid_extent)

inline void __syncthreads() {
    ::tsdiag::gpu::emulator::wait(::tsdiag::gpu::emulator::Waits::for_block);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    using namespace ::tsdiag::gpu::emulator;
    return from_lane(value, state.current % warp ^ static_cast<unsigned>(mask));
}
