#pragma once
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/formulas.hpp"
#include "tsdiag/statistics.hpp"
#include "tsdiag/tensor.hpp"

/// The tensor kernels of a device.  `cpu` is built in; others are loaded at run time.
namespace tsdiag {

enum class Transpose { none, first, second };

// Members and what they compute: formulas.hpp.
#define TSDIAG_MEMBER(name, formula) name,
enum class Unary { TSDIAG_UNARY_FORMULAS(TSDIAG_MEMBER) };
enum class Binary { TSDIAG_BINARY_FORMULAS(TSDIAG_MEMBER) };
#undef TSDIAG_MEMBER
enum class Law { uniform, normal };

/// Precision of float32 products: exact, or on a device with factors rounded to 11 bits (TF32) or 8
/// (bfloat16), several times as fast.
enum class Products { exact, tf32, bf16 };

/// One step of AdamW, the same for all elements: with x = factor g,
/// m = beta1 m + (1 - beta1) x, v = beta2 v + (1 - beta2) x^2,
/// w = shrink w - rate m / (sqrt(unbias v) + eps).
struct AdamWStep {
    double beta1 = 0, beta2 = 0, eps = 0, factor = 1;
    double rate = 0;    ///< the learning rate / (1 - beta1^t)
    double unbias = 1;  ///< 1 / (1 - beta2^t)
    double shrink = 1;  ///< 1 - learning rate * decay
};

/// How well a number theta is determined as an eigenvalue of A, by unit vectors x and y of inverse
/// iteration: A x ~ theta x, y^H A ~ theta y^H.
struct Sensitivity {
    /// 1 / |y^H x| >= 1: the eigenvalue moves by at most this times the norm of a perturbation of A
    /// (first order).  Infinite where inverse iteration failed.
    double condition = std::numeric_limits<double>::infinity();
    /// The least |A x - theta x| of the steps (of a defective A not that of the last): theta is an
    /// eigenvalue of some A + E with |E| at most this.
    double residual = 0;
};

class Backend {
  public:
    virtual ~Backend() = default;
    virtual std::string_view name() const = 0;    ///< "cpu", "cuda:0"
    virtual std::string description() const = 0;  ///< device, instruction set, libraries, threads
    virtual bool host_memory() const = 0;         ///< tensors are ordinary memory
    /// Total bytes of memory of the machine or device: sizes that affect a result derive from it
    /// and never from `available`.
    virtual std::size_t memory() const = 0;
    /// Bytes that are currently free.
    virtual std::size_t available() const = 0;
    /// Best size in bytes of a block of rows: one that fits the caches, or fills a device.
    virtual double working_set() const = 0;
    /// Waits for all work submitted by this thread: only then may another thread use its results.
    virtual void synchronise() const = 0;

    /// Throws `OutOfMemory`.
    virtual std::shared_ptr<void> allocate(std::size_t bytes) const = 0;
    /// From contiguous host memory of the type of `out`; then any thread may use `out`.
    virtual void upload(View out, const void* host) const = 0;
    virtual void download(void* host, View in) const = 0;

