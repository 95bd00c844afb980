#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tsdiag/claim.hpp"

/// The sides of claims about means as the papers print them, computed by hand: a verdict does not
/// detect a wrong side.
namespace tsdiag {
namespace {

struct Printed {
    const char *claim, *reading;
    Index n, d, heads;
    double bound;
};

std::ostream& operator<<(std::ostream& out, const Printed& p) {
    return out << p.claim << ' ' << p.reading;
}

std::string named(const testing::TestParamInfo<Printed>& test) {
    std::string name = std::string(test.param.claim) + " " + test.param.reading;
    std::ranges::replace_if(
        name, [](char c) { return !std::isalnum(c); }, '_');
    return name;
}

class PrintedSide : public testing::TestWithParam<Printed> {};

TEST_P(PrintedSide, IsThatOfTheFormula) {
    const Printed& p = GetParam();
    const Claim& claim = *resolve_claims(std::vector<std::string>{p.claim}).front();
    const Examined examined =
        examine(claim, {.n = p.n, .d = p.d, .heads = p.heads, .only = Index(0)});
    const auto r = std::ranges::find(examined.readings, p.reading, &Reading::name);
    ASSERT_NE(r, examined.readings.end());
    ASSERT_TRUE(r->bound);
    EXPECT_NEAR(*r->bound, p.bound, 1e-13 * std::abs(p.bound));  // a dozen roundings
}

// Tokens have variance 2 and weights 1/2, w = d / heads is the width of a head and D = d.
INSTANTIATE_TEST_SUITE_P(
    Polynomials, PrintedSide,
    testing::Values(
        // (43): D^p (2p - 1)!! (sigma_1 sigma_2)^2p with sigma_1^2 sigma_2^2 = 3/2
        Printed{"poly.eq43", "p = 1", 3, 4, 1, 6},
        Printed{"poly.eq43", "p = 2", 3, 4, 1, 16 * 3 * 2.25},
        Printed{"poly.eq43", "p = 3", 3, 4, 1, 64 * 15 * 3.375},
        Printed{"poly.eq43", "exact, p = 2", 3, 4, 1, 4 * 6 * 3 * 2.25},
        Printed{"poly.eq43", "approximation, p = 2, D = 64", 3, 4, 1, 64 * 63 * 3 * 2.25},
        // 3 w (w + 2) (N (N - 1) (D (D + 2))^2 + N D (D + 2) (D + 4) (D + 6)) (1/2)^4 2^4
        Printed{"poly.eq43", "X in both factors, p = 2", 3, 4, 2,
                3 * 8 * (6.0 * 576 + 3 * 4 * 6 * 8 * 10)},
        // (55): w sigma_w^2 sigma_x^4 (N (N - 1) D (D - 1) + 3 N D)
        Printed{"poly.eq55", "as printed", 3, 4, 2, 2 * 0.5 * 4 * (6 * 12 + 36)},
        Printed{"poly.eq55", "exact", 3, 4, 2, 2 * 0.5 * 4 * 12 * 14},
        // (71): (2p - 3)!! w^p sigma_w^(4p - 2) sigma_x^(4p) N^2 D^(2p)
        Printed{"poly.eq71", "p = 2", 3, 4, 2, 4 * 0.125 * 16 * 9 * 256},
        Printed{"poly.eq71", "p = 3", 3, 4, 2, 3 * 8 * 0.03125 * 64 * 9 * 4096},
        Printed{"poly.eq71", "p = 2, N = D = d = 48", 3, 4, 2, 2 * std::pow(48, 8)},
        // 4 w (w + 2) sigma_w^6 sigma_x^8 (the moments of tokens above)
        Printed{"poly.eq71", "exact, p = 2", 3, 4, 2,
                4 * 8 * 0.125 * 16 * (6.0 * 576 + 3 * 4 * 6 * 8 * 10)},
        // (56): N^2 D^2 w sigma_x^4 sigma_w^2
        Printed{"poly.eq56", "constant, N = D = 48", 3, 4, 2, std::pow(48, 4) * 2 * 4 * 0.5}),
    named);

// Of [TSE]: tails, exponents and limits.
INSTANTIATE_TEST_SUITE_P(
    Escalation, PrintedSide,
    testing::Values(Printed{"tse.lemmaA2", "entries of --dist", 1, 6, 1, std::exp(-0.5)},
                    Printed{"tse.lemmaA3", "entries of --dist", 3, 6, 1, std::exp(-0.125)},
                    // 2 exp(-eps^2/(8 K^2)) at eps = 2/5 and K = 1/8
                    Printed{"tse.eq27", "entries of --dist", 3, 6, 1, 2 * std::exp(-1.28)},
                    Printed{"tse.eq3", "random weights", 4, 4, 1, -0.1},
                    Printed{"tse.lemmaA5", "deviation of xi1", 4, 4, 1, -0.5},
                    Printed{"tse.lemmaA5", "deviation of xi2", 4, 4, 1, -0.5},
                    Printed{"tse.lemmaA5", "eps in (0, 1)", 4, 4, 1, 2},
                    Printed{"tse.lemmaA5", "every eps", 4, 4, 1, 2},
                    Printed{"tse.rem2.8", "limit", 4, 4, 1, -2},
                    Printed{"tse.rem2.8", "rate 1/2", 4, 4, 1, -0.5},
                    Printed{"tse.rem2.8", "rate 1/2, d = 256", 4, 4, 1, 0.5},
                    Printed{"tse.sec2.5", "independent entries", 8, 8, 1, -0.5},
                    Printed{"tse.sec2.5", "attention has large gaps", 8, 8, 1, 0.5}),
    named);

}  // namespace
}  // namespace tsdiag
