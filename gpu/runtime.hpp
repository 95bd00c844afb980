#pragma once
#include <cstddef>
#include <string>

#include "targets.hpp"
#include "tsdiag/backend.hpp"

/// What the backend needs of a device besides kernels: memory, copies, products.  Each host thread
/// has its own stream, which executes its work in order; it waits only where it reads.  Implemented
/// by cuda_runtime.cpp for the device, by emulated_runtime.cpp on the host.
namespace tsdiag::gpu {

/// Whether kernels run as fibers on the host.
extern const bool emulated;
/// Number of usable devices; 0: `why` says what is missing.
int count_devices(std::string& why);
/// "NVIDIA H200".
std::string name_of(int index);
Capability capability(int index);
/// Must precede the first use of device `index`.
void open(int index);
/// Makes device `index` the current one of this thread.
void select(int index);
int selected();
/// "NVIDIA H200, compute capability 9.0, 139.8 GiB (139.1 GiB free), driver 13.0, runtime 13.0".
std::string describe(int index);

/// Null when out of memory.  Freed memory is reused once earlier kernels have ended.
void* allocate(std::size_t bytes);
void release(void* data);
/// Returns memory that is kept for reuse to the device.
void trim();
/// Page-locked memory of the host; null when out of memory.
void* allocate_host(std::size_t bytes);
void release_host(void* data);
std::size_t free_bytes();
std::size_t all_bytes();

/// `host` may be changed on return.
void to_device(void* device, const void* host, std::size_t bytes);
/// The same, with large copies staged through page-locked buffers.
void to_device_staged(void* device, const void* host, std::size_t bytes);
void to_host(void* host, const void* device, std::size_t bytes);
/// Fills with zero bytes.
void clear(void* device, std::size_t bytes);
/// Waits for all work submitted by this thread.
void synchronise();
/// The same for destructors: without exceptions.
void settle() noexcept;
/// Another stream on the selected device, never destroyed: for a library with threads of its own,
/// each of which would take the stream of its thread for that of this one.  This thread waits
/// before the library reads what it has made, and for the library afterwards.
void* new_stream();
void wait_for(void* stream);
/// Bytes that `to_host` has copied since the program started.
std::size_t bytes_to_host();

/// A stack of row-major products c = alpha op(a) op(b), op(a) (m, k), op(b) (k, n).
struct Product {
    Type type = Type::f32;
    Products products = Products::exact;  ///< of float32
    bool transpose_a = false, transpose_b = false;
    Index m = 0, n = 0, k = 0, count = 0;
    double alpha = 1;
    const void *a = nullptr, *b = nullptr;
    void* c = nullptr;
    Index row_a = 0, row_b = 0, row_c = 0;        ///< distances of rows, in elements
    Index batch_a = 0, batch_b = 0, batch_c = 0;  ///< and of products; 0: the same matrix

    const char* name() const { return type == Type::f32 ? "product float32" : "product float64"; }
    double multiplications() const { return double(count) * double(m) * double(n) * double(k); }
    /// Of all matrices, each once.
    double bytes() const {
        const Index matrices_a = batch_a == 0 ? 1 : count, matrices_b = batch_b == 0 ? 1 : count;
        return double(bytes_of(type)) *
               double(matrices_a * m * k + matrices_b * k * n + count * m * n);
    }
};
void multiply(const Product& product);

/// Where TSDIAG_DEVICE_REQUESTS is set, measures the work that is submitted while it lives, and
/// adds it to `requests`.
class TimedRequest {
  public:
    static bool wanted();
    TimedRequest() = default;
    TimedRequest(const char* name, double bytes, double elements);
    ~TimedRequest();
    TimedRequest(const TimedRequest&) = delete;
    TimedRequest& operator=(const TimedRequest&) = delete;

  private:
    const char* name_ = nullptr;
    double bytes_ = 0, elements_ = 0;
    void* begin_ = nullptr;  ///< an event
};

/// Throws `Error` where the launch of `kernel`, or a kernel before it, has failed.
void require_launched(const char* kernel);

}  // namespace tsdiag::gpu
