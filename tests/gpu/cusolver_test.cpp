#include <cuda_runtime.h>
#include <cusolverDn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "attention/heads.hpp"
#include "attention/spectra/on_device.hpp"
#include "attention/spectra/squaring.hpp"
#include "device_backend.hpp"
#include "runtime.hpp"

/// |lambda_2| by cuSOLVER's dense eigenvalues, an independent implementation.
namespace tsdiag {
namespace {

using namespace test;

/// Device memory, freed by the destructor.
class Block {
  public:
    explicit Block(std::size_t bytes) { cudaMalloc(&data_, std::max<std::size_t>(bytes, 1)); }
    ~Block() { cudaFree(data_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    void* data() const { return data_; }

  private:
    void* data_ = nullptr;
};

/// The second largest modulus; row- and column-major are equivalent, a transpose has the same.
double by_cusolver(const naive::Matrix& p) {
    const auto n = std::int64_t(p.rows);
    cusolverDnHandle_t handle = nullptr;
    cusolverDnParams_t parameters = nullptr;
    EXPECT_EQ(cusolverDnCreate(&handle), CUSOLVER_STATUS_SUCCESS);
    EXPECT_EQ(cusolverDnCreateParams(&parameters), CUSOLVER_STATUS_SUCCESS);
    const Block a(p.a.size() * 8), w(std::size_t(n) * 16), info(sizeof(int));
    cudaMemcpy(a.data(), p.a.data(), p.a.size() * 8, cudaMemcpyHostToDevice);
    const auto none = CUSOLVER_EIG_MODE_NOVECTOR;
    std::size_t on_device = 0, on_host = 0;
    EXPECT_EQ(cusolverDnXgeev_bufferSize(handle, parameters, none, none, n, CUDA_R_64F, a.data(), n,
                                         CUDA_C_64F, w.data(), CUDA_R_64F, nullptr, n, CUDA_R_64F,
                                         nullptr, n, CUDA_R_64F, &on_device, &on_host),
              CUSOLVER_STATUS_SUCCESS);
    const Block work(on_device);
    std::vector<std::byte> host(on_host);
    EXPECT_EQ(cusolverDnXgeev(handle, parameters, none, none, n, CUDA_R_64F, a.data(), n,
                              CUDA_C_64F, w.data(), CUDA_R_64F, nullptr, n, CUDA_R_64F, nullptr, n,
                              CUDA_R_64F, work.data(), on_device, host.data(), on_host,
                              static_cast<int*>(info.data())),
              CUSOLVER_STATUS_SUCCESS);
    int failed = -1;
    cudaMemcpy(&failed, info.data(), sizeof failed, cudaMemcpyDeviceToHost);
    EXPECT_EQ(failed, 0);
    std::vector<double> parts(std::size_t(n) * 2), moduli;
    cudaMemcpy(parts.data(), w.data(), parts.size() * 8, cudaMemcpyDeviceToHost);
    for (std::size_t i = 0; i < parts.size(); i += 2)
        moduli.push_back(std::hypot(parts[i], parts[i + 1]));
    std::ranges::nth_element(moduli, moduli.begin() + 1, std::greater());
    cusolverDnDestroyParams(parameters);
    cusolverDnDestroy(handle);
    return moduli[1];
}

TEST(Cusolver, FindsTheSameSecondEigenvalues) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    static const Backend& device = *gpu::make_backend(0).release();  // outlives every tensor
    constexpr Index n = 384;
    for (const Family& family : families()) {
        const naive::Matrix p = naive::softmax(family.logits(n, 5));
        const double expected = by_cusolver(p);
        const Tensor there =
            Tensor::from_host(device, {1, n, n}, std::span<const double>(p.a), Type::f64);
        const Estimate squared = squaring::second_eigenvalue(there).front();
        const Estimate krylov =
            on_device::second_eigenvalue(*given_attention(there, false, ""), 1e9, true).front();
        for (const Estimate& found : {squared, krylov}) {
            EXPECT_TRUE(found.converged) << family.name << " by " << found.method;
            EXPECT_NEAR(found.value, expected, 1e-6 * expected)
                << family.name << " by " << found.method;
        }
    }
}

}  // namespace
}  // namespace tsdiag
