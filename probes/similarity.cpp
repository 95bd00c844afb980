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
    return std::clamp((m.unit_sum - n) / (n * (n - 1)), -1 / (n - 1), 1.0);
}

/// Up to this side a Gram matrix is formed: it costs no more than the products with X that it
/// replaces.
constexpr Index largest_gram = 128;

/// |X|_2^2 as the largest eigenvalue of the smaller of X X^T and X^T X.
Estimate squared_norm_by_gram(const Tensor& x, double tolerance) {
    const Tensor gram = matmul(x, x, x.rows() <= x.cols() ? Transpose::second : Transpose::first);
    const Index side = gram.rows();
    std::vector<double> a = gram.to_host<double>();
    double largest = 0;  // on the diagonal; fourth powers of X may leave the range of double
    for (std::size_t i = 0; i < a.size(); i += std::size_t(side + 1))
        largest = std::max(largest, a[i]);
    const int exponent = exponent_of(largest);
    for (double& e : a) e = std::ldexp(e, -exponent);
    const auto product = [&](std::span<const double> v, std::span<double> y) {
        std::fill(y.begin(), y.end(), 0.0);
        for (std::size_t j = 0; j < v.size(); ++j) {
            const double* column = a.data() + j * std::size_t(side);  // symmetric
            for (std::size_t i = 0; i < y.size(); ++i) y[i] += v[j] * column[i];
        }
    };
    Estimate found = largest_singular_value({side, side, product, product}, tolerance);
    for (double* one :
         {&found.value, found.low ? &*found.low : nullptr, found.high ? &*found.high : nullptr})
        if (one) *one = std::ldexp(*one, exponent);
    return found;
}

/// Of Lanczos's iterations.
constexpr Index most_products = 384;

/// Rows of X whose part of X^T X v is summed by one thread; by the sizes alone.
constexpr Index rows_of_a_part = 256;

/// |X|_2 of one matrix in host memory, one pass over X a product.
Estimate norm_on_host(const Tensor& x, double tolerance) {
    const Index n = x.rows(), parts = (n + rows_of_a_part - 1) / rows_of_a_part;
    const std::size_t d = std::size_t(x.cols());
    const std::vector<double> ones(std::size_t(rows_of_a_part), 1.0);
    std::vector<double> sums(std::size_t(parts) * d);
    const auto normal = [&](std::span<const double> v, std::span<double> y) {
        std::ranges::fill(sums, 0.0);
#pragma omp parallel for schedule(static)
        for (Index part = 0; part < parts; ++part) {
            const Index first = part * rows_of_a_part;
            const Index count = std::min(rows_of_a_part, n - first);
            add_normal_product(x.row_range(first, count).view(),
                               std::span(ones).first(std::size_t(count)), 0, v,
                               std::span(sums).subspan(std::size_t(part) * d, d), 0);
        }
        for (std::size_t j = 0; j < d; ++j) {
            y[j] = 0;
            for (std::size_t part = 0; part < std::size_t(parts); ++part)
                y[j] += sums[part * d + j];
        }
    };
    LinearMap map;
    map.rows = n;
    map.cols = x.cols();
    map.normal = normal;
    return largest_singular_value(map, tolerance, most_products);
}

/// |X|_2, or its square, of a state divided by 2^exponent.
struct Norm {
    Estimate found;
    int exponent = 0;
    bool squared = false;
};

Norm on_host(const Tensor& x, double tolerance) {
    const int exponent = exponent_of(x);
    const Tensor scaled = without_exponent(x, exponent);
    if (std::min(x.rows(), x.cols()) > largest_gram)
        return {norm_on_host(scaled, tolerance), exponent};
    return {squared_norm_by_gram(cast(scaled, Type::f64), tolerance), exponent, true};
}

/// Of all samples that go together: from the eigenvalues of Gram matrices where that is proven to
/// be within the tolerance, else by Lanczos with products with X.
Norm on_device(const Hidden& e, double tolerance) {
    const auto [side, other] = std::minmax({e.x.rows(), e.x.cols()});
    if (side <= largest_gram) {
        const StatesTogether::Squares squares = squares_of(e);
        const Estimate found = dense_norm(squares.values, other, tolerance / 2);  // of a square
        if (found.converged) return {found, squares.exponent};
    }
    const StatesTogether::Norm norm =
        of_state(e, &StatesTogether::norms, [tolerance](const Tensor& x) {
            const std::vector<int> exponents = exponents_of(x);
            const Tensor scaled = without_exponents(x, exponents);
            const std::vector<Estimate> found =
                radii_and_norms(x.cols() <= x.rows() ? scaled : transpose(scaled),
                                {.norm_products = most_products,
                                 .centred_norms = false,
                                 .tolerance = tolerance})
                    .norms;
            std::vector<StatesTogether::Norm> out;
            for (std::size_t i = 0; i < found.size(); ++i) out.push_back({found[i], exponents[i]});
            return out;
        });
    return {norm.found, norm.exponent};
}

class Similarity final : public Probe {
  public:
    explicit Similarity(const ProbeSettings& settings) : settings_(settings) {}

    void on_hidden(const Hidden& e, const StateMoments& m, Sink& out) override {
        const auto emit = [&](std::string_view metric, auto value) {
            if (settings_.wants(metric)) out.scalar(place(e), metric, value());
        };
        const Rounding errors(e.x.type(), settings_.state_rounding);
        const auto share = [&](Wide part) {
            if (m.squared == 0) return undefined("X = 0");
            if (errors.hides(part, m.squared)) return errors.undefined();
            return narrow(std::min<Wide>(part / m.squared, 1));
        };
        // To rounding, nothing in common is 0; what t_div loses there are its orders of magnitude.
        emit("t_sim", [&] {
            Value value = share(m.mean_part);
            if (errors.hides(m.mean_part, m.squared)) value.value = 0;
            return value;
        });
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

    /// |X|_F^2 / |X|_2^2.  Cost: some 16 to 100 products with X, or one Gram matrix of up to
    /// min(n, d) = 128.
    Value stable_rank(const Hidden& e, const StateMoments& m) const {
        if (m.squared == 0) return undefined("X = 0");
        if (!std::isfinite(m.squared)) return narrow(m.squared);
        const double tolerance = settings_.tolerance / 100;
        const Norm norm =
            e.x.backend().host_memory() ? on_host(e.x, tolerance) : on_device(e, tolerance);
        if (settings_.diagnostics)
            settings_.diagnostics->entries.push_back({place(e), "stable_rank", norm.found});
        const Wide squared = std::ldexp(m.squared, -2 * norm.exponent);
        return transform(to_value(norm.found), [&](double s) {
            return std::max(1.0, double(squared / (norm.squared ? s : Wide(s) * s)));
        });
    }

    ProbeSettings settings_;
};

/// A Gram matrix and its copy, or the vectors of an iteration.
MetricBytes norm_bytes(const MetricSizes& s) {
    constexpr double vectors = 640;
    const double rank = std::min(s.tokens, s.width), beside = 2 * std::min(rank, vectors);
    const double work =
        s.tokens * s.width * (sizeof(double) + s.element) + beside * rank * sizeof(double);
    return {.work = work, .of_sample = work};
}

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
     .undefined = "X = 0, or below the rounding of X",
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
     .show = Show::trajectory,
     .bytes = norm_bytes}};

}  // namespace

extern const ProbeEntry similarity = {.name = "similarity",
                                      .metrics = similarity_metrics,
                                      .needs = Needs::hidden,
                                      .make = make<Similarity>};

}  // namespace tsdiag::probe
