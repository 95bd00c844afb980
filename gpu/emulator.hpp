#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "emulated_stream.hpp"
#include "fiber.hpp"
#include "requests.hpp"

/// CUDA's threads as fibers: blocks run serially, each warp of a block as far as it can, its lanes
/// in turn up to where they wait for each other.  The order of blocks, warps and lanes is that of
/// TSDIAG_EMULATED_ORDER: "forward", "reverse", or the seed of a shuffle at every barrier.  A
/// barrier or an exchange that not all threads reach is an exception, as is a launch that a device
/// would refuse.
namespace tsdiag::gpu::emulator {

struct Extent {
    unsigned x = 1;
};

enum class Waits { no, for_warp, for_block, done };

struct Fiber {
    explicit Fiber(void (*entry)()) : stack(entry) {}
    Stack stack;
    Waits waits = Waits::done;
    Extent thread;
};

constexpr unsigned warp = 32;

struct State {
    Extent block, block_extent, grid_extent;
    std::deque<Fiber> fibers;
    Stack scheduler;
    unsigned current = 0;
    std::function<void()> body;
    std::exception_ptr failure;
    /// Double-buffered exchange of lanes: one may write the next while another reads the last.
    std::vector<std::array<std::array<unsigned char, warp * 16>, 2>> exchanged;
    std::vector<unsigned> exchanges;  ///< of each thread
    bool reversed = false;
    std::uint64_t shuffle = 0;  ///< the last random number; 0: no shuffling
};
inline constinit thread_local State* made_state = nullptr;
[[gnu::noinline]] inline State& make_state() {
    thread_local State made;
    made_state = &made;
    return made;
}
/// That of this thread of the host; others launch concurrently.  By a pointer: each access to an
/// object of a thread that has a constructor asks first whether it was called.
inline State& own_state() { return made_state != nullptr ? *made_state : make_state(); }

/// An order of 0 .. count - 1, by TSDIAG_EMULATED_ORDER at the start of the grid.
class Order {
  public:
    Order(State& state, std::uint64_t count) : count_(count) {
        if (state.reversed) next_ = step_ = count - 1;
        if (state.shuffle == 0) return;
        state.shuffle = state.shuffle * 6364136223846793005U + 1442695040888963407U;
        next_ = (state.shuffle >> 33) % count;
        step_ = (state.shuffle >> 17) % count;
        while (std::gcd(step_, count) != 1) ++step_;
    }
    unsigned next() {
        const std::uint64_t found = next_;
        next_ += step_;
        if (next_ >= count_) next_ -= count_;
        return unsigned(found);
    }

