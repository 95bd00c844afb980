#include <algorithm>
#include <cmath>

#include "support.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

/// Similarity of the tokens of a state.  [TSE] Def. 1.1, (1)
namespace tsdiag::probe {
namespace {

/// Mean cosine over all pairs of rows: (|sum_i x_i / |x_i||^2 - n) / (n (n - 1)).
Value mean_cosine(const StateMoments& m) {
    if (m.n < 2) return undefined("fewer than two rows");
    if (m.zero_row) return undefined("zero row");
    const double n = double(m.n);
    return (m.unit_sum - n) / (n * (n - 1));
}

/// Up to this side a Gram matrix is formed, whose products cost less than those with X.
constexpr Index largest_gram = 1024;

/// |X|_2^2 as the largest eigenvalue of the smaller of X X^T and X^T X.
Estimate squared_norm_by_gram(const Tensor& x, double tolerance) {
    const Tensor gram = matmul(x, x, x.rows() <= x.cols() ? Transpose::second : Transpose::first);
    const Index side = gram.rows();
    const std::vector<double> a = gram.to_host<double>();
    const auto product = [&](std::span<const double> v, std::span<double> y) {
        std::fill(y.begin(), y.end(), 0.0);
        for (std::size_t j = 0; j < v.size(); ++j) {
            const double* column = a.data() + j * std::size_t(side);  // symmetric
            for (std::size_t i = 0; i < y.size(); ++i) y[i] += v[j] * column[i];
        }
    };
    return largest_singular_value({side, side, product, product}, tolerance);
}

/// |X|_2 by products with X on its device.
Estimate norm_by_products(const Tensor& x, double tolerance) {
    const auto multiply_by = [&x](Transpose t) {
        return [&x, t](std::span<const double> v, std::span<double> y) {
            const Tensor column =
                Tensor::from_host(x.backend(), {1, Index(v.size()), 1}, v, Type::f64);
            const std::vector<double> product = matmul(x, column, t).to_host<double>();
            std::copy(product.begin(), product.end(), y.begin());
        };
    };
    return largest_singular_value(
        {x.rows(), x.cols(), multiply_by(Transpose::none), multiply_by(Transpose::first)},
        tolerance);
}

class Similarity final : public Probe {
  public:
    explicit Similarity(const ProbeSettings& settings) : settings_(settings) {}

    void on_hidden(const Hidden& e, const StateMoments& m, Sink& out) override {
        const auto emit = [&](std::string_view metric, auto value) {
            if (settings_.wants(metric)) out.scalar(place(e), metric, value());
        };
        const auto share = [&](Wide part) {
            return m.squared == 0 ? undefined("X = 0") : narrow(part / m.squared);
        };
        emit("t_sim", [&] { return share(m.mean_part); });
        emit("t_div", [&] { return share(m.centred); });
        emit("t_cos", [&] { return mean_cosine(m); });
        emit("fro", [&] { return narrow(std::sqrt(m.squared)); });
        emit("stable_rank", [&] { return stable_rank(e, m); });
    }

  private:
    static Place place(const Hidden& e) {
        return {
            .step = -1, .layer = e.layer, .stage = std::string(e.stage), .head = -1, .tensor = {}};
    }

    /// |X|_F^2 / |X|_2^2.  Cost: one Gram matrix, or some 50 products with X.
    Value stable_rank(const Hidden& e, const StateMoments& m) const {
        if (m.squared == 0) return undefined("X = 0");
        if (!std::isfinite(m.squared)) return narrow(m.squared);
        const int exponent = exponent_of(e.x);
        const Tensor x = cast(without_exponent(e.x, exponent), Type::f64);
        const bool gram = std::min(x.rows(), x.cols()) <= largest_gram;
        const double tolerance = settings_.accuracy / 100;
        const Estimate norm =
            gram ? squared_norm_by_gram(x, tolerance) : norm_by_products(x, tolerance);
        if (settings_.diagnostics)
            settings_.diagnostics->entries.push_back({place(e), "stable_rank", norm});
        const Wide squared = std::ldexp(m.squared, -2 * exponent);  // of x
        return transform(to_value(norm),
                         [&](double s) { return double(squared / (gram ? s : Wide(s) * s)); });
    }

    ProbeSettings settings_;
};

constexpr Metric similarity_metrics[] = {
    {.name = metric::t_sim,
     .symbol = "t_sim",
     .definition = "|Pi1 X|_F^2 / |X|_F^2: the share of the state that all tokens have in common",
     .source = "[TSE] Def. 1.1",
     .range = "[0, 1]",
     .undefined = "X = 0",
     .of = Of::state,
     .stage = "out",
     .core = true,
     .show = Show::everywhere},
    {.name = metric::t_div,
     .symbol = "t_div",
     .definition = "|Pi2 X|_F^2 / |X|_F^2, from the centred rows and not as 1 - t_sim: accurate "
                   "for nearly equal tokens",
     .source = "[TSE] Def. 1.1",
     .range = "[0, 1]",
     .undefined = "X = 0",
     .of = Of::state,
     .stage = "out",
     .core = true,
     .show = Show::everywhere},
    {.name = metric::t_cos,
     .symbol = "t_cos",
     .definition = "mean of the cosine over pairs of rows, in O(n d) through the sum of unit rows",
     .source = "[TSE] (1)",
     .range = "[-1/(n-1), 1]",
     .undefined = "n < 2, or a zero row",
     .of = Of::state,
     .stage = "out",
     .core = true,
     .show = Show::page},
    {.name = metric::fro,
     .symbol = "|X|_F",
     .definition = "|X|_F",
     .range = ">= 0",
     .undefined = "never",
     .of = Of::state,
     .stage = "out",
     .core = true,
     .show = Show::trajectory},
    {.name = "stable_rank",
     .symbol = "|X|_F²/|X|₂²",
     .definition = "|X|_F^2 / |X|_2^2",
     .range = "[1, min(n, d)]",
     .undefined = "X = 0",
     .of = Of::state,
     .stage = "out",
     .show = Show::trajectory}};

}  // namespace

extern const ProbeEntry similarity = {.name = "similarity",
                                      .metrics = similarity_metrics,
                                      .needs = Needs::hidden,
                                      .make = make<Similarity>};

}  // namespace tsdiag::probe
