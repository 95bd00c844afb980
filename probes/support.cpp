#include "support.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tsdiag/intervals.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::probe {

Place attention_place(Index layer, Index head) {
    return {.step = -1, .layer = layer, .stage = "attn", .head = head, .tensor = {}};
}

namespace {

/// Of the states of all samples, X and then R.
struct MomentsOfSamples {
    mutable Later<std::vector<StateMoments>> found;
    Index residual = 0;  ///< place of the first R: 0 where it is X
};

std::pair<const MomentsOfSamples*, Index> moments_of(const Attention& e) {
    return of_all_samples<MomentsOfSamples>(e, [](const Attention& all) {
        const bool same =
            !all.residual.defined() || (all.residual.view().data == all.input.view().data &&
                                        all.residual.shape() == all.input.shape());
        std::vector<Tensor> states{all.input.detached()};
        if (!same) states.push_back(all.residual.detached());
        return MomentsOfSamples{state_moments_later(std::move(states)),
                                same ? 0 : all.input.batch()};
    });
}

}  // namespace

const StateMoments& input_moments(const Attention& e) {
    const auto [all, sample] = moments_of(e);
    return all->found.get()[slot(sample)];
}

const StateMoments& residual_moments(const Attention& e) {
    const auto [all, sample] = moments_of(e);
    return all->found.get()[slot(all->residual + sample)];
}

void ask_moments(const Attention& e) { moments_of(e); }

Value narrow(Wide x) {
    const auto y = double(x);
    if (std::isfinite(x) && !std::isfinite(y)) return undefined("beyond the range of float64");
    if (x != 0 && y == 0) return undefined("below the range of float64");
    return y;
}

Value to_value(const Estimate& estimate) {
    if (estimate.converged) return estimate.value;
    const std::string reason =
        estimate.iterations > 0
            ? fmt::format("{} did not converge: residual {:.1e} after {} products", estimate.method,
                          estimate.residual, estimate.iterations)
            : fmt::format("{}: the rounding error may exceed the tolerance", estimate.method);
    if (estimate.low && estimate.high) return interval(*estimate.low, *estimate.high, reason);
    return undefined(reason);
}

namespace {

/// "undefined in heads 1 4: zero row; ...": one clause per reason, in the order of the heads.
std::string describe_undefined(const std::vector<Value>& heads) {
    std::vector<std::pair<std::string, std::string>> clauses;  // reason, heads
    for (std::size_t k = 0; k < heads.size(); ++k) {
        if (heads[k].value) continue;
        auto clause = std::find_if(clauses.begin(), clauses.end(),
                                   [&](const auto& c) { return c.first == heads[k].note; });
        if (clause == clauses.end()) clause = clauses.insert(clauses.end(), {heads[k].note, ""});
        clause->second += fmt::format(" {}", k);
    }
    std::string text;
    for (const auto& [reason, list] : clauses) {
        const bool one = list.find(' ', 1) == std::string::npos;
        text += fmt::format("{}undefined in head{}{}: {}", text.empty() ? "" : "; ", one ? "" : "s",
                            list, reason);
    }
    return text;
}

/// The reason, where no head has a value and all have the same reason.
std::string common_reason(const std::vector<Value>& heads) {
    for (const Value& v : heads)
        if (v.value || v.note != heads.front().note) return describe_undefined(heads);
    return heads.empty() ? "no heads" : heads.front().note;
}

}  // namespace

Value mean_over_heads(const std::vector<Value>& heads) {
    const auto has_value = [](const Value& v) { return v.value.has_value(); };
    const bool any = std::any_of(heads.begin(), heads.end(), has_value);
    const auto counts = [&](const Value& v) { return any ? has_value(v) : v.low && v.high; };
    const bool bounded = std::any_of(heads.begin(), heads.end(),
                                     [&](const Value& v) { return counts(v) && v.low && v.high; });
    double sum = 0, low = 0, high = 0, count = 0;
    for (const Value& v : heads) {
        if (!counts(v)) continue;
        const double middle = v.value.value_or(0);
        sum += middle;
        low += v.low.value_or(middle);
        high += v.high.value_or(middle);
        count += 1;
    }
    Value mean = undefined(common_reason(heads));
    if (any) mean.value = sum / count;
    if (any && bounded && mean.note.empty())
        mean.note = std::find_if(heads.begin(), heads.end(), [](const Value& v) {
                        return !v.note.empty();
                    })->note;
    if (bounded && (any || count == double(heads.size()))) {
        mean.low = low / count;
        mean.high = high / count;
    }
    return mean;
}

void emit_heads(Sink& out, const ProbeSettings& settings, Index layer, std::string_view metric,
                const std::vector<Value>& heads, const std::optional<Value>& mean) {
    for (std::size_t k = 0; k < heads.size(); ++k)
        if (settings.wants_head(Index(k)))
            out.scalar(attention_place(layer, Index(k)), metric, heads[k]);
    out.scalar(attention_place(layer), metric, mean ? *mean : mean_over_heads(heads));
}

