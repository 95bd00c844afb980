#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

/// The part of cuSOLVER's interface that solver.cpp uses, for a host without CUDA; implemented by
/// emulated_cusolver.cpp.  Where <cusolverDn.h> was included before, only the functions are
/// declared once more, so that a compiler compares them (tests/gpu/cusolver_interface.cpp).
extern "C" {

#ifndef CUSOLVERDN_H_
using cudaStream_t = struct CUstream_st*;
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))
enum cudaDataType { CUDA_R_64F = 1, CUDA_C_64F = 5 };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum cusolverEigMode_t { CUSOLVER_EIG_MODE_NOVECTOR = 0, CUSOLVER_EIG_MODE_VECTOR = 1 };
enum cusolverStatus_t { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_ALLOC_FAILED = 2 };
using cusolverDnHandle_t = struct cusolverDnContext*;
using cusolverDnParams_t = struct cusolverDnParams*;
struct cusolverDnContext {
    int device = 0;
    bool has_stream = false;
    std::set<std::array<std::int64_t, 4>> asked = {};  ///< workspaces: routine, sizes, mode
};
struct cusolverDnParams {};
#endif

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream);
cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t* params);

cusolverStatus_t cusolverDnXgeev_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                            cusolverEigMode_t jobvl, cusolverEigMode_t jobvr,
                                            std::int64_t n, cudaDataType type_a, const void* a,
                                            std::int64_t lda, cudaDataType type_w, const void* w,
                                            cudaDataType type_vl, const void* vl, std::int64_t ldvl,
                                            cudaDataType type_vr, const void* vr, std::int64_t ldvr,
                                            cudaDataType compute_type, std::size_t* on_device,
                                            std::size_t* on_host);
cusolverStatus_t cusolverDnXgeev(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                 cusolverEigMode_t jobvl, cusolverEigMode_t jobvr, std::int64_t n,
                                 cudaDataType type_a, void* a, std::int64_t lda,
                                 cudaDataType type_w, void* w, cudaDataType type_vl, void* vl,
                                 std::int64_t ldvl, cudaDataType type_vr, void* vr,
                                 std::int64_t ldvr, cudaDataType compute_type, void* device,
                                 std::size_t on_device, void* host, std::size_t on_host, int* info);

cusolverStatus_t cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             cusolverEigMode_t jobz, cublasFillMode_t uplo,
                                             std::int64_t n, cudaDataType type_a, const void* a,
                                             std::int64_t lda, cudaDataType type_w, const void* w,
                                             cudaDataType compute_type, std::size_t* on_device,
                                             std::size_t* on_host);
cusolverStatus_t cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                  cusolverEigMode_t jobz, cublasFillMode_t uplo, std::int64_t n,
                                  cudaDataType type_a, void* a, std::int64_t lda,
                                  cudaDataType type_w, void* w, cudaDataType compute_type,
                                  void* device, std::size_t on_device, void* host,
                                  std::size_t on_host, int* info);

cusolverStatus_t cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             std::int64_t m, std::int64_t n, cudaDataType type_a,
                                             const void* a, std::int64_t lda,
                                             cudaDataType compute_type, std::size_t* on_device,
                                             std::size_t* on_host);
cusolverStatus_t cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                  std::int64_t m, std::int64_t n, cudaDataType type_a, void* a,
                                  std::int64_t lda, std::int64_t* ipiv, cudaDataType compute_type,
                                  void* device, std::size_t on_device, void* host,
                                  std::size_t on_host, int* info);
cusolverStatus_t cusolverDnXgetrs(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                  cublasOperation_t trans, std::int64_t n, std::int64_t nrhs,
                                  cudaDataType type_a, const void* a, std::int64_t lda,
                                  const std::int64_t* ipiv, cudaDataType type_b, void* b,
                                  std::int64_t ldb, int* info);
}
