#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "attention/heads.hpp"
#include "exact_spectra.hpp"
#include "matrices.hpp"
#ifdef TSDIAG_HOSTILE_ON_DEVICE
#include "gpu/device_case.hpp"
#endif

/// What is certified of a spectrum is right, whatever P: against 100 digits.
///
/// TSDIAG_HOSTILE=N checks N matrices of each family, of up to 64 tokens; TSDIAG_HOSTILE_FROM=S
/// begins at seed S; TSDIAG_HOSTILE_TABLE=FILE has the counts appended.
namespace tsdiag {
namespace {

using namespace test;
using naive::Matrix;

constexpr double ample_memory = 2e9;
/// What the oracle and the last operations of a value round.
constexpr double oracle_slack = 1e-12;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// As far as rows may sum to more than 1, so may moduli.
double most_of(Type type) { return 1 + 2 * (type == Type::f32 ? 1e-6 : 1e-12); }

/// Relative, to the nearest of the readings.
double error_of(double value, const Readings& truth) {
    if (value >= truth.least && value <= truth.largest) return 0;
    if (value < truth.least) return (truth.least - value) / truth.least;
    return truth.largest > 0 ? (value - truth.largest) / truth.largest : HUGE_VAL;
}

/// What is wrong with a number; empty: nothing.  `most`: the end of its range.
std::string fault_of(const Estimate& found, const Readings& truth, double accuracy, double most) {
    if (!std::isfinite(found.value) || std::isnan(found.low.value_or(0)) ||
        std::isnan(found.high.value_or(0)))
        return "is not finite";
    if (found.value < 0 || found.value > most) return "is beyond its range";
    if (found.converged)
        return error_of(found.value, truth) > accuracy + oracle_slack ? "is certified, but wrong"
                                                                      : "";
    const double low = found.low.value_or(found.value), high = found.high.value_or(HUGE_VAL);
    if (low > high) return "has an empty interval";
    if (low > truth.largest * (1 + oracle_slack) || high < truth.least * (1 - oracle_slack))
        return "has an interval without the truth";
    return "";
}

TEST(HostileSpectra, TheLawNoticesWhatIsWrong) {
    const Readings half{0.5, 0.5}, zero{0, 0}, two{0.5, 0.6};
    const auto certified = [](double value) { return Estimate{.value = value, .method = "dense"}; };
    EXPECT_EQ(fault_of(certified(0.5 * (1 + 9e-7)), half, 1e-6, 1), "");
    EXPECT_EQ(fault_of(certified(0.5 * (1 + 2e-6)), half, 1e-6, 1), "is certified, but wrong");
    EXPECT_EQ(fault_of(certified(0.5 * (1 - 2e-6)), half, 1e-6, 1), "is certified, but wrong");
    EXPECT_EQ(fault_of(certified(0), zero, 1e-6, 1), "");
    EXPECT_EQ(fault_of(certified(1e-30), zero, 1e-6, 1), "is certified, but wrong");
    EXPECT_EQ(fault_of(certified(0.55), two, 1e-6, 1), "");
    EXPECT_EQ(fault_of(certified(1.1), {1, 1}, 1e-6, 1), "is beyond its range");
    EXPECT_EQ(fault_of(certified(NAN), half, 1e-6, 1), "is not finite");
    const auto open = [](double low, double high) {
        return Estimate{
            .value = low, .method = "dense", .converged = false, .low = low, .high = high};
    };
    EXPECT_EQ(fault_of(open(0.4, 0.6), half, 1e-6, 1), "");
    EXPECT_EQ(fault_of(open(0.6, 0.7), half, 1e-6, 1), "has an interval without the truth");
    EXPECT_EQ(fault_of(open(0.1, 0.4), half, 1e-6, 1), "has an interval without the truth");
    EXPECT_EQ(fault_of(open(0.7, 0.6), half, 1e-6, 1), "has an empty interval");
}

// The oracle, in closed form.

Matrix mixed_with_uniform(Matrix p) {
    for (double& e : p.a) e = 0.5 * e + 0.5 / double(p.rows);
    return p;
}

TEST(ExactSpectra, OfClosedForms) {
    const Matrix two(2, 2, {0.75, 0.25, 0.5, 0.5});  // 1 - 1/4 - 1/2; pi = (2, 1) / 3
    EXPECT_DOUBLE_EQ(exact_second(two, true)->least, 0.25);
    EXPECT_DOUBLE_EQ(exact_second(two, false)->least, 0.25);
    EXPECT_DOUBLE_EQ(exact_contraction(two)->norm.least, 0.25);
    EXPECT_DOUBLE_EQ(exact_delta(two), std::sqrt(0.0625));
    EXPECT_DOUBLE_EQ(exact_dobrushin(two), 0.25);
    Matrix cycle(8, 8), chain(8, 8);
    for (Index i = 0; i < 8; ++i) cycle(i, (i + 1) % 8) = 1;
    chain(0, 0) = 1;  // one Jordan block of 7
    for (Index i = 1; i < 8; ++i) chain(i, i) = chain(i, i - 1) = 0.5;
    EXPECT_DOUBLE_EQ(exact_second(cycle, true)->least, 1);
    EXPECT_DOUBLE_EQ(exact_second(mixed_with_uniform(cycle), true)->least, 0.5);
    EXPECT_NEAR(exact_second(mixed_with_uniform(chain), true)->largest, 0.25, 1e-13);
    EXPECT_FALSE(exact_contraction(chain));
}

TEST(ExactSpectra, TellsZeroFromWhatIsNearlyZero) {
    const Matrix nilpotent(4, 4, {0, .5, 0, .5, 0, .5, .5, 0, .5, .5, 0, 0, 0, .5, 0, .5});
    EXPECT_EQ(exact_second(nilpotent, true)->largest, 0);
    EXPECT_EQ(exact_second(nilpotent, false)->largest, 0);
    Matrix nearly = nilpotent;
    nearly(0, 1) += std::ldexp(1.0, -40), nearly(0, 3) -= std::ldexp(1.0, -40);
    EXPECT_GT(exact_second(nearly, true)->least, 1e-7);  // some root of 2^-40
    Matrix shift(64, 64);
    for (Index i = 0; i < 64; ++i)
        for (Index j = 0; j < 2; ++j) shift(i, (2 * i + j) % 64) = 0.5;
    EXPECT_EQ(exact_second(shift, true)->largest, 0);
    EXPECT_DOUBLE_EQ(exact_delta(shift), 1);
}

TEST(ExactSpectra, OfADriftWithAPiBelowRounding) {
    const Index n = 10;  // reversible: delta_pi is |lambda_2|
    Matrix p(n, n);
    const double down = std::ldexp(1.0, -120);
    for (Index i = 0; i < n; ++i) {
        if (i + 1 < n) p(i, i + 1) = 0.25;
        if (i > 0) p(i, i - 1) = down;
        p(i, i) = 0.75;
    }
    p(n - 1, n - 1) = 1;  // most rows sum to 1 + 2^-120
    const auto found = exact_contraction(p);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->log10_least, 9 * std::log10(4 * down), 1e-3);
    EXPECT_NEAR(found->norm.least, exact_second(p, true)->least, 1e-12);
}

TEST(ExactSpectra, OfADriftAlongWhichPiSpansMoreThanTheDigits) {
    const Index n = 30;  // reversible: delta_pi is |lambda_2|
    const double up = 0.3, down = std::ldexp(1.0, -30);
    const auto found = exact_contraction(drift_band(n, up, down));
    ASSERT_TRUE(found);
    EXPECT_LT(found->log10_least, -240);
    const double second = 1 - up - down + 2 * std::sqrt(up * down) * std::cos(M_PI / double(n));
    EXPECT_NEAR(found->norm.least, second, 1e-12);
    EXPECT_NEAR(found->norm.largest, second, 1e-12);
}

// The law.

struct Tally {
    Index checked = 0, converged = 0, undecided = 0, read_twice = 0, violations = 0;
    double worst = 0;  ///< error of a converged value
};
/// By type, route and number.
using Tallies = std::map<std::tuple<std::string, std::string, std::string>, Tally>;

class SpectraChecker {
  public:
    explicit SpectraChecker(std::string_view family) : family_(family) {}

