#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tsdiag/claim.hpp"

/// The numbers of the cases that attain a bound, computed by hand: another case might attain it
/// as well.
namespace tsdiag {
namespace {

const std::map<std::string_view, double>& by_hand() {
    static const std::map<std::string_view, double> numbers = {
        {"devil.eq7", 0.25},                  // two equal logits
        {"devil.eq9", 0.25},                  // the same
        {"devil.eq11", 0.25},                 // two scores of 1: 1/(4 |s|)
        {"devil.prop3.1", 0.75 / 4e-6},       // four scores of 10^-6: (1 - 1/4)/(4 10^-6)
        {"devil.propD4", 25 * std::sqrt(3)},  // |(3, 4)|^2 in three columns
        {"devil.propD6", 5 * std::sqrt(5)},   // (3, 4) in five rows
        {"devil.eq43", 2},                    // o = 2, V = (1; -1)
        {"devil.eq47", 1.0 / 16},
        {"devil.eq48-linear", std::sqrt(2) / 4},
        {"devil.eq49", 2},      // 8 times 1/2 (1 - 1/2)
        {"devil.eq52", 0.164},  // (1 - 9/50)/5
        {"devil.eq53-steps", 0.5},
        {"devil.eq55", 0.06},  // 3 12.5/625
        {"devil.eq58", 0.06},
        {"devil.eq59", 0.5},
        {"devil.eq60", 5e5},
        {"poly.thm4.1a", std::sqrt(5)},
        {"poly.eq24", 0.25},
        {"poly.thm4.2", 1},  // exponents
        {"poly.cor4.3", 0.5},
        {"poly.thm4.4", 1},
        {"poly.cor4.5", 0.5},
        {"poly.cor4.5-k", 1},
        {"poly.eq43", 1},
        {"poly.eq55", 3},     // E x^4 E k^2
        {"poly.eq56", 1e24},  // (10^6 10^6)^2
        {"tse.def1.1", 1},
        {"tse.eq1", -0.5},
        {"tse.prop2.3", 25.0 / 18},  // 1/2 over 9/25
        {"tse.lemma2.4", 2},         // 1 + mu1^2 of a doubly stochastic P
        {"tse.eq11", 4.0 / 9},
        {"tse.prop2.5", 1.6},  // 2/(1 + 1/4)
        {"tse.cor2.7", 0.5},
        {"tse.rem2.8", 2},
        {"tse.prop2.9", 2},  // 1 + mu1^2 of two doubly stochastic P
        {"tse.lemmaA1", 1},
        {"tse.lemmaA5", 1e-8 / 12},  // eps^2/(2 (4 + 2))
        {"tse.sec2.2.1", 0.5},
        {"tse.sec2.3-ffn", 1},
        {"tse.sec2.3-ln", 1},
        {"tse.eq20", 12},  // |(3, 1)|^2 + |(1, -1)|^2
        {"tse.eq21", 0.5},
    };
    return numbers;
}

TEST(AttainedCases, HaveTheNumbersWorkedOutByHand) {
    for (const Claim* claim : claims()) {
        if (!claim->tight) continue;
        const auto at = by_hand().find(claim->name);
        ASSERT_NE(at, by_hand().end()) << claim->name;
        const Attained a = claim->tight();
        EXPECT_NEAR(a.bound, at->second, std::max(a.accuracy, 1e-14) * std::abs(at->second))
            << claim->name;
        // The accuracy is limited by rounding, or by the distance of the case from its limit.
        EXPECT_LE(a.accuracy, claim->name == "tse.lemmaA5" ? 1e-3 : 1e-11) << claim->name;
    }
}

}  // namespace
}  // namespace tsdiag
