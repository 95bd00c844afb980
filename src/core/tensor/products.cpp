#include "products.hpp"

#include <algorithm>
#include <vector>

#include "simd.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"

namespace tsdiag {
namespace {

using simd::Double4, simd::load;

/// y[r] = a_r . x for R rows at once.
template <int R, class T>
TSDIAG_INLINE void dot_rows(const T* a, Index stride, Index n, const double* x, double* y) {
    Double4 even[R] = {}, odd[R] = {};
    Index j = 0;
    for (; j + 8 <= n; j += 8) {
        Double4 x0, x1, p;
        load(x0, x + j);
        load(x1, x + j + 4);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            load(p, a + r * stride + j);
            even[r] += p * x0;
            load(p, a + r * stride + j + 4);
            odd[r] += p * x1;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        const Double4 s = even[r] + odd[r];
        double sum = (s[0] + s[1]) + (s[2] + s[3]);
        for (Index k = j; k < n; ++k) sum += double(a[r * stride + k]) * x[k];
        y[r] = sum;
    }
}

/// The same with two vectors, in the same order of terms: y[r] = a_r . x, v[r] = a_r . u.
template <int R, class T>
TSDIAG_INLINE void dot_rows_with_two(const T* a, Index stride, Index n, const double* x, double* y,
                                     const double* u, double* v) {
    Double4 even[R] = {}, odd[R] = {}, even_u[R] = {}, odd_u[R] = {};
    Index j = 0;
    for (; j + 8 <= n; j += 8) {
        Double4 x0, x1, u0, u1, p;
        load(x0, x + j);
        load(x1, x + j + 4);
        load(u0, u + j);
        load(u1, u + j + 4);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            load(p, a + r * stride + j);
            even[r] += p * x0;
            even_u[r] += p * u0;
            load(p, a + r * stride + j + 4);
            odd[r] += p * x1;
            odd_u[r] += p * u1;
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
        const Double4 s = even[r] + odd[r], t = even_u[r] + odd_u[r];
        double sum = (s[0] + s[1]) + (s[2] + s[3]), sum_u = (t[0] + t[1]) + (t[2] + t[3]);
        for (Index k = j; k < n; ++k) {
            const auto p = double(a[r * stride + k]);
            sum += p * x[k];
            sum_u += p * u[k];
        }
        y[r] = sum;
        v[r] = sum_u;
    }
}

/// y += sum_r w[r] a_r for R rows at once.
template <int R, class T>
TSDIAG_INLINE void add_rows(const T* a, Index stride, Index n, const double* w, double* y) {
    Index j = 0;
    for (; j + 4 <= n; j += 4) {
        Double4 s, p;
        load(s, y + j);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            load(p, a + r * stride + j);
            s += p * w[r];
        }
        std::memcpy(y + j, &s, sizeof s);
    }
    for (; j < n; ++j)
        for (int r = 0; r < R; ++r) y[j] += double(a[r * stride + j]) * w[r];
}

/// A vector of its own and the place of its image; none: null.
struct Also {
    const double* x;
    double* y;
};

template <class T>
TSDIAG_INLINE void all_dots(const T* a, Index m, Index n, Index stride, const double* x, double* y,
                            Also also = {}) {
    Index i = 0;
    // With two vectors more rows at once would not fit into the registers.
    for (; also.x && i + 2 <= m; i += 2)
        dot_rows_with_two<2>(a + i * stride, stride, n, x, y + i, also.x, also.y + i);
    for (; !also.x && i + 4 <= m; i += 4) dot_rows<4>(a + i * stride, stride, n, x, y + i);
    for (; i < m; ++i) {
        dot_rows<1>(a + i * stride, stride, n, x, y + i);
        if (also.x) dot_rows<1>(a + i * stride, stride, n, also.x, also.y + i);
    }
}

template <class T>
TSDIAG_INLINE void add_all_rows(const T* a, Index m, Index n, Index stride, const double* w,
                                double* y) {
    Index i = 0;
    for (; i + 4 <= m; i += 4) add_rows<4>(a + i * stride, stride, n, w + i, y);
    for (; i < m; ++i) add_rows<1>(a + i * stride, stride, n, w + i, y);
}

/// y += A^T W (A x - shift) by groups of rows that stay in the L1 cache; returns `total` plus the
/// sum of W (A x - shift), row after row.  also.y = A also.x.
template <class T>
TSDIAG_INLINE double add_normal(const T* a, Index m, Index n, Index stride, const double* weight,
                                double shift, const double* x, double* y, double total, Also also) {
    for (Index i = 0; i < m; i += 4) {
        const Index rows = std::min<Index>(4, m - i);
        const T* group = a + i * stride;
        double u[4];
        if (rows == 4 && !also.x)
            dot_rows<4>(group, stride, n, x, u);
        else
            all_dots(group, rows, n, stride, x, u, {also.x, also.x ? also.y + i : nullptr});
        for (Index r = 0; r < rows; ++r) total += u[r] = weight[i + r] * (u[r] - shift);
        if (rows == 4)
            add_rows<4>(group, stride, n, u, y);
        else
            add_all_rows(group, rows, n, stride, u, y);
    }
    return total;
}

TSDIAG_CLONES void dots(const float* a, Index m, Index n, Index stride, const double* x, double* y,
                        Also also) {
    all_dots(a, m, n, stride, x, y, also);
}
TSDIAG_CLONES void dots(const double* a, Index m, Index n, Index stride, const double* x, double* y,
                        Also also) {
    all_dots(a, m, n, stride, x, y, also);
}
TSDIAG_CLONES void add(const float* a, Index m, Index n, Index stride, const double* w, double* y) {
    add_all_rows(a, m, n, stride, w, y);
}
TSDIAG_CLONES void add(const double* a, Index m, Index n, Index stride, const double* w,
                       double* y) {
    add_all_rows(a, m, n, stride, w, y);
}
TSDIAG_CLONES double normal(const float* a, Index m, Index n, Index stride, const double* weight,
                            double shift, const double* x, double* y, double total, Also also) {
    return add_normal(a, m, n, stride, weight, shift, x, y, total, also);
}
TSDIAG_CLONES double normal(const double* a, Index m, Index n, Index stride, const double* weight,
                            double shift, const double* x, double* y, double total, Also also) {
    return add_normal(a, m, n, stride, weight, shift, x, y, total, also);
}
template <class F>
decltype(auto) with_rows(const View& a, F&& use) {
    return a.type == Type::f32 ? use(static_cast<const float*>(a.data))
                               : use(static_cast<const double*>(a.data));
}

Index length(std::span<const double> x) { return Index(x.size()); }

/// The other vector of a product with `a`; none where it is empty.
Also also_of(const View& a, std::span<const double> also, std::span<double> image) {
    if (also.empty()) return {};
    check(length(also) == a.shape.cols && length(image) == a.shape.rows,
          "sizes of the other vector agree");
    return {also.data(), image.data()};
}

}  // namespace

