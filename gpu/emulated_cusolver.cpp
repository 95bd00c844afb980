#define TSDIAG_EMULATED
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <array>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "cusolver.hpp"
#include "emulated_memory.hpp"
#include "emulated_stream.hpp"
#include "runtime.hpp"
#include "tsdiag/error.hpp"

/// cuSOLVER by Eigen, on a stream of its own.  Stricter than the library: misuse is an
/// `Error`; workspaces must have been asked for with the same arguments before and are overwritten,
/// as is the matrix; the workspace on the host is used when the stream gets there.
///
/// TSDIAG_EMULATED_SOLVER imitates failures: "missing", the library is not installed; "full", no
/// memory for it; "unsolved", no convergence; "rough", eigenvalues that are off by 1e-4.
namespace {

using tsdiag::Error;
namespace gpu = tsdiag::gpu;
using Complex = std::complex<double>;
template <class T>
using Columns =
    Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>, 0, Eigen::OuterStride<>>;

enum Routine : std::int64_t { geev, syevd, getrf };
constexpr std::array names = {"Xgeev", "Xsyevd", "Xgetrf"};

bool said(const char* failure) {
    const char* word = std::getenv("TSDIAG_EMULATED_SOLVER");
    return word != nullptr && std::strcmp(word, failure) == 0;
}

/// Throws where a condition of the library's documentation does not hold.
void require(bool holds, const std::string& what) {
    if (!holds) throw Error("cuSOLVER: " + what);
}

void require_on_device(const void* data, std::int64_t bytes, const char* what) {
    if (bytes > 0) gpu::emulator::require_inside(data, std::size_t(bytes), gpu::selected(), what);
}

void require_ready(const cusolverDnContext* handle, const cusolverDnParams* params) {
    require(handle != nullptr, "there is no handle");
    require(params != nullptr, "there are no parameters");
    require(handle->has_stream, "the handle has no stream");
    require(handle->device == gpu::selected(), "the handle is of another device");
}

void require_matrix(const void* a, std::int64_t n, std::int64_t columns, std::int64_t lda,
                    std::int64_t element, const char* what) {
    require(n >= 0 && columns >= 0, std::string(what) + " has a negative size");
    require(lda >= std::max<std::int64_t>(1, n), std::string(what) + " has columns that overlap");
    if (n > 0 && columns > 0) require_on_device(a, ((columns - 1) * lda + n) * element, what);
}

/// What a call works with.
struct Work {
    void *device, *host;
    std::size_t on_device, on_host;
};

/// Sizes that no routine would guess.
Work sizes_of(std::int64_t n) {
    return {nullptr, nullptr, std::size_t(8 * (n * n + 13 * n + 5)), std::size_t(8 * (2 * n + 7))};
}

cusolverStatus_t answer(cusolverDnContext* handle, Routine routine, std::int64_t n,
                        std::int64_t lda, std::int64_t mode, std::size_t* on_device,
                        std::size_t* on_host) {
    require(on_device != nullptr && on_host != nullptr, "there is no place for the sizes");
    handle->asked.insert({routine, n, lda, mode});
    const Work work = sizes_of(n);
    *on_device = work.on_device;
    *on_host = work.on_host;
    return CUSOLVER_STATUS_SUCCESS;
}

/// Checks workspaces and info, then does `work`, which returns info.
cusolverStatus_t solve(const cusolverDnContext* handle, Routine routine, std::int64_t n,
                       std::int64_t lda, std::int64_t mode, const Work& work, int* info,
                       std::function<int()> solution) {
    const std::string name = names[std::size_t(routine)];
    require(handle->asked.contains({routine, n, lda, mode}),
            "the workspace of " + name + " was not asked for");
    const Work needed = sizes_of(n);
    require(work.on_device >= needed.on_device && work.on_host >= needed.on_host,
            "the workspace of " + name + " is too small");
    require_on_device(work.device, std::int64_t(work.on_device), "the workspace");
    require(work.host != nullptr && !gpu::emulator::is_on_device(work.host),
            "the workspace on the host is not there");
    require_on_device(info, sizeof(int), "info");
    if (said("full")) return CUSOLVER_STATUS_ALLOC_FAILED;
    const bool unsolved = said("unsolved") && routine != getrf;
    gpu::emulator::enqueue_solution([work, info, unsolved, solution = std::move(solution)] {
        std::memset(work.device, 0xFF, work.on_device);
        std::memset(work.host, 0xFF, work.on_host);
        const int found = solution();
        *info = unsolved ? 1 : found;
    });
    return CUSOLVER_STATUS_SUCCESS;
}

template <class T>
Columns<T> columns_of(void* a, std::int64_t n, std::int64_t lda) {
    return {static_cast<T*>(a), n, n, Eigen::OuterStride<>(lda)};
}

}  // namespace

