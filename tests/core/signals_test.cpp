#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "tsdiag/ops.hpp"

/// Signals of the program that this library is part of, a profiler's for example.
namespace tsdiag::test {
namespace {

std::uintptr_t stack_begin, stack_end;
std::atomic<int> arrived, beside_stack;

void on_timer(int) {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    ++arrived;
    if (here < stack_begin || here >= stack_end) ++beside_stack;
}

/// Calls `on_timer` without SA_ONSTACK 10 000 times a second while it lives.
class Timer {
  public:
    Timer() {
        pthread_attr_t of_this_thread;
        pthread_getattr_np(pthread_self(), &of_this_thread);
        void* begin = nullptr;
        std::size_t size = 0;
        pthread_attr_getstack(&of_this_thread, &begin, &size);
        pthread_attr_destroy(&of_this_thread);
        stack_begin = reinterpret_cast<std::uintptr_t>(begin);
        stack_end = stack_begin + size;
        arrived = beside_stack = 0;
        struct sigaction action {};
        action.sa_handler = on_timer;
        action.sa_flags = SA_RESTART;
        sigaction(SIGALRM, &action, &before_);
        sigevent to_this_thread{};  // others have other stacks
        to_this_thread.sigev_notify = SIGEV_THREAD_ID;
        to_this_thread.sigev_signo = SIGALRM;
        to_this_thread._sigev_un._tid = gettid();
        timer_create(CLOCK_MONOTONIC, &to_this_thread, &timer_);
        const itimerspec often{{0, 100'000}, {0, 100'000}};
        timer_settime(timer_, 0, &often, nullptr);
    }
    ~Timer() {
        timer_delete(timer_);
        sigaction(SIGALRM, &before_, nullptr);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

  private:
    struct sigaction before_ {};
    timer_t timer_{};
};

TEST(Signals, OfATimerRunOnTheStackWhileProductsAreComputed) {
    for (const auto& [m, k, n] : {std::array<Index, 3>{64, 64, 64}, {100, 3000, 70}, {7, 500, 9}})
        for (const Transpose t : {Transpose::none, Transpose::first, Transpose::second}) {
            const Shape a{1, t == Transpose::first ? k : m, t == Transpose::first ? m : k};
            const Shape b{1, t == Transpose::second ? n : k, t == Transpose::second ? k : n};
            const std::vector<float> ones(std::size_t(m * k + k * n), 1);
            const Tensor left =
                Tensor::from_host(cpu(), a, std::span(ones).first(std::size_t(m * k)), Type::f32);
            const Tensor right =
                Tensor::from_host(cpu(), b, std::span(ones).first(std::size_t(k * n)), Type::f32);
            const Timer timer;
            while (arrived < 100) ASSERT_EQ(matmul(left, right, t).to_host<float>()[0], float(k));
            EXPECT_EQ(beside_stack, 0) << "of " << arrived << " signals, " << m << " x " << k
                                       << " x " << n << ", transposed " << int(t);
        }
}

}  // namespace
}  // namespace tsdiag::test
