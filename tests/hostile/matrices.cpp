#include "matrices.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

namespace tsdiag::test {
namespace {

using naive::Matrix;

double between(Rng& rng, double low, double high) { return low + (high - low) * rng.uniform(); }
/// 10^-x, x uniform.
double tiny(Rng& rng, double low, double high) { return std::pow(10.0, -between(rng, low, high)); }
Index drawn(Rng& rng, Index n) { return Index(rng.below(std::uint64_t(n))); }
bool chance(Rng& rng, double p) { return rng.uniform() < p; }

std::vector<Index> shuffled(Index n, Rng& rng) {
    std::vector<Index> order(std::size_t(n), 0);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    return order;
}

Matrix in_order(const Matrix& p, const std::vector<Index>& order) {
    Matrix q(p.rows, p.cols);
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < p.cols; ++j)
            q(i, j) = p(order[std::size_t(i)], order[std::size_t(j)]);
    return q;
}

}  // namespace

Matrix jordan(Index n, double lambda, Rng& rng) {
    const double units = double(std::bit_ceil(std::uint64_t(8 * n)));  // in a row
    Matrix p(n, n);
    std::vector<double> r(std::size_t(n), 4);
    r[std::size_t(drawn(rng, n))] += units - 4 * double(n);
    const double step = std::array{4.0, 2.0, 1.0, 0.25}[std::size_t(drawn(rng, 4))] * (1 - lambda);
    for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) p(i, j) = (1 - lambda) * r[std::size_t(j)];
        p(i, i) += lambda * units;
        if (i + 2 < n && !chance(rng, 0.1)) p(i, i + 1) += step, p(i, i + 2) -= step;
    }
    for (double& e : p.a) e /= units;
    return p;
}

Matrix drift_band(Index n, double up, double down) {
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i) {
        if (i + 1 < n) p(i, i + 1) = up;
        if (i > 0) p(i, i - 1) = down;
        p(i, i) = 1 - (i + 1 < n ? up : 0) - (i > 0 ? down : 0);
    }
    return p;
}

Matrix shift_register(Index n, Index base) {
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index b = 0; b < base; ++b) p(i, (base * i + b) % n) += 1 / double(base);
    return p;
}

namespace {

std::span<double> row(Matrix& p, Index i) {
    return std::span(p.a).subspan(std::size_t(i * p.cols), std::size_t(p.cols));
}

void normalise(std::span<double> row) {
    double sum = 0;
    for (const double e : row) sum += e;
    for (double& e : row) e /= sum;
}
Matrix normalised(Matrix p) {
    for (Index i = 0; i < p.rows; ++i) normalise(row(p, i));
    return p;
}

/// Multiples of 2^-bits that sum to exactly 1: exact in float32 where bits = 22.
void make_exact(std::span<double> row, int bits) {
    double sum = 0;
    for (double& e : row) sum += e = std::ldexp(std::round(std::ldexp(e, bits)), -bits);
    *std::ranges::max_element(row) += 1 - sum;
}

/// Rows as they are, or exact in float64, or in float32 as well.
Matrix exact_or_not(Matrix p, Rng& rng) {
    const int bits = std::array{0, 50, 22}[std::size_t(drawn(rng, 3))];
    for (Index i = 0; i < p.rows && bits > 0; ++i) make_exact(row(p, i), bits);
    return p;
}

void fill_softmax(std::span<double> row, double deviation, Rng& rng) {
    double most = -HUGE_VAL;
    for (double& e : row) most = std::max(most, e = deviation * rng.normal());
    for (double& e : row) e = std::exp(e - most);
    normalise(row);
}
Matrix softmax(Index n, double deviation, Rng& rng) {
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i) fill_softmax(row(p, i), deviation, rng);
    return p;
}

