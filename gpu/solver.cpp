#include "solver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "array.hpp"
#include "cusolver.hpp"
#include "handles.hpp"
#include "kernels.hpp"

namespace tsdiag::gpu {
namespace {

using Complex = std::complex<double>;

void require(cusolverStatus_t status, const char* what) {
    if (status == CUSOLVER_STATUS_ALLOC_FAILED)
        throw OutOfMemory(
            fmt::format("the device is out of memory: cuSOLVER has none for {}", what));
    if (status != CUSOLVER_STATUS_SUCCESS)
        throw Error(fmt::format("cuSOLVER: {} failed with status {}", what, int(status)));
}

struct Library {
    cusolverDnHandle_t handle = nullptr;
    cusolverDnParams_t parameters = nullptr;
    void* stream = nullptr;

    /// Waits for a routine that was called with this status.
    void finish(cusolverStatus_t status, const char* routine) const {
        wait_for(stream);
        require(status, routine);
    }
};

Library create() {
    Library made;
    cusolverStatus_t status = cusolver().Create(&made.handle);
    if (status != CUSOLVER_STATUS_SUCCESS) {  // cached blocks may hold its memory
        trim();
        status = cusolver().Create(&made.handle);
    }
    require(status, "cusolverDnCreate");
    made.stream = new_stream();
    require(cusolver().SetStream(made.handle, static_cast<cudaStream_t>(made.stream)),
            "cusolverDnSetStream");
    require(cusolver().CreateParams(&made.parameters), "cusolverDnCreateParams");
    return made;
}

/// Page-locked memory of the host, for a library that copies on its own.
class HostBuffer {
  public:
    explicit HostBuffer(std::size_t bytes) : data_(allocate_host(bytes)) {
        if (data_ == nullptr && bytes > 0)
            throw OutOfMemory(
                fmt::format("out of memory: {} bytes of page-locked memory were asked for", bytes));
    }
    ~HostBuffer() { release_host(data_); }
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    void* data() const { return data_; }

  private:
    void* data_;
};

constexpr auto no_vectors = CUSOLVER_EIG_MODE_NOVECTOR;
constexpr auto lower_half = CUBLAS_FILL_MODE_LOWER;

/// Bytes of a workspace, as the library says.  The arrays are not read.
struct Sizes {
    std::size_t on_device = 0, on_host = 0;
};
Sizes sizes_of_geev(const Library& library, Index n, const double* a = nullptr,
                    const double* w = nullptr) {
    Sizes out;
    require(cusolver().Xgeev_bufferSize(library.handle, library.parameters, no_vectors, no_vectors,
                                        n, CUDA_R_64F, a, n, CUDA_R_64F, w, CUDA_R_64F, nullptr, n,
                                        CUDA_R_64F, nullptr, n, CUDA_R_64F, &out.on_device,
                                        &out.on_host),
            "Xgeev_bufferSize");
    return out;
}
Sizes sizes_of_syevd(const Library& library, Index n, const double* a = nullptr,
                     const double* w = nullptr) {
    Sizes out;
    require(cusolver().Xsyevd_bufferSize(library.handle, library.parameters, no_vectors, lower_half,
                                         n, CUDA_R_64F, a, n, CUDA_R_64F, w, CUDA_R_64F,
                                         &out.on_device, &out.on_host),
            "Xsyevd_bufferSize");
    return out;
}
Sizes sizes_of_getrf(const Library& library, Index n, const Complex* a = nullptr) {
    Sizes out;
    require(cusolver().Xgetrf_bufferSize(library.handle, library.parameters, n, n, CUDA_C_64F, a, n,
                                         CUDA_C_64F, &out.on_device, &out.on_host),
            "Xgetrf_bufferSize");
    return out;
}

/// What a routine of the library works with, and its outcome.
class Workspace {
  public:
    /// Waits for what this thread has asked the device for: then the routine may be called.
    Workspace(const char* routine, Sizes bytes)
        : routine_(routine), size(bytes), device(bytes.on_device), host(bytes.on_host), info(1) {
        synchronise();
    }