extern "C" {

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
    if (said("full")) return CUSOLVER_STATUS_ALLOC_FAILED;
    *handle = new cusolverDnContext{.device = gpu::selected()};
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
    require(stream != nullptr && stream != cudaStreamPerThread,
            "its threads would take another stream");
    handle->has_stream = true;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t* params) {
    *params = new cusolverDnParams;
    return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXgeev_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                            cusolverEigMode_t jobvl, cusolverEigMode_t jobvr,
                                            std::int64_t n, cudaDataType, const void*,
                                            std::int64_t lda, cudaDataType, const void*,
                                            cudaDataType, const void*, std::int64_t, cudaDataType,
                                            const void*, std::int64_t, cudaDataType,
                                            std::size_t* on_device, std::size_t* on_host) {
    require_ready(handle, params);
    require(jobvl == CUSOLVER_EIG_MODE_NOVECTOR, "Xgeev has no left eigenvectors");
    return answer(handle, geev, n, lda, jobvr, on_device, on_host);
}

cusolverStatus_t cusolverDnXgeev(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                 cusolverEigMode_t jobvl, cusolverEigMode_t jobvr, std::int64_t n,
                                 cudaDataType type_a, void* a, std::int64_t lda,
                                 cudaDataType type_w, void* w, cudaDataType type_vl, void*,
                                 std::int64_t ldvl, cudaDataType type_vr, void*, std::int64_t ldvr,
                                 cudaDataType compute_type, void* device, std::size_t on_device,
                                 void* host, std::size_t on_host, int* info) {
    require_ready(handle, params);
    require(jobvl == CUSOLVER_EIG_MODE_NOVECTOR, "Xgeev has no left eigenvectors");
    require(jobvr == CUSOLVER_EIG_MODE_NOVECTOR, "right eigenvectors are not emulated");
    for (const cudaDataType type : {type_a, type_w, type_vl, type_vr, compute_type})
        require(type == CUDA_R_64F, "Xgeev: these types do not go together");
    require(ldvl >= 1 && ldvr >= 1, "Xgeev: a leading dimension is less than 1");
    require_matrix(a, n, n, lda, 8, "the matrix of Xgeev");
    require_on_device(w, 16 * n, "the eigenvalues");
    return solve(handle, geev, n, lda, jobvr, {device, host, on_device, on_host}, info,
                 [a, lda, w, n, off = said("rough") ? 1 + 1e-4 : 1.0] {
                     Columns<double> matrix = columns_of<double>(a, n, lda);
                     const Eigen::EigenSolver<Eigen::MatrixXd> solver(matrix, false);
                     matrix.setConstant(std::numeric_limits<double>::quiet_NaN());
                     if (solver.info() != Eigen::Success) return 1;
                     for (std::int64_t i = 0; i < n; ++i) {
                         const Complex value = off * solver.eigenvalues()[i];
                         static_cast<double*>(w)[i] = value.real();
                         static_cast<double*>(w)[n + i] = value.imag();
                     }
                     return 0;
                 });
}

cusolverStatus_t cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             cusolverEigMode_t jobz, cublasFillMode_t uplo,
                                             std::int64_t n, cudaDataType, const void*,
                                             std::int64_t lda, cudaDataType, const void*,
                                             cudaDataType, std::size_t* on_device,
                                             std::size_t* on_host) {
    require_ready(handle, params);
    return answer(handle, syevd, n, lda, 2 * jobz + uplo, on_device, on_host);
}

cusolverStatus_t cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                  cusolverEigMode_t jobz, cublasFillMode_t uplo, std::int64_t n,
                                  cudaDataType type_a, void* a, std::int64_t lda,
                                  cudaDataType type_w, void* w, cudaDataType compute_type,
                                  void* device, std::size_t on_device, void* host,
                                  std::size_t on_host, int* info) {
    require_ready(handle, params);
    require(jobz == CUSOLVER_EIG_MODE_NOVECTOR, "eigenvectors are not emulated");
    for (const cudaDataType type : {type_a, type_w, compute_type})
        require(type == CUDA_R_64F, "Xsyevd: these types do not go together");
    require_matrix(a, n, n, lda, 8, "the matrix of Xsyevd");
    require_on_device(w, 8 * n, "the eigenvalues");
    return solve(handle, syevd, n, lda, 2 * jobz + uplo, {device, host, on_device, on_host}, info,
                 [a, lda, w, n, lower = uplo == CUBLAS_FILL_MODE_LOWER] {
                     Columns<double> matrix = columns_of<double>(a, n, lda);
                     Eigen::MatrixXd half = matrix;  // the solver reads its lower part
                     if (!lower) half.transposeInPlace();
                     matrix.setConstant(std::numeric_limits<double>::quiet_NaN());
                     const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(
                         half, Eigen::EigenvaluesOnly);
                     if (solver.info() != Eigen::Success) return 1;
                     Eigen::Map<Eigen::VectorXd>(static_cast<double*>(w), n) = solver.eigenvalues();
                     return 0;
                 });
}

