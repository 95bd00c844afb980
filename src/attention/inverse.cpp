#include "inverse.hpp"

namespace tsdiag::variants {

Tensor plus_identity(const Tensor& x, double a) {
    const Index m = x.rows();
    std::vector<double> values(std::size_t(m * m), 0.0);
    for (Index i = 0; i < m; ++i) values[std::size_t(i * m + i)] = a;
    return add(
        x, Tensor::from_host(x.backend(), {1, m, m}, std::span<const double>(values), x.type()));
}

namespace {

Tensor improved(const Tensor& k, Tensor v, Index steps) {
    const auto identity_minus = [](double a, const Tensor& x) {
        return plus_identity(scale(x, -1), a);
    };
    for (Index step = 0; step < steps; ++step) {
        const Tensor kv = matmul(k, v);
        const Tensor inner = matmul(kv, identity_minus(7, kv));
        v = matmul(v, identity_minus(13, matmul(kv, identity_minus(15, inner))), Transpose::none,
                   0.25);
    }
    return v;
}

}  // namespace

Tensor iterated_inverse(const Tensor& k, Index steps, Index heads, bool each_head) {
    const Index samples = k.batch() / heads;
    Tensor bound = row_max(column_sum(k));  // (s heads, 1, 1)
    if (!each_head)
        bound = expand(row_max(bound.reshape({samples, 1, heads})), {samples, 1, heads})
                    .reshape({k.batch(), 1, 1});
    return improved(k, divide(transpose(k), bound), steps);
}

Tensor iterated_signed_inverse(const Tensor& k, Index steps) {
    const Tensor modulus = add(map(Unary::relu, k), map(Unary::relu, scale(k, -1)));
    const Tensor columns = row_max(column_sum(modulus)),
                 rows = row_max(transpose(row_sum(modulus)));
    // One after the other: their product may underflow.
    return improved(k, divide(divide(transpose(k), columns), rows), steps);
}

}  // namespace tsdiag::variants
