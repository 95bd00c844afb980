#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>

#include "handles.hpp"
#include "requests.hpp"
#include "tsdiag/error.hpp"

/// runtime.hpp on an NVIDIA device.
namespace tsdiag::gpu {
namespace {

void require(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // clears this call's error: another device may be tried
    throw Error(fmt::format("CUDA: {} failed: {} ({})", what, cudaGetErrorString(status),
                            cudaGetErrorName(status)));
}
void require(cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        throw OutOfMemory(fmt::format(
            "the device is out of memory: cuBLAS has none for {}; lower --tokens or --memory",
            what));
    if (status != CUBLAS_STATUS_SUCCESS)
        throw Error(fmt::format("cuBLAS: {} failed: {}", what, cublasGetStatusString(status)));
}

std::string release_of(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Of the current device: keeps released memory for reuse.
cudaMemPool_t pool() {
    cudaMemPool_t of_device = nullptr;
    require(cudaDeviceGetDefaultMemPool(&of_device, selected()), "cudaDeviceGetDefaultMemPool");
    return of_device;
}

cublasHandle_t create_cublas() {
    cublasHandle_t handle = nullptr;
    cublasStatus_t status = cublasCreate(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) {  // the pool may hold its memory
        trim();
        status = cublasCreate(&handle);
    }
    require(status, "cublasCreate");
    require(cublasSetStream(handle, cudaStreamPerThread), "cublasSetStream");
    return handle;
}

/// Two page-locked buffers that copies alternate between: the host fills one while the device reads
/// the other.  Per process: one large copy at a time gets the whole bus bandwidth.
class Staging {
  public:
    static Staging& only() {
        static auto& staging = *new Staging;  // never destroyed, as the handles
        return staging;
    }

    void copy(void* device, const void* host, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        for (Buffer& b : buffers_) b.prepare();
        std::size_t turn = 0;
        for (std::size_t done = 0; done < bytes; done += size, ++turn) {
            Buffer& b = buffers_[turn % 2];
            const std::size_t part = std::min(size, bytes - done);
            require(cudaEventSynchronize(b.read), "a copy to the device");
            std::memcpy(b.data, static_cast<const std::byte*>(host) + done, part);
            require(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, b.data, part,
                                    cudaMemcpyHostToDevice, cudaStreamPerThread),
                    "a copy to the device");
            require(cudaEventRecord(b.read, cudaStreamPerThread), "a copy to the device");
        }
        for (Buffer& b : buffers_)  // before another thread, or device, fills them
            require(cudaEventSynchronize(b.read), "a copy to the device");
    }

  private:
    static constexpr std::size_t size = std::size_t{16} << 20;
    struct Buffer {
        void* data = nullptr;
        cudaEvent_t read = nullptr;
        int device = -1;

        /// Events belong to a device.
        void prepare() {
            const int current = selected();
            if (data == nullptr)
                require(cudaHostAlloc(&data, size, cudaHostAllocPortable), "cudaHostAlloc");
            if (device == current) return;
            if (read != nullptr) require(cudaEventDestroy(read), "cudaEventDestroy");
            require(cudaEventCreateWithFlags(&read, cudaEventDisableTiming), "cudaEventCreate");
            device = current;
        }
    };
    std::mutex mutex_;
    std::array<Buffer, 2> buffers_;
};

std::atomic<std::size_t> copied_to_host = 0;

bool reads_pageable_memory() {
    int reads = 0;
    require(cudaDeviceGetAttribute(&reads, cudaDevAttrPageableMemoryAccess, selected()),
            "cudaDeviceGetAttribute");
    return reads != 0;
}

}  // namespace

const bool emulated = false;
int count_devices(std::string& why) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return count;
    cudaGetLastError();
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        why = "no NVIDIA driver is installed";
    else if (status == cudaErrorInsufficientDriver)
        why = fmt::format("the driver is of CUDA {}, older than the {} that tsdiag was built with",
                          release_of(driver), release_of(runtime));
    else if (status == cudaErrorNoDevice || status == cudaSuccess)
        why = "no NVIDIA device was found";
    else
        why = fmt::format("the devices cannot be counted: {}", cudaGetErrorString(status));
    return 0;
}

void select(int index) { require(cudaSetDevice(index), "cudaSetDevice"); }
int selected() {
    int device = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

std::string name_of(int index) {
    cudaDeviceProp properties{};
    require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    return properties.name;
}

Capability capability(int index) {
    Capability found;
    require(cudaDeviceGetAttribute(&found.major, cudaDevAttrComputeCapabilityMajor, index),
            "cudaDeviceGetAttribute");
    require(cudaDeviceGetAttribute(&found.minor, cudaDevAttrComputeCapabilityMinor, index),
            "cudaDeviceGetAttribute");
    return found;
}

std::string describe(int index) {
    select(index);
    const Capability has = capability(index);
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    constexpr double gib = 1 << 30;
    return fmt::format(
        "{}, compute capability {}.{}, {:.1f} GiB ({:.1f} GiB free), driver {}, "
        "runtime {}",
        name_of(index), has.major, has.minor, double(all_bytes()) / gib, double(free_bytes()) / gib,
        release_of(driver), release_of(runtime));
}

void open(int index) {
    select(index);
    std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
    require(cudaMemPoolSetAttribute(pool(), cudaMemPoolAttrReleaseThreshold, &all),
            "cudaMemPoolSetAttribute");
}

void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    void* data = nullptr;
    cudaError_t status = cudaMallocAsync(&data, bytes, cudaStreamPerThread);
    if (status == cudaErrorMemoryAllocation) {  // cached blocks of other sizes may block it
        cudaGetLastError();
        trim();
        status = cudaMallocAsync(&data, bytes, cudaStreamPerThread);
    }
    if (status == cudaSuccess) return data;
    cudaGetLastError();
    if (status != cudaErrorMemoryAllocation) require(status, "cudaMallocAsync");
    return nullptr;
}

