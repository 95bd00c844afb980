#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "escalation.hpp"

/// Powers and products of attention matrices.  [TSE] section 2.2.1
namespace tsdiag::claim {
namespace {

// --- powers of one P

/// log |B^(2^count)|_F 2^-count, without overflow.
double growth_of_powers(Matrix B, int count) {
    double log = 0, weight = 1;
    for (int k = 0; k < count; ++k) {
        const double size = B.norm();
        log += weight * std::log(size);
        B = (B / size) * (B / size);
        weight /= 2;
    }
    return log + weight * std::log(B.norm());
}

/// `residual` I + P in place of P, divided by residual + 1.
Bound power_rate(std::string reading, double (*modulus)(const Matrix&)) {
    return {
        .reading = std::move(reading),
        .formula =
            "|Pi2 P^k|^(1/k) tends to |lambda2(P)|, which is less than 1: k = 4096, to "
            "half a percent",
        .relation = Relation::equal,
        .accuracy = 0,
        .draw =
            [](const Rng& rng, const Sizes& at, Distribution) {
                return Variables{
                    {"logits", draw(rng, "logits", at.n, at.n, Distribution::gaussian)}};
            },
        .sides = [modulus](const Variables& v) -> std::optional<BoundSides> {
            const Matrix P = softmax(v("logits"));
            const double lambda = modulus(P);
            if (!(lambda > 1e-3)) return {};
            return BoundSides{std::exp(growth_of_powers(centred(P), 12)), lambda, 0.005 * lambda};
        },
        .shown = [](const Variables& v) { return std::vector{named("P", softmax(v("logits")))}; }};
}

// --- products of several

/// Row k of `maps` is a map of the n points: entry i is the image of point i.
Matrix map_of(const Matrix& maps, Index k) {
    std::vector<double> map;
    for (Index i = 0; i < maps.cols(); ++i)
        map.push_back(std::fmod(std::abs(std::round(maps(k, i))), double(maps.cols())));
    return map_matrix(map);
}

/// The map i -> i - 1, 0 -> 0 of randomly ordered points: the longest path to the closed class.
void set_chain(Matrix& maps, Rng& stream) {
    const Index n = maps.cols();
    auto order = std::vector<Index>(std::size_t(n));
    std::iota(order.begin(), order.end(), 0);
    for (Index i = n - 1; i > 0; --i)
        std::swap(order[std::size_t(i)], order[std::size_t(stream.below(std::uint64_t(i + 1)))]);
    for (Index k = 0; k < maps.rows(); ++k)
        for (Index i = 0; i < n; ++i)
            maps(k, order[std::size_t(i)]) = double(order[std::size_t(std::max<Index>(i - 1, 0))]);
}

/// `count` maps with one closed class and |lambda2| = 0, occasionally a chain repeated.
Variables draw_maps(const Rng& rng, Index n, Index count) {
    Matrix maps(count, n);
    Rng stream = rng.fork("maps");
    if (stream.below(8) == 0) {
        set_chain(maps, stream);
    } else {
        for (Index k = 0; k < count; ++k) do
                for (Index i = 0; i < n; ++i) maps(k, i) = double(stream.below(std::uint64_t(n)));
            while (second_eigenvalue(map_of(maps, k)) > 0.5);
    }
    return {{"maps", maps}};
}

/// One map in n has such a spectrum.
constexpr Index most_points = 8;

std::vector<NamedMatrix> shown_maps(const Variables& v) {
    std::vector<NamedMatrix> all;
    for (Index k = 0; k < v("maps").rows(); ++k)
        all.push_back(named(fmt::format("P{}", k + 1), map_of(v("maps"), k)));
    return all;
}

Condition away_from_one() {
    return {"|lambda2(P_k)| <= 1/2", [](const Variables& v) {
                double most = 0;
                for (Index k = 0; k < v("maps").rows(); ++k)
                    most = std::max(most, second_eigenvalue(map_of(v("maps"), k)));
                return most - 0.5;
            }};
}

Bound plain_products() {
    return {.reading = "plain products",
            .formula = "(P2 P1)^k converges to rank one: |lambda2(P2 P1)| <= 0.99",
            .role = Role::interpretation,
            .conditions = {away_from_one()},
            .draw = [](const Rng& rng, const Sizes& at,
                       Distribution) { return draw_maps(rng, std::min(at.n, most_points), 2); },
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const Matrix Q = map_of(v("maps"), 1) * map_of(v("maps"), 0);
                return BoundSides{second_eigenvalue(Q), 0.99};
            },
            .shown = shown_maps};
}

/// 1/2 max_ij sum_k |Q_ik - Q_jk|.
double dobrushin(const Matrix& Q) {
    double most = 0;
    for (Index i = 0; i < Q.rows(); ++i)
        for (Index j = 0; j < i; ++j)
            most = std::max(most, (Q.row(i) - Q.row(j)).cwiseAbs().sum() / 2);
    return most;
}

/// The product of (I + alpha P_k)/(1 + alpha), or of the P_k alone.  With the residual each path of
/// n - 1 steps has a weight of (min(1, alpha)/(1 + alpha))^(n-1), and any two rows share one.
std::optional<BoundSides> contraction(const Variables& v, bool residual) {
    const Matrix& maps = v("maps");
    const double alpha = v("alpha")(0);
    const Index n = maps.cols();
    const Matrix I = Matrix::Identity(n, n);
    Matrix Q = I;
    for (Index k = 0; k < maps.rows(); ++k) {
        const Matrix P = map_of(maps, k);
        Q = (residual ? Matrix((I + alpha * P) / (1 + alpha)) : P) * Q;
    }
    const double step = std::min(1.0, alpha) / (1 + alpha);
    return BoundSides{dobrushin(Q), 1 - std::pow(step, double(n - 1))};
}

Bound residual_bound(std::string reading, bool residual) {
    return {
        .reading = std::move(reading),
        .formula =
            "n - 1 factors I + alpha P_k, P_k of 0 and 1, c_k = 1/(1 + alpha): 1/2 max_ij sum_k "
            "|Q_ik - Q_jk| <= 1 - (min(1, alpha)/(1 + alpha))^(n-1)",
        .role = Role::interpretation,
        .conditions = {away_from_one(),
                       {"alpha > 0",
                        [](const Variables& v) { return v("alpha")(0) > 0 ? 0 : INFINITY; }}},
        .draw =
            [](const Rng& rng, const Sizes& at, Distribution) {
                const Index n = std::min(at.n, most_points);
                Variables v = draw_maps(rng, n, n - 1);
                v.set("alpha", draw_alpha(rng));
                return v;
            },
        .sides = [residual](const Variables& v) { return contraction(v, residual); },
        .shown =
            [](const Variables& v) {
                std::vector<NamedMatrix> all = shown_maps(v);
                all.push_back(named("alpha", v("alpha")));
                return all;
            }};
}

std::vector<Reading> check_products(const Check& how) {
    return examine_bounds({power_rate("powers of one P", second_eigenvalue), plain_products(),
                           residual_bound("with the residual", true)},
                          how);
}

/// n = 2, P_1 constant: (I + P)/2 has rows (1, 0) and (1/2, 1/2), which differ by 1/2.
Attained attain_products() {
    const Matrix P = map_matrix({0, 0});
    return {dobrushin((Matrix::Identity(2, 2) + P) / 2), 0.5, 1e-15};
}

std::vector<Reading> violate_products(const Check& how) {
    Reading residual = examine_bound(residual_bound("without the residual", false), how);
    residual.of = "with the residual";
    Reading power = examine_bound(
        power_rate("delta in place of |lambda2|", [](const Matrix& P) { return delta_of(P); }),
        how);
    power.of = "powers of one P";
    return {residual, power};
}

}  // namespace

