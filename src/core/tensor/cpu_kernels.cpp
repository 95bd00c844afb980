#include "cpu_kernels.hpp"

#include <Eigen/Core>
#ifdef __AVX2__
#include <immintrin.h>
#endif
#include <type_traits>

#include "tsdiag/backend.hpp"

namespace tsdiag::kernels::TSDIAG_ISA {
namespace {

#include "cpu_math.hpp"

#define TSDIAG_STRINGIFY_(x) #x
#define TSDIAG_STRINGIFY(x) TSDIAG_STRINGIFY_(x)

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ConstMap = Eigen::Map<const Matrix<T>, 0, Eigen::OuterStride<>>;

template <class T>
void gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, T alpha, const T* a,
          Index lda, const T* b, Index ldb, T* c, Index ldc) {
    Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>> C(c, m, n, Eigen::OuterStride<>(ldc));
    const ConstMap<T> A(a, transpose_a ? k : m, transpose_a ? m : k, Eigen::OuterStride<>(lda));
    const ConstMap<T> B(b, transpose_b ? n : k, transpose_b ? k : n, Eigen::OuterStride<>(ldb));
    if (transpose_a)
        C.noalias() = alpha * (A.transpose() * B);
    else if (transpose_b)
        C.noalias() = alpha * (A * B.transpose());
    else
        C.noalias() = alpha * (A * B);
}

template <class T, class F>
void each(const T* a, T* out, Index count, F f) {
#pragma omp simd
    for (Index i = 0; i < count; ++i) out[i] = f(a[i]);
}

template <class T>
void unary(int op, const T* a, T* out, Index count) {
    switch (static_cast<Unary>(op)) {
#define TSDIAG_CASE(name, formula) \
    case Unary::name:              \
        return each(a, out, count, [](T x) { return formula; });
        TSDIAG_UNARY_FORMULAS(TSDIAG_CASE)
#undef TSDIAG_CASE
    }
}

template <class T>
double sum(const T* a, Index count) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (Index i = 0; i < count; ++i) s += double(a[i]);
    return s;
}

template <class T>
double squared_norm(const T* a, Index count) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (Index i = 0; i < count; ++i) s += double(a[i]) * double(a[i]);
    return s;
}

template <class T>
void softmax(T* row, Index count) {
    T top = row[0];
#pragma omp simd reduction(max : top)
    for (Index i = 0; i < count; ++i) top = row[i] > top ? row[i] : top;
    double z = 0;
#pragma omp simd reduction(+ : z)
    for (Index i = 0; i < count; ++i) {
        row[i] = exp_(row[i] - top);
        z += double(row[i]);
    }
    const T inverse = T(1 / z);
#pragma omp simd
    for (Index i = 0; i < count; ++i) row[i] *= inverse;
}

template <class T>
constexpr T smallest = std::is_same_v<T, float> ? T(1.17549435e-38) : T(2.2250738585072014e-308);

template <class T>
double entropy_sum(const T* p, Index count) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (Index i = 0; i < count; ++i) {
        const T x = p[i] > smallest<T> ? p[i] : smallest<T>;
        s -= p[i] > 0 ? double(p[i]) * double(log_(x)) : 0.0;
    }
    return s;
}

/// Sum of slope_k^2 ((1 - p_k)^2 + others), others = sum of p_j^2 over j != k, and the largest
/// |slope_k (1 - p_k)|, |slope_k| and |p_k|, over a range without the entry of largest modulus:
/// nothing cancels.
struct JacobianSums {
    double total = 0, own = 0, slope = 0, modulus = 0;
};
template <class T>
JacobianSums jacobian_range(const T* p, const T* slope, Index count, double squares) {
    double total = 0, own = 0, largest = 0, modulus = 0;
#pragma omp simd reduction(+ : total) reduction(max : own, largest, modulus)
    for (Index k = 0; k < count; ++k) {
        const double x = p[k], g = slope[k];
        const double rest = 1 - x;
        const double others = squares - x * x;
        total += g * g * (rest * rest + others);
        const double a = g * rest, b = g;
        const double ma = a < 0 ? -a : a, mb = b < 0 ? -b : b, mx = x < 0 ? -x : x;
        own = ma > own ? ma : own;
        largest = mb > largest ? mb : largest;
        modulus = mx > modulus ? mx : modulus;
    }
    return {total, own, largest, modulus};
}