void emit_undefined(Sink& out, const ProbeSettings& settings, Index layer, Index heads,
                    std::initializer_list<std::string_view> metrics, const std::string& why_not) {
    for (const std::string_view metric : metrics)
        emit_each(out, settings, layer, metric, heads,
                  [&](std::size_t) { return undefined(why_not); });
}

namespace {

constexpr double errors_of_a_part = 8;  ///< in units of the rounding of the elements

}  // namespace

Rounding::Rounding(Type type, double coarser)
    : unit_(std::max(type == Type::f32 ? 0x1p-24 : 0x1p-53, coarser)) {}

bool Rounding::hides(Wide part, Wide whole) const {
    const Wide least = errors_of_a_part * unit_;
    return part > 0 && part < least * least * whole;
}

Value Rounding::undefined() const {
    const auto bits = int(-std::log2(unit_));
    const std::string type = bits == 24   ? "float32"
                             : bits == 53 ? "float64"
                                          : fmt::format("{} bits", bits);
    return tsdiag::undefined(std::string(below_rounding) + type);
}

void RowSums::add(const AttentionRows& event) {
    const RowStatistics& s = event.stats;
    tolerance_ = row_sum_tolerance(event.block.p.type());
    if (event.block.totals) {
        deviation_ = event.block.totals->deviation;
        return;
    }
    deviation_.resize(std::size_t(s.heads), 0.0);
    for (Index i = 0; i < s.heads * s.numbers(); ++i) {
        double& worst = deviation_[std::size_t(i / s.numbers())];
        const double off = std::abs(s.sum[std::size_t(i)] - 1);
        if (off > worst || std::isnan(off)) worst = std::isnan(worst) ? worst : off;
    }
}

bool RowSums::stochastic(Index head) const {
    return head < Index(deviation_.size()) && deviation(head) <= tolerance_;
}

bool RowSums::all_stochastic() const {
    for (Index k = 0; k < Index(deviation_.size()); ++k)
        if (!stochastic(k)) return false;
    return !deviation_.empty();
}

bool RowSums::any_stochastic() const {
    for (Index k = 0; k < Index(deviation_.size()); ++k)
        if (stochastic(k)) return true;
    return false;
}

std::string RowSums::why_not(Index head) const {
    if (head >= Index(deviation_.size())) return "no rows of P were measured";
    return fmt::format("rows do not sum to 1 (off by {:.1e})", deviation(head));
}

void Squares::add(const AttentionRows& event) {
    const RowStatistics& s = event.stats;
    all_.resize(std::size_t(s.heads), 0);
    for (Index k = 0; k < s.heads; ++k)
        for (const Wide squares : of_head(s.squares, s, k)) all_[std::size_t(k)] += squares;
    if (event.block.totals)
        all_.assign(event.block.totals->squares.begin(), event.block.totals->squares.end());
}

void RowMean::add(Wide sum, double rows) {
    sum_ += sum;
    rows_ += rows;
    blocks_ += 1;
    sum_sum_ += sum * sum;
    sum_rows_ += sum * rows;
    rows_rows_ += rows * rows;
}

Value RowMean::value(Index n, Wide (*of)(Wide mean, Index n)) const {
    if (rows_ == 0) return undefined("no rows of P were measured");
    const Wide mean = sum_ / rows_;
    Value v = narrow(of(mean, n));
    if (rows_ >= double(n) || !v.value) return v;
    v.note = fmt::format("from {} of {} rows", rows(), n);
    if (blocks_ < 2) return v;
    // Squared deviations of the block sums: sum - mean rows.
    const Wide off = sum_sum_ - 2 * mean * sum_rows_ + mean * mean * rows_rows_;
    const Wide spread = std::max<Wide>(0, off) * blocks_ / (blocks_ - 1);
    const Wide error = std::sqrt(spread * (1 - rows_ / double(n))) / rows_;
    const Wide half = error * student_quantile(0.95, double(blocks_ - 1));
    v.low = double(of(mean - half, n));
    v.high = double(of(mean + half, n));
    v.note += fmt::format(", standard error {:.1e}", double(error));
    return v;
}

Value RowMean::value(Index n) const {
    return value(n, [](Wide mean, Index) { return mean; });
}

Value RowMean::root_of_sum(Index n) const {
    return value(n,
                 [](Wide mean, Index rows) { return mean < 0 ? 0 : std::sqrt(mean * Wide(rows)); });
}

StatesTogether::Squares squares_of(const Hidden& e) {
    return of_state(e, &StatesTogether::squares, [](const Tensor& x) {
        const std::vector<int> exponents = exponents_of(x);
        const Tensor scaled = cast(without_exponents(x, exponents), Type::f64);
        std::vector<std::vector<double>> all = symmetric_eigenvalues(
            matmul(scaled, scaled, x.rows() <= x.cols() ? Transpose::second : Transpose::first));
        std::vector<StatesTogether::Squares> out;
        for (std::size_t i = 0; i < all.size(); ++i)
            out.push_back({std::move(all[i]), exponents[i]});
        return out;
    });
}

Index block_rows(const AttentionOperator& op) {
    return op.rows_at_once(std::numeric_limits<double>::infinity());
}

}  // namespace tsdiag::probe