extern const Claim tse_sec221 = {
    .name = "tse.sec2.2.1",
    .statement =
        "Powers of a stochastic P with |lambda2| < 1 converge to rank one, and so do products of "
        "P_k with |lambda2| bounded away from 1: plain products, or products of I + alpha P_k with "
        "the residual.",
    .words =
        "for a sequence of stochastic matrices {P_k} for which {|lambda2(P_k)|} is bounded "
        "away from 1 [...] P_k ... P_2 P_1 x will also converge to span{1}",
    .source = "[TSE] section 2.2.1",
    .assumes =
        "P_k row-stochastic; alpha > 0; products are examined only for matrices of 0 and 1 with "
        "one closed class, at most 8 x 8, which attain the bound",
    .proof =
        "with the residual: any two rows of n - 1 factors share a path, since |lambda2| < 1 leaves "
        "one closed class; the P_k with |lambda2| <= 1 - eps are a compact set, so all such "
        "products contract by one factor less than 1; of matrices of 0 and 1 a path has the weight "
        "of the reading.",
    .sharp =
        "With the residual and P_k of 0 and 1, n - 1 factors leave at most 1 - (min(1, alpha)/(1 + "
        "alpha))^(n-1) of differences of rows; other P_k may leave more, for n = 2 the part 1 - "
        "alpha (1 - lambda2)/(1 + alpha).  For n = 2 plain products converge as well, since "
        "lambda2 is a determinant.",
    .n = 5,
    .trials = 400,
    .least_n = 2,
    .check = check_products,
    .tight = attain_products,
    .violate = violate_products};

}  // namespace tsdiag::claim
