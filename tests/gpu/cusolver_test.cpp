#include "cusolver.hpp"

#include <gtest/gtest.h>

#include <string>

#include "runtime.hpp"
#include "solver.hpp"

/// What only the library itself can tell.
namespace tsdiag {
namespace {

/// Without a device, too: installed beside cuBLAS, it is found.
TEST(Cusolver, IsOpened) {
    const gpu::Cusolver& all = gpu::cusolver();
#define TSDIAG_EXPECT(name) EXPECT_NE(all.name, nullptr) << #name
    TSDIAG_EACH_OF_CUSOLVER(TSDIAG_EXPECT);
#undef TSDIAG_EXPECT
}

/// What is planned is the workspace of each routine, its vectors and a copy of the matrix; for
/// Xgetrf also the complex one.  It is asked for where 32 matrices decide (src/run/needs.cpp).
TEST(Cusolver, TakesTheWorkspaceThatIsPlanned) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    gpu::select(0);
    const gpu::Cusolver& library = gpu::cusolver();
    cusolverDnHandle_t handle = nullptr;
    cusolverDnParams_t parameters = nullptr;
    ASSERT_EQ(library.Create(&handle), CUSOLVER_STATUS_SUCCESS);
    ASSERT_EQ(library.CreateParams(&parameters), CUSOLVER_STATUS_SUCCESS);
    const auto none = CUSOLVER_EIG_MODE_NOVECTOR;
    for (const std::int64_t n : {256, 512, 1024, 2048}) {
        const std::size_t matrix = std::size_t(n * n) * sizeof(double), planned = gpu::workspace(n);
        EXPECT_LE(planned, 32 * matrix) << n;
        std::size_t on_device = 0, on_host = 0;
        ASSERT_EQ(
            library.Xgeev_bufferSize(handle, parameters, none, none, n, CUDA_R_64F, nullptr, n,
                                     CUDA_R_64F, nullptr, CUDA_R_64F, nullptr, n, CUDA_R_64F,
                                     nullptr, n, CUDA_R_64F, &on_device, &on_host),
            CUSOLVER_STATUS_SUCCESS);
        EXPECT_LE(on_device + matrix, planned) << "Xgeev, n = " << n;
        ASSERT_EQ(library.Xsyevd_bufferSize(handle, parameters, none, CUBLAS_FILL_MODE_LOWER, n,
                                            CUDA_R_64F, nullptr, n, CUDA_R_64F, nullptr, CUDA_R_64F,
                                            &on_device, &on_host),
                  CUSOLVER_STATUS_SUCCESS);
        EXPECT_LE(on_device + matrix, planned) << "Xsyevd, n = " << n;
        ASSERT_EQ(library.Xgetrf_bufferSize(handle, parameters, n, n, CUDA_C_64F, nullptr, n,
                                            CUDA_C_64F, &on_device, &on_host),
                  CUSOLVER_STATUS_SUCCESS);
        EXPECT_LE(on_device + 3 * matrix, planned) << "Xgetrf, n = " << n;
    }
}

}  // namespace
}  // namespace tsdiag
