#include <gtest/gtest.h>

#include "tsdiag/backend.hpp"
#include "tsdiag/tensor.hpp"

namespace tsdiag::test {
namespace {

TEST(CpuBytes, CountsWhatTensorsHoldAndTheMostTheyHeld) {
    restart_cpu_peak();
    const std::size_t before = cpu_bytes().now;
    constexpr std::size_t size = 8 * 100 * 30;
    {
        const Tensor a = Tensor::empty(cpu(), {1, 100, 30}, Type::f64);
        const Tensor view = a.row_range(3, 5), same = a;
        EXPECT_EQ(cpu_bytes().now - before, size);
        { const Tensor b = Tensor::empty(cpu(), {1, 100, 30}, Type::f64); }
        EXPECT_EQ(cpu_bytes().now - before, size);
        EXPECT_EQ(cpu_bytes().peak - before, 2 * size);
    }
    EXPECT_EQ(cpu_bytes().now, before);
    EXPECT_EQ(cpu_bytes().peak - before, 2 * size);
    restart_cpu_peak();
    EXPECT_EQ(cpu_bytes().peak, before);
}

}  // namespace
}  // namespace tsdiag::test
