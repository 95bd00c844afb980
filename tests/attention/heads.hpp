#pragma once
#include <cmath>
#include <memory>
#include <vector>

#include "support/naive.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/random.hpp"

/// Heads to test with: random, similar to trained ones, and in closed form.
namespace tsdiag::test {

inline Tensor gaussian(Shape shape, Type type, std::uint64_t seed) {
    std::vector<double> values(std::size_t(shape.count()));
    Rng(seed).fill_normal(values, 0, 1);
    return Tensor::from_host(cpu(), shape, values, type);
}

inline AttentionInput drawn_input(Index heads, Index n, Index width, Type type, std::uint64_t seed,
                                  Index key_heads = 0) {
    AttentionInput in;
    in.q = gaussian({heads, n, width}, type, seed);
    in.k = gaussian({key_heads > 0 ? key_heads : heads, n, width}, type, seed + 1000);
    in.scale = 1 / std::sqrt(double(width));
    return in;
}

inline Tensor one_head(const naive::Matrix& p, Type type = Type::f64) {
    return Tensor::from_host(cpu(), {1, p.rows, p.cols}, std::span<const double>(p.a), type);
}

inline std::unique_ptr<AttentionOperator> given(const naive::Matrix& p, Type type = Type::f64) {
    return given_attention(one_head(p, type), false, "");
}

inline naive::Matrix noise(Index n, double deviation, std::uint64_t seed) {
    naive::Matrix s(n, n);
    Rng(seed).fill_normal(s.a, 0, deviation);
    return s;
}

/// Logits like those of trained heads (spectrum.md, section 5).
struct Family {
    const char* name;
    naive::Matrix (*logits)(Index n, std::uint64_t seed);
};

inline const std::vector<Family>& families() {
    using naive::Matrix;
    static const std::vector<Family> all = {
        {"random", [](Index n, std::uint64_t seed) { return noise(n, 1, seed); }},
        {"sharp", [](Index n, std::uint64_t seed) { return noise(n, 3, seed); }},
        {"low_rank",
         [](Index n, std::uint64_t seed) {
             return naive::product(noise(n, 0.5, seed), naive::transposed(noise(n, 0.2, seed + 1)));
         }},
        {"local_band",
         [](Index n, std::uint64_t seed) {
             Matrix s = noise(n, 0.5, seed);
             for (Index i = 0; i < n; ++i)
                 for (Index j = 0; j < n; ++j) s(i, j) -= double(std::abs(i - j)) / 4;
             return s;
         }},
        {"local_and_sink",
         [](Index n, std::uint64_t seed) {
             Matrix s = noise(n, 0.5, seed);
             for (Index i = 0; i < n; ++i) {
                 for (Index j = 0; j < n; ++j) s(i, j) -= double(std::abs(i - j)) / 6;
                 s(i, 0) = 2.5;
             }
             return s;
         }},
        {"sink_and_content",
         [](Index n, std::uint64_t seed) {
             Matrix s = noise(n, 1.5, seed);
             for (Index i = 0; i < n; ++i) s(i, 0) = 0.9 * std::log(double(n)) + s(i, 0) / 3;
             return s;
         }},
        {"previous_token",
         [](Index n, std::uint64_t seed) {
             Matrix s = noise(n, 0.5, seed);
             for (Index i = 0; i < n; ++i) s(i, i > 0 ? i - 1 : 0) += std::log(double(n));
             return s;
         }},
        {"near_diagonal",
         [](Index n, std::uint64_t seed) {
             Matrix s = noise(n, 1, seed);
             for (Index i = 0; i < n; ++i) s(i, i) += std::log(double(n)) + 1;
             return s;
         }},
        {"clusters",
         [](Index n, std::uint64_t seed) {
             Matrix s = noise(n, 0.5, seed);
             for (Index i = 0; i < n; ++i)
                 for (Index j = 0; j < n; ++j) s(i, j) += i * 4 / n == j * 4 / n ? 4 : 0;
             return s;
         }},
    };
    return all;
}

inline naive::Matrix rounded_to_float(naive::Matrix a) {
    for (double& e : a.a) e = double(float(e));
    return a;
}

}  // namespace tsdiag::test
