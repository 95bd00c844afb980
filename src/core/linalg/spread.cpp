#include <vector>

#include "tensor/simd.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"

namespace tsdiag {
namespace {

using simd::Double4, simd::load;

TSDIAG_INLINE double total(const Double4& s) { return (s[0] + s[1]) + (s[2] + s[3]); }

template <class T>
TSDIAG_INLINE void add_spread(const T* p, const T* e, const T* u, const double* w,
                              const double* shift, Index n, SpreadSums& out) {
    Double4 first = {}, cross = {}, own = {}, squares = {}, moved = {}, size = {};
    Index j = 0;
    for (; j + 4 <= n; j += 4) {
        Double4 x, t, c, weight, extra = {};
        load(x, p + j);
        load(t, u + j);
        load(c, e + j);
        load(weight, w + j);
        if (shift != nullptr) load(extra, shift + j);
        const Double4 square = x * x;
        moved += c * t;
        size += c * c * weight;
        t += extra;
        first += square * weight;
        cross += square * t;
        own += x * t;
        squares += square;
    }
    out = {total(first), total(cross), total(own), total(squares), total(moved), total(size)};
    for (; j < n; ++j) {
        const double x = p[j], c = e[j], t = double(u[j]) + (shift != nullptr ? shift[j] : 0);
        out.first += x * x * w[j];
        out.cross += x * x * t;
        out.own += x * t;
        out.squares += x * x;
        out.moved += c * double(u[j]);
        out.size += c * c * w[j];
    }
}
TSDIAG_CLONES void add(const float* p, const float* e, const float* u, const double* w,
                       const double* shift, Index n, SpreadSums& out) {
    add_spread(p, e, u, w, shift, n, out);
}
TSDIAG_CLONES void add(const double* p, const double* e, const double* u, const double* w,
                       const double* shift, Index n, SpreadSums& out) {
    add_spread(p, e, u, w, shift, n, out);
}

}  // namespace

std::vector<SpreadSums> spread_sums(const View& p, const View& e, const View& u, const View& w,
                                    const View& shift) {
    const Index heads = p.shape.batch, rows = p.shape.rows, n = p.shape.cols;
    check(p.type == e.type && p.type == u.type && p.shape == e.shape && p.shape == u.shape &&
              w.type == Type::f64 && w.shape.cols >= n &&
              (shift.data == nullptr || (shift.type == Type::f64 && shift.shape.cols >= n)),
          "spread_sums: types and sizes agree");
    const auto of_head = [&](const View& a, Index head) -> const double* {
        return a.data == nullptr ? nullptr : a.row<double>(head / (heads / a.shape.batch), 0);
    };
    auto out = std::vector<SpreadSums>(std::size_t(heads * rows));
#pragma omp parallel for schedule(static)
    for (Index i = 0; i < heads * rows; ++i) {
        const Index k = i / rows, r = i % rows;
        const double *weight = of_head(w, k), *extra = of_head(shift, k);
        SpreadSums& sums = out[std::size_t(i)];
        if (p.type == Type::f32)
            add(p.row<float>(k, r), e.row<float>(k, r), u.row<float>(k, r), weight, extra, n, sums);
        else
            add(p.row<double>(k, r), e.row<double>(k, r), u.row<double>(k, r), weight, extra, n,
                sums);
    }
    return out;
}

}  // namespace tsdiag