void multiply(const View& a, std::span<const double> x, std::span<double> y,
              std::span<const double> also, std::span<double> image) {
    check(length(x) == a.shape.cols && length(y) == a.shape.rows, "multiply: sizes agree");
    const Also other = also_of(a, also, image);
    with_rows(a, [&](auto* p) {
        dots(p, a.shape.rows, a.shape.cols, a.row_stride, x.data(), y.data(), other);
    });
}

void add_transposed(const View& a, double alpha, std::span<const double> x, std::span<double> y) {
    check(length(x) == a.shape.rows && length(y) == a.shape.cols, "add_transposed: sizes agree");
    std::vector<double> w(x.begin(), x.end());
    for (double& e : w) e *= alpha;
    with_rows(
        a, [&](auto* p) { add(p, a.shape.rows, a.shape.cols, a.row_stride, w.data(), y.data()); });
}

double add_normal_product(const View& a, std::span<const double> w, double mean,
                          std::span<const double> x, std::span<double> y, double sum,
                          std::span<const double> also, std::span<double> image) {
    const Index m = a.shape.rows, n = a.shape.cols;
    check(length(w) == m && length(x) == n && length(y) == n, "add_normal_product: sizes agree");
    const Also other = also_of(a, also, image);
    return with_rows(a, [&](auto* p) {
        return normal(p, m, n, a.row_stride, w.data(), mean, x.data(), y.data(), sum, other);
    });
}