    /// out = alpha op(a) op(b).  b.batch divides a.batch: batch i of a meets batch i /
    /// (a.batch/b.batch) of b.
    virtual void matmul(View out, View a, View b, Transpose t, double alpha) const = 0;
    /// y = op(a) x, the vectors (b, m, 1) and (b, k, 1) contiguous and in float64, the sums in
    /// double for any type of a.
    virtual void matvec(View y, View a, View x, bool transposed) const = 0;
    virtual void unary(Unary op, View out, View a) const = 0;
    /// The elements of a in the type of `out`.
    virtual void convert(View out, View a) const = 0;
    virtual void transpose(View out, View a) const = 0;  ///< out (b, c, r), a (b, r, c)
    /// out (b h, n, w): head k of batch i, batch i h + k, is columns k w to (k + 1) w of a (b, n, h
    /// w).
    virtual void split_heads(View out, View a) const = 0;
    virtual void merge_heads(View out, View a) const = 0;  ///< the inverse
    /// Broadcasting: each extent of b is that of a, or 1.
    virtual void binary(Binary op, View out, View a, View b) const = 0;
    /// out = alpha a + beta.
    virtual void affine(View out, View a, double alpha, double beta) const = 0;
    /// Rows to zero mean (if `centre`) and unit mean square, then weight and bias (1, 1, cols),
    /// where given.
    virtual void normalise_rows(View out, View a, const View* weight, const View* bias, double eps,
                                bool centre) const = 0;
    virtual void row_sum(View out, View a) const = 0;     ///< (b, r, 1), accumulated in double
    virtual void column_sum(View out, View a) const = 0;  ///< (b, 1, c), accumulated in double
    virtual void row_max(View out, View a) const = 0;     ///< (b, r, 1)
    virtual void gather_rows(View out, View table, std::span<const Index> rows) const = 0;
    /// out (1, m, c), contiguous, = 0, then row i of a is added to row rows[i], in the order of i.
    virtual void scatter_add_rows(View out, View a, std::span<const Index> rows) const = 0;
    /// Rotates pairs of columns of each row by angle position[r] * frequency[p]: pairs (p, p + m)
    /// or, where `interleaved`, (2p, 2p + 1), m = frequency.size(); columns from 2m on are copied.
    virtual void rotate(View out, View a, std::span<const double> position,
                        std::span<const double> frequency, bool interleaved) const = 0;
    /// Elements 0, 1, ... of stream `stream` of seed `seed` (`Rng`), in (batch, row, col) order:
    /// offset + scale u, u uniform in (0, 1) or standard normal.  `out` is contiguous.
    virtual void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset,
                      double scale) const = 0;
    /// In place, of contiguous tensors of one shape.
    virtual void adamw(View w, View m, View v, View g, const AdamWStep& step) const = 0;
    /// In place: softmax over the visible columns of each row, 0 outside them.
    virtual void softmax_rows(View p, const Visible& visible) const = 0;
    /// In place: entries outside the visible columns become 0.
    virtual void hide(View p, const Visible& visible) const = 0;
    /// `slope`: null, or a'(S)/z; `divided`: rows were divided by their sum (softmax: slope = p).
    /// This, `state_moments` and `squared_norm` sum in double; the functions of the same names in
    /// ops.hpp handle overflow and underflow.
    virtual RowStatistics row_statistics(View p, const View* slope, bool divided, Index first,
                                         const Visible& visible) const = 0;
    virtual StateMoments state_moments(View x) const = 0;
    virtual double squared_norm(View x) const = 0;  ///< in double
    /// Row-major index of the first NaN or infinity; -1 where all are finite.
    virtual Index first_nonfinite(View x) const = 0;

    // Dense eigenvalue problems of one finite matrix a, (1, n, n) in float64, n >= 1.  A device
    // throws `OutOfMemory` where there is no room for the workspace, some 8 matrices at most.

    /// All eigenvalues, a conjugate pair one after the other; none where the iteration of a
    /// device's library did not converge.  Cost 10 n^3.
    virtual std::optional<std::vector<std::complex<double>>> eigenvalues(View a) const = 0;
    /// Of theta, one of them.  Cost 8/3 n^3 (a complex LU factorisation) on a device.
    virtual Sensitivity sensitivity(View a, std::complex<double> theta) const = 0;
    /// All eigenvalues of a symmetric a, ascending; none as above.  Cost 4/3 n^3.
    virtual std::optional<std::vector<double>> symmetric_eigenvalues(View a) const = 0;
};

/// The CPU; always available.
const Backend& cpu();
/// Bytes of the CPU's tensors: now, and at most since the last `restart_cpu_peak`.
struct TensorBytes {
    std::size_t now = 0, peak = 0;
};
TensorBytes cpu_bytes();
void restart_cpu_peak();
/// Bytes available to this process: the memory of the machine, or the limit of its control group
/// where that is lower.
std::size_t machine_memory();
/// Records that `what` was done in smaller parts than planned, or on the host, because a device ran
/// out of memory: last bits then depend on its other load.
void note_shortage(std::string_view what);
/// What was recorded since the last `restart_shortages`, each a sentence with its count.
std::vector<std::string> shortages();
void restart_shortages();

/// "cpu"; "cuda", the first device that works; "cuda:1", that one; "auto", as "cuda", else the CPU.
/// Throws `NotAvailable` saying what is missing; the CPU has exact products only.
const Backend& open_backend(std::string_view name, Products products = Products::exact);
/// Which devices `name` skips and why, in a sentence; empty where it names one or gets the first,
/// or the machine has no driver for any.
std::string passed_over_devices(std::string_view name);
/// Names of the backends that could be opened here, each with its description.
std::vector<std::pair<std::string, std::string>> list_backends();

}  // namespace tsdiag