    void check(std::uint64_t seed, const Matrix& drawn, Type type) {
        p_ = type == Type::f32 ? rounded_to_float(drawn) : drawn;
        type_ = type == Type::f32 ? "f32" : "f64";
        where_ = fmt::format("{} seed {} n {} {}", family_, seed, p_.rows, type_);
        const auto op = given(p_, type);
        stochastic_ = op->structure().row_stochastic;
        EXPECT_TRUE(stochastic_ || type == Type::f32) << where_;
        most_ = most_of(type);
        const std::optional<Readings> second = exact_second(p_, stochastic_);
        const double norm = exact_delta(p_);
        for (const char* route : {"auto", "arnoldi", "dense", "spectra"}) {
            if (route == std::string_view("spectra") && p_.rows < least_restarted) continue;
            route_ = route;
            guarded("lambda2", [&] { check_square(*op, second, {norm, norm}); });
        }
#ifdef TSDIAG_HOSTILE_ON_DEVICE
        route_ = "device";
        const auto there = given_attention(moved(one_head(p_, type)), false, "");
        guarded("lambda2", [&] { check_square(*there, second, {norm, norm}); });
#endif
        route_ = "auto";
        guarded("delta_pi", [&] { check_contraction(*op); });
        guarded("dobrushin", [&] { check_dobrushin(*op); });
    }

