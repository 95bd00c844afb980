#include <atomic>
#include <cstdlib>
#include <cstring>

#include "runtime.hpp"

/// runtime.hpp on the host, for kernels that are emulated: memory of the host, products by loops.
namespace tsdiag::gpu {

int count_devices(std::string&) { return 1; }
void select(int) {}
std::string describe(int) { return "emulated on the host"; }

void* allocate(std::size_t bytes) { return bytes == 0 ? nullptr : std::malloc(bytes); }
void release(void* data) { std::free(data); }
std::size_t free_bytes() { return 0; }

void to_device(void* device, const void* host, std::size_t bytes) {
    if (bytes > 0) std::memcpy(device, host, bytes);
}
namespace {
std::atomic<std::size_t> copied_to_host = 0;
}

void to_host(void* host, const void* device, std::size_t bytes) {
    copied_to_host += bytes;
    if (bytes > 0) std::memcpy(host, device, bytes);
}
std::size_t bytes_to_host() { return copied_to_host; }

namespace {

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
                    sum += static_cast<double>(p.transpose_a ? a[k * p.row_a + r]
                                                             : a[r * p.row_a + k]) *
                           static_cast<double>(p.transpose_b ? b[s * p.row_b + k]
                                                             : b[k * p.row_b + s]);
                c[r * p.row_c + s] = static_cast<T>(p.alpha * sum);
            }
    }
}

}  // namespace

void multiply(const Product& p) {
    if (p.type == Type::f32)
        multiply_as<float>(p);
    else
        multiply_as<double>(p);
}

void require_launched(const char*) {}

}  // namespace tsdiag::gpu
