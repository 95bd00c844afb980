#include "block_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace tsdiag {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t smallest = std::size_t{1} << 20;  // below, malloc reuses memory well
constexpr std::size_t most_kept = std::size_t{1} << 28;

// Large blocks are mapped directly: after freeing one, malloc takes the next from its heap and
// keeps the holes.
#ifdef TSDIAG_ADDRESS_SANITIZER  // its allocator knows the end of every block
void* take_large(std::size_t size) { return std::aligned_alloc(alignment, size); }
void give_large(void* block, std::size_t) { std::free(block); }
#else
void* take_large(std::size_t size) {
    void* block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
}
void give_large(void* block, std::size_t size) { munmap(block, size); }
#endif

/// Size classes in steps of an eighth to a sixteenth, so that blocks are reused.
std::size_t size_class(std::size_t bytes) {
    std::size_t step = alignment;
    if (bytes >= smallest)
        while (step * 16 < bytes) step *= 2;
    return std::max(alignment, (bytes + step - 1) / step * step);
}

}  // namespace

BlockPool& BlockPool::of_tensors() {
    static auto& only = *new BlockPool;  // never destroyed: tensors may outlive static objects
    return only;
}

BlockPool::~BlockPool() { drop_until(0); }

void BlockPool::set_slack(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    slack_ = bytes;
    drop_until(peak_bytes_ - live_bytes_ + slack_);
}

void* BlockPool::take(std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    if (size < smallest) return std::aligned_alloc(alignment, size);
    const std::lock_guard lock(mutex_);
    const std::size_t live = live_bytes_ + size;
    void* block = nullptr;
    if (const auto found = kept_.find(size); found != kept_.end()) {
        block = found->second;
        kept_.erase(found);
        kept_bytes_ -= size;
    } else {
        drop_until(std::max(peak_bytes_, live) - live + slack_);
        block = take_large(size);
        if (block == nullptr) {
            drop_until(0);
            block = take_large(size);
        }
        if (block == nullptr) return nullptr;
    }
    live_bytes_ = live;
    peak_bytes_ = std::max(peak_bytes_, live);
    return block;
}

void BlockPool::give(void* block, std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    if (size < smallest) return std::free(block);
    const std::lock_guard lock(mutex_);
    live_bytes_ -= size;
    if (size > most_kept) return give_large(block, size);
    kept_.emplace(size, block);
    kept_bytes_ += size;
    drop_until(std::min(most_kept, peak_bytes_ - live_bytes_ + slack_));
}

std::size_t BlockPool::bytes() const {
    const std::lock_guard lock(mutex_);
    return live_bytes_ + kept_bytes_;
}

/// Drops the largest first.
void BlockPool::drop_until(std::size_t most) {
    while (kept_bytes_ > most) {
        const auto last = std::prev(kept_.end());
        kept_bytes_ -= last->first;
        give_large(last->second, last->first);
        kept_.erase(last);
    }
}

}  // namespace tsdiag