void normal_product(const View& a, std::span<const double> w, std::span<const double> column,
                    std::span<const double> x, std::span<double> y) {
    check(column.size() == x.size(), "normal_product: sizes agree");
    double mass = 0;
    for (double e : w) mass += e;
    // The mean is known beforehand up to rounding; the rounding error is subtracted afterwards.
    double mean = 0;
    dots(column.data(), 1, length(x), length(x), x.data(), &mean, {});
    mean /= mass;
    std::fill(y.begin(), y.end(), 0.0);
    const double left = add_normal_product(a, w, mean, x, y, 0) / mass;
    for (std::size_t j = 0; j < y.size(); ++j) y[j] -= left * column[j];
}

namespace products {

TSDIAG_CLONES double dot(const double* x, const double* y, Index n) {
    double s;
    dot_rows<1>(x, n, n, y, &s);
    return s;
}

TSDIAG_CLONES void rank_two_update(double* a, Index rows, Index cols, Index stride, const double* p,
                                   const double* x, const double* q, const double* y) {
    for (Index i = 0; i < rows; ++i) {
        double* row = a + i * stride;
        Index j = 0;
        for (; j + 4 <= cols; j += 4) {
            Double4 s, u, v;
            load(s, row + j);
            load(u, x + j);
            load(v, y + j);
            s += p[i] * u + q[i] * v;
            std::memcpy(row + j, &s, sizeof s);
        }
        for (; j < cols; ++j) row[j] += p[i] * x[j] + q[i] * y[j];
    }
}

TSDIAG_CLONES void reflect_rows(double* a, Index stride, Index n, Reflection r) {
    const double t1 = r.tau * r.v1, t2 = r.tau * r.v2;
    double *r0 = a, *r1 = a + stride, *r2 = r.pair ? r1 : r1 + stride;
    Index j = 0;
    for (; j + 4 <= n && !r.pair; j += 4) {
        Double4 x, y, z;
        load(x, r0 + j);
        load(y, r1 + j);
        load(z, r2 + j);
        const Double4 s = x + r.v1 * y + r.v2 * z;
        x -= r.tau * s;
        y -= t1 * s;
        z -= t2 * s;
        std::memcpy(r0 + j, &x, sizeof x);
        std::memcpy(r1 + j, &y, sizeof y);
        std::memcpy(r2 + j, &z, sizeof z);
    }
    for (; j < n; ++j) {
        const double s = r0[j] + r.v1 * r1[j] + r.v2 * r2[j];
        r0[j] -= r.tau * s;
        r1[j] -= t1 * s;
        r2[j] -= t2 * s;
    }
}

TSDIAG_CLONES void reflect_columns(double* a, Index stride, Index rows, Reflection r) {
    const double t1 = r.tau * r.v1, t2 = r.tau * r.v2;
    const Index third = r.pair ? 1 : 2;
    for (Index i = 0; i < rows; ++i, a += stride) {
        const double x = a[0], y = a[1], z = a[third], s = x + r.v1 * y + r.v2 * z;
        a[third] = z - t2 * s;
        a[0] = x - r.tau * s;
        a[1] = y - t1 * s;
    }
}

}  // namespace products
}  // namespace tsdiag