template <class T>
RowResult row_statistics(const T* p, const T* slope, bool divided, Index count) {
    RowResult r{};
    double total = 0, modulus = 0, squares = 0, top = 0;
#pragma omp simd reduction(+ : total, modulus, squares) reduction(max : top)
    for (Index i = 0; i < count; ++i) {
        const double x = p[i];
        const double m = x < 0 ? -x : x;
        total += x;
        modulus += m;
        squares += x * x;
        top = m > top ? m : top;
    }
    r.sum = total;
    r.modulus = modulus;
    r.squares = squares;
    r.max_modulus = top;
    r.negative = 0;
    if (modulus > total) {  // rounding aside, only where there is a negative entry
        double negative = 0;
#pragma omp simd reduction(+ : negative)
        for (Index i = 0; i < count; ++i) negative += p[i] < 0 ? -double(p[i]) : 0.0;
        r.negative = negative;
    }
    r.entropy = entropy_sum(p, count);
    if (slope == nullptr) return r;
    if (!divided) {
        double largest = 0;
#pragma omp simd reduction(max : largest)
        for (Index i = 0; i < count; ++i) {
            const double m = slope[i] < 0 ? -double(slope[i]) : double(slope[i]);
            largest = m > largest ? m : largest;
        }
        r.jacobian = squared_norm(slope, count);
        r.jacobian_max = largest;
        return r;
    }
    Index at = 0;
    while (at + 1 < count && double(p[at] < 0 ? -p[at] : p[at]) < top) ++at;
    const double others = squared_norm(p, at) + squared_norm(p + at + 1, count - at - 1);
    const JacobianSums a = jacobian_range(p, slope, at, squares);
    const JacobianSums b = jacobian_range(p + at + 1, slope + at + 1, count - at - 1, squares);
    const double second = a.modulus > b.modulus ? a.modulus : b.modulus;
    const double g = slope[at];
    const double mg = g < 0 ? -g : g;
    const double rest = 1 - double(p[at]);
    const double own = mg * (rest < 0 ? -rest : rest);
    r.jacobian = a.total + b.total + g * g * (rest * rest + others);
    double largest = own;
    const double candidates[] = {a.own, b.own, a.slope * top, b.slope * top, mg * second};
    for (const double c : candidates) largest = c > largest ? c : largest;
    r.jacobian_max = largest;
    return r;
}

template <class T>
void window(const T* p, Index i, Index n, Index first, Index last, WindowSums sums) {
    const Index before = i, after = n - 1 - i;
    const Index both = before < after ? before : after;
    if (first <= i && i < last) sums.spill[0] += double(p[i]);
    const Index left_end = both < i - first ? both : i - first;
    const Index left_begin = i - last + 1 > 1 ? i - last + 1 : 1;
#pragma omp simd
    for (Index t = left_begin; t <= left_end; ++t) sums.left[t] += double(p[i - t]);
    const Index right_end = both < last - 1 - i ? both : last - 1 - i;
    const Index right_begin = first - i > 1 ? first - i : 1;
#pragma omp simd
    for (Index t = right_begin; t <= right_end; ++t) sums.right[t] += double(p[i + t]);
    // Beyond 2 * both the window grows on one side only: token e (to the right) or n - 1 - e (to
    // the left).
    if (before < after) {
        const Index from = 2 * both + 1 > first ? 2 * both + 1 : first;
#pragma omp simd
        for (Index e = from; e < last; ++e) sums.spill[e] += double(p[e]);
    } else {
        const Index to =
            n - 2 * both - 1 < last ? n - 2 * both - 1 : last;  // columns below n - 1 - 2 both
#pragma omp simd
        for (Index j = first; j < to; ++j) sums.spill[n - 1 - j] += double(p[j]);
    }
}