/// Blocks of tokens [end of the one before, end).
std::vector<Index> ends_of(Index n, Index blocks) {
    std::vector<Index> ends;
    for (Index b = 1; b <= blocks; ++b) ends.push_back(b * n / blocks);
    return ends;
}
Matrix blocks(Index n, Index count, double deviation, Rng& rng) {
    Matrix p(n, n);
    Index first = 0;
    for (const Index end : ends_of(n, count)) {
        for (Index i = first; i < end; ++i)
            fill_softmax(row(p, i).subspan(std::size_t(first), std::size_t(end - first)), deviation,
                         rng);
        first = end;
    }
    return p;
}

/// Moves weight `share` of row i's largest entry to column j.
void leak(Matrix& p, Index i, Index j, double share) {
    const auto from = std::size_t(std::ranges::max_element(row(p, i)) - row(p, i).begin());
    const double moved = share * row(p, i)[from];
    row(p, i)[from] -= moved;
    p(i, j) += moved;
}

Matrix one_hot(Index n, Rng& rng) {
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i) p(i, drawn(rng, n)) = 1;
    return p;
}

Matrix one_hot_and_dust(Index n, Rng& rng) {
    Matrix p = one_hot(n, rng);
    const double share = chance(rng, 0.5) ? 1e-30 : tiny(rng, 8, 300);
    for (Index k = 0; k < 1 + drawn(rng, n); ++k) leak(p, drawn(rng, n), drawn(rng, n), share);
    if (chance(rng, 0.3))
        for (double& e : p.a) e += e == 0 ? share : 0;
    return p;
}

Matrix nearly_reducible(Index n, Rng& rng) {
    Matrix p = exact_or_not(blocks(n, 2, between(rng, 0.1, 2), rng), rng);
    const double share = chance(rng, 0.5) ? tiny(rng, 3, 18) : tiny(rng, 3, 300);
    leak(p, drawn(rng, n / 2), n - 1, share);
    leak(p, n - 1, 0, chance(rng, 0.5) ? share : tiny(rng, 3, 18));
    return p;
}

Matrix closed_classes(Index n, Rng& rng) {
    Matrix p = exact_or_not(blocks(n, std::min<Index>(n, 2 + drawn(rng, 3)), 1, rng), rng);
    if (chance(rng, 0.5))  // and tokens that are left for ever
        for (Index i = 0; i < 1 + n / 4; ++i) fill_softmax(row(p, i), 1, rng);
    return p;
}

Matrix transient_classes(Index n, Rng& rng) {
    const Index count = std::min<Index>(n, 2 + drawn(rng, 4));
    Matrix p(n, n);
    Index first = 0;
    for (const Index end : ends_of(n, count)) {
        for (Index i = first; i < end; ++i)
            fill_softmax(row(p, i).subspan(std::size_t(first)), between(rng, 0.1, 3), rng);
        first = end;
    }
    return exact_or_not(std::move(p), rng);
}

Matrix periodic(Index n, Rng& rng) {
    const Index period = 2 + drawn(rng, n - 1);
    const std::vector<Index> ends = ends_of(n, period);
    Matrix p(n, n);
    for (Index b = 0, first = 0; b < period; first = ends[std::size_t(b)], ++b) {
        const Index next = (b + 1) % period, to = next == 0 ? 0 : ends[std::size_t(next - 1)];
        const Index count = ends[std::size_t(next)] - to;
        for (Index i = first; i < ends[std::size_t(b)]; ++i)
            fill_softmax(row(p, i).subspan(std::size_t(to), std::size_t(count)), 1, rng);
    }
    p = exact_or_not(std::move(p), rng);
    if (chance(rng, 0.5)) leak(p, drawn(rng, n), drawn(rng, n), tiny(rng, 6, 18));
    return p;
}

Matrix jordan_zero(Index n, Rng& rng) { return jordan(n, 0, rng); }

