#include "symmetric.hpp"

#include <algorithm>
#include <cmath>

#include "tensor/products.hpp"
#include "tensor/simd.hpp"

namespace tsdiag::symmetric {
namespace {

using simd::Double4, simd::load;

TSDIAG_INLINE void store(double* p, const Double4& x) { std::memcpy(p, &x, sizeof x); }

/// row -= a w + b v on columns [0, count).
TSDIAG_CLONES void update(double* row, Index count, double a, const double* w, double b,
                          const double* v) {
    for (Index c = 0; c < count; ++c) row[c] -= a * w[c] + b * v[c];
}

/// A -= v w^T + w v^T on the lower triangle of the first m rows, and y = A u of the result.
TSDIAG_CLONES void update_and_multiply(double* a, Index n, Index m, const double* v,
                                       const double* w, const double* u, double* y) {
    for (Index r = 0; r < m; ++r) {
        double* row = a + r * n;
        const double vr = v[r], wr = w[r], ur = u[r];
        Double4 sum = {};
        Index c = 0;
        for (; c + 4 <= r; c += 4) {
            Double4 x, wc, vc, uc, yc;
            load(x, row + c);
            load(wc, w + c);
            load(vc, v + c);
            load(uc, u + c);
            load(yc, y + c);
            x -= vr * wc + wr * vc;
            sum += x * uc;
            yc += x * ur;
            store(row + c, x);
            store(y + c, yc);
        }
        double rest = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        for (; c < r; ++c) {
            row[c] -= vr * w[c] + wr * v[c];
            rest += row[c] * u[c];
            y[c] += row[c] * ur;
        }
        row[r] -= 2 * vr * wr;
        y[r] = rest + row[r] * ur;
    }
}

/// x of m numbers becomes u with u[m - 1] = 1, (1 - tau u u^T) x = beta e_m.
double reflector(double* x, Index m, double& beta) {
    double top = 0;
    for (Index c = 0; c + 1 < m; ++c) top = std::max(top, std::abs(x[c]));
    beta = x[m - 1];
    x[m - 1] = 1;
    if (top == 0) return 0;
    double squares = 0;
    for (Index c = 0; c + 1 < m; ++c) squares += (x[c] / top) * (x[c] / top);
    const double alpha = beta;
    beta = -std::copysign(std::hypot(alpha, top * std::sqrt(squares)), alpha);
    for (Index c = 0; c + 1 < m; ++c) x[c] /= alpha - beta;
    return (beta - alpha) / beta;
}

}  // namespace

Tridiagonal reduce(std::vector<double> a, Index n) {
    Tridiagonal out{std::vector<double>(std::size_t(n)), std::vector<double>(std::size_t(n - 1))};
    std::vector<double> v(std::size_t(n), 0.0), w(v), u(v), y(v);
    for (Index i = n - 1; i > 0; --i) {
        double* row = a.data() + i * n;
        update(row, i + 1, v[std::size_t(i)], w.data(), w[std::size_t(i)], v.data());
        out.diagonal[std::size_t(i)] = row[i];
        std::copy_n(row, i, u.begin());
        const double tau = reflector(u.data(), i, out.off[std::size_t(i - 1)]);
        if (tau == 0) std::fill_n(u.begin(), i, 0.0);
        update_and_multiply(a.data(), n, i, v.data(), w.data(), u.data(), y.data());
        // (1 - tau u u^T) A (1 - tau u u^T) = A - u w^T - w u^T
        const double overlap = tau * tau / 2 * products::dot(u.data(), y.data(), i);
        for (std::size_t c = 0; c < std::size_t(i); ++c) w[c] = tau * y[c] - overlap * u[c];
        v.swap(u);
    }
    out.diagonal[0] = a[0] - 2 * v[0] * w[0];
    return out;
}

}  // namespace tsdiag::symmetric