    const Tallies& tallies() const { return tallies_; }
    const std::vector<std::string>& violations() const { return violations_; }

  private:
    template <class Do>
    void guarded(const char* what, const Do& run) {
        try {
            run();
        } catch (const std::exception& e) {
            violate(what, std::string("throws: ") + e.what());
        }
    }

    Tally& tally(const std::string& what) { return tallies_[{type_, route_, what}]; }

    void violate(const std::string& what, const std::string& how) {
        ++tally(what).violations;
        violations_.push_back(fmt::format("{} {} {} {}", where_, route_, what, how));
    }

    void check_one(const std::string& what, const Estimate& found,
                   const std::optional<Readings>& truth, double accuracy, double most) {
        Tally& all = tally(what);
        ++all.checked;
        all.converged += found.converged;
        if (!truth) {
            ++all.undecided;
            return;
        }
        all.read_twice += truth->spread() > accuracy;
        const double error = found.converged ? error_of(found.value, *truth) : 0;
        all.worst = std::max(all.worst, error);
        // The library Spectra certifies nothing.
        const bool certifies = route_ != "spectra";
        const std::string wrong =
            fault_of(found, *truth, certifies ? accuracy : HUGE_VAL, certifies ? most : HUGE_VAL);
        if (!wrong.empty())
            violate(what,
                    fmt::format("{}: {} in [{}, {}] by {}, true {} to {}, error {:.1e}", wrong,
                                found.value, found.low.value_or(NAN), found.high.value_or(NAN),
                                found.method, truth->least, truth->largest, error));
    }

    void check_square(const AttentionOperator& op, const std::optional<Readings>& second,
                      const Readings& norm) {
        const std::string_view asked = route_ == "device" ? "auto" : std::string_view(route_);
        const Estimate lambda = second_eigenvalue(op, ample_memory, usual_accuracy, asked).front();
        check_one("lambda2", lambda, second, usual_accuracy, stochastic_ ? most_ : HUGE_VAL);
        const Estimate delta = centred_norm(op, ample_memory, usual_accuracy, asked).front();
        check_one("delta", delta, norm, usual_accuracy / 10, HUGE_VAL);
        const Spectra both = second_eigenvalue_and_norm(op, ample_memory, usual_accuracy, asked);
        const auto same = [](const Estimate& a, const Estimate& b) {
            return a.value == b.value && a.converged == b.converged && a.low == b.low &&
                   a.high == b.high;
        };
        ++tally("both").checked;
        if (!same(both.second.front(), lambda) || !same(both.norm.front(), delta))
            violate("both", "differ from each alone");
    }

    void check_contraction(const AttentionOperator& op) {
        const Contraction found = stationary_norm(op).front();
        const std::optional<ExactContraction> truth = exact_contraction(p_);
        if (found.estimate && !truth) return violate("delta_pi", "is given, but undefined");
        if (found.estimate)
            return check_one("delta_pi", *found.estimate, truth->norm, usual_accuracy / 100, most_);
        if (stochastic_ && truth && truth->log10_least > -290)
            violate("delta_pi", "is defined, but missing: " + found.why_not);
    }

    void check_dobrushin(const AttentionOperator& op) {
        const double found = dobrushin(op).front(), truth = exact_dobrushin(p_);
        check_one("dobrushin", {.value = found, .method = "rows"}, Readings{truth, truth}, 1e-10,
                  most_);
    }

