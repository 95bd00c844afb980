#include "onednn.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"

#ifdef TSDIAG_ONEDNN
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>
#endif

namespace tsdiag::onednn {

#ifdef TSDIAG_ONEDNN

namespace {

/// A stack of this thread for handlers with SA_ONSTACK, unless it has one.
class HandlerStack {
  public:
    HandlerStack() {
        stack_t now{};
        if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
        const auto size = std::size_t(std::max(sysconf(_SC_SIGSTKSZ), 1L << 16));
        memory_ = std::make_unique_for_overwrite<std::byte[]>(size);
        now = {.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = size};
        sigaltstack(&now, nullptr);
    }
    ~HandlerStack() {
        stack_t now{};
        if (!memory_ || sigaltstack(nullptr, &now) != 0 || now.ss_sp != memory_.get()) return;
        now.ss_flags = SS_DISABLE;
        sigaltstack(&now, nullptr);
    }
    HandlerStack(const HandlerStack&) = delete;
    HandlerStack& operator=(const HandlerStack&) = delete;

  private:
    std::unique_ptr<std::byte[]> memory_;
};

/// What a call needs around it: one thread, as several sum in an order that depends on their
/// number, and no handler on the stack.
class Call {
  public:
    Call() {
        thread_local const HandlerStack stack;
        static const sigset_t can_wait = [] {
            sigset_t all;
            sigfillset(&all);
            for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
                sigdelset(&all, fault);
            return all;
        }();
        pthread_sigmask(SIG_BLOCK, &can_wait, &signals_);
        omp_set_num_threads(1);
    }
    ~Call() {
        omp_set_num_threads(threads_);
        pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

  private:
    int threads_ = omp_get_max_threads();
    sigset_t signals_{};
};

const dnnl::engine& engine() {
    static const dnnl::engine one(dnnl::engine::kind::cpu, 0);
    return one;
}

}  // namespace

bool is_here() { return true; }
std::string version() {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
}

bool multiply(const Sizes& s, float alpha, const float* a, Index lda, const float* b, Index ldb,
              float* c, Index ldc) {
    const Call around;
    return dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, alpha, a,
                      lda, b, ldb, 0.0F, c, ldc) == dnnl_success;
}

bool has_bfloat16() {
    constexpr auto needed = unsigned(dnnl_cpu_isa_avx512_core_bf16);
    return (unsigned(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

void multiply(const Sizes& s, const std::uint16_t* a, const std::uint16_t* b, float* c, Index ldc,
              bool add) {
    using Type = dnnl::memory::data_type;
    using Strides = dnnl::memory::dims;
    const Call around;
    try {
        const dnnl::memory::desc left({s.m, s.k}, Type::bf16,
                                      s.transpose_a ? Strides{1, s.m} : Strides{s.k, 1});
        const dnnl::memory::desc right({s.k, s.n}, Type::bf16,
                                       s.transpose_b ? Strides{1, s.k} : Strides{s.n, 1});
        const dnnl::memory::desc out({s.m, s.n}, Type::f32, Strides{ldc, 1});
        // Working memory of our own: that of the library belongs to one thread a primitive.
        dnnl::primitive_attr own;
        own.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (add) {
            dnnl::post_ops sum;
            sum.append_sum(1.0F);
            own.set_post_ops(sum);
        }
        const dnnl::matmul::primitive_desc plan({left, right, out}, own, engine());
        thread_local std::vector<std::byte> work;
        work.resize(std::max(work.size(), plan.scratchpad_desc().get_size()));
        const auto memory = [](const dnnl::memory::desc& shape, const void* data) {
            return dnnl::memory(shape, engine(), const_cast<void*>(data));
        };
        dnnl::stream stream(engine());
        dnnl::matmul(plan).execute(
            stream, {{DNNL_ARG_SRC, memory(left, a)},
                     {DNNL_ARG_WEIGHTS, memory(right, b)},
                     {DNNL_ARG_DST, memory(out, c)},
                     {DNNL_ARG_SCRATCHPAD, memory(plan.scratchpad_desc(), work.data())}});
        stream.wait();
    } catch (const dnnl::error& e) {
        throw BrokenInvariant(
            fmt::format("a product of {} x {} x {} in bfloat16: {}", s.m, s.k, s.n, e.what()));
    }
}

#else

bool is_here() { return false; }
std::string version() { return {}; }
bool multiply(const Sizes&, float, const float*, Index, const float*, Index, float*, Index) {
    return false;
}
bool has_bfloat16() { return false; }
void multiply(const Sizes&, const std::uint16_t*, const std::uint16_t*, float*, Index, bool) {
    throw BrokenInvariant("a product in bfloat16 without oneDNN");
}

#endif

}  // namespace tsdiag::onednn