cusolverStatus_t cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                             std::int64_t m, std::int64_t n, cudaDataType,
                                             const void*, std::int64_t lda, cudaDataType,
                                             std::size_t* on_device, std::size_t* on_host) {
    require_ready(handle, params);
    return answer(handle, getrf, n, lda, m, on_device, on_host);
}

cusolverStatus_t cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                  std::int64_t m, std::int64_t n, cudaDataType type_a, void* a,
                                  std::int64_t lda, std::int64_t* ipiv, cudaDataType compute_type,
                                  void* device, std::size_t on_device, void* host,
                                  std::size_t on_host, int* info) {
    require_ready(handle, params);
    require(m == n, "rectangular factorisations are not emulated");
    require(type_a == CUDA_C_64F && compute_type == CUDA_C_64F,
            "Xgetrf: these types are not emulated");
    require_matrix(a, n, n, lda, 16, "the matrix of Xgetrf");
    require_on_device(ipiv, 8 * n, "the pivots");
    return solve(handle, getrf, n, lda, m, {device, host, on_device, on_host}, info,
                 [a, lda, ipiv, n] {
                     Columns<Complex> lu = columns_of<Complex>(a, n, lda);
                     for (std::int64_t k = 0; k < n; ++k) {
                         Eigen::Index down = 0;
                         lu.col(k).tail(n - k).cwiseAbs().maxCoeff(&down);
                         ipiv[k] = k + down + 1;
                         if (down > 0) lu.row(k).swap(lu.row(k + down));
                         if (lu(k, k) == Complex(0)) {  // what is left is not promised
                             lu.setConstant(std::numeric_limits<double>::quiet_NaN());
                             return int(k) + 1;
                         }
                         const std::int64_t rest = n - k - 1;
                         lu.col(k).tail(rest) /= lu(k, k);
                         lu.bottomRightCorner(rest, rest).noalias() -=
                             lu.col(k).tail(rest) * lu.row(k).tail(rest);
                     }
                     return 0;
                 });
}

cusolverStatus_t cusolverDnXgetrs(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                  cublasOperation_t trans, std::int64_t n, std::int64_t nrhs,
                                  cudaDataType type_a, const void* a, std::int64_t lda,
                                  const std::int64_t* ipiv, cudaDataType type_b, void* b,
                                  std::int64_t ldb, int* info) {
    require_ready(handle, params);
    require(type_a == CUDA_C_64F && type_b == CUDA_C_64F, "Xgetrs: these types are not emulated");
    require(trans != CUBLAS_OP_T, "solutions with the transpose are not emulated");
    require_matrix(a, n, n, lda, 16, "the matrix of Xgetrs");
    require_matrix(b, n, nrhs, ldb, 16, "the right-hand side of Xgetrs");
    require_on_device(ipiv, 8 * n, "the pivots");
    require_on_device(info, sizeof(int), "info");
    gpu::emulator::enqueue_solution([=] {
        const Columns<Complex> lu = columns_of<Complex>(const_cast<void*>(a), n, lda);
        Columns<Complex> x(static_cast<Complex*>(b), n, nrhs, Eigen::OuterStride<>(ldb));
        const auto l = lu.triangularView<Eigen::UnitLower>();
        const auto u = lu.triangularView<Eigen::Upper>();
        if (trans == CUBLAS_OP_N) {
            for (std::int64_t k = 0; k < n; ++k) x.row(k).swap(x.row(ipiv[k] - 1));
            l.solveInPlace(x);
            u.solveInPlace(x);
        } else {
            u.adjoint().solveInPlace(x);
            l.adjoint().solveInPlace(x);
            for (std::int64_t k = n; k-- > 0;) x.row(k).swap(x.row(ipiv[k] - 1));
        }
        *info = 0;
    });
    return CUSOLVER_STATUS_SUCCESS;
}
}

namespace tsdiag::gpu {

const Cusolver& cusolver() {
    if (said("missing")) throw no_cusolver("it is not there", "0.0");
    static const Cusolver functions = [] {
        Cusolver all;
#define TSDIAG_TAKE(name) (all.name = &cusolverDn##name)
        TSDIAG_EACH_OF_CUSOLVER(TSDIAG_TAKE);
#undef TSDIAG_TAKE
        return all;
    }();
    return functions;
}

}  // namespace tsdiag::gpu