    std::string family_, type_, route_, where_;
    Matrix p_;
    bool stochastic_ = false;
    double most_ = 1;
    Tallies tallies_;
    std::vector<std::string> violations_;
};

/// Whether lambda2_abs must be certified, not only right where it is.
enum class Certified { where_it_can_be, always };

/// lambda2_abs of the one head of P by each of these routes is `truth`; and the same where an
/// iteration finds it beside delta.
void expect_second(const AttentionOperator& p, const Readings& truth, Certified certified,
                   const std::string& name,
                   std::initializer_list<const char*> routes = {"auto", "arnoldi", "dense"},
                   double memory = ample_memory) {
    const double most =
        std::max(p.structure().row_stochastic ? most_of(p.type()) : HUGE_VAL, truth.largest);
    for (const char* route : routes) {
        const Estimate e = second_eigenvalue(p, memory, usual_accuracy, route).front();
        const std::string what = fmt::format(
            "{} f{} {} {}: {} in [{}, {}] by {}, true {} to {}", name,
            p.type() == Type::f32 ? 32 : 64, p.backend().name(), route, e.value,
            e.low.value_or(NAN), e.high.value_or(NAN), e.method, truth.least, truth.largest);
        EXPECT_EQ(fault_of(e, truth, usual_accuracy, most), "") << what;
        if (certified == Certified::always) {
            EXPECT_TRUE(e.converged) << what;
        }
        if (route == std::string_view("dense")) continue;
        const Estimate beside =
            second_eigenvalue_and_norm(p, memory, usual_accuracy, route).second.front();
        EXPECT_EQ(beside.value, e.value) << what;
        EXPECT_EQ(beside.converged, e.converged) << what;
    }
}

/// Beyond the oracle, and where "auto" iterates.
TEST(HostileSpectra, OfSizesOfModelsAreRightWhereTheyAreCertified) {
    struct Case {
        std::string name;
        Matrix p;
        double second;
    };
    std::vector<Case> cases;
    for (const Index n : {130, 200})
        for (const double lambda : {0.0, 0.5, 0.125, 1.0 / 1024}) {
            Rng rng(std::uint64_t(n), std::uint64_t(1024 * lambda));
            cases.push_back(
                {fmt::format("jordan {} {}", n, lambda), jordan(n, lambda, rng), lambda});
        }
    for (const double down : {0.125, 1.0 / 32, 1.0 / 1024}) {
        const double exact = 0.75 - down + std::sqrt(down) * std::cos(M_PI / 150);
        cases.push_back({fmt::format("drift {}", down), drift_band(150, 0.25, down), exact});
    }
    cases.push_back({"shift register", shift_register(256, 2), 0});
    cases.push_back({"shift register of 4", shift_register(256, 4), 0});
    for (const Case& c : cases)
        for (const Type type : {Type::f64, Type::f32})
            expect_second(*given(c.p, type), {c.second, c.second}, Certified::where_it_can_be,
                          c.name);
}

/// A ring with one slow token and one token outside: the 8 eigenvalues of the ring are roots of
/// some 6e-5 and move by 1e4 times what rows sum to more than 1.  Pi2 of the ring and Pi2 of all
/// tokens give two numbers.
TEST(HostileSpectra, OfAClassWhoseRowsAreOffAreCertifiedAsThoseOfP) {
    constexpr Index n = 9;
    Matrix p(n, n);
    for (Index i = 0; i + 1 < n; ++i) p(i, (i + 1) % (n - 1)) = 1;
    p(n - 1, 0) = 1;
    p(3, 3) = double(0.99994105F);
    p(3, 4) = double(5.896e-5F);
    for (const double more : {0.0, 1e-7, -1e-7}) {
        p(3, 4) = double(float(1 - p(3, 3) + more));
        const auto op = given(p, Type::f32);
        ASSERT_TRUE(op->structure().row_stochastic);
        const std::optional<Readings> truth = exact_second(p, true);
        ASSERT_TRUE(truth);
        expect_second(*op, *truth, Certified::where_it_can_be, fmt::format("{}", more));
    }
}

/// A sink that is hardly left, tokens that mostly see it, and as many outside that see it alone, in
/// float32.  The row of the sink sums to 1 + 8e-7, which moves lambda_2 of P by 1e-9, that of Pi2 P
/// Pi2 by half of 8e-7, and that of Pi2 P Pi2 of the class, which is neither, by all of it.
Matrix with_sink(Index m, double second) {
    constexpr double left = 1.0 / 1024;
    Matrix p(2 * m, 2 * m);
    const double others = double(m - 1), seen = second + left;
    for (Index i = 0; i < 2 * m; ++i) p(i, 0) = i == 0 ? 1 - left + 8e-7 : i < m ? 1 - seen : 1;
    for (Index j = 1; j < m; ++j)
        for (Index i = 0; i < m; ++i) p(i, j) = (i == 0 ? left : seen) / others;
    return rounded_to_float(p);
}

TEST(HostileSpectra, OfAClassWithASinkWhoseRowIsOffAreCertifiedAsThoseOfP) {
    for (const double second : {0.5, 0.25, 0.125}) {
        const Matrix p = with_sink(16, second);
        const auto op = given(p, Type::f32);
        ASSERT_TRUE(op->structure().row_stochastic);
        const std::optional<Readings> truth = exact_second(p, true);
        ASSERT_TRUE(truth);
        expect_second(*op, *truth, Certified::always, fmt::format("{}", second));
    }
}

TEST(HostileSpectra, OfALargeClassWithASinkWhoseRowIsOffAreThoseOfP) {
    constexpr Index m = 160;
    for (const double second : {0.5, 0.25, 0.125}) {
        const Matrix p = with_sink(m, second);
        // The others than the sink are alike: 2 x 2, and zeros.
        const double out = p(0, 1) * double(m - 1), stay = p(1, 1) * double(m - 1);
        const double half = (p(0, 0) - stay) / 2, root = std::hypot(half, std::sqrt(out * p(1, 0)));
        const double truth = (p(0, 0) + stay) / 2 - root;
        expect_second(*given(p, Type::f32), {truth, truth}, Certified::always,
                      fmt::format("{}", second));
    }
}

/// A random vector is an eigenvector of what is nearly a multiple of 1: it tells of one eigenvalue.
TEST(HostileSpectra, OfNearlyAMultipleOfTheIdentityAreNot0) {
    constexpr Index n = 150;
    for (const double diagonal : {0.5, 1.0}) {  // whose rows sum to 1 in a class, up to rounding
        Matrix p(n + 1, n + 1);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) p(i, j) = i == j ? diagonal : i == 0 ? 1e-18 : 1e-20;
        p(n, 0) = diagonal;
        expect_second(*given(p, Type::f64), {diagonal, diagonal}, Certified::where_it_can_be,
                      fmt::format("{}", diagonal), {"auto", "arnoldi"});
    }
}

