#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <atomic>
#include <limits>
#include <memory>
#include <vector>

#include "runtime.hpp"
#include "tsdiag/error.hpp"

/// runtime.hpp on a device of NVIDIA's.
namespace tsdiag::gpu {
namespace {

void require(cudaError_t status, const char* what) {
    if (status != cudaSuccess)
        throw Error(fmt::format("CUDA: {} failed: {} ({})", what, cudaGetErrorString(status),
                                cudaGetErrorName(status)));
}
void require(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw Error(fmt::format("cuBLAS: {} failed: {}", what, cublasGetStatusString(status)));
}

std::string release_of(int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// One of each device, never destroyed: the driver may be gone before static objects are.
cublasHandle_t cublas() {
    static auto& handles = *new std::vector<cublasHandle_t>();
    int device = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    const auto index = static_cast<std::size_t>(device);
    if (handles.size() <= index) handles.resize(index + 1, nullptr);
    if (handles[index] == nullptr) {
        require(cublasCreate(&handles[index]), "cublasCreate");
        require(cublasSetMathMode(handles[index], CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
    }
    return handles[index];
}

}  // namespace

int count_devices(std::string& why) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return count;
    cudaGetLastError();
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        why = "no driver of NVIDIA's is installed";
    else if (status == cudaErrorInsufficientDriver)
        why = fmt::format("the driver is of CUDA {}, older than the {} that tsdiag was built with",
                          release_of(driver), release_of(runtime));
    else if (status == cudaErrorNoDevice || status == cudaSuccess)
        why = "the machine has no device of NVIDIA's";
    else
        why = fmt::format("the devices cannot be counted: {}", cudaGetErrorString(status));
    return 0;
}

void select(int index) { require(cudaSetDevice(index), "cudaSetDevice"); }

std::string describe(int index) {
    select(index);
    cudaDeviceProp properties{};
    require(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    std::size_t free = 0, total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    constexpr double gib = 1 << 30;
    return fmt::format(
        "{}, compute capability {}.{}, {:.1f} GiB ({:.1f} GiB free), driver {}, "
        "runtime {}",
        properties.name, properties.major, properties.minor, static_cast<double>(total) / gib,
        static_cast<double>(free) / gib, release_of(driver), release_of(runtime));
}

void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    void* data = nullptr;
    const cudaError_t status = cudaMallocAsync(&data, bytes, nullptr);
    if (status == cudaSuccess) return data;
    cudaGetLastError();
    if (status == cudaErrorMemoryAllocation) return nullptr;
    require(status, "cudaMallocAsync");
    return nullptr;
}

void release(void* data) {
    if (data != nullptr) cudaFreeAsync(data, nullptr);
}

std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

void to_device(void* device, const void* host, std::size_t bytes) {
    if (bytes > 0)
        require(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "a copy to the device");
}

namespace {
std::atomic<std::size_t> copied_to_host = 0;
}

void to_host(void* host, const void* device, std::size_t bytes) {
    copied_to_host += bytes;
    if (bytes > 0)
        require(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "a copy from the device");
}
std::size_t bytes_to_host() { return copied_to_host; }

void multiply(const Product& p) {
    // cuBLAS is column-major: it sees the transposes, and c^T = op(b)^T op(a)^T.
    const bool single = p.type == Type::f32;
    const cudaDataType type = single ? CUDA_R_32F : CUDA_R_64F;
    const cublasComputeType_t compute = single ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F;
    const float alpha32 = static_cast<float>(p.alpha), zero32 = 0;
    const double alpha64 = p.alpha, zero64 = 0;
    const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    require(
        cublasGemmStridedBatchedEx_64(
            cublas(), op(p.transpose_b), op(p.transpose_a), p.n, p.m, p.k,
            single ? static_cast<const void*>(&alpha32) : &alpha64, p.b, type, p.row_b, p.batch_b,
            p.a, type, p.row_a, p.batch_a, single ? static_cast<const void*>(&zero32) : &zero64,
            p.c, type, p.row_c, p.batch_c, p.count, compute, CUBLAS_GEMM_DEFAULT),
        "a product");
}

void require_launched(const char* kernel) { require(cudaGetLastError(), kernel); }

}  // namespace tsdiag::gpu
