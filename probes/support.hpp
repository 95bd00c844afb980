#pragma once
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/probe.hpp"

/// Shared by the probes: places, means over heads, sums over rows.
namespace tsdiag::probe {

/// A place in a std::vector.
inline std::size_t slot(Index i) { return std::size_t(i); }

template <class P>
std::unique_ptr<Probe> make(const ProbeSettings& settings) {
    return std::make_unique<P>(settings);
}

/// A layer's attention: of one head, or (-1) the mean over the heads.
Place attention_place(Index layer, Index head = -1);

/// Why a metric is undefined that speaks of P as a map of tokens, or of the order of its columns.
inline constexpr const char* over_channels = "P is over channels";

/// Why the rows have no derivative with respect to the logits; empty where they have one.
inline std::string no_slope(const RowBlock& block) {
    if (block.slope.defined()) return {};
    if (!block.why_no_slope.empty()) return std::string(block.why_no_slope);
    return "P given without its logits or its activation";
}

/// What `find(attention)` gives of all samples that a device holds together, found by the first
/// that asks, and which of them e is; of e alone, sample 0, where it is alone or the device lacks
/// memory for all.  `Found` is a type of its own, as of `Derived`.
template <class Found, class Find>
std::pair<const Found*, Index> of_all_samples(const Attention& e, const Find& find) {
    struct Together {
        std::optional<Found> found;  ///< none: the device lacks memory
    };
    const auto ask = [&] {
        try {
            return Together{find(*e.together)};
        } catch (const OutOfMemory&) {
            note_shortage("attentions of samples were measured one by one");
            return Together{};
        }
    };
    if (e.together)
        if (const Together& all = e.together->derived.template of<Together>(ask); all.found)
            return {&*all.found, e.sample};
    return {&e.derived.of<Found>([&] { return find(e); }), 0};
}

/// The numbers of the heads of sample `sample`, `size` of them.
template <class T>
std::span<const T> of_sample(const std::vector<T>& all, Index sample, Index size) {
    return std::span(all).subspan(slot(sample * size), slot(size));
}

/// The moments of X and of R, which is defined.  On a device those of all samples are found at
/// once: `ask_moments` asks for them and does not wait.
const StateMoments& input_moments(const Attention& e);
const StateMoments& residual_moments(const Attention& e);
void ask_moments(const Attention& e);

/// f of value and bounds; f is monotone.
template <class F>
Value transform(const Value& v, F f) {
    Value out = v;
    for (std::optional<double>* x : {&out.value, &out.low, &out.high})
        if (*x) *x = f(**x);
    if (out.low && out.high && *out.low > *out.high) std::swap(out.low, out.high);
    return out;
}

/// Converts to double; undefined on overflow or underflow.  Non-finite values are kept: the sink
/// decides about them.
Value narrow(Wide x);

/// The value where it is certified, else the interval that holds it, else the reason.
Value to_value(const Estimate& estimate);

/// Mean of the heads that have a value; `note` names the others with their reasons.  Where no head
/// has a value but all have intervals: the interval of the mean.
Value mean_over_heads(const std::vector<Value>& heads);

/// Rows of the requested heads, then the row of the layer: `mean`, or the mean of all heads.
void emit_heads(Sink& out, const ProbeSettings& settings, Index layer, std::string_view metric,
                const std::vector<Value>& heads, const std::optional<Value>& mean = {});

/// Emits value(k) of the requested heads k, then the mean over all heads as the row of the layer;
/// nothing where the metric is not requested or there are no heads.
template <class F>
void emit_each(Sink& out, const ProbeSettings& settings, Index layer, std::string_view metric,
               Index heads, F value) {
    if (heads == 0 || !settings.wants(metric)) return;
    std::vector<Value> values;
    for (Index k = 0; k < heads; ++k) values.push_back(value(std::size_t(k)));
    emit_heads(out, settings, layer, metric, values);
}

/// These metrics of all heads as undefined, where they are requested.
void emit_undefined(Sink& out, const ProbeSettings& settings, Index layer, Index heads,
                    std::initializer_list<std::string_view> metrics, const std::string& why_not);

/// Tells numbers from rounding.  The elements of a state or of P that was computed have errors of
/// some u, the relative rounding of their type, and so has each part of it, relative to the norm of
/// the whole: below 8 u a part may be nothing but errors.  What is exactly 0 is none.
class Rounding {
  public:
    /// `coarser`: the rounding of the elements where it is more than that of `type`; else 0.
    Rounding(Type type, double coarser);
    /// Whether a part may be rounding alone: the squared norms of it and of the whole.
    bool hides(Wide part, Wide whole) const;
    Value undefined() const;  ///< "below the rounding of float32"

