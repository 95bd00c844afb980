#include <fmt/format.h>

#include <array>
#include <cmath>
#include <tuple>

#include "moments.hpp"
#include "support.hpp"
#include "tsdiag/ops.hpp"

/// [POLY] section 4: norms of softmax and polynomial attention at initialisation.
namespace tsdiag::experiment_list::poly_frobenius {
namespace {

constexpr std::array keys{listed(whole_key("tokens", "4,8", "16,32,64,128,256",
                                           "16,32,64,128,256,512", "numbers of tokens N", 2, 4096)),
                          ExperimentKey{"D", "3", "8", "64", "features"},
                          ExperimentKey{"d", "2", "4", "64", "columns of a head"},
                          listed(whole_key("p", "1,2", "1,3", "1,2,3", "powers", 1, 6)),
                          ExperimentKey{.name = "variance",
                                        .tiny = "1",
                                        .quick = "1/D,1",
                                        .paper = "1/D,0.1,1",
                                        .description = "variances of the entries of Q and K",
                                        .words = "1/D",
                                        .whole = false,
                                        .list = true,
                                        .least = 1e-9,
                                        .most = 1e3},
                          key_trials("1000", "2000")};

double variance_of(const ExperimentSetting& setting, const std::string& text) {
    return text == "1/D" ? 1 / setting.number("D") : std::stod(text);
}

std::string model_of(const std::string& variance) { return "variance of Q, K = " + variance; }

Tensor gaussian(const Rng& rng, Index rows, Index cols, double deviation) {
    std::vector<double> values(std::size_t(rows * cols));
    rng.fill_normal(std::span<double>(values), 0, deviation);
    return Tensor::from_host(cpu(), {1, rows, cols}, std::span<const double>(values), Type::f64);
}

/// Squared lengths of the rows.
std::vector<double> row_squares(const Tensor& x) {
    return row_sum(multiply(x, x)).to_host<double>();
}

/// Norms of one draw at one N: S_ij depends on Q through row j of `w` = X K.
struct OneDraw {
    Index n = 0, d = 0;
    std::vector<double> s, x2, w2, w;  ///< S, |x_i|^2, |w_j|^2, rows w_j

    OneDraw(const Tensor& x, const Tensor& q, const Tensor& k) : n(x.rows()), d(q.cols()) {
        const Tensor keys_of_x = matmul(x, k);
        s = matmul(matmul(x, q), keys_of_x, Transpose::second, 1 / std::sqrt(double(d)))
                .to_host<double>();
        x2 = row_squares(x);
        w2 = row_squares(keys_of_x);
        w = keys_of_x.to_host<double>();
    }

    /// |S^p|_F^2 and |dS^p/dQ|_F^2 = p^2/d sum_ij S_ij^(2p-2) |x_i|^2 |w_j|^2.
    std::pair<double, double> power(int p) const {
        double norm = 0, derivative = 0;
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) {
                const double entry = s[std::size_t(i * n + j)];
                double below = 1;
                for (int k = 1; k < p; ++k) below *= entry * entry;
                norm += below * entry * entry;
                derivative += below * x2[std::size_t(i)] * w2[std::size_t(j)];
            }
        return {norm, derivative * double(p) * double(p) / double(d)};
    }