/// A diagonal of these numbers, and dust that joins all tokens; `sign`: reflected at 1, so that
/// entries are negative.  float32 moves eigenvalues by less than 1e-7.
Matrix with_eigenvalues(Index n, double dust, bool sign, double (*of)(Index i)) {
    Matrix p(n, n);
    double sum = 0;
    for (Index i = 0; i < n; ++i) sum += of(i);
    const double reflected = sign ? 2 / double(n) : 0;
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            p(i, j) = (i == j ? of(i) : 0) - reflected * (of(i) + of(j)) +
                      reflected * reflected * sum + dust;
    return p;
}

/// Copies of 3/4 (own I + (1 - own) 1 1^T / 32), their tokens in turn.
Matrix equal_blocks(Index copies, double own, double dust) {
    constexpr Index m = 32;
    Matrix p(m * copies, m * copies);
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < p.rows; ++j)  // of token i: i modulo the copies
            p(i, j) = (i % copies == j % copies ? 0.75 * (1 - own) / m : 0) +
                      (i == j ? 0.75 * own : 0) + dust;
    return p;
}

/// The leading eigenvalue of P whose rows do not sum to 1 may be there more than once, or nearly: a
/// Krylov space has one vector of it.
TEST(HostileSpectra, OfAMultipleLeadingEigenvalueAreThatEigenvalue) {
    struct Case {
        const char* name;
        double second;
        double (*of)(Index i);
    };
    constexpr double near = 0.5 - 1.0 / (1 << 17);
    const Case cases[] = {
        {"alternating", 0.5, [](Index i) { return i % 2 == 0 ? 0.25 : 0.5; }},
        {"nearly so", 0.5, [](Index i) { return i % 3 == 0   ? 0.5
                                                : i % 3 == 1 ? near
                                                             : 0.25; }},
        {"opposite", 0.5, [](Index i) { return i % 4 == 0 ? -0.5 : 0.25; }},
        {"a multiple of 1", 0.5, [](Index) { return 0.5; }},
        {"two and zeros", 0.5, [](Index i) { return i < 2 ? 0.5 : 0; }},
        {"a near pair", near, [](Index i) { return i == 3   ? 0.5
                                                   : i == 9 ? near
                                                            : 0.25; }},
        {"a simple one", 0.25, [](Index i) { return i == 3       ? 0.5
                                                    : i % 2 == 0 ? 0.25
                                                                 : 0.125; }},
        // A search ends before its space is invariant, and its basis has one vector more.
        {"among many", 0.375,
         [](Index i) { return i == 3   ? 0.5
                              : i == 9 ? 0.375
                                       : double(i) / 1024; }},
        {"two among many", 0.5, [](Index i) { return i == 3 || i == 9 ? 0.5 : double(i) / 1024; }}};
    const auto all = [](const Matrix& p, double second, const std::string& name) {
        constexpr double by_blocks = 2e4;  // bytes: P is read by blocks of rows
        const Readings truth{second, second};
        for (const Type type : {Type::f64, Type::f32}) {
            expect_second(*given(p, type), truth, Certified::always, name, {"auto", "arnoldi"});
            expect_second(*given(p, type), truth, Certified::always, name + " by blocks",
                          {"arnoldi"}, by_blocks);
#ifdef TSDIAG_HOSTILE_ON_DEVICE
            expect_second(*given_attention(moved(one_head(p, type)), false, ""), truth,
                          Certified::where_it_can_be, name, {"auto", "arnoldi"});
#endif
        }
    };
    for (const Case& c : cases) {
        for (const double dust : {0.0, 1e-20})
            all(with_eigenvalues(150, dust, false, c.of), c.second, c.name);
        all(with_eigenvalues(256, 0, true, c.of), c.second, std::string(c.name) + ", signed");
    }
    for (const double own : {0.0, 0.5})
        for (const double dust : {0.0, 1e-20})
            all(equal_blocks(5, own, dust), 0.75, fmt::format("blocks {} {}", own, dust));
}

