#include "mixing.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

/// Mixing rate of P: its second eigenvalue and norms that bound it.  [TSE] Cor. 2.7, (12), (16),
/// (17)
namespace tsdiag::probe {
namespace {

constexpr Index largest_for_dobrushin = 2048;

/// [TSE] (16) from (1 - omega)^2 and delta^2; (17) is the same with 1 and |lambda_2|^2.
double estimate(double mean_part, double centred_part, double a2) {
    return (mean_part - centred_part) / (1 / a2 + centred_part);
}

/// max_ij |P_i - P_j|_1 / 2 of each head.  Where P does not fit, it is computed for each pair of
/// blocks of rows, which are recomputed.  Throws `NonFiniteError`.
std::vector<double> coefficients(const Attention& e) {
    if (e.op.bytes() <= e.memory) return dobrushin(e.op);
    constexpr double copies = 4;  // of a block: two, and their concatenation
    const Index n = e.op.tokens(), h = e.op.heads(), block = e.op.rows_at_once(e.memory / copies);
    std::vector<double> found(std::size_t(h), 0.0);
    const auto take = [&](const Tensor& rows) {
        const std::vector<double> distances = rows.backend().row_distances(rows.view()).get();
        for (std::size_t k = 0; k < found.size(); ++k)
            found[k] = std::max(found[k], distances[k] / 2);
    };
    for (Index i = 0; i < n; i += block) {
        const Tensor rows = contiguous(e.op.rows(i, std::min(block, n - i)).p);
        if (first_nonfinite(rows) >= 0)  // distances need finite entries
            throw NonFiniteError(
                "attention matrix: an entry is not finite, so its coefficient is undefined");
        if (i == 0) take(rows);
        for (Index j = 0; j < i; j += block) take(concat_rows({e.op.rows(j, block).p, rows}));
    }
    return found;
}

class Spectrum final : public Probe {
  public:
    explicit Spectrum(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention_rows(const AttentionRows& e, Sink&) override {
        sums_.add(e);
        const RowStatistics& s = e.stats;
        diagonals_.resize(std::size_t(s.heads));
        squares_.add(e);
        rounding_ = Rounding(e.block.p.type(), settings_.map_rounding);
        for (Index k = 0; k < s.heads; ++k) {
            const auto seen =
                std::span(s.diagonal).subspan(std::size_t(k * s.rows), std::size_t(s.rows));
            std::vector<double>& diagonal = diagonals_[std::size_t(k)];
            diagonal.insert(diagonal.end(), seen.begin(), seen.end());
        }
    }

    void on_attention(const Attention& e, Sink& out) override {
        const bool second = e.op.memory() == 0 && wants_any({"lambda2_abs", "lambda2_check",
                                                             "spectral_gap", "gap", "est2"});
        const char* const why_no_est1 = no_est1(e);
        const bool norm = settings_.wants("delta") || (settings_.wants("est1") && !why_no_est1);
        std::optional<Spectra> both;
        if (second && norm && e.op.tokens() >= 2 && !e.op.structure().causal)
            both =
                second_eigenvalue_and_norm(e.op, e.memory, settings_.tolerance, settings_.spectra);
        if (e.op.memory() > 0)
            no_eigenvalues(e, out);
        else if (second)
            second_eigenvalues(e, both, out);
        if (norm)
            centred_norms(e, both, why_no_est1, out);
        else if (settings_.wants("est1"))
            emit_no_est1(e, out, why_no_est1);
        if (wants_any({"delta_pi"})) stationary_norms(e, out);
        if (wants_any({"dobrushin"})) dobrushin_coefficients(e, out);
    }

    void finish_layer(Index, Sink&) override {
        sums_.reset();
        diagonals_.clear();
        squares_ = {};
    }

  private:
    bool wants_any(std::initializer_list<std::string_view> metrics) const {
        return std::any_of(metrics.begin(), metrics.end(),
                           [this](std::string_view m) { return settings_.wants(m); });
    }

    /// Why est1 and est2 do not apply; null where they do.
    static const char* no_estimate(const Attention& e) {
        return e.pre_norm && !e.over.channels ? "pre-norm" : e.why_no_estimate;
    }

    /// Values of the estimates, which are also recorded for run.json.
    std::vector<Value> values_of(const std::vector<Estimate>& estimates, Index layer,
                                 std::string_view metric) const {
        std::vector<Value> values;
        for (const Estimate& estimate : estimates) {
            record(estimate, attention_place(layer, Index(values.size())), metric);
            values.push_back(to_value(estimate));
        }
        return values;
    }

    /// `value`, or that the rounding of a P of that squared norm may be all of it.
    Value above_rounding(const Value& value, Wide whole) const {
        const std::optional<double>& size = value.value ? value.value : value.high;
        return size && rounding_.hides(Wide(*size) * *size, whole) ? rounding_.undefined() : value;
    }

    void record(const Estimate& estimate, const Place& at, std::string_view metric) const {
        if (settings_.diagnostics)
            settings_.diagnostics->entries.push_back({at, std::string(metric), estimate});
    }

    /// For a causal P from its recorded diagonal, without another pass.
    std::vector<Estimate> second_moduli(const Attention& e,
                                        const std::optional<Spectra>& both) const {
        if (both) return both->second;
        const bool seen = !diagonals_.empty() && Index(diagonals_[0].size()) == e.op.tokens();
        if (!seen || !e.op.structure().causal)
            return second_eigenvalue(e.op, e.memory, settings_.tolerance, settings_.spectra);
        std::vector<Estimate> found;
        for (const std::vector<double>& diagonal : diagonals_)
            found.push_back(second_eigenvalue(diagonal));
        return found;
    }

    void second_eigenvalues(const Attention& e, const std::optional<Spectra>& both,
                            Sink& out) const {
        const Index h = e.op.heads();
        std::vector<Value> modulus(std::size_t(h), undefined("fewer than two tokens"));
        if (e.op.tokens() >= 2) {
            const std::vector<Estimate> found = second_moduli(e, both);
            modulus = values_of(found, e.layer, "lambda2_abs");
            const Structure known = e.op.structure();
            if (known.row_stochastic && known.blocks.size() > 1)
                for (Value& value : modulus)
                    value.note = std::to_string(known.blocks.size()) +
                                 " diagonal blocks of P have the eigenvalue 1 each";
            second_opinions(e, found, out);
        }
        const double largest = 1 + row_sum_tolerance(e.op.type());
        const auto of_stochastic = [&](std::size_t k, auto f) {
            const std::optional<double>& least =
                modulus[k].value ? modulus[k].value : modulus[k].low;
            if (!least) return modulus[k];
            if (!sums_.stochastic(Index(k))) return undefined(sums_.why_not(Index(k)));
            if (*least > largest) return undefined("|lambda_2| > 1: P has negative entries");
            return transform(modulus[k], f);
        };
        const auto gap = [](double m) { return 1 - m; };
        const auto squared_gap = [](double m) { return (1 - m) * (1 + m); };
        const auto est2 = [&](double m) { return estimate(1, m * m, e.a2); };
        // The eigenvalues of a causal P are its entries, whose errors are relative to themselves.
        const bool entries = e.op.structure().causal;
        emit_each(out, settings_, e.layer, "lambda2_abs", h, [&](std::size_t k) {
            return entries ? modulus[k] : above_rounding(modulus[k], squares_.of(k));
        });
        emit_each(out, settings_, e.layer, "spectral_gap", h,
                  [&](std::size_t k) { return of_stochastic(k, squared_gap); });
        emit_each(out, settings_, e.layer, "gap", h,
                  [&](std::size_t k) { return of_stochastic(k, gap); });
        if (!settings_.wants("est2")) return;

        std::vector<Value> heads;
        double squares = 0, count = 0;
        for (std::size_t k = 0; k < modulus.size(); ++k) {
            const char* why_not = no_estimate(e);
            heads.push_back(why_not ? undefined(why_not) : of_stochastic(k, est2));
            if (!heads[k].value) continue;
            squares += *modulus[k].value * *modulus[k].value;
            count += 1;
        }
        Value mean = mean_over_heads(heads);
        if (mean.value) mean.value = estimate(1, squares / count, e.a2);
        emit_heads(out, settings_, e.layer, "est2", heads, mean);
    }

    void no_eigenvalues(const Attention& e, Sink& out) const {
        emit_undefined(out, settings_, e.layer, e.op.heads(),
                       {"lambda2_abs", "spectral_gap", "gap", "est2"}, not_square);
        each_cross_checked(
            e,
            [&](Index) {
                return SecondOpinion{{}, not_square};
            },
            out);
    }

    void second_opinions(const Attention& e, const std::vector<Estimate>& found, Sink& out) const {
        each_cross_checked(
            e, [&](Index k) { return second_opinion(e.op, k, found[std::size_t(k)], e.memory); },
            out);
    }

    /// Emits opinion(k) of evenly spaced heads k.
    template <class Opinion>
    void each_cross_checked(const Attention& e, const Opinion& opinion, Sink& out) const {
        if (!settings_.wants(metric::lambda2_check)) return;
        const Index count = std::min(settings_.cross_check, e.op.heads());
        for (Index i = 0; i < count; ++i) {
            const Index k = i * e.op.heads() / count;
            if (!settings_.wants_head(k)) continue;
            const SecondOpinion found = opinion(k);
            out.scalar(attention_place(e.layer, k), metric::lambda2_check,
                       found.difference ? Value(*found.difference) : undefined(found.why_not));
        }
    }

    /// Why est1 is undefined; null where it is not.
    static const char* no_est1(const Attention& e) {
        return no_estimate(e)       ? no_estimate(e)
               : e.op.memory() > 0  ? not_square
               : !e.input.defined() ? no_input
                                    : nullptr;
    }

    void centred_norms(const Attention& e, const std::optional<Spectra>& both,
                       const char* why_no_est1, Sink& out) const {
        const std::vector<Value> delta =
            values_of(both ? both->norm
                           : centred_norm(e.op, e.memory, settings_.tolerance, settings_.spectra),
                      e.layer, "delta");
        emit_each(out, settings_, e.layer, "delta", e.op.heads(),
                  [&](std::size_t k) { return above_rounding(delta[k], squares_.of(k)); });
        if (!settings_.wants("est1")) return;
        if (why_no_est1) return emit_no_est1(e, out, why_no_est1);

        ask_moments(e);
        ask_mean_rows(e);
        const std::vector<Value> omega = omegas(mean_rows(e, sums_), input_moments(e), sums_);
        std::vector<Value> heads;
        double mean_part = 0, centred_part = 0, count = 0;
        for (std::size_t k = 0; k < delta.size(); ++k) {
            heads.push_back(est1(omega[k], delta[k], e.a2));
            if (!heads[k].value) continue;
            mean_part += (1 - *omega[k].value) * (1 - *omega[k].value);
            centred_part += *delta[k].value * *delta[k].value;
            count += 1;
        }
        Value mean = mean_over_heads(heads);
        if (mean.value) mean.value = estimate(mean_part / count, centred_part / count, e.a2);
        emit_heads(out, settings_, e.layer, "est1", heads, mean);
    }

    void emit_no_est1(const Attention& e, Sink& out, const char* why_not) const {
        emit_each(out, settings_, e.layer, "est1", e.op.heads(),
                  [&](std::size_t) { return undefined(why_not); });
    }

    static Value est1(const Value& omega, const Value& delta, double a2) {
        if (!omega.value) return omega;
        if (*omega.value >= 1) return undefined("omega >= 1");
        const double rest = 1 - *omega.value;
        return transform(delta, [&](double d) { return estimate(rest * rest, d * d, a2); });
    }

    void stationary_norms(const Attention& e, Sink& out) const {
        const std::vector<Contraction> found = stationary_norm(
            e.op, e.memory, settings_.tolerance, [&](Index k) { return sums_.stochastic(k); });
        emit_each(out, settings_, e.layer, "delta_pi", e.op.heads(), [&](std::size_t k) {
            if (!sums_.stochastic(Index(k))) return undefined(sums_.why_not(Index(k)));
            if (!found[k].estimate) return undefined(found[k].why_not);
            record(*found[k].estimate, attention_place(e.layer, Index(k)), "delta_pi");
            return above_rounding(to_value(*found[k].estimate), 1);
        });
    }

    void dobrushin_coefficients(const Attention& e, Sink& out) const {
        std::vector<double> found;
        if (settings_.wants_by_name("dobrushin") || e.op.tokens() <= largest_for_dobrushin)
            found = coefficients(e);
        emit_each(out, settings_, e.layer, "dobrushin", e.op.heads(), [&](std::size_t k) {
            return found.empty() ? undefined("more than 2048 tokens and not requested by name")
                                 : above_rounding(found[k], squares_.of(k));
        });
    }

    ProbeSettings settings_;
    RowSums sums_;
    std::vector<std::vector<double>> diagonals_;  ///< of the rows seen, of each head
    Squares squares_;
    Rounding rounding_{Type::f64, 0};
};

constexpr double spectrum_seconds = 6e-8;  ///< seconds of one core for an entry of P

/// 32 vectors of an iteration with P, and as many with P^T, real and imaginary.
MetricBytes krylov_bytes(const MetricSizes& s) {
    return {.vectors = 2 * 2 * 32 * s.heads * s.side * sizeof(double)};
}
MetricBytes krylov_and_mixing_bytes(const MetricSizes& s) {
    MetricBytes out = mixing_bytes(s);
    out.vectors = krylov_bytes(s).vectors;
    return out;
}

constexpr Metric spectrum_metrics[] = {
    {.name = metric::lambda2_abs,
     .symbol = "|λ₂(P)|",
     .definition = "|lambda_2(P)|",
     .source = "[TSE] Cor. 2.7",
     .range = ">= 0",
     .undefined = "n < 2, below the rounding of P, or P has keys of a memory",
     .core = true,
     .show = Show::everywhere,
     .seconds = spectrum_seconds,
     .bytes = krylov_bytes},
    {.name = metric::lambda2_check,
     .symbol = "|λ₂ - λ₂'|/max",
     .definition = "|lambda2_abs - l| / max(lambda2_abs, l), l recomputed by the library Spectra, "
                   "which uses no structure; for the heads of --cross-check",
     .source = "[SPECTRA]",
     .range = "[0, 1]",
     .undefined = "P is causal, has fewer than 8 tokens or exceeds memory, Spectra does not "
                  "converge, or lambda2_abs is undefined or not certified"},
    {.name = "spectral_gap",
     .symbol = "1 - |λ₂|²",
     .definition = "1 - |lambda_2|^2, the paper's measure",
     .source = "[TSE] Cor. 2.7",
     .range = "[0, 1]",
     .undefined = "rows of P do not sum to 1, lambda2_abs is undefined, or it exceeds 1",
     .core = true,
     .seconds = spectrum_seconds,
     .bytes = krylov_bytes},
    {.name = "gap",
     .symbol = "1 - |λ₂|",
     .definition = "1 - |lambda_2|",
     .range = "[0, 1]",
     .undefined = "as spectral_gap",
     .seconds = spectrum_seconds,
     .bytes = krylov_bytes},
    {.name = metric::delta,
     .symbol = "|Π₂P|₂",
     .definition = "|Pi2 P|_2",
     .source = "[TSE] (12)",
     .range = ">= 0",
     .undefined = "below the rounding of P",
     .core = true,
     .show = Show::everywhere,
     .seconds = spectrum_seconds,
     .bytes = krylov_bytes},
    {.name = metric::est1,
     .symbol = "est1",
     .definition = "((1 - omega)^2 - delta^2) a2 / (1 + a2 delta^2)",
     .source = "[TSE] (16)",
     .range = ">= -1",
     .undefined = "pre-norm, the attention branch or P V is normalised, P V is gated, omega >= 1, "
                  "omega is undefined, or P is over channels",
     .seconds = spectrum_seconds,
     .bytes = krylov_and_mixing_bytes},
    {.name = metric::est2,
     .symbol = "est2",
     .definition = "a2 (1 - |lambda_2|^2) / (1 + a2 |lambda_2|^2)",
     .source = "[TSE] (17), where a2 = 1",
     .range = "[0, a2]",
     .undefined = "pre-norm, the attention branch or P V is normalised, P V is gated, spectral_gap "
                  "is undefined, or P is over channels",
     .seconds = spectrum_seconds,
     .bytes = krylov_bytes},
    {.name = "delta_pi",
     .symbol = "|P - 1πᵀ|_π",
     .definition =
         "|P - 1 pi^T| in l2(pi), pi the stationary vector; at most 1 where delta exceeds it",
     .range = "[0, 1]",
     .undefined =
         "pi is not unique or not positive (causal: pi = e_1), below the rounding of P, or P "
         "has keys of a memory",
     .seconds = spectrum_seconds},
    {.name = metric::dobrushin,
     .symbol = "c(P)",
     .definition = "1/2 max_ij sum_k |P_ik - P_jk|; n^3/2 work",
     .source = "[Dobrushin]",
     .range = "[0, 1] for rows that sum to 1 without negative entries",
     .undefined = "n > 2048, unless requested by name, or below the rounding of P",
     .seconds_times_tokens = 5e-10,
     .most_tokens = largest_for_dobrushin}};

}  // namespace

extern const ProbeEntry spectrum = {.name = "spectrum",
                                    .metrics = spectrum_metrics,
                                    .needs = Needs::rows | Needs::attention,
                                    .make = make<Spectrum>};

}  // namespace tsdiag::probe