    /// |P|_F^2; |dP/dQ|_F^2 = sum_i |x_i|^2/d sum_j P_ij^2 |w_j - sum_k P_ik w_k|^2; and
    /// |dP/dS|_F^2 = sum_i sum_jk (P_ij 1_jk - P_ij P_ik)^2.
    struct Softmax {
        double norm = 0, derivative = 0, jacobian = 0;
    };
    Softmax softmax() const {
        double norm = 0, derivative = 0, jacobian = 0;
        std::vector<double> p(std::size_t(n), 0.0), mean(std::size_t(d), 0.0);
        for (Index i = 0; i < n; ++i) {
            double top = s[std::size_t(i * n)], z = 0;
            for (Index j = 0; j < n; ++j) top = std::max(top, s[std::size_t(i * n + j)]);
            for (std::size_t j = 0; j < p.size(); ++j)
                z += p[j] = std::exp(s[std::size_t(i * n) + j] - top);
            std::fill(mean.begin(), mean.end(), 0.0);
            for (std::size_t j = 0; j < p.size(); ++j) {
                p[j] /= z;
                for (std::size_t a = 0; a < mean.size(); ++a)
                    mean[a] += p[j] * w[j * mean.size() + a];
            }
            double squares = 0, cubes = 0;
            for (const double v : p) squares += v * v, cubes += v * v * v;
            jacobian += squares - 2 * cubes + squares * squares;
            for (std::size_t j = 0; j < p.size(); ++j) {
                double distance = 0;
                for (std::size_t a = 0; a < mean.size(); ++a) {
                    const double off = w[j * mean.size() + a] - mean[a];
                    distance += off * off;
                }
                norm += p[j] * p[j];
                derivative += p[j] * p[j] * distance * x2[std::size_t(i)] / double(d);
            }
        }
        return {norm, derivative, jacobian};
    }
};

/// Records the mean norm and the mean square, which has an exact law.
void say(Sink& out, const std::string& what, double n, const std::pair<double, double>& squares) {
    out.point({}, "fro_" + what, n, std::sqrt(squares.first));
    out.point({}, "fro2_" + what, n, squares.first);
    out.point({}, "dq_" + what, n, std::sqrt(squares.second));
    out.point({}, "dq2_" + what, n, squares.second);
}

RunResult measure(const ExperimentSetting& setting) {
    const Index D = setting.count("D"), d = setting.count("d");
    const std::vector<Index> sizes = setting.counts("tokens"), powers = setting.counts("p");
    const std::vector<std::string> variances = setting.list("variance");
    RunResult result;
    double finished = 0;
    for (const std::string& text : variances) {
        const double deviation = std::sqrt(variance_of(setting, text));
        Table table(model_of(text));
        each_trial(
            setting.count("trials"), table,
            [&](Index trial, Sink& out) {
                const Rng rng = Rng(setting.seed()).fork("norms").fork(std::uint64_t(trial));
                for (const Index n : sizes) {
                    const Rng own = rng.fork(std::uint64_t(n));
                    const OneDraw drawn(gaussian(own.fork("x"), n, D, 1),
                                        gaussian(own.fork("q"), D, d, deviation),
                                        gaussian(own.fork("k"), D, d, deviation));
                    const OneDraw::Softmax soft = drawn.softmax();
                    say(out, "softmax", double(n), {soft.norm, soft.derivative});
                    out.point({}, "fro_softmax_share", double(n), std::sqrt(soft.norm / double(n)));
                    out.point({}, "jac_softmax_share", double(n),
                              std::sqrt(soft.jacobian / double(n)) / 2);
                    for (const Index p : powers)
                        say(out, fmt::format("p{}", p), double(n), drawn.power(int(p)));
                }
            },
            [&](double part) {
                if (setting.progress())
                    setting.progress()({.phase = "measure",
                                        .fraction = (finished + part) / double(variances.size())});
            },
            setting.units());
        finished += 1;
        result.table.append(table);
    }
    return result;
}

/// A curve times N^power.
std::map<double, Number> with_power(std::map<double, Number> numbers, double power) {
    for (auto& [n, number] : numbers) number = scaled(number, std::pow(n, power));
    return numbers;
}

struct Kind {
    const char* norm;    ///< "fro"
    const char* square;  ///< "fro2"
    const char* label;
    double (*moment)(const PowerLaw&);
};
constexpr std::array kinds{Kind{"fro", "fro2", "|P|_F", mean_squared_norm},
                           Kind{"dq", "dq2", "|dP/dQ|_F", mean_squared_derivative}};

PowerLaw law_of(const ExperimentSetting& setting, const std::string& variance, Index p, double n) {
    return {.N = n,
            .D = setting.number("D"),
            .d = setting.number("d"),
            .variance = variance_of(setting, variance),
            .p = int(p)};
}

Plot panel(const ExperimentSetting& setting, const Numbers& numbers, const std::string& variance,
           Index p, const Kind& kind) {
    const std::vector<double> sizes = setting.numbers("tokens");
    const auto curve = [&](const std::string& what) {
        return numbers.curve(model_of(variance), fmt::format("{}_{}", kind.norm, what));
    };
    Plot plot{.title = fmt::format("{}, Var(Q, K) = {}", kind.label, variance),
              .x = {.title = "tokens N", .scale = Scale::log},
              .y = {.title = kind.label, .scale = Scale::log}};
    const std::string power = p == 1 ? "x" : fmt::format("x^{}", p);
    const auto own = curve(fmt::format("p{}", p));
    plot.series = {line("softmax", curve("softmax"), true), line(power, own, true),
                   line(power + "/sqrt N", with_power(own, -0.5), true),
                   line(power + "/N", with_power(own, -1), true)};
    for (const auto& [scale, label] :
         {std::pair{0.0, ""}, std::pair{-0.5, "/sqrt N"}, std::pair{-1.0, "/N"}})
        plot.series.push_back(
            law("exact, " + power + label, sizes, [&, power_of_n = scale](double n) {
                return std::pow(n, power_of_n) *
                       std::sqrt(kind.moment(law_of(setting, variance, p, n)));
            }));
    return plot;
}

/// The exponent of a curve, from its two largest N.
Number growth(const std::map<double, Number>& numbers) {
    if (numbers.size() < 2) return {.note = "needs two numbers of tokens"};
    const auto last = numbers.rbegin(), before = std::next(last);
    return exponent(before->first, before->second, last->first, last->second);
}

/// Smallest relevant difference of exponents: at finite N the mean of a heavy-tailed norm grows
/// slightly faster than its limit, as it is further below the root mean square at small N.
constexpr double near_exponent = 0.05;

/// Growth of the power p, which the paper bounds: N without the scale, sqrt N with it.
struct Growth {
    const char *curve, *label, *theorem, *corollary;
};
constexpr std::array growths = {Growth{"fro", "|x^{}|_F", "4.2", "4.3"},
                                Growth{"dq", "|d x^{} / dQ|_F", "4.4", "4.5"}};

void compare_power(const ExperimentSetting& setting, const Numbers& numbers,
                   const std::string& variance, Index p, std::vector<Comparison>& all) {
    const double largest = setting.numbers("tokens").back();
    const std::string name = fmt::format("p{}", p), model = model_of(variance);
    for (const Growth& g : growths) {
        const Number own = growth(numbers.curve(model, fmt::format("{}_{}", g.curve, name)));
        const std::string label = fmt::format(fmt::runtime(g.label), p);
        all.push_back(resolved(compare(fmt::format("exponent of {} in N", label),
                                       fmt::format("[POLY] Thm {}: O(N)", g.theorem), 1.0, own,
                                       Comparison::Kind::at_most),
                               near_exponent));
        all.push_back(resolved(compare(fmt::format("exponent of {} / sqrt N in N", label),
                                       fmt::format("[POLY] Cor. {}: O(sqrt N)", g.corollary), 0.5,
                                       scaled(own, 1, -0.5), Comparison::Kind::at_most),
                               near_exponent));
    }
    all.push_back(alike(fmt::format("exponent of |P|_F in N, Var(Q, K) = {}", variance),
                        fmt::format("x^{} / sqrt N", p), "softmax",
                        scaled(growth(numbers.curve(model, "fro_" + name)), 1, -0.5),
                        growth(numbers.curve(model, "fro_softmax")),
                        "[POLY] 4: \"a level of regularization, in expectation, similar to that of "
                        "softmax\", read as the same exponent within 0.05; proved is that both are "
                        "O(sqrt N)",
                        near_exponent));
    if (p > 2) return;  // too heavy-tailed for the mean of so few draws
    for (const Kind& kind : kinds) {
        const auto squares = numbers.curve(model, fmt::format("{}_{}", kind.square, name));
        if (squares.contains(largest))
            all.push_back(compare(fmt::format("mean of {}^2, x^{}, N = {}, Var(Q, K) = {}",
                                              kind.label, p, largest, variance),
                                  "the exact moment",
                                  kind.moment(law_of(setting, variance, p, largest)),
                                  squares.at(largest)));
    }
}

void compare_variance(const ExperimentSetting& setting, const Numbers& numbers,
                      const std::string& variance, std::vector<Comparison>& all) {
    const double largest = setting.numbers("tokens").back();
    const std::string model = model_of(variance), where = fmt::format(", Var(Q, K) = {}", variance);
    for (const auto& [curve, what, says] :
         {std::tuple{"fro_softmax_share", "|softmax|_F / sqrt N", "[POLY] (6): at most 1"},
          std::tuple{"jac_softmax_share", "|grad softmax|_F / (2 sqrt N)",
                     "[POLY] (7): at most 1"}}) {
        const auto shares = numbers.curve(model, curve);
        if (shares.contains(largest))
            all.push_back(compare(fmt::format("{}, N = {}{}", what, largest, where), says, 1.0,
                                  shares.at(largest), Comparison::Kind::at_most));
    }
    all.push_back(
        resolved(compare("exponent of |softmax|_F in N" + where, "[POLY] Thm 4.1: O(sqrt N)", 0.5,
                         growth(numbers.curve(model, "fro_softmax")), Comparison::Kind::at_most),
                 near_exponent));
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::vector<std::string> variances = setting.list("variance");
    Findings found;
    for (const Index p : setting.counts("p")) {
        Figure f{.name = fmt::format("poly_frobenius_p{}", p),
                 .title = p == 1 ? "Norms of softmax and of x"
                                 : fmt::format("Norms of softmax and of x^{}", p),
                 .caption =
                     "Means over the draws; X ~ N(0, 1), S = X Q K^T X^T / sqrt d, powers entry by "
                     "entry, derivatives with respect to Q. Dashed: the root of the exact mean "
                     "square, an upper bound of the mean."};
        for (const std::string& variance : variances)
            for (const Kind& kind : kinds)
                f.panels.push_back(panel(setting, numbers, variance, p, kind));
        f.alt = in_words(f.panels);
        found.figures.push_back(std::move(f));
    }
    for (const std::string& variance : variances)
        compare_variance(setting, numbers, variance, found.comparisons);
    // the variance only scales the powers of the same draws: one variance suffices
    for (const Index p : setting.counts("p"))
        compare_power(setting, numbers, variances.front(), p, found.comparisons);
    found.notes.push_back(
        "Powers are taken entry by entry, as in the paper's proofs; for matrix powers the growth "
        "would be N^p. In Theorem 4.4 sqrt d is taken inside the power, as in 4.2, which changes a "
        "factor but no exponent. The bounds of Theorem 4.1 hold for every matrix; how softmax "
        "grows in N at initialisation depends on the variance of its logits. O(...) is an upper "
        "bound: a smaller exponent is consistent with it.");
    return found;
}

}  // namespace

extern const ExperimentEntry poly_frobenius = {
    .name = "poly.frobenius",
    .title = "Norms of softmax and polynomial attention against N",
    .source = "[POLY] Theorems 4.1, 4.2, 4.4, Corollaries 4.3, 4.5",
    .claim =
        "|softmax(A)|_F is at most sqrt N and |grad softmax(A)|_F at most 2 sqrt N; the expected "
        "norms of S^p and of its derivative with respect to Q are O(N), so those of S^p / sqrt N "
        "are O(sqrt N): \"a level of regularization, in expectation, similar to that of softmax\".",
    .method =
        "Norms of P and of dP/dQ at initialisation against N, for several variances of the "
        "weights, with the exact second moments of the powers at each size. The theorems fix no "
        "sizes; the readings do.",
    .table =
        "curves over N: fro_X = |P|_F, fro2_X its square, dq_X = |dP/dQ|_F, dq2_X its square, for "
        "X = softmax, p1, p2, ...: S^p; fro_softmax_share = |P|_F / sqrt N, jac_softmax_share = "
        "|dP/dS|_F / (2 sqrt N)",
    .keys = keys,
    .on_host = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::poly_frobenius