/// Sum of (scale (a - mean))^2.
template <class T>
double centred_squares(const T* a, Index count, double mean, double scale) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (Index i = 0; i < count; ++i) {
        const double x = (double(a[i]) - mean) * scale;
        s += x * x;
    }
    return s;
}

/// 1 / sqrt(mean of (a - mean)^2 + eps).  Squares of float64 may overflow or underflow.
template <class T>
double inverse_deviation(const T* a, Index count, double mean, double eps) {
    const double n = double(count), s = centred_squares(a, count, mean, 1);
    const bool small = s < 0x1p-900 && eps<0x1p-800, large = s> 0x1p1000;
    if (std::is_same_v<T, float> || !(small || large)) return 1 / std::sqrt(s / n + eps);
    const double scale = small ? 0x1p600 : 0x1p-600;
    return scale / std::sqrt(centred_squares(a, count, mean, scale) / n + eps * scale * scale);
}

template <class T>
void normalise(const T* a, const T* weight, const T* bias, T* out, Index count, double eps,
               bool centre) {
    const double mean = centre ? sum(a, count) / double(count) : 0;
    const double inverse = inverse_deviation(a, count, mean, eps);
    const T m = T(mean), f = T(inverse);
    if (weight != nullptr && bias != nullptr) {
#pragma omp simd
        for (Index i = 0; i < count; ++i) out[i] = (a[i] - m) * f * weight[i] + bias[i];
    } else if (weight != nullptr) {
#pragma omp simd
        for (Index i = 0; i < count; ++i) out[i] = (a[i] - m) * f * weight[i];
    } else {
#pragma omp simd
        for (Index i = 0; i < count; ++i)
            out[i] = (a[i] - m) * f + (bias != nullptr ? bias[i] : T(0));
    }
}

template <class T>
double accumulate_row(const T* row, Index d, double* column_sum, double* unit_sum) {
    const double squared = squared_norm(row, d);
    const double inverse = squared > 0 ? 1 / std::sqrt(squared) : 0;
#pragma omp simd
    for (Index j = 0; j < d; ++j) {
        const double x = row[j];
        column_sum[j] += x;
        unit_sum[j] += x * inverse;
    }
    return squared;
}

template <class T>
double centred_row(const T* row, const double* mean, Index d) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (Index j = 0; j < d; ++j) {
        const double x = double(row[j]) - mean[j];
        s += x * x;
    }
    return s;
}

template <class T>
Index first_nonfinite(const T* a, Index count) {
    using Bits = std::conditional_t<std::is_same_v<T, float>, std::uint32_t, std::uint64_t>;
    const Bits exponent = std::is_same_v<T, float> ? Bits(0x7F800000U) : Bits(0x7FF0000000000000U);
    constexpr Index chunk = 4096;
    for (Index begin = 0; begin < count; begin += chunk) {
        const Index end = begin + chunk < count ? begin + chunk : count;
        Bits bad = 0;
#pragma omp simd reduction(| : bad)
        for (Index i = begin; i < end; ++i) {
            const Bits e = std::bit_cast<Bits>(a[i]) & exponent;
            bad |= e == exponent ? Bits(1) : Bits(0);
        }
        if (bad == 0) continue;
        for (Index i = begin; i < end; ++i)
            if ((std::bit_cast<Bits>(a[i]) & exponent) == exponent) return i;
    }
    return -1;
}

/// One Philox4x32-10 block as two doubles in (0, 1), of 52 random bits each.
inline void philox_pair(std::uint64_t seed, std::uint64_t stream, std::uint64_t block, double& a,
                        double& b) {
    std::uint32_t c0 = std::uint32_t(block), c1 = std::uint32_t(block >> 32);
    std::uint32_t c2 = std::uint32_t(stream), c3 = std::uint32_t(stream >> 32);
    const std::uint32_t k0 = std::uint32_t(seed), k1 = std::uint32_t(seed >> 32);
    philox_block(c0, c1, c2, c3, k0, k1);
    const std::uint64_t u = (std::uint64_t{c1} << 32 | c0) >> 12,
                        v = (std::uint64_t{c3} << 32 | c2) >> 12;
    // 52 mantissa bits of a number in [1, 2), shifted to (0, 1) by half a unit.
    a = std::bit_cast<double>(u | 0x3FF0000000000000U) - (1.0 - 0x1p-53);
    b = std::bit_cast<double>(v | 0x3FF0000000000000U) - (1.0 - 0x1p-53);
}

void uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, Index count,
             double* out) {
#pragma omp simd
    for (Index i = 0; i < count; ++i)
        philox_pair(seed, stream, first + std::uint64_t(i), out[2 * i], out[2 * i + 1]);
}

void normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, Index count,
            double* out) {
#pragma omp simd
    for (Index i = 0; i < count; ++i) {
        double u, v, s, c;
        philox_pair(seed, stream, first + std::uint64_t(i), u, v);
        const double radius = std::sqrt(-2 * log_(u));
        sincos_turn(v, s, c);
        out[2 * i] = radius * c;
        out[2 * i + 1] = radius * s;
    }
}

/// Of R rows b at once.
#ifdef __AVX2__
template <int R>
inline void byte_distance(const std::uint8_t* a, const std::uint8_t* b, Index stride,
                          const Index* end, const float* step, Index groups, float* out) {
    __m256 sums[R];
    for (__m256& sum : sums) sum = _mm256_setzero_ps();
    const auto load = [](const std::uint8_t* p) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    };
    for (Index g = 0, c = 0; g < groups; ++g) {
        __m256i differences[R];  // four sums each, of eight columns in turn
        for (__m256i& d : differences) d = _mm256_setzero_si256();
        for (; c < end[g]; c += 32) {
            const __m256i x = load(a + c);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r)
                differences[r] =
                    _mm256_add_epi64(differences[r], _mm256_sad_epu8(x, load(b + r * stride + c)));
        }
        for (int r = 0; r < R; ++r)
            sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(differences[r]), _mm256_set1_ps(step[g]),
                                      sums[r]);
    }
    for (int r = 0; r < R; ++r) out[r] = (sums[r][0] + sums[r][2]) + (sums[r][4] + sums[r][6]);
}
#else
template <int R>
inline void byte_distance(const std::uint8_t* a, const std::uint8_t* b, Index stride,
                          const Index* end, const float* step, Index groups, float* out) {
    for (int r = 0; r < R; ++r, b += stride) {
        out[r] = 0;
        for (Index g = 0, c = 0; g < groups; ++g) {
            int differences = 0;
            for (; c < end[g]; ++c) {
                const int d = int(a[c]) - int(b[c]);
                differences += d < 0 ? -d : d;
            }
            out[r] += step[g] * float(differences);
        }
    }
}
#endif

void byte_distances(const std::uint8_t* a, const std::uint8_t* b, Index count, Index stride,
                    const Index* end, const float* step, Index groups, float* out) {
    Index j = 0;
    for (; j + 4 <= count; j += 4)
        byte_distance<4>(a, b + j * stride, stride, end, step, groups, out + j);
    for (; j < count; ++j) byte_distance<1>(a, b + j * stride, stride, end, step, groups, out + j);
}

void bfloat16(const float* a, float factor, std::uint16_t* out, Index count) {
#pragma omp simd
    for (Index i = 0; i < count; ++i) {
        const auto bits = std::bit_cast<std::uint32_t>(factor * a[i]);
        const std::uint32_t nearest = bits + 0x7FFFU + (bits >> 16 & 1U);
        const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;  // may have its bits below
        out[i] = std::uint16_t((is_nan ? bits | 0x400000U : nearest) >> 16);
    }
}

template <class T>
constexpr Of<T> functions() {
    return {gemm<T>,         unary<T>,     softmax<T>,        row_statistics<T>,
            window<T>,       normalise<T>, accumulate_row<T>, centred_row<T>,
            squared_norm<T>, sum<T>,       first_nonfinite<T>};
}

}  // namespace

extern const Table kernel_table;
constinit const Table kernel_table = {TSDIAG_STRINGIFY(TSDIAG_ISA),
                                      functions<float>(),
                                      functions<double>(),
                                      uniform,
                                      normal,
                                      byte_distances,
                                      bfloat16};

}  // namespace tsdiag::kernels::TSDIAG_ISA
