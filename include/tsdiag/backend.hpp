#pragma once
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// Precision of float32 products: exact, or with factors rounded to 11 bits (TF32, on a device) or
/// to 8 (bfloat16, also on processors that multiply it), several times as fast.
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

/// A parameter in training with its moments and its gradient, contiguous and of one shape and type.
struct AdamWUpdate {
    View w, m, v, g;
    AdamWStep step;
};

/// A result that a device may still be computing: `get` waits for it.  The first `get` copies all
/// that its thread has asked for until then at once, so that several cost one wait.
template <class T>
class Later {
  public:
    Later(T value) : value_(std::move(value)) {}
    explicit Later(std::function<T()> fetch) : fetch_(std::move(fetch)) {}
    T& get() {
        if (fetch_) value_ = std::exchange(fetch_, {})();
        return *value_;
    }

  private:
    std::optional<T> value_;
    std::function<T()> fetch_;
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

/// What decides how the spectrum of a matrix A is found.
struct Survey {
    double squares = 0;       ///< |A|_F^2
    bool has_zero = false;    ///< an entry is 0
    bool equal_rows = false;  ///< bit for bit, but for the sign of 0
};

/// Rows whose derivatives of a norm are added up at once, and how many groups of them there are.
constexpr Index rows_of_norm_group = 4;
constexpr Index norm_groups(Index rows) {
    return (rows + rows_of_norm_group - 1) / rows_of_norm_group;
}

class Backend {
  public:
    virtual ~Backend() = default;
    virtual std::string_view name() const = 0;    ///< "cpu", "cuda:0"
    virtual std::string description() const = 0;  ///< device, instruction set, libraries, threads
    /// As its maker calls the device, "NVIDIA H200"; empty: the processor of the machine.
    virtual std::string device_name() const { return {}; }
    virtual bool host_memory() const = 0;  ///< tensors are ordinary memory
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
    ///
    /// For programs with signal handlers: a thread of the CPU computes float32 products with its
    /// stack pointer on the heap (oneDNN).  It blocks the signals that can wait, a timer's or a
    /// profiler's, for some milliseconds at most, and has an alternate stack; a handler of SIGBUS,
    /// SIGSEGV, SIGFPE, SIGILL, SIGSYS or SIGTRAP needs SA_ONSTACK.
    virtual void matmul(View out, View a, View b, Transpose t, double alpha) const = 0;
    /// y = op(a) x, the vectors (b, m, 1) and (b, k, 1) contiguous and in float64, the sums in
    /// double for any type of a.
    virtual void matvec(View y, View a, View x, bool transposed) const = 0;
    virtual void fill(View out, double value) const = 0;
    virtual void unary(Unary op, View out, View a) const = 0;
    /// op(a + bias) + added; bias (1, 1, cols) and added, of the shape of a, where given.  `kept`,
    /// which may be a, receives a + bias, where given.
    virtual void map_sum(View out, View a, const View* bias, Unary op, const View* added,
                         const View* kept) const = 0;
    /// The elements of from[k] to to[k], all of one type, none empty.
    virtual void copy(std::span<const View> to, std::span<const View> from) const = 0;
    /// The elements of a in the type of `out`.
    virtual void convert(View out, View a) const = 0;
    virtual void transpose(View out, View a) const = 0;  ///< out (b, c, r), a (b, r, c)
    /// out (b h, n, w) from a (b, n, h w) plus bias (1, 1, h w), where given.  The columns of a are
    /// those of so many `heads`, part by part, h in all; out has the (b heads[p], n, w) of the
    /// parts one behind another, of each part head k of batch i as batch i heads[p] + k.
    virtual void split_heads(View out, View a, const View* bias,
                             std::span<const Index> heads) const = 0;
    /// The inverse without bias: out (b, n, h w) of the parts (b heads[p], n, w), at most
    /// `most_parts`.
    virtual void merge_heads(View out, std::span<const View> parts) const = 0;
    static constexpr std::size_t most_parts = 8;
    /// Each extent of a is that of out, or 1.
    virtual void expand(View out, View a) const = 0;
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
    /// In place.
    virtual void adamw(std::span<const AdamWUpdate> updates) const = 0;
    /// In place: softmax over the visible columns of each row, 0 outside them.
    virtual void softmax_rows(View p, const Visible& visible) const = 0;
    /// In place: entries outside the visible columns become 0.
    virtual void hide(View p, const Visible& visible) const = 0;
    // Several ops in one pass, where `fuses`; else ops.hpp composes them of the above.

