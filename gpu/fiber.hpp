#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/// A stack that can be suspended and resumed.  ucontext.h saves the signal mask by a system call at
/// each switch, which takes a hundred times as long as the switch itself.
namespace tsdiag::gpu::emulator {

class Stack {
  public:
    /// That of the current thread.
    Stack() = default;
    /// A new one; the first switch to it calls `entry`, which never returns.
    explicit Stack(void (*entry)());

    /// Switches to `to`; returns when something switches back.
    void change_to(Stack& to);
    /// Must be called first by `entry`; `from` is the stack that switched to it.
    static void arrived(Stack& from);

  private:
    static constexpr std::size_t size_ = std::size_t{128} << 10;
    std::unique_ptr<std::byte[]> memory_ = {};
#if defined(__x86_64__)
    void* pointer_ = nullptr;
#else
    ucontext_t context_ = {};
#endif
    [[maybe_unused]] const void* bottom_ = nullptr;  ///< for the sanitizer
    [[maybe_unused]] std::size_t bytes_ = 0;
    [[maybe_unused]] void* fake_ = nullptr;
};

#if defined(__x86_64__)

/// Saves the callee-saved registers, restores those of the other stack and returns there.
[[gnu::naked, gnu::noinline]] inline void change_stack(void** /*kept*/, void* /*taken*/) {
    asm volatile(
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
}

inline Stack::Stack(void (*entry)())
    : memory_(new std::byte[size_]), bottom_(memory_.get()), bytes_(size_) {
    // As after a call: 8 beyond a multiple of 16, where the return address would be.
    const auto end = reinterpret_cast<std::uintptr_t>(memory_.get() + size_) & ~std::uintptr_t{15};
    void** top = reinterpret_cast<void**>(end) - 1;
    *top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int registers = 6; registers > 0; --registers) *--top = nullptr;
    pointer_ = top;
}

inline void Stack::change_to(Stack& to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_, to.bottom_, to.bytes_);
#endif
    change_stack(&pointer_, to.pointer_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_, nullptr, nullptr);
#endif
}

inline void Stack::arrived([[maybe_unused]] Stack& from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &from.bottom_, &from.bytes_);
#endif
}

#else

inline Stack::Stack(void (*entry)()) : memory_(new std::byte[size_]) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = memory_.get();
    context_.uc_stack.ss_size = size_;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
}
inline void Stack::change_to(Stack& to) { swapcontext(&context_, &to.context_); }
inline void Stack::arrived(Stack&) {}

#endif

}  // namespace tsdiag::gpu::emulator
