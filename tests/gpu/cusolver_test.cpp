#include <cusolverDn.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime.hpp"

/// What only the library itself can tell.
namespace tsdiag {
namespace {

/// Backend::eigenvalues promises some 8 matrices, src/run/needs.cpp counts on it: of these are the
/// copy that is overwritten, for Xgetrf the complex matrix in place of it.  Beside them libraries
/// keep some numbers: 7 matrices and 664 bytes at n = 256 on an H200, cuSOLVER 12.
TEST(Cusolver, TakesNoMoreWorkspaceThanTheBudgetKnows) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    gpu::select(0);
    cusolverDnHandle_t handle = nullptr;
    cusolverDnParams_t parameters = nullptr;
    ASSERT_EQ(cusolverDnCreate(&handle), CUSOLVER_STATUS_SUCCESS);
    ASSERT_EQ(cusolverDnCreateParams(&parameters), CUSOLVER_STATUS_SUCCESS);
    const auto none = CUSOLVER_EIG_MODE_NOVECTOR;
    for (const std::int64_t n : {256, 512, 1024, 2048}) {
        const std::size_t matrix = std::size_t(n * n) * sizeof(double), allowance = 4096;
        std::size_t on_device = 0, on_host = 0;
        ASSERT_EQ(
            cusolverDnXgeev_bufferSize(handle, parameters, none, none, n, CUDA_R_64F, nullptr, n,
                                       CUDA_R_64F, nullptr, CUDA_R_64F, nullptr, n, CUDA_R_64F,
                                       nullptr, n, CUDA_R_64F, &on_device, &on_host),
            CUSOLVER_STATUS_SUCCESS);
        EXPECT_LE(on_device, 7 * matrix + allowance) << "Xgeev, n = " << n;
        ASSERT_EQ(cusolverDnXsyevd_bufferSize(handle, parameters, none, CUBLAS_FILL_MODE_LOWER, n,
                                              CUDA_R_64F, nullptr, n, CUDA_R_64F, nullptr,
                                              CUDA_R_64F, &on_device, &on_host),
                  CUSOLVER_STATUS_SUCCESS);
        EXPECT_LE(on_device, 7 * matrix + allowance) << "Xsyevd, n = " << n;
        ASSERT_EQ(cusolverDnXgetrf_bufferSize(handle, parameters, n, n, CUDA_C_64F, nullptr, n,
                                              CUDA_C_64F, &on_device, &on_host),
                  CUSOLVER_STATUS_SUCCESS);
        EXPECT_LE(on_device, 6 * matrix + allowance) << "Xgetrf, n = " << n;
    }
    cusolverDnDestroyParams(parameters);
    cusolverDnDestroy(handle);
}

}  // namespace
}  // namespace tsdiag