/// Upper bidiagonal but for 2^-14 elsewhere; the diagonals differ by `step` 2^-14.
Matrix states_of_chain(Index count, int step, bool levelled) {
    const double unit = std::ldexp(1.0, -14);
    Matrix q(count, count);
    for (Index i = 0; i < count; ++i) {
        for (Index j = 0; j < count; ++j) q(i, j) = unit;
        const double left = 0.25 + double(i) * step * unit;
        if (i + 1 < count) q(i, i + 1) = left;
        const double others = double(count - (i + 1 < count ? 2 : 1)) * unit;
        q(i, i) = levelled ? 1 - others - (i + 1 < count ? left : 0) : 1 - left;
    }
    return q;
}

/// A chain of `count` states that are left with nearly the same probability, Q, times 32 tokens
/// that each state has: P = Q (x) (1/2 I + 1/2 1 1^T / 32), whose lambda_2 is that of Q.  The
/// vectors of Q are nearly parallel.  Exact in float32; `levelled`: rows sum to 1.
Matrix chain_of_states(Index count, int step, bool levelled) {
    constexpr Index m = 32;
    Matrix p(m * count, m * count);
    const Matrix q = states_of_chain(count, step, levelled);
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < p.rows; ++j)
            p(i, j) = q(i % count, j % count) *
                      ((i / count == j / count ? 0.5 : 0) + 1.0 / double(2 * m));
    return p;
}

TEST(HostileSpectra, OfNearlyDefectiveChainsAreRightWhereTheyAreCertified) {
    for (const Index count : {5, 6})
        for (const int step : {0, 1, 16, 256})
            for (const bool levelled : {true, false}) {
                const std::optional<Readings> truth =
                    exact_second(states_of_chain(count, step, levelled), levelled);
                ASSERT_TRUE(truth);
                for (const Type type : {Type::f64, Type::f32})
                    expect_second(*given(chain_of_states(count, step, levelled), type), *truth,
                                  Certified::where_it_can_be,
                                  fmt::format("chain {} {} {}", count, step, levelled),
                                  {"auto", "arnoldi"});
            }
}

