#include "core/tensor/block_pool.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tsdiag {
namespace {

constexpr std::size_t megabyte = std::size_t{1} << 20;

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }

TEST(BlockPool, GivesADroppedBlockToItsLike) {
    BlockPool pool;
    void* first = pool.take(40 * megabyte);
    ASSERT_NE(first, nullptr);
    std::memset(first, 1, 40 * megabyte);
    pool.give(first, 40 * megabyte);
    void* again = pool.take(40 * megabyte - 100);  // of the same size class
    EXPECT_EQ(again, first);
    void* other = pool.take(40 * megabyte);
    EXPECT_NE(other, again);
    pool.give(again, 40 * megabyte - 100);
    pool.give(other, 40 * megabyte);
}

TEST(BlockPool, AlignsBlocksOfAnySize) {
    BlockPool pool;
    for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65}, megabyte - 1,
                              megabyte, megabyte + 1, 7 * megabyte + 13}) {
        void* block = pool.take(bytes);
        ASSERT_NE(block, nullptr) << bytes;
        EXPECT_TRUE(aligned(block)) << bytes;
        std::memset(block, 1, bytes);
        pool.give(block, bytes);
    }
}

TEST(BlockPool, KeepsBlocksOfManySizesWithinItsSlack) {
    BlockPool pool;
    pool.set_slack(64 * megabyte);
    void* first = pool.take(12 * megabyte);
    pool.give(first, 12 * megabyte);
    void* other = pool.take(20 * megabyte);
    EXPECT_EQ(pool.bytes(), 32 * megabyte);  // the first stays
    pool.give(other, 20 * megabyte);
    EXPECT_EQ(pool.bytes(), 32 * megabyte);  // as does the other
    void* large = pool.take(72 * megabyte);  // the peak
    EXPECT_EQ(pool.bytes(), 104 * megabyte);
    void* more = pool.take(144 * megabyte);  // both fit into the slack
    EXPECT_EQ(pool.bytes(), 248 * megabyte);
    pool.give(large, 72 * megabyte);
    void* again = pool.take(112 * megabyte);  // with 144 in use, the peak is 256
    EXPECT_LE(pool.bytes(), (256 + 64) * megabyte);
    pool.set_slack(0);
    EXPECT_LE(pool.bytes(), 256 * megabyte);
    pool.give(again, 112 * megabyte);
    pool.give(more, 144 * megabyte);
}

TEST(BlockPool, NeverHoldsMoreThanWasOnceInUse) {
    BlockPool pool;
    void* small[8];
    for (void*& block : small) block = pool.take(4 * megabyte);
    for (void* block : small) pool.give(block, 4 * megabyte);
    EXPECT_EQ(pool.bytes(), 32 * megabyte);  // kept
    void* large = pool.take(24 * megabyte);  // fits none of them: some are freed
    EXPECT_EQ(pool.bytes(), 32 * megabyte);
    pool.give(large, 24 * megabyte);
    EXPECT_LE(pool.bytes(), 32 * megabyte);
    void* huge = pool.take(320 * megabyte);
    EXPECT_EQ(pool.bytes(), 320 * megabyte);
    pool.give(huge, 320 * megabyte);  // too large to be kept
    EXPECT_EQ(pool.bytes(), 0U);
}

}  // namespace
}  // namespace tsdiag