    /// False: the routine did not find a result.
    bool succeeded() const {
        const int found = info.host().front();
        if (found < 0)
            throw Error(fmt::format("cuSOLVER: parameter {} of {} is wrong", -found, routine_));
        return found == 0;
    }

  private:
    const char* routine_;

  public:
    const Sizes size;
    const Array<std::byte> device;
    const HostBuffer host;
    const Array<int> info;
};

/// Sets x to unit length and returns its former one; 0 where an element is not finite.
double normalise(std::vector<Complex>& x) {
    double top = 0, sum = 0;  // scaled first: inverse iteration may nearly overflow
    for (const Complex e : x) {
        if (!std::isfinite(e.real()) || !std::isfinite(e.imag())) return 0;
        top = std::max({top, std::abs(e.real()), std::abs(e.imag())});
    }
    if (top == 0) return 0;
    for (Complex& e : x) sum += std::norm(e /= top);
    for (Complex& e : x) e /= std::sqrt(sum);
    return top * std::sqrt(sum);
}

/// (A - theta)^-1 and its adjoint, A being the transpose that the library sees.
class Inverse {
  public:
    Inverse(const double* a, Index n, Complex theta)
        : n_(n), factors_(std::size_t(n * n)), pivots_(std::size_t(n)), vector_(std::size_t(n)) {
        auto* re = reinterpret_cast<double*>(factors_.data());
        clear(re, std::size_t(n * n) * sizeof(Complex));
        const auto column = [](double* data, Index count, Index stride) {
            return View{data, {1, count, 1}, count * stride, stride, Type::f64};
        };
        // The kernel only reads a.
        gpu::unary(Unary::copy, column(re, n * n, 2), column(const_cast<double*>(a), n * n, 1));
        for (double* part : {re, re + 1}) {
            const View diagonal = column(part, n, 2 * (n + 1));
            gpu::affine(diagonal, diagonal, 1, part == re ? -theta.real() : -theta.imag());
        }
        const Workspace work("Xgetrf", sizes_of_getrf(library_, n, factors_.data()));
        library_.finish(cusolver().Xgetrf(library_.handle, library_.parameters, n, n, CUDA_C_64F,
                                          factors_.data(), n, pivots_.data(), CUDA_C_64F,
                                          work.device.data(), work.size.on_device, work.host.data(),
                                          work.size.on_host, work.info.data()),
                        "Xgetrf");
        exists_ = work.succeeded();
    }

    bool exists() const { return exists_; }

    /// x = the solution, normalised; returns its length, 0 where it overflows.
    double apply(std::vector<Complex>& x, bool adjoint) const {
        to_device(vector_.data(), x.data(), x.size() * sizeof(Complex));
        const Array<int> info(1);
        synchronise();
        library_.finish(cusolver().Xgetrs(library_.handle, library_.parameters,
                                          adjoint ? CUBLAS_OP_C : CUBLAS_OP_N, n_, 1, CUDA_C_64F,
                                          factors_.data(), n_, pivots_.data(), CUDA_C_64F,
                                          vector_.data(), n_, info.data()),
                        "Xgetrs");
        if (const int found = info.host().front(); found != 0)
            throw Error(fmt::format("cuSOLVER: parameter {} of Xgetrs is wrong", -found));
        x = vector_.host();
        return normalise(x);
    }

