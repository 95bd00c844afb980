#include "mixing.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "row_spread.hpp"
#include "tsdiag/ops.hpp"

/// The action of P on the mean of the tokens and on its complement.  [TSE] (10), (12)
namespace tsdiag::probe {

namespace {

/// Whether P is whole on a device, where the numbers of all its heads are found at once.
struct WholeOnDevice {
    bool there = false;
};

WholeOnDevice make_whole(const Attention& e) {
    if (e.op.backend().host_memory() || e.op.structure().factors || e.op.team() ||
        (!e.together && e.op.bytes() > e.memory))
        return {};
    try {
        e.op.matrix();
    } catch (const OutOfMemory&) {
        note_shortage("P was applied by blocks for the mixing of tokens");
        return {};
    }
    return {true};
}

bool whole_on_device(const Attention& e) {
    return e.derived.of<WholeOnDevice>([&] { return make_whole(e); }).there;
}

/// 1^T P by rows of P, or of a P with factors by those.
Tensor sum_columns(const Attention& e) {
    const AttentionOperator& op = e.op;
    const Index h = op.heads(), n = op.tokens();
    if (whole_on_device(e)) {
        const Tensor one = expand(constant(op.backend(), 1, Type::f64), {h, n, 1});
        return matvec(op.matrix(), one, true).reshape({1, h, n});
    }
    const std::vector<double> ones(std::size_t(h * n), 1.0);
    const auto vector = [&](Type type) {
        return Tensor::from_host(op.backend(), {h, n, 1}, std::span(ones), type);
    };
    if (op.structure().factors)
        return cast(op.apply_transpose(vector(op.type()), block_rows(op)), Type::f64)
            .reshape({1, h, n});
    const Tensor one = vector(Type::f64);
    const std::vector<double> sums = sum_over_rows(
        Panels(op), block_rows(op), ones.size(),
        [&](Index first, Index count, std::span<double> sum) {
            const std::vector<double> part =
                matvec(op.entries(first, count), contiguous(one.row_range(first, count)), true)
                    .to_host<double>();
            for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
        });
    return Tensor::from_host(op.backend(), {1, h, n}, std::span(sums), Type::f64);
}

struct ColumnSums {
    Tensor sums;
};

struct MeanRows {
    std::vector<MeanRow> rows;
};

/// Of each sample: the mean token (1, d), 1^T P Pi2 X (h, d) and 1^T P 1 (h, 1).
struct MeanRowParts {
    mutable Later<std::vector<double>> mean, across, total;
    std::vector<int> exponents;  ///< of each sample's X, which was divided by their powers of two
};

MeanRowParts ask_parts(const Attention& e) {
    const Index samples = e.input.batch(), h = e.op.heads() / samples, n = e.op.tokens();
    const Tensor sums = column_sums(e).reshape({samples, h, n});
    std::vector<int> exponents = exponents_of(e.input);
    const Tensor x = cast(without_exponents(e.input, exponents), Type::f64);
    return {to_host_later(column_mean(x)), to_host_later(matmul(sums, subtract_column_mean(x))),
            to_host_later(row_sum(sums)), std::move(exponents)};
}

std::pair<const MeanRowParts*, Index> parts_of(const Attention& e) {
    return of_all_samples<MeanRowParts>(e, ask_parts);
}

std::vector<MeanRow> find_mean_rows(const Attention& e, const RowSums& sums) {
    const Index h = e.op.heads(), n = e.op.tokens(), d = e.input.cols();
    const auto [parts, sample] = parts_of(e);
    const int exponent = parts->exponents[slot(sample)];
    const auto mean = of_sample(parts->mean.get(), sample, d);
    const auto across = of_sample(parts->across.get(), sample, h * d);
    const auto total = of_sample(parts->total.get(), sample, h);

    auto rows = std::vector<MeanRow>(std::size_t(h));
    for (std::size_t k = 0; k < rows.size(); ++k) {
        const double weight = sums.stochastic(Index(k)) ? double(n) : total[k];
        Wide whole = 0, outside = 0;
        for (std::size_t c = 0; c < std::size_t(d); ++c) {
            const double z = across[k * std::size_t(d) + c], y = z + weight * mean[c];
            outside += Wide(z) * z / double(n);
            whole += Wide(y) * y / double(n);
        }
        rows[k] = {std::ldexp(whole, 2 * exponent), std::ldexp(outside, 2 * exponent)};
    }
    return rows;
}

}  // namespace

const Tensor& column_sums(const Attention& e) {
    return e.derived.of<ColumnSums>([&] { return ColumnSums{sum_columns(e)}; }).sums;
}

void ask_mean_rows(const Attention& e) { parts_of(e); }

std::vector<MeanRow> mean_rows(const Attention& e, const RowSums& sums) {
    return e.derived.of<MeanRows>([&] { return MeanRows{find_mean_rows(e, sums)}; }).rows;
}

MetricBytes mixing_bytes(const MetricSizes& s) {
    const double n = s.tokens, d = s.width;
    const double columns = std::min(d, std::max(128.0, double(1 << 21) / (s.heads * n)));
    const double work = s.rows + 4 * n * d * sizeof(double) + 2 * s.heads * n * columns * s.element;
    return {.work = work, .of_sample = work - s.rows};
}

std::vector<Value> omegas(const std::vector<MeanRow>& rows, const StateMoments& x,
                          const RowSums& sums) {
    std::vector<Value> values;
    for (std::size_t k = 0; k < rows.size(); ++k) {
        if (!sums.stochastic(Index(k)))
            values.push_back(undefined(sums.why_not(Index(k))));
        else if (!(x.mean_part > 0))
            values.push_back(undefined("e^T X = 0"));
        else
            values.push_back(narrow(std::sqrt(rows[k].across / x.mean_part)));
    }
    return values;
}

namespace {

/// Largest number of elements of P X in memory, and the least number of columns of a chunk: with
/// fewer, recomputing P would cost more than the product.  By the sizes alone, so that the sum
/// does not depend on the memory of a run.
constexpr Index largest_product = Index{1} << 21, fewest_columns = 128;

Index columns_of_chunk(Index heads, Index n, Index d) {
    return std::min(d, std::max(fewest_columns, largest_product / std::max<Index>(1, heads * n)));
}

/// |Pi2 P X|_F^2 of each head.  X is centred first: for rows that sum to 1, Pi2 P X = Pi2 P Pi2 X
/// exactly, and similar tokens cause no cancellation.  Cost: 2 h n^2 d flops; memory h n
/// times a chunk of columns.
std::vector<Wide> products_by_columns(const Attention& e, const RowSums& sums) {
    const Index h = e.op.heads(), n = e.op.tokens(), d = e.input.cols();
    const Index chunk = columns_of_chunk(h, n, d);
    const int exponent = exponent_of(e.input);
    const Tensor x = without_exponent(e.input, exponent);
    const Tensor centred = cast(subtract_column_mean(cast(x, Type::f64)), e.op.type());
    const Tensor input = cast(x, e.op.type());
    std::vector<Wide> squares(std::size_t(h), 0);
    for (Index first = 0; first < d; first += chunk) {
        const Index count = std::min(chunk, d - first);
        for (const bool stochastic : {true, false}) {
            if (stochastic ? !sums.any_stochastic() : sums.all_stochastic()) continue;
            const Tensor& from = stochastic ? centred : input;
            const Tensor y = subtract_column_mean(
                e.op.apply(contiguous(from.col_range(first, count)), block_rows(e.op)));
            for (Index k = 0; k < h; ++k)
                if (sums.stochastic(k) == stochastic)
                    squares[std::size_t(k)] += squared_norm(y.batch_range(k, 1));
        }
    }
    for (Wide& sum : squares) sum = std::ldexp(sum, 2 * exponent);
    return squares;
}

/// |Pi2 P X|_F^2 of each head of all samples, from X centred first or as it is: that of each chunk
/// of columns, `StateMoments::centred` of the heads.
struct ProductsByColumns {
    struct Chunk {
        Later<std::vector<StateMoments>> moments;
        std::vector<int> exponents;  ///< of each head's product, which was divided by their powers
                                     ///< of two
    };
    mutable std::vector<Chunk> chunks;
    std::vector<int> exponents;
};
struct OfCentred : ProductsByColumns {};
struct OfInput : ProductsByColumns {};

template <class Found>
Found ask_products(const Attention& e) {
    const Index samples = e.input.batch(), heads = e.op.heads(), n = e.op.tokens(),
                d = e.input.cols(), rows = heads / samples * n;
    const Index chunk = columns_of_chunk(heads / samples, n, d);
    Found found;
    found.exponents = exponents_of(e.input);
    Tensor x = without_exponents(e.input, found.exponents);
    if (std::is_same_v<Found, OfCentred>) x = subtract_column_mean(cast(x, Type::f64));
    x = cast(x, e.op.type());
    const Tensor p = contiguous(e.op.matrix()).reshape({samples, rows, n});
    for (Index first = 0; first < d; first += chunk) {
        const Index count = std::min(chunk, d - first);
        const Tensor y = matmul(p, x.col_range(first, count)).reshape({heads, n, count});
        std::vector<int> exponents = exponents_of(y);
        const Tensor scaled = without_exponents(y, exponents);
        found.chunks.push_back(
            {y.backend().state_moments(std::span(&scaled.view(), 1)), std::move(exponents)});
    }
    return found;
}

template <class Found>
std::vector<Wide> squares_by(const Attention& e) {
    const auto [found, sample] = of_all_samples<Found>(e, ask_products<Found>);
    std::vector<Wide> squares(slot(e.op.heads()), 0);
    for (auto& chunk : found->chunks) {
        const auto heads = of_sample(chunk.moments.get(), sample, e.op.heads());
        const auto exponents = of_sample(chunk.exponents, sample, e.op.heads());
        for (std::size_t k = 0; k < squares.size(); ++k)
            squares[k] += std::ldexp(Wide(heads[k].centred), 2 * exponents[k]);
    }
    for (Wide& sum : squares) sum = std::ldexp(sum, 2 * found->exponents[slot(sample)]);
    return squares;
}

void ask_products_on_device(const Attention& e, const RowSums& sums) {
    if (sums.any_stochastic()) of_all_samples<OfCentred>(e, ask_products<OfCentred>);
    if (!sums.all_stochastic()) of_all_samples<OfInput>(e, ask_products<OfInput>);
}

/// As `products_by_columns`, of all samples at once.
std::vector<Wide> products_on_device(const Attention& e, const RowSums& sums) {
    std::vector<Wide> squares, of_input;
    if (sums.any_stochastic()) squares = squares_by<OfCentred>(e);
    if (!sums.all_stochastic()) of_input = squares_by<OfInput>(e);
    if (squares.empty()) return of_input;
    for (std::size_t k = 0; k < of_input.size(); ++k)
        if (!sums.stochastic(Index(k))) squares[k] = of_input[k];
    return squares;
}

/// |Pi2 P X|_F^2 of each head: from the token spread, which jac_k_fro needs too, where that is
/// certain; else by columns.
std::vector<Wide> centred_products(const Attention& e, const RowSums& sums) {
    if (whole_on_device(e)) return products_on_device(e, sums);
    if (!has_token_spread(e) || e.op.structure().causal || !sums.all_stochastic())
        return products_by_columns(e, sums);
    const TokenSpread& tokens = token_spread(e);
    const std::vector<std::optional<Wide>> found = tokens.spread.moved();
    std::vector<Wide> squares;
    if (!std::ranges::all_of(found, [](const auto& one) { return one.has_value(); }))
        squares = products_by_columns(e, sums);
    else
        squares.resize(found.size());
    for (std::size_t k = 0; k < found.size(); ++k)
        if (found[k]) squares[k] = std::ldexp(*found[k], 2 * tokens.exponent);
    return squares;
}

Value root_ratio(Wide numerator, Wide denominator, const char* why_not) {
    return denominator > 0 ? narrow(std::sqrt(numerator / denominator)) : undefined(why_not);
}

/// (sum_j w(c_j) |x_j| / sqrt n)^2 of each head: c = 1^T P, x_j the rows of `state`.
/// Cost: O(n (h + d)).
template <class Weight>
std::vector<Wide> weighted_rows(const Attention& e, const Tensor& state, Weight weight) {
    const auto h = slot(e.op.heads()), n = slot(e.op.tokens());
    const std::vector<double> squares = row_sum(multiply(state, state)).to_host<double>(),
                              columns = column_sums(e).to_host<double>();
    std::vector<Wide> out;
    for (std::size_t k = 0; k < h; ++k) {
        Wide sum = 0;
        for (std::size_t j = 0; j < n; ++j)
            sum += weight(columns[k * n + j]) * std::sqrt(squares[j]);
        out.push_back(sum * sum / double(n));
    }
    return out;
}

/// By how much errors of the entries of P move e^T P Pi2 X at most, squared and over u^2, of each
/// head: ((sum_j (c_j + n t) |z_j|) / sqrt n)^2, c = 1^T P, z_j the rows of Pi2 X.  Each entry is
/// nonnegative and off by at most u max(P_ij, t), t the least normal number of float16, below which
/// the errors of its entries no longer shrink with them.  Where a few tokens are far from the
/// others that is much less than |Pi2 X|_F, where all rows attend to a few up to sqrt(n) times it.
std::vector<Wide> errors_of_entries(const Attention& e) {
    const int exponent = exponent_of(e.input);
    const Tensor z = subtract_column_mean(cast(without_exponent(e.input, exponent), Type::f64));
    const double least = double(e.op.tokens()) * 0x1p-14;
    std::vector<Wide> out = weighted_rows(e, z, [&](double c) { return c + least; });
    for (Wide& one : out) one = std::ldexp(one, 2 * exponent);
    return out;
}

/// As `errors_of_entries` of errors of u |x_j| of the rows of X: ((sum_j |c_j - 1| |x_j|) / sqrt
/// n)^2, where rows of P sum to 1.  At most n |X|_F^2, where all rows attend to one token.
std::vector<Wide> errors_of_states(const Attention& e) {
    const int exponent = exponent_of(e.input);
    const Tensor x = cast(without_exponent(e.input, exponent), Type::f64);
    std::vector<Wide> out = weighted_rows(e, x, [](double c) { return std::abs(c - 1); });
    for (Wide& one : out) one = std::ldexp(one, 2 * exponent);
    return out;
}

class Mixing final : public Probe {
  public:
    explicit Mixing(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention_rows(const AttentionRows& e, Sink&) override {
        sums_.add(e);
        squares_.add(e);
        for (const double one : e.stats.negative) negative_ = negative_ || one > 0;
        negative_ = negative_ || e.block.totals;  // of rows that were not looked at
    }

    void on_attention(const Attention& e, Sink& out) override {
        const char* why_not = e.over.channels      ? over_channels
                              : e.op.memory() > 0  ? not_square
                              : !e.input.defined() ? no_input
                                                   : nullptr;
        if (why_not)
            return emit_undefined(out, settings_, e.layer, e.op.heads(),
                                  {"omega", "mu1", "mu2", "est_mu"}, why_not);
        const bool products = settings_.wants("mu2") || settings_.wants("est_mu");
        ask_moments(e);
        ask_mean_rows(e);
        if (products && whole_on_device(e)) ask_products_on_device(e, sums_);
        const StateMoments& x = input_moments(e);
        const std::vector<MeanRow> mean = mean_rows(e, sums_);
        const Rounding errors(e.input.type(), settings_.state_rounding),
            of_p(e.input.type(), settings_.map_rounding);  // relative to |P| |Pi2 X|
        emit_omegas(e, mean, x, out);
        emit_each(out, settings_, e.layer, "mu1", e.op.heads(), [&](std::size_t k) {
            return errors.hides(x.mean_part, x.squared)
                       ? errors.undefined()
                       : root_ratio(mean[k].whole, x.mean_part, "Pi1 X = 0");
        });
        if (!products) return;
        const std::vector<Wide> centred = centred_products(e, sums_);
        emit_each(out, settings_, e.layer, "mu2", e.op.heads(), [&](std::size_t k) {
            const Wide whole = squares_.of(k) * x.centred;
            if (errors.hides(x.centred, x.squared) || errors.hides(centred[k], whole))
                return errors.undefined();
            return of_p.hides(centred[k], whole) ? of_p.undefined()
                                                 : root_ratio(centred[k], x.centred, "Pi2 X = 0");
        });
        if (!e.residual.defined())
            return emit_undefined(out, settings_, e.layer, e.op.heads(), {"est_mu"}, no_residual);
        if (settings_.wants("est_mu")) emit_estimate(e, mean, centred, out);
    }

    void finish_layer(Index, Sink&) override {
        sums_.reset();
        squares_ = {};
        negative_ = false;
    }

  private:
    void emit_omegas(const Attention& e, const std::vector<MeanRow>& mean, const StateMoments& x,
                     Sink& out) const {
        if (!settings_.wants("omega")) return;
        const Rounding errors(e.input.type(), settings_.state_rounding),
            of_p(e.input.type(), settings_.map_rounding);
        std::vector<Value> values = omegas(mean, x, sums_);
        const std::vector<Wide> moved = settings_.saved_maps && !negative_
                                            ? errors_of_entries(e)
                                            : std::vector<Wide>(values.size(), x.centred);
        std::vector<Wide> by_states;  // found where it may decide
        const auto is_hidden_by_states = [&](std::size_t k) {
            if (errors.hides(mean[k].across, x.squared)) return true;
            if (!errors.hides(mean[k].across, double(e.op.tokens()) * x.squared)) return false;
            if (by_states.empty()) by_states = errors_of_states(e);
            return errors.hides(mean[k].across, by_states[k]);
        };
        for (std::size_t k = 0; k < values.size(); ++k) {
            if (!values[k].value) continue;
            if (errors.hides(x.mean_part, x.squared) || is_hidden_by_states(k))
                values[k] = errors.undefined();
            else if (of_p.hides(mean[k].across, moved[k]))
                values[k] = of_p.undefined();
        }
        emit_heads(out, settings_, e.layer, "omega", values);
    }

    /// (1 + a2 m1) / (1 + a2 m2) - 1, m_i = |Pi_i P X|_F^2 / |Pi_i R|_F^2; the layer's from the
    /// heads' means of m_i.
    void emit_estimate(const Attention& e, const std::vector<MeanRow>& mean,
                       const std::vector<Wide>& centred, Sink& out) const {
        const StateMoments& r = residual_moments(e);
        const Rounding errors(e.residual.type(), settings_.state_rounding);
        const bool hidden =
            errors.hides(r.mean_part, r.squared) || errors.hides(r.centred, r.squared);
        const bool defined = r.mean_part > 0 && r.centred > 0 && !hidden && !e.why_no_estimate;
        const Value why_not = e.why_no_estimate    ? undefined(e.why_no_estimate)
                              : !(r.mean_part > 0) ? undefined("Pi1 R = 0")
                              : !(r.centred > 0)   ? undefined("Pi2 R = 0")
                                                   : errors.undefined();
        const auto estimate = [&](Wide whole, Wide outside) {
            const Wide m1 = whole / r.mean_part, m2 = outside / r.centred;
            return narrow((m1 - m2) / (1 / Wide(e.a2) + m2));
        };
        std::vector<Value> heads;
        Wide whole = 0, outside = 0;
        for (std::size_t k = 0; k < mean.size(); ++k) {
            heads.push_back(defined ? estimate(mean[k].whole, centred[k]) : why_not);
            whole += mean[k].whole / double(mean.size());
            outside += centred[k] / double(mean.size());
        }
        emit_heads(out, settings_, e.layer, "est_mu", heads,
                   defined ? estimate(whole, outside) : why_not);
    }

    ProbeSettings settings_;
    RowSums sums_;
    Squares squares_;
    bool negative_ = false;  ///< an entry of a P, or none of some rows was seen
};

MetricBytes spread_bytes(const MetricSizes& s) {
    MetricBytes out = mixing_bytes(s);
    out.shared = token_spread_bytes(s);
    return out;
}

constexpr Metric mixing_metrics[] = {
    {.name = metric::omega,
     .symbol = "|eᵀPΠ₂X|/|eᵀX|",
     .definition = "|e^T P Pi2 X| / |e^T X|",
     .source = "[TSE] (12)",
     .range = ">= 0",
     .undefined =
         "e^T X = 0, below the rounding of X, rows do not sum to 1, P is over channels or has "
         "keys of a memory",
     .show = Show::page,
     .bytes = mixing_bytes},
    {.name = "mu1",
     .symbol = "μ₁",
     .definition = "|Pi1 P X|_F / |Pi1 X|_F",
     .source = "[TSE] (10)",
     .range = ">= 0",
     .undefined =
         "the denominator is 0 or below the rounding of X, P is over channels or has keys of "
         "a memory",
     .bytes = mixing_bytes},
    {.name = "mu2",
     .symbol = "μ₂",
     .definition = "|Pi2 P X|_F / |Pi2 X|_F",
     .source = "[TSE] (10)",
     .range = ">= 0",
     .undefined = "as mu1",
     .bytes = spread_bytes},
    {.name = metric::est_mu,
     .symbol = "est_mu",
     .definition = "(1 + a2 m1) / (1 + a2 m2) - 1, m_i = |Pi_i P X|_F^2 / |Pi_i R|_F^2: "
                   "E[xi1]/E[xi2] - 1, exact for random W, post-norm and pre-norm",
     .range = ">= -1",
     .undefined =
         "P V is normalised or gated, V is latent, a denominator is 0 or below the rounding "
         "of R, P is over channels or has keys of a memory",
     .bytes = spread_bytes}};

}  // namespace

extern const ProbeEntry mixing = {.name = "mixing",
                                  .metrics = mixing_metrics,
                                  .needs = Needs::rows | Needs::attention,
                                  .make = make<Mixing>};

}  // namespace tsdiag::probe
