#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "support/files.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/ops.hpp"

/// A mapped file that is truncated while it is a factor of a product.
namespace tsdiag::test {
namespace {

constexpr int on_own_stack = 41, beside_it = 42;

void tell_stack(const char*) {
    stack_t now{};
    sigaltstack(nullptr, &now);
    _exit((now.ss_flags & SS_ONSTACK) != 0 ? on_own_stack : beside_it);
}

/// Ends this process by the loss of the last pages of a matrix while it is multiplied.
void multiply_lost(Index rows, Index cols, Transpose t, bool left) {
    std::shared_ptr<const Checkpoint> mapped;
    int descriptor = -1;
    {
        const TemporaryDirectory folder;
        const std::string file = folder / "lost.safetensors";
        const std::vector<float> ones(std::size_t(rows * cols), 1);
        write_safetensors(file, std::vector<NamedArray>{{"a", {rows, cols}, ones, {}}});
        mapped = open_checkpoint(file);
        descriptor = open(file.c_str(), O_RDWR);
    }
    const Tensor lost =
        Tensor::borrow(cpu(), {1, rows, cols}, as_is<float>(mapped->tensor("a")).value(), mapped);
    const Transpose turned = left ? Transpose::first : Transpose::second;
    const Index inner = (t == turned) == left ? rows : cols, other = 48;
    const bool lies = left ? t == Transpose::second : t != Transpose::first;
    const std::vector<float> ones(std::size_t(inner * other), 1);
    const Tensor whole = Tensor::from_host(
        cpu(), lies ? Shape{1, other, inner} : Shape{1, inner, other}, ones, Type::f32);
    watch_mapped_files(tell_stack);
    if (ftruncate(descriptor, 4096) != 0) _exit(1);
    left ? matmul(lost, whole, t) : matmul(whole, lost, t);
    _exit(0);
}

TEST(LostPageDeathTest, IsToldOnAStackOfTheHandlersOwn) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const auto& [rows, cols] : {std::pair<Index, Index>{300, 200}, {40, 2000}})
        for (const Transpose t : {Transpose::none, Transpose::first, Transpose::second})
            for (const bool left : {true, false})
                EXPECT_EXIT(multiply_lost(rows, cols, t, left),
                            testing::ExitedWithCode(on_own_stack), "")
                    << rows << " x " << cols << ", transposed " << int(t) << ", left " << left;
}

}  // namespace
}  // namespace tsdiag::test