Matrix jordan_other(Index n, Rng& rng) {
    n = std::min<Index>(n, 14);  // where an oracle is to find what is defective
    const double lambda =
        std::array{0.5, 0.25, 0.75, 0.125, 1.0 / 1024}[std::size_t(drawn(rng, 5))];
    if (chance(rng, 0.5)) return jordan(n, lambda, rng);
    Matrix p(n, n);  // a chain towards token 0; eigenvalue 1 - lambda
    p(0, 0) = 1;
    for (Index i = 1; i < n; ++i) p(i, i) = 1 - lambda, p(i, i - 1) = lambda;
    if (chance(rng, 0.7)) {
        const double mixed = 1.0 / double(std::bit_ceil(std::uint64_t(n)));
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) p(i, j) = 0.5 * p(i, j) + 0.5 * mixed;
        for (Index i = 0; i < n; ++i) p(i, 0) += 0.5 - 0.5 * mixed * double(n);
    }
    return p;
}

Matrix de_bruijn(Index n, Rng& rng) {
    const Index base = chance(rng, 0.7) ? 2 : 4;
    if (chance(rng, 0.7)) {  // all eigenvalues but 1 are 0
        Index size = base;
        while (size * base <= n) size *= base;
        n = size;
    }
    Matrix p = shift_register(n, base);
    if (chance(rng, 0.2)) leak(p, drawn(rng, n), drawn(rng, n), tiny(rng, 3, 16));
    return p;
}

Matrix traps(Index n, Rng& rng) {
    Matrix p = exact_or_not(softmax(n, between(rng, 0.1, 3), rng), rng);
    for (Index k = 0; k < 1 + drawn(rng, 3); ++k) {
        const Index i = drawn(rng, n);
        std::ranges::fill(row(p, i), 0.0);
        p(i, i) = 1;
        if (chance(rng, 0.3)) leak(p, i, drawn(rng, n), tiny(rng, 5, 300));
    }
    return p;
}

Matrix streaks(Index n, Rng& rng) {
    Matrix p = exact_or_not(softmax(n, between(rng, 0.1, 3), rng), rng);
    for (Index i = 1; i < n; ++i)
        if (chance(rng, 0.7)) std::ranges::copy(row(p, i - 1), row(p, i).begin());
    return p;
}

/// Moduli and singular values a (1 - g), a (1 - 2g), ... in clusters.
Matrix clustered(Index n, Rng& rng) {
    const double gap = tiny(rng, 5, 12), most = between(rng, 0.1, 0.9);
    const std::vector<Index> to = shuffled(n, rng);
    std::vector<double> r(std::size_t(n), 1);
    if (chance(rng, 0.5))
        fill_softmax(r, 1, rng);
    else
        normalise(r);
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i) {
        const double own = most * (1 - gap * double(i));
        for (Index j = 0; j < n; ++j) p(i, j) = (1 - own) * r[std::size_t(j)];
        p(i, to[std::size_t(i)]) += own;
    }
    return exact_or_not(std::move(p), rng);
}

Matrix rank_one(Index n, Rng& rng) {
    Matrix p = exact_or_not(softmax(n, between(rng, 0.1, 8), rng), rng);
    for (Index i = 1; i < n; ++i) std::ranges::copy(row(p, 0), row(p, i).begin());
    return p;
}

Matrix nearly_rank_one(Index n, Rng& rng) {
    Matrix p(n, n);
    fill_softmax(row(p, 0), between(rng, 0.1, 2), rng);
    const double size = chance(rng, 0.5) ? 1e-12 : tiny(rng, 2, 17);
    for (Index i = n - 1; i >= 0; --i)
        for (Index j = 0; j < n; ++j) p(i, j) = p(0, j) * (1 + size * between(rng, -1, 1));
    return exact_or_not(normalised(std::move(p)), rng);
}

Matrix identity(Index n, Rng&) {
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i) p(i, i) = 1;
    return p;
}

Matrix nearly_identity(Index n, Rng& rng) {
    const Matrix rest = softmax(n, 1, rng);
    const double share = tiny(rng, 1, 18);
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) p(i, j) = share * rest(i, j);
        p(i, i) += 1 - share;
    }
    return exact_or_not(std::move(p), rng);
}