  private:
    Library library_ = handle_of_thread(create);
    Index n_;
    Array<Complex> factors_;
    Array<std::int64_t> pivots_;
    Array<Complex> vector_;
    bool exists_ = false;
};

struct Grown {
    std::vector<Complex> x;
    double growth;  ///< 0: it overflows
};
/// A step of inverse iteration, a second one unless the first suffices (`certify` of
/// hessenberg.cpp).
Grown vector_of(const Inverse& inverse, std::vector<Complex> x, bool adjoint, double rounding) {
    double growth = inverse.apply(x, adjoint);
    if (growth != 0 && growth < 0.1 / (double(x.size()) * rounding))
        growth = inverse.apply(x, adjoint);
    return {std::move(x), growth};
}

/// None where A - theta is singular to the last bit.
std::optional<Sensitivity> iterate(const double* a, Index n, Complex theta, double rounding) {
    const Inverse inverse(a, n, theta);
    if (!inverse.exists()) return std::nullopt;
    const Array<Complex> start{std::size_t(n)};
    gpu::draw({start.data(), {1, 1, 2 * n}, 2 * n, 2 * n, Type::f64}, Law::normal, 0, 0, 0, 1);
    std::vector<Complex> x = start.host();
    normalise(x);
    const Grown right = vector_of(inverse, x, false, rounding),
                left = vector_of(inverse, x, true, rounding);
    if (right.growth == 0 || left.growth == 0) return std::nullopt;
    Complex overlap = 0;
    for (std::size_t i = 0; i < x.size(); ++i) overlap += std::conj(left.x[i]) * right.x[i];
    return Sensitivity{1 / std::abs(overlap), 1 / right.growth};
}

}  // namespace

std::size_t workspace(Index n) {
    const Library library = handle_of_thread(create);
    const auto size = std::size_t(n);
    const std::size_t values = size * sizeof(double), matrix = size * values, info = sizeof(int);
    return std::max({matrix + 2 * values + info + sizes_of_geev(library, n).on_device,
                     matrix + values + info + sizes_of_syevd(library, n).on_device,
                     // A copy, the complex factors with their pivots, and two vectors.
                     3 * matrix + size * sizeof(std::int64_t) + 2 * values + info +
                         std::max(2 * values, sizes_of_getrf(library, n).on_device)});
}

std::optional<std::vector<Complex>> eigenvalues(double* a, Index n) {
    const Library library = handle_of_thread(create);
    const Array<double> w(std::size_t(2 * n));  // real parts, then imaginary ones
    const Workspace work("Xgeev", sizes_of_geev(library, n, a, w.data()));
    library.finish(
        cusolver().Xgeev(library.handle, library.parameters, no_vectors, no_vectors, n, CUDA_R_64F,
                         a, n, CUDA_R_64F, w.data(), CUDA_R_64F, nullptr, n, CUDA_R_64F, nullptr, n,
                         CUDA_R_64F, work.device.data(), work.size.on_device, work.host.data(),
                         work.size.on_host, work.info.data()),
        "Xgeev");
    if (!work.succeeded()) return std::nullopt;
    const std::vector<double> parts = w.host();
    std::vector<Complex> values;
    for (std::size_t i = 0; i < std::size_t(n); ++i)
        values.emplace_back(parts[i], parts[i + std::size_t(n)]);
    return values;
}

std::optional<std::vector<double>> symmetric_eigenvalues(double* a, Index n) {
    const Library library = handle_of_thread(create);
    const Array<double> w{std::size_t(n)};
    const Workspace work("Xsyevd", sizes_of_syevd(library, n, a, w.data()));
    library.finish(cusolver().Xsyevd(library.handle, library.parameters, no_vectors, lower_half, n,
                                     CUDA_R_64F, a, n, CUDA_R_64F, w.data(), CUDA_R_64F,
                                     work.device.data(), work.size.on_device, work.host.data(),
                                     work.size.on_host, work.info.data()),
                   "Xsyevd");
    if (!work.succeeded()) return std::nullopt;
    return w.host();
}

Sensitivity sensitivity(const double* a, Index n, Complex theta, double norm) {
    // An exact eigenvalue makes A - theta singular: then it is moved by roundings of A.
    const double rounding =
        std::max(std::numeric_limits<double>::epsilon() * norm, std::numeric_limits<double>::min());
    for (int attempt = 0; attempt < 3; ++attempt) {
        const double shift = attempt * rounding;
        std::optional<Sensitivity> found = iterate(a, n, theta + shift, rounding);
        if (!found) continue;
        found->residual += shift;
        return *found;
    }
    return {};
}

}  // namespace tsdiag::gpu