    virtual bool fuses() const = 0;
    /// sum = a + bias + added, bias (1, 1, cols) where given.  Where given, `branch`, which may be
    /// a, is a + bias, and `normed` the sum's rows as by `normalise_rows`.
    virtual void sum_rows(View sum, const View* branch, const View* normed, View a,
                          const View* bias, View added, const View* weight, const View* shift,
                          double eps, bool centre) const = 0;
    /// g op'(x), y = op(x).
    virtual void unary_derivative(Unary op, View out, View g, View x, View y) const = 0;
    /// y (g - sum_j g_ij y_ij) of each row, y = softmax(x).
    virtual void softmax_derivative(View out, View g, View y) const = 0;
    /// Of x -> u weight, u the rows of x as by `normalise_rows`: with h = g weight and r the
    /// inverse deviation r (h - mean h - u mean(h u)), without mean h unless `centre`.  `parts` (2,
    /// norm_groups(rows), cols), where given: the sums of g u and of g over each group of rows.
    /// `added`, of the shape of x, where given: it is added to the result.
    virtual void norm_derivative(View out, const View* parts, View g, View x, const View* weight,
                                 const View* added, double eps, bool centre) const = 0;
    // Krylov iterations of all matrices of a stack a (b, m, n) in step; their vectors are rows,
    // (b, 1, n) in float64, and sums are in double.

    /// y = a x, and z = a^T v, v = a u less its mean: each where it is given.  `column` is 1^T a.
    virtual void krylov_products(const View* y, const View* z, View a, View x, View u,
                                 View column) const = 0;
    /// The basis (b, k + 1, n) has k orthonormal rows and room for the next: the image (b, 1, n),
    /// orthogonalised against them in two passes and normalised.  `column` (b, 1, k + 1) receives
    /// its k coefficients and the norm of what remains.  Where that is only rounding, or k = n, it
    /// is 0, and so is the row.  The images of the first `centred` batches are centred before.
    virtual void extend_basis(View basis, View column, View image, Index centred) const = 0;

    // Numbers for the host, summed in double; the functions of the same names in ops.hpp handle
    // overflow and underflow.

    /// `slope`: null, or a'(S)/z; `divided`: rows were divided by their sum (softmax: slope = p).
    virtual Later<RowStatistics> row_statistics(View p, const View* slope, bool divided,
                                                Index first, const Visible& visible) const = 0;
    /// The same, folded.
    virtual Later<RowStatistics> row_totals(View p, const View* slope, bool divided, Index first,
                                            const Visible& visible) const = 0;
    /// Of each batch of each of `xs`, in their order.
    virtual Later<std::vector<StateMoments>> state_moments(std::span<const View> xs) const = 0;
    virtual Later<std::vector<double>> squared_norms(std::span<const View> xs) const = 0;
    /// |A|_F^2 and tr A of each batch of a square a, in turn.
    virtual Later<std::vector<double>> squares_and_traces(View a) const = 0;
    /// Of each: the row-major index of the first NaN or infinity; -1 where all are finite.
    virtual Later<std::vector<Index>> first_nonfinite(std::span<const View> xs) const = 0;
    virtual Later<std::vector<Survey>> survey(View a) const = 0;  ///< of each batch
    /// max_ij sum_k |a_ik - a_jk| of each batch of a finite a, to the last bit as
    /// `largest_row_distance`.
    virtual Later<std::vector<double>> row_distances(View a) const = 0;
    /// The elements of a in (batch, row, col) order.
    virtual Later<std::vector<double>> numbers_of(View a) const = 0;
    /// Of each symmetric matrix of a stack a (b, n, n) in float64, which is overwritten, a
    /// tridiagonal one Q^T A Q: its n diagonal elements and the n - 1 beside them.  On a device n
    /// is at most `most_tridiagonal`.
    virtual Later<std::vector<double>> tridiagonals(View a) const = 0;
    static constexpr Index most_tridiagonal = 1024;

    // Dense eigenvalue problems of one finite matrix a, (1, n, n) in float64, n >= 1.  A device
    // throws `OutOfMemory` where there is no room for the workspace, `NotAvailable` where its
    // library is missing.

    /// Bytes that each of them takes at most beside a; a device opens its library and asks it. None
    /// where it is missing, or there is no memory to open it.
    virtual std::optional<std::size_t> dense_workspace(Index n) const = 0;

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
/// The CPU with factors of float32 products rounded to bfloat16, products with one row or column
/// apart; nullptr where the processor or oneDNN does not multiply bfloat16.
const Backend* rounding_cpu();
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
/// Throws `NotAvailable` saying what is missing.
const Backend& open_backend(std::string_view name, Products products = Products::exact);
/// Which devices `name` skips and why, in a sentence; empty where it names one or gets the first,
/// or the machine has no driver for any.
std::string passed_over_devices(std::string_view name);
/// Names of the backends that could be opened here, each with its description.
std::vector<std::pair<std::string, std::string>> list_backends();

}  // namespace tsdiag
