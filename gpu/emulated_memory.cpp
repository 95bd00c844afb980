#include "emulated_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tsdiag/error.hpp"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace tsdiag::gpu::emulator {
namespace {

struct Block {
    std::size_t bytes = 0;
    int device = 0;
    bool used = true;
    std::size_t use = 0;  ///< unique number of this use
};

using Sizes = std::pair<int, std::size_t>;  // device, bytes

struct Memory {
    std::mutex mutex;
    std::map<const void*, Block> blocks;  ///< in use, freed, or cached
    std::map<Sizes, std::vector<void*>> kept;
    std::size_t taken = 0, uses = 0;
};
/// Never destroyed: a tensor may outlive every other static object.
Memory& memory() {
    static auto& only = *new Memory;
    return only;
}

/// Freed blocks that this thread's stream has not processed yet, under the lock of `memory`; the
/// stream's work on them may outlive the thread.
thread_local const auto given = std::make_shared<std::map<Sizes, std::vector<void*>>>();

std::size_t said_bytes(const char* name, std::size_t otherwise) {
    const char* said = std::getenv(name);
    return said != nullptr ? std::strtoull(said, nullptr, 10) : otherwise;
}
std::size_t capacity() {
    const std::size_t taken = said_bytes("TSDIAG_EMULATED_TAKEN", 0);
    return std::max(all_bytes(), taken) - taken;
}

void forbid([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(data, bytes);
#endif
}
void allow([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(data, bytes);
#endif
}

/// The last of `blocks` of that size; null where there is none.
void* last_of(std::map<Sizes, std::vector<void*>>& blocks, const Sizes& size) {
    const auto found = blocks.find(size);
    if (found == blocks.end() || found->second.empty()) return nullptr;
    void* data = found->second.back();
    found->second.pop_back();
    return data;
}

[[noreturn]] void refuse(const char* what, const std::string& why) {
    throw Error("CUDA: " + std::string(what) + ": " + why);
}

}  // namespace

std::size_t all_bytes() { return said_bytes("TSDIAG_EMULATED_MEMORY", std::size_t{1} << 32); }
std::size_t free_bytes() {
    const std::lock_guard lock(memory().mutex);
    return std::max(capacity(), memory().taken) - memory().taken;
}

std::pair<void*, std::function<void()>> take(std::size_t bytes, int device) {
    const std::lock_guard lock(memory().mutex);
    if (memory().taken + bytes > capacity()) return {nullptr, nullptr};
    const Sizes size{device, bytes};
    void* data = last_of(*given, size);
    const bool in_order = data != nullptr;  // after the stream's earlier work on it
    if (data == nullptr) data = last_of(memory().kept, size);
    if (data == nullptr) {
        data = std::malloc(bytes);
        if (data == nullptr) return {nullptr, nullptr};
        std::memset(data, 0xFF, bytes);
    } else if (!in_order) {
        allow(data, bytes);
    }
    memory().blocks[data] = {bytes, device, true, memory().uses++};
    memory().taken += bytes;
    if (!in_order) return {data, nullptr};
    return {data, [data, bytes] { allow(data, bytes); }};
}

std::function<void()> give(void* data, int device) {
    const std::lock_guard lock(memory().mutex);
    const auto block = memory().blocks.find(data);
    if (block == memory().blocks.end() || !block->second.used)
        refuse("cudaFreeAsync", "the memory is not in use");
    if (block->second.device != device) refuse("cudaFreeAsync", "another device is selected");
    const Sizes size{device, block->second.bytes};
    block->second.used = false;
    memory().taken -= size.second;
    (*given)[size].push_back(data);
    return [data, size, use = block->second.use, own = given] {
        std::memset(data, 0xFF, size.second);  // NaN, or -1
        forbid(data, size.second);
        const std::lock_guard again(memory().mutex);
        if (memory().blocks[data].use != use) return;  // its thread has reused it
        std::erase((*own)[size], data);
        memory().kept[size].push_back(data);
    };
}

void require_inside(const void* data, std::size_t bytes, int device, const char* what) {
    const std::lock_guard lock(memory().mutex);
    auto block = memory().blocks.upper_bound(data);
    if (block == memory().blocks.begin()) refuse(what, "is outside the memory of a device");
    --block;
    const auto* begin = static_cast<const std::byte*>(block->first);
    const auto offset = std::size_t(static_cast<const std::byte*>(data) - begin);
    if (offset + bytes > block->second.bytes) refuse(what, "is outside the memory of a device");
    if (!block->second.used) refuse(what, "the memory was given back");
    if (block->second.device != device) refuse(what, "another device is selected");
}

bool is_on_device(const void* data) {
    const std::lock_guard lock(memory().mutex);
    auto block = memory().blocks.upper_bound(data);
    if (block == memory().blocks.begin()) return false;
    --block;
    const auto* begin = static_cast<const std::byte*>(block->first);
    return static_cast<const std::byte*>(data) < begin + block->second.bytes;
}

}  // namespace tsdiag::gpu::emulator