void release(void* data) {
    if (data != nullptr) cudaFreeAsync(data, cudaStreamPerThread);
}

void trim() {
    synchronise();
    require(cudaMemPoolTrimTo(pool(), 0), "cudaMemPoolTrimTo");
}

void* allocate_host(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    void* data = nullptr;
    const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocDefault);
    if (status == cudaSuccess) return data;
    cudaGetLastError();
    if (status != cudaErrorMemoryAllocation) require(status, "cudaHostAlloc");
    return nullptr;
}
void release_host(void* data) {
    if (data != nullptr) cudaFreeHost(data);
}

std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    std::uint64_t kept = 0, used = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    require(cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrReservedMemCurrent, &kept),
            "cudaMemPoolGetAttribute");
    require(cudaMemPoolGetAttribute(pool(), cudaMemPoolAttrUsedMemCurrent, &used),
            "cudaMemPoolGetAttribute");
    return free + (kept - used);
}

std::size_t all_bytes() {
    std::size_t free = 0, total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return total;
}

bool TimedRequest::wanted() {
    static const bool set = std::getenv("TSDIAG_DEVICE_REQUESTS") != nullptr;
    return set;
}
TimedRequest::TimedRequest(const char* name, double bytes, double elements)
    : name_(name), bytes_(bytes), elements_(elements) {
    cudaEvent_t begin = nullptr;
    require(cudaEventCreate(&begin), "cudaEventCreate");
    begin_ = begin;
    require(cudaEventRecord(begin, cudaStreamPerThread), "cudaEventRecord");
}
TimedRequest::~TimedRequest() {
    if (name_ == nullptr) return;
    auto* begin = static_cast<cudaEvent_t>(begin_);
    cudaEvent_t end = nullptr;
    float milliseconds = 0;
    cudaEventCreate(&end);
    cudaEventRecord(end, cudaStreamPerThread);
    cudaEventSynchronize(end);
    cudaEventElapsedTime(&milliseconds, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    add_request(name_, bytes_, elements_, double(milliseconds) / 1e3);
}

namespace {

TimedRequest timed(const char* name, double bytes, double elements) {
    if (!TimedRequest::wanted()) return {};
    return {name, bytes, elements};
}

}  // namespace

void to_device(void* device, const void* host, std::size_t bytes) {
    if (bytes == 0) return;
    const auto request = timed("upload", double(bytes), 0);
    require(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cudaStreamPerThread),
            "a copy to the device");
    // Pageable memory is staged before the call returns, unless the device reads it directly.
    if (reads_pageable_memory()) synchronise();
}

void to_device_staged(void* device, const void* host, std::size_t bytes) {
    constexpr std::size_t small = std::size_t{1} << 18;
    if (bytes <= small) return to_device(device, host, bytes);
    const auto request = timed("upload", double(bytes), 0);
    Staging::only().copy(device, host, bytes);
}

void to_host(void* host, const void* device, std::size_t bytes) {
    copied_to_host += bytes;
    if (bytes == 0) return;
    const auto request = timed("download", double(bytes), 0);
    require(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cudaStreamPerThread),
            "a copy from the device");
    synchronise();
}

void clear(void* device, std::size_t bytes) {
    const auto request = timed("fill", double(bytes), 0);
    require(cudaMemsetAsync(device, 0, bytes, cudaStreamPerThread), "a fill");
}

void synchronise() { require(cudaStreamSynchronize(cudaStreamPerThread), "the device's work"); }
void settle() noexcept { cudaStreamSynchronize(cudaStreamPerThread); }
void* new_stream() {
    cudaStream_t stream = nullptr;
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
}
void wait_for(void* stream) {
    require(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "the work of a library");
}
std::size_t bytes_to_host() { return copied_to_host; }

namespace {

cublasComputeType_t compute_type(const Product& p) {
    if (p.type == Type::f64) return CUBLAS_COMPUTE_64F;
    switch (p.products) {
        case Products::tf32:
            return CUBLAS_COMPUTE_32F_FAST_TF32;
        case Products::bf16:
            return CUBLAS_COMPUTE_32F_FAST_16BF;
        case Products::exact:
            break;
    }
    return CUBLAS_COMPUTE_32F;  // without TF32 in the default math mode
}

}  // namespace

void multiply(const Product& p) {
    const auto request = timed(p.name(), p.bytes(), p.multiplications());
    // cuBLAS is column-major, so it sees the transposes: c^T = op(b)^T op(a)^T.
    const bool single = p.type == Type::f32;
    const cudaDataType type = single ? CUDA_R_32F : CUDA_R_64F;
    const float alpha32 = float(p.alpha), zero32 = 0;
    const double alpha64 = p.alpha, zero64 = 0;
    const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    require(
        cublasGemmStridedBatchedEx_64(
            handle_of_thread(create_cublas), op(p.transpose_b), op(p.transpose_a), p.n, p.m, p.k,
            single ? static_cast<const void*>(&alpha32) : &alpha64, p.b, type, p.row_b, p.batch_b,
            p.a, type, p.row_a, p.batch_a, single ? static_cast<const void*>(&zero32) : &zero64,
            p.c, type, p.row_c, p.batch_c, p.count, compute_type(p), CUBLAS_GEMM_DEFAULT),
        "a product");
}

void require_launched(const char* kernel) { require(cudaGetLastError(), kernel); }

}  // namespace tsdiag::gpu
