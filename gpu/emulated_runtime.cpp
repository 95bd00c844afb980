#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "runtime.hpp"

/// runtime.hpp on the host, for kernels that are emulated: memory of the host, products by loops.
/// TSDIAG_EMULATED_MEMORY bytes can be had, to see what happens when they are gone.
namespace tsdiag::gpu {
namespace {

std::size_t capacity() {
    const char* said = std::getenv("TSDIAG_EMULATED_MEMORY");
    return said != nullptr ? std::strtoull(said, nullptr, 10) : std::size_t{1} << 32;
}

struct Memory {
    std::mutex mutex;
    std::unordered_map<void*, std::size_t> blocks;
    std::size_t taken = 0;
};
/// Never destroyed: a tensor may outlive every other static object.
Memory& memory() {
    static auto& only = *new Memory;
    return only;
}

std::atomic<std::size_t> copied_to_host = 0;

/// x with so many bits behind the point of its mantissa, the nearest such number.
float rounded(float x, int bits) {
    const std::uint32_t unit = std::uint32_t{1} << (23 - bits), half = unit / 2;
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + half) & ~(unit - 1));
}

double factor(double x, Products) { return x; }
double factor(float x, Products products) {
    switch (products) {
        case Products::tf32:
            return static_cast<double>(rounded(x, 10));
        case Products::bf16:
            return static_cast<double>(rounded(x, 7));
        case Products::exact:
            break;
    }
    return static_cast<double>(x);
}

template <class T>
void multiply_as(const Product& p) {
    for (Index i = 0; i < p.count; ++i) {
        const T* a = static_cast<const T*>(p.a) + i * p.batch_a;
        const T* b = static_cast<const T*>(p.b) + i * p.batch_b;
        T* c = static_cast<T*>(p.c) + i * p.batch_c;
        for (Index r = 0; r < p.m; ++r)
            for (Index s = 0; s < p.n; ++s) {
                double sum = 0;
                for (Index k = 0; k < p.k; ++k)
                    sum +=
                        factor(p.transpose_a ? a[k * p.row_a + r] : a[r * p.row_a + k],
                               p.products) *
                        factor(p.transpose_b ? b[s * p.row_b + k] : b[k * p.row_b + s], p.products);
                c[r * p.row_c + s] = static_cast<T>(p.alpha * sum);
            }
    }
}

}  // namespace

const bool emulated = true;
int count_devices(std::string&) { return 1; }
void open(int) {}
void select(int) {}
std::string describe(int) { return "emulated on the host"; }

void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    const std::lock_guard lock(memory().mutex);
    if (memory().taken + bytes > capacity()) return nullptr;
    void* data = std::malloc(bytes);
    if (data == nullptr) return nullptr;
    memory().blocks.emplace(data, bytes);
    memory().taken += bytes;
    return data;
}
void release(void* data) {
    if (data == nullptr) return;
    {
        const std::lock_guard lock(memory().mutex);
        const auto block = memory().blocks.find(data);
        memory().taken -= block->second;
        memory().blocks.erase(block);
    }
    std::free(data);
}
std::size_t free_bytes() {
    const std::lock_guard lock(memory().mutex);
    return std::max(capacity(), memory().taken) - memory().taken;
}

void to_device(void* device, const void* host, std::size_t bytes) {
    if (bytes > 0) std::memcpy(device, host, bytes);
}
void to_device_staged(void* device, const void* host, std::size_t bytes) {
    to_device(device, host, bytes);
}
void to_host(void* host, const void* device, std::size_t bytes) {
    copied_to_host += bytes;
    if (bytes > 0) std::memcpy(host, device, bytes);
}
void clear(void* device, std::size_t bytes) { std::memset(device, 0, bytes); }
void synchronise() {}
std::size_t bytes_to_host() { return copied_to_host; }

void multiply(const Product& p) {
    if (p.type == Type::f32)
        multiply_as<float>(p);
    else
        multiply_as<double>(p);
}

void require_launched(const char*) {}

}  // namespace tsdiag::gpu