/// A mean of a few permutations: doubly stochastic, normal or not.
Matrix permutations(Index n, Rng& rng) {
    Matrix p(n, n);
    const Index count = Index(1) << drawn(rng, 3);
    for (Index k = 0; k < count; ++k) {
        const std::vector<Index> to = shuffled(n, rng);
        for (Index i = 0; i < n; ++i) p(i, to[std::size_t(i)]) += 1 / double(count);
    }
    return p;
}

Matrix drift(Index n, Rng& rng) {
    const double up = chance(rng, 0.5) ? 0.3 : 0.25;
    return drift_band(n, up, chance(rng, 0.5) ? 1e-3 : std::ldexp(1.0, -int(4 + drawn(rng, 30))));
}

Matrix sinks(Index n, Rng& rng) {
    Matrix p = softmax(n, between(rng, 0.1, 3), rng);
    const double left = tiny(rng, 0.1, 14);
    for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) p(i, j) *= left;
        p(i, 0) += 1 - left;
    }
    return exact_or_not(std::move(p), rng);
}

/// The first tokens see each other alike, the others see all alike: classes whose rows are equal.
Matrix prefix(Index n, Rng& rng) {
    const Matrix rows = softmax(n, between(rng, 0, 1), rng);
    const Index m = n == 1 ? 1 : 1 + drawn(rng, n - 1);
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < (i < m ? m : n); ++j) p(i, j) = rows(i < m ? 0 : n - 1, j);
    return exact_or_not(in_order(normalised(std::move(p)), shuffled(n, rng)), rng);
}

Matrix temperatures(Index n, Rng& rng) {
    return exact_or_not(softmax(n, std::pow(10.0, between(rng, -2, 2)), rng), rng);
}

Matrix small_fractions(Index n, Rng& rng) {
    if (n == 4 && chance(rng, 0.3))  // lambda_2 = 0, defective
        return {4, 4, {0, .5, 0, .5, 0, .5, .5, 0, .5, .5, 0, 0, 0, .5, 0, .5}};
    const Index parts = Index(1) << drawn(rng, 4);
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index k = 0; k < parts; ++k) p(i, drawn(rng, n)) += 1 / double(parts);
    return p;
}

Matrix causal(Index n, Rng& rng) {
    Matrix p(n, n);
    const double deviation = between(rng, 0.1, 5);
    for (Index i = 0; i < n; ++i) fill_softmax(row(p, i).first(std::size_t(i + 1)), deviation, rng);
    return in_order(exact_or_not(std::move(p), rng), shuffled(n, rng));
}

constexpr HostileFamily all[] = {{"one_hot", one_hot},
                                 {"one_hot_and_dust", one_hot_and_dust},
                                 {"nearly_reducible", nearly_reducible},
                                 {"closed_classes", closed_classes},
                                 {"transient_classes", transient_classes},
                                 {"periodic", periodic},
                                 {"jordan_zero", jordan_zero},
                                 {"jordan_other", jordan_other},
                                 {"de_bruijn", de_bruijn},
                                 {"traps", traps},
                                 {"streaks", streaks},
                                 {"clustered", clustered},
                                 {"rank_one", rank_one},
                                 {"nearly_rank_one", nearly_rank_one},
                                 {"identity", identity},
                                 {"nearly_identity", nearly_identity},
                                 {"permutations", permutations},
                                 {"drift", drift},
                                 {"sinks", sinks},
                                 {"prefix", prefix},
                                 {"temperatures", temperatures},
                                 {"small_fractions", small_fractions},
                                 {"causal", causal}};

}  // namespace

std::span<const HostileFamily> hostile_families() { return all; }

Matrix hostile(const HostileFamily& family, std::uint64_t seed, Index most) {
    Rng rng = Rng(seed).fork(family.name);
    const double size = rng.uniform();
    const Index least = size < 0.7    ? 2
                        : size < 0.95 ? 10
                                      : 24,
                below = size < 0.7    ? 10
                        : size < 0.95 ? 24
                                      : 65;
    const Index n = std::min(most, least + drawn(rng, below - least));
    const Matrix p = family.make(n, rng);
    return chance(rng, 0.5) ? p : in_order(p, shuffled(p.rows, rng));
}

}  // namespace tsdiag::test
