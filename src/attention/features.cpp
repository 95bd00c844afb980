#include "features.hpp"

#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag::variants {

Tensor feature_map(std::string_view name, const Tensor& x) {
    if (name == "identity") return x;
    if (name == "relu") return map(Unary::relu, x);
    if (name == "elu") return map(Unary::elu, x);
    check(name == "1+elu", "a feature map that is known");
    return map(Unary::elu_plus_one, x);
}

Tensor orthogonal_features(Rng rng, Index m, Index w, const Backend& backend, Type type) {
    std::vector<double> rows(std::size_t(m * w)), lengths(rows.size());
    rng.fork("directions").fill_normal(std::span<double>(rows), 0, 1);
    rng.fork("lengths").fill_normal(std::span<double>(lengths), 0, 1);
    const auto row = [w](std::vector<double>& a, Index i) {
        return std::span(a).subspan(std::size_t(i * w), std::size_t(w));
    };
    const auto dot = [](std::span<const double> a, std::span<const double> b) {
        double s = 0;
        for (std::size_t c = 0; c < a.size(); ++c) s += a[c] * b[c];
        return s;
    };
    for (Index i = 0; i < m; ++i) {
        const std::span<double> v = row(rows, i);
        for (int pass = 0; pass < 2; ++pass)  // Gram-Schmidt loses orthogonality in one pass
            for (Index j = i / w * w; j < i; ++j) {
                const std::span<double> u = row(rows, j);
                const double s = dot(u, v);
                for (std::size_t c = 0; c < v.size(); ++c) v[c] -= s * u[c];
            }
        const double length = std::sqrt(dot(v, v));
        for (double& e : v) e /= length;
    }
    for (Index i = 0; i < m; ++i) {
        const double length = std::sqrt(dot(row(lengths, i), row(lengths, i)));
        for (double& e : row(rows, i)) e *= length;
    }
    return Tensor::from_host(backend, {1, m, w}, std::span<const double>(rows), type);
}

Tensor drawn_uniform(const Rng& rng, Index rows, Index cols, double bound, const Backend& backend,
                     Type type) {
    std::vector<double> values(std::size_t(rows * cols));
    rng.fill_uniform(std::span<double>(values), -bound, bound);
    return Tensor::from_host(backend, {1, rows, cols}, std::span<const double>(values), type);
}

Tensor rows_of_each_head(const Tensor& x, std::span<const Index> rows) {
    const Index h = x.batch(), n = x.rows(), w = x.cols();
    std::vector<Index> of_all;
    of_all.reserve(rows.size() * std::size_t(h));
    for (Index k = 0; k < h; ++k)
        for (const Index row : rows) of_all.push_back(k * n + row);
    return gather_rows(contiguous(x).reshape({1, h * n, w}), of_all)
        .reshape({h, std::ssize(rows), w});
}

}  // namespace tsdiag::variants