  private:
    std::uint64_t count_, next_ = 0, step_ = 1;
};

inline void read_order(State& state) {
    const char* said = std::getenv("TSDIAG_EMULATED_ORDER");
    const std::string order = said != nullptr ? said : "forward";
    state.reversed = order == "reverse";
    const std::uint64_t seed = std::strtoull(order.c_str(), nullptr, 10);
    if (seed == 0)
        state.shuffle = 0;
    else if (state.shuffle == 0)  // else continues
        state.shuffle = seed;
}

inline void wait(State& state, Waits how) {
    Fiber& fiber = state.fibers[state.current];
    fiber.waits = how;
    fiber.stack.change_to(state.scheduler);
}

/// Body of a fiber: one thread of each block in turn.
inline void enter() {
    State& state = own_state();
    Stack::arrived(state.scheduler);
    for (;;) {
        try {
            state.body();
        } catch (...) {
            state.failure = std::current_exception();
        }
        wait(state, Waits::done);
    }
}

/// Runs a warp until all its lanes wait at a barrier or are done.
inline void run_warp(State& state, unsigned first, unsigned lanes) {
    for (;;) {
        Order order(state, lanes);
        for (unsigned i = 0; i < lanes; ++i) {
            state.current = first + order.next();
            Fiber& fiber = state.fibers[state.current];
            if (fiber.waits != Waits::no) continue;
            state.scheduler.change_to(fiber.stack);
            if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
        }
        unsigned arrived = 0;
        for (unsigned t = first; t < first + lanes; ++t)
            arrived += state.fibers[t].waits == Waits::for_warp ? 1 : 0;
        if (arrived == 0) return;
        if (arrived != lanes)
            throw std::runtime_error("lanes of a warp part at an operation of the whole warp");
        for (unsigned t = first; t < first + lanes; ++t) state.fibers[t].waits = Waits::no;
    }
}

inline void run_block(State& state) {
    const unsigned threads = state.block_extent.x, warps = (threads + warp - 1) / warp;
    for (unsigned t = 0; t < threads; ++t) {
        state.fibers[t].waits = Waits::no;
        state.fibers[t].thread = {t};
    }
    for (;;) {
        Order order(state, warps);
        for (unsigned i = 0; i < warps; ++i) {
            const unsigned first = order.next() * warp;
            run_warp(state, first, threads - first < warp ? threads - first : warp);
        }
        unsigned done = 0;
        for (unsigned t = 0; t < threads; ++t) done += state.fibers[t].waits == Waits::done ? 1 : 0;
        if (done == threads) return;
        if (done > 0) throw std::runtime_error("some threads end before a barrier of the block");
        for (unsigned t = 0; t < threads; ++t) state.fibers[t].waits = Waits::no;
    }
}

inline void run_grid(std::int64_t grid, int block, std::function<void()> body) {
    State& state = own_state();
    read_order(state);
    state.grid_extent = {unsigned(grid)};
    state.block_extent = {unsigned(block)};
    while (state.fibers.size() < state.block_extent.x) state.fibers.emplace_back(enter);
    state.exchanged.resize((state.block_extent.x + warp - 1) / warp);
    state.exchanges.assign(state.block_extent.x, 0);
    state.body = std::move(body);
    auto order = Order(state, std::uint64_t(grid));
    try {
        for (std::int64_t b = 0; b < grid; ++b) {
            state.block = {order.next()};
            run_block(state);
        }
    } catch (...) {
        state.fibers.clear();  // some have stopped midway
        throw;
    }
}

template <class Kernel, class... Arguments>
void launch(const char* name, Kernel kernel, std::int64_t grid, int block, Arguments... arguments) {
    static_assert((std::is_trivially_copyable_v<Arguments> && ...));
    static_assert((sizeof(Arguments) + ... + 0) <= 4096, "arguments of a kernel");
    constexpr std::int64_t largest_grid = (std::int64_t{1} << 31) - 1;
    if (grid < 1 || grid > largest_grid || block < 1 || block > 1024 || block % warp != 0)
        throw std::runtime_error(std::string(name) + ": a launch of " + std::to_string(grid) +
                                 " blocks of " + std::to_string(block) + " threads");
    add_request(name, (bytes_of_argument(arguments) + ... + 0.0),
                std::max({0.0, elements_of_argument(arguments)...}), 0);
    enqueue([=] { run_grid(grid, block, [=] { kernel(arguments...); }); });
}

template <class T>
T from_lane(T value, unsigned lane) {
    static_assert(sizeof(T) <= 16);
    State& state = own_state();
    const unsigned own = state.current, in_warp = own / warp;
    const unsigned turn = state.exchanges[own]++ % 2;
    std::memcpy(&state.exchanged[in_warp][turn][own % warp * 16], &value, sizeof value);
    wait(state, Waits::for_warp);
    T result;
    std::memcpy(&result, &state.exchanged[in_warp][turn][lane % warp * 16], sizeof result);
    return result;
}

}  // namespace tsdiag::gpu::emulator

using std::copysign, std::cos, std::erf, std::exp, std::expm1, std::hypot, std::log, std::sin,
    std::sqrt, std::tanh;

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __forceinline__ inline
#define threadIdx                                              \
    (::tsdiag::gpu::emulator::own_state()                      \
         .fibers[::tsdiag::gpu::emulator::own_state().current] \
         .thread)
#define blockIdx (::tsdiag::gpu::emulator::own_state().block)
#define blockDim (::tsdiag::gpu::emulator::own_state().block_extent)
#define gridDim (::tsdiag::gpu::emulator::own_state().grid_extent)

inline void __syncthreads() {
    using namespace ::tsdiag::gpu::emulator;
    wait(own_state(), Waits::for_block);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with) {
    using namespace ::tsdiag::gpu::emulator;
    if (mask != 0xFFFFFFFFU) throw std::runtime_error("an exchange of a part of a warp");
    return from_lane(value, own_state().current % warp ^ unsigned(with));
}

// Blocks run one after another, so that these are what they do alone.
inline void __threadfence() {}
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
    return std::exchange(*at, *at + value);
}
inline unsigned long long atomicMax(unsigned long long* at, unsigned long long value) {
    return std::exchange(*at, *at < value ? value : *at);
}
