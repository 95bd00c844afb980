#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "attention/heads.hpp"
#include "attention/sizes.hpp"
#include "support/near.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

/// Attentions whose logits depend on the distance of two tokens, against loops over the pairs.
namespace tsdiag::distances {
namespace {

using namespace test;

using Parameters = std::map<std::string, Tensor, std::less<>>;

constexpr Index n = 23, h = 2, w = 3;

AttentionInput input(const Parameters& parameters, AttentionOptions options) {
    AttentionInput in;
    in.q = gaussian({h, n, w}, Type::f64, 1);
    in.k = gaussian({h, n, w}, Type::f64, 2);
    in.scale = 0.3;
    in.options = std::move(options);
    in.parameter = [parameters](std::string_view name) {
        const auto found = parameters.find(name);
        return found == parameters.end() ? Tensor() : found->second;
    };
    return in;
}

double at(const Tensor& t, Index b, Index r, Index c) {
    const std::vector<double> all = t.to_host<double>();
    return all[std::size_t((b * t.rows() + r) * t.cols() + c)];
}
double dot(const Tensor& a, Index b1, Index r1, const Tensor& b, Index b2, Index r2) {
    double sum = 0;
    for (Index c = 0; c < a.cols(); ++c) sum += at(a, b1, r1, c) * at(b, b2, r2, c);
    return sum;
}

/// softmax of scale q k^T + term(head, i, j), of the tokens with these positions.
template <class Term>
std::vector<double> expected(const AttentionInput& in, const Term& term) {
    std::vector<double> out;
    const Index tokens = in.q.rows();
    for (Index head = 0; head < h; ++head)
        for (Index i = 0; i < tokens; ++i) {
            std::vector<double> row;
            double sum = 0;
            for (Index j = 0; j < tokens; ++j) {
                const bool seen = !in.causal || j <= i;
                const double s = in.scale * dot(in.q, head, i, in.k, head, j) + term(head, i, j);
                row.push_back(seen ? std::exp(s) : 0);
                sum += row.back();
            }
            for (const double e : row) out.push_back(e / sum);
        }
    return out;
}

constexpr double terms = n + 4 * w;

/// Of T5, by integers: class e + k begins where t^m >= e^m (longest / e)^k, m the classes beyond e.
Index t5_class(Index t, Index buckets, Index longest, bool one_way) {
    Index start = 0;
    if (!one_way) {
        buckets /= 2;
        start = t < 0 ? buckets : 0;
        t = std::abs(t);
    }
    if (t < 0) t = 0;
    const Index e = buckets / 2, m = buckets - e;
    if (t < e) return start + t;
    Index k = 0;
    const auto reaches = [&](Index step) {
        long double left = 1, right = 1;
        for (Index i = 0; i < m; ++i) left *= t, right *= e;
        for (Index i = 0; i < step; ++i) left *= e, right *= longest;
        return left >= right;
    };
    while (k < m - 1 && reaches(k + 1)) ++k;
    return start + e + k;
}

TEST(Bucketed, AddsTheNumberOfTheClassOfTheDistance) {
    for (const bool causal : {false, true}) {
        const Tensor b = gaussian({1, 8, h}, Type::f64, 3);
        AttentionInput in = input({{"relative", b}}, {{"buckets", "8"}, {"longest", "16"}});
        in.causal = causal;
        const auto all = expected(in, [&](Index head, Index i, Index j) {
            return at(b, 0, t5_class(i - j, 8, 16, causal), head);
        });
        EXPECT_ALL_CLOSE(attention("bucketed").make(in)->matrix().to_host<double>(), all,
                         rounding(terms));
    }
}

/// The 32 classes that every released model has.
TEST(Bucketed, HasTheClassesOfTheReleasedModels) {
    constexpr Index many = 300;
    AttentionInput in;
    in.q = in.k = gaussian({1, many, 1}, Type::f64, 1);
    in.scale = 0;
    std::vector<double> numbers(32);
    for (std::size_t c = 0; c < 32; ++c) numbers[c] = double(c) / 8;
    const Tensor b =
        Tensor::from_host(cpu(), {1, 32, 1}, std::span<const double>(numbers), Type::f64);
    in.parameter = [&](std::string_view name) { return name == "relative" ? b : Tensor(); };
    const std::vector<double> p = attention("bucketed").make(in)->matrix().to_host<double>();
    for (const Index i : {Index{0}, Index{150}, many - 1})
        for (Index j = 0; j < many; ++j) {
            const double found_class =
                8 * std::log(p[std::size_t(i * many + j)] / p[std::size_t(i * many + i)]);
            EXPECT_EQ(std::llround(found_class), t5_class(i - j, 32, 128, false)) << i - j;
        }
}

TEST(RelativeKey, AddsProductsWithTheRowOfTheDistance) {
    for (const bool keys : {false, true}) {
        const Tensor a = gaussian({1, 2 * 30 - 1, w}, Type::f64, 3);
        AttentionInput in = input({{"distance", a}}, {{"keys", keys ? "1" : "0"}});
        in.position.clear();
        for (Index i = 0; i < n; ++i) in.position.push_back(double(i + i / 4));  // hidden tokens
        const auto row = [&](Index i, Index j) {
            return Index(in.position[std::size_t(i)] - in.position[std::size_t(j)]) + 29;
        };
        const auto all = expected(in, [&](Index head, Index i, Index j) {
            return in.scale * (dot(in.q, head, i, a, 0, row(i, j)) +
                               (keys ? dot(in.k, head, j, a, 0, row(i, j)) : 0));
        });
        EXPECT_ALL_CLOSE(attention("relative_key").make(in)->matrix().to_host<double>(), all,
                         rounding(terms));
    }
}

TEST(RelativeKey, RefusesMoreTokensThanItsTable) {
    const AttentionInput in = input({{"distance", gaussian({1, 2 * n - 3, w}, Type::f64, 3)}}, {});
    try {
        attention("relative_key").make(in);
        FAIL() << "a distance outside of the table";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("--tokens 22"));
    }
}

/// [DEBERTA] (4) with classes by logarithms: log_b of a distance beyond a half of the classes.
Index deberta_class(Index t, Index buckets, Index longest) {
    const Index half = buckets / 2, far = std::abs(t);
    if (far <= half) return t;
    const long double base =
        std::pow((long double)(longest - 1) / half, 1 / (long double)(half - 1));
    Index c = half;
    for (long double end = half; end < far * (1 - 1e-15L); end *= base) ++c;
    return t < 0 ? -c : c;
}

TEST(Disentangled, AddsProductsWithMapsOfATableOfDistances) {
    constexpr Index d = 5;
    const Tensor table = gaussian({1, 16, d}, Type::f64, 3);
    const Tensor a_map = gaussian({1, h * w, d}, Type::f64, 4),
                 b_map = gaussian({1, h * w, d}, Type::f64, 5),
                 b_bias = gaussian({1, 1, h * w}, Type::f64, 6);
    for (const char* which : {"both", "c2p", "p2c"}) {
        const AttentionInput in = input({{"distances", table},
                                         {"position_key.weight", a_map},
                                         {"position_query.weight", b_map},
                                         {"position_query.bias", b_bias}},
                                        {{"buckets", "8"}, {"longest", "15"}, {"terms", which}});
        const auto product = [&](const Tensor& x, Index head, Index token, const Tensor& map,
                                 const Tensor& bias, Index row) {
            double sum = 0;
            for (Index c = 0; c < w; ++c)
                sum +=
                    at(x, head, token, c) * (dot(table, 0, row, map, 0, head * w + c) +
                                             (bias.defined() ? at(bias, 0, 0, head * w + c) : 0));
            return in.scale * sum;
        };
        const auto all = expected(in, [&](Index head, Index i, Index j) {
            const Index row = std::clamp<Index>(deberta_class(i - j, 8, 15) + 8, 0, 15);
            const bool both = which == std::string("both");
            return (both || which == std::string("c2p") ? product(in.q, head, i, a_map, {}, row)
                                                        : 0) +
                   (both || which == std::string("p2c") ? product(in.k, head, j, b_map, b_bias, row)
                                                        : 0);
        });
        EXPECT_ALL_CLOSE(attention("disentangled").make(in)->matrix().to_host<double>(), all,
                         rounding(terms * d));
    }
}

TEST(Disentangled, RefusesMapsThatDoNotFit) {
    const Tensor table = gaussian({1, 16, 5}, Type::f64, 3);
    const AttentionOptions eight{{"buckets", "8"}};
    EXPECT_THROW(attention("disentangled").make(input({{"distances", table}}, eight)), ShapeError);
    EXPECT_THROW(attention("disentangled").make(input({{"distances", table}}, {})), ShapeError);
    EXPECT_THROW(attention("disentangled").make(input({}, {{"buckets", "8"}, {"longest", "6"}})),
                 UsageError);
}

}  // namespace
}  // namespace tsdiag::distances
