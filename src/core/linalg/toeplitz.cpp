#include <algorithm>
#include <vector>

#include "tensor/simd.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/parallel.hpp"

namespace tsdiag {
namespace {

using simd::Double4, simd::load;

constexpr int group_size = 4;  // rows that share a pass over G

/// The rows of a group; `c` in descending order of distance, to be read forwards.
struct Group {
    const double *a[group_size], *b[group_size], *c[group_size];
};

TSDIAG_INLINE double sum_of(const Double4& v) { return (v[0] + v[1]) + (v[2] + v[3]); }

/// out_r += a_k b_k G_kk c_0 + sum_l<k (a_k b_l + b_k a_l) G_kl c_(k - l), k < m.
TSDIAG_CLONES void add_forms(const double* g, Index stride, Index m, const Group& rows,
                             double* out) {
    for (Index k = 0; k < m; ++k) {
        const double* gk = g + k * stride;
        const Index from = m - 1 - k;
        Double4 with_a[group_size] = {}, with_b[group_size] = {};
        Index l = 0;
        for (; l + 4 <= k; l += 4) {
            Double4 entry, c, a, b;
            load(entry, gk + l);
#pragma GCC unroll 4
            for (int r = 0; r < group_size; ++r) {
                load(c, rows.c[r] + from + l);
                load(a, rows.a[r] + l);
                load(b, rows.b[r] + l);
                c *= entry;
                with_a[r] += c * a;
                with_b[r] += c * b;
            }
        }
        for (int r = 0; r < group_size; ++r) {
            double y = sum_of(with_a[r]), z = sum_of(with_b[r]);
            for (Index j = l; j < k; ++j) {
                const double c = gk[j] * rows.c[r][from + j];
                y += c * rows.a[r][j];
                z += c * rows.b[r][j];
            }
            const double a = rows.a[r][k], b = rows.b[r][k];
            out[r] += a * z + b * y + a * b * gk[k] * rows.c[r][m - 1];
        }
    }
}

}  // namespace

std::vector<double> toeplitz_forms(const View& g, const View& a, const View& b, const View& c) {
    const Index count = a.shape.rows, m = a.shape.cols;
    check(g.type == Type::f64 && a.type == Type::f64 && b.type == Type::f64 &&
              c.type == Type::f64 && a.shape == b.shape && a.shape == c.shape &&
              g.shape.rows >= m && g.shape.cols >= m,
          "toeplitz_forms: float64, sizes agree");
    std::vector<double> out(std::size_t(count), 0.0);
    in_parallel((count + group_size - 1) / group_size, [&](Index group) {
        const Index first = group * group_size;
        std::vector<double> reversed(std::size_t(group_size * m));
        Group rows;
        double sums[group_size] = {};
        for (Index r = 0; r < group_size; ++r) {
            const Index i = std::min(first + r, count - 1);  // the last row repeated fills a group
            double* turned = reversed.data() + r * m;
            std::reverse_copy(c.row<double>(0, i), c.row<double>(0, i) + m, turned);
            rows.a[r] = a.row<double>(0, i);
            rows.b[r] = b.row<double>(0, i);
            rows.c[r] = turned;
        }
        add_forms(static_cast<const double*>(g.data), g.row_stride, m, rows, sums);
        std::copy_n(sums, std::min<Index>(group_size, count - first), out.begin() + first);
    });
    return out;
}

}  // namespace tsdiag