/// Tokens that see each other alike, and one outside: all sums are one number, whatever it is.
TEST(HostileSpectra, OfAClassOfEqualRowsAreCertified) {
    for (Index m = 2; m <= 16; ++m)
        for (const Type type : {Type::f64, Type::f32}) {
            Rng rng = Rng(5).fork(std::uint64_t(m));
            Matrix p(m + 1, m + 1);
            double sum = 0;
            for (Index j = 0; j < m; ++j) sum += p(0, j) = rng.uniform();
            for (Index i = m; i-- > 0;)
                for (Index j = 0; j < m; ++j) p(i, j) = p(0, j) / sum;
            p(m, 0) = 1;
            const auto op = given(type == Type::f32 ? rounded_to_float(p) : p, type);
            expect_second(*op, {0, 0}, Certified::always, fmt::format("{}", m));
        }
}

/// 1 1^T / n + epsilon s s^T, s of signs with sum 0: of all numbers here exactly, epsilon n beside
/// products whose rounding is larger.
TEST(HostileSpectra, OfNearlyEqualRowsAreNotCertifiedBelowTheRounding) {
    constexpr Index n = 256;
    for (const int exponent : {-20, -36, -44, -50}) {
        const double epsilon = std::ldexp(1.0, exponent), truth = double(n) * epsilon;
        Matrix p(n, n);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j)
                p(i, j) = 1.0 / n + ((i * 7 % 4 < 2) == (j * 7 % 4 < 2) ? epsilon : -epsilon);
        std::vector<std::unique_ptr<AttentionOperator>> ops;
        ops.push_back(given(p, Type::f64));
#ifdef TSDIAG_HOSTILE_ON_DEVICE
        ops.push_back(given_attention(moved(one_head(p)), false, ""));
#endif
        for (const auto& op : ops)
            for (const char* route : {"auto", "arnoldi"}) {
                const Estimate second =
                    second_eigenvalue(*op, ample_memory, usual_accuracy, route).front();
                const Estimate norm =
                    centred_norm(*op, ample_memory, usual_accuracy, route).front();
                for (const auto& [e, accuracy] :
                     {std::pair{second, usual_accuracy}, std::pair{norm, usual_accuracy / 10}}) {
                    EXPECT_EQ(fault_of(e, {truth, truth}, accuracy, 1), "") << fmt::format(
                        "2^{} {} {}: {} in [{}, {}] by {}", exponent, route, op->backend().name(),
                        e.value, e.low.value_or(NAN), e.high.value_or(NAN), e.method);
                    if (exponent == -20) {
                        EXPECT_TRUE(e.converged) << route;
                    }
                }
            }
    }
}

std::string count_lines(std::string_view family, const Tallies& tallies) {
    std::string out;
    for (const auto& [key, t] : tallies)
        out += fmt::format("{:18} {:4} {:8} {:10} {:7} {:9} {:9} {:10} {:10} {:10.1e}\n", family,
                           std::get<0>(key), std::get<1>(key), std::get<2>(key), t.checked,
                           t.converged, t.undecided, t.read_twice, t.violations, t.worst);
    return out;
}

class EveryHostileFamily : public testing::TestWithParam<HostileFamily> {};

TEST_P(EveryHostileFamily, HasSpectraThatAreRightWhereTheyAreCertified) {
#ifdef TSDIAG_ADDRESS_SANITIZER  // takes some ten times as long
    constexpr std::uint64_t usual = 2;
    constexpr Index usual_size = 12;
#else
    constexpr std::uint64_t usual = 9;
    constexpr Index usual_size = 32;
#endif
    const std::uint64_t asked = number_from("TSDIAG_HOSTILE", 0), count = asked > 0 ? asked : usual;
    const std::uint64_t first = number_from("TSDIAG_HOSTILE_FROM", 1);
    SpectraChecker checker(GetParam().name);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const Matrix p = hostile(GetParam(), seed, asked > 0 ? 64 : usual_size);
        for (const Type type : {Type::f64, Type::f32}) checker.check(seed, p, type);
    }
    for (const auto& [key, t] : checker.tallies())
        EXPECT_LE(4 * t.undecided, t.checked) << std::get<2>(key) << ": the oracle is of no use";
    const std::string counts = count_lines(GetParam().name, checker.tallies());
    if (const char* file = std::getenv("TSDIAG_HOSTILE_TABLE"))
        std::ofstream(file, std::ios::app) << counts;
    if (checker.violations().empty()) return;
    ADD_FAILURE() << fmt::format(
        "{}\nfamily, type, route, number, checked, converged, undecided, read twice, violations, "
        "worst error\n{}",
        fmt::join(checker.violations(), "\n"), counts);
}

INSTANTIATE_TEST_SUITE_P(Families, EveryHostileFamily, testing::ValuesIn(hostile_families()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tsdiag