  private:
    double unit_;
};

/// How far a row sum may be from 1 for a metric that is defined for row-stochastic P only.
constexpr double row_sum_tolerance(Type type) { return type == Type::f32 ? 1e-6 : 1e-12; }

/// max_i |sum_j P_ij - 1| of each head, over the rows seen since `reset`.
class RowSums {
  public:
    void add(const AttentionRows& event);
    void reset() { *this = {}; }
    double deviation(Index head) const { return deviation_[std::size_t(head)]; }
    /// Are all rows of the head seen, and do they sum to 1 within the tolerance?
    bool stochastic(Index head) const;
    bool all_stochastic() const;
    bool any_stochastic() const;
    std::string why_not(Index head) const;  ///< "rows do not sum to 1 (off by 0.03)"

  private:
    std::vector<double> deviation_;
    double tolerance_ = 0;
};

/// The values of a head's rows in one block, which may be folded.
template <class T>
std::span<const T> of_head(const std::vector<T>& all, const RowStatistics& s, Index head) {
    return std::span(all).subspan(std::size_t(head * s.numbers()), std::size_t(s.numbers()));
}

/// |P|_F^2 of each head, of the rows seen, or of all where those are a sample.
class Squares {
  public:
    void add(const AttentionRows& event);
    Wide of(std::size_t head) const { return head < all_.size() ? all_[head] : 0; }

  private:
    std::vector<Wide> all_;
};

/// The mean of a number over the rows of a head.  Where not all n rows were seen: an estimate with
/// Student's 95 % interval for a sample of blocks, since rows of one block are correlated.
class RowMean {
  public:
    /// A number of each of so many rows, or their sum.
    template <class T>
    void add(std::span<const T> block, Index rows) {
        T sum = 0;
        for (const T x : block) sum += x;
        add(sum, double(rows));
    }
    Index rows() const { return Index(rows_); }
    Value value(Index n) const;
    /// sqrt(n mean): the root of the sum over all rows, of squares.
    Value root_of_sum(Index n) const;

  private:
    void add(Wide sum, double rows);
    Value value(Index n, Wide (*of)(Wide mean, Index n)) const;

    Wide sum_ = 0, sum_sum_ = 0, sum_rows_ = 0;  ///< of the blocks' sums and rows
    double rows_ = 0, blocks_ = 0, rows_rows_ = 0;
};

/// What `of` finds of each of these states: of all at once, or of one after the other where a
/// device lacks the memory or a state is not finite; nobody asks for the numbers of that one.
template <class Of>
auto of_states(const Tensor& x, const Of& of) {
    if (x.batch() == 1) return of(x);
    try {
        return of(x);
    } catch (const OutOfMemory&) {
        note_shortage("numbers of states were found one by one");
    } catch (const NonFiniteError&) {
    }
    decltype(of(x)) each(slot(x.batch()));
    for (Index s = 0; s < x.batch(); ++s) try {
            each[slot(s)] = of(x.batch_range(s, 1)).front();
        } catch (const NonFiniteError&) {
        }
    return each;
}

/// What `of` finds of the state of an event: of those of all samples that go together, when the
/// first is asked for its own, else of this one alone.
template <class Found, class Of>
Found of_state(const Hidden& e, std::optional<std::vector<Found>> StatesTogether::*kept,
               const Of& of) {
    if (!e.together) return of(e.x).front();
    std::optional<std::vector<Found>>& all = e.together->*kept;
    if (!all) all = of_states(e.together->x, of);
    return (*all)[slot(e.sample)];
}
/// Of a state: `StatesTogether::Squares`, none where a device has no eigenvalues.
StatesTogether::Squares squares_of(const Hidden& e);

/// Rows of P to request at once.  By the sizes alone, so that sums over blocks do not depend
/// on the memory of a run.
Index block_rows(const AttentionOperator& op);

}  // namespace tsdiag::probe
