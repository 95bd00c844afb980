#include "replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "arrays.hpp"
#include "batches.hpp"
#include "map_fit.hpp"
#include "placement.hpp"
#include "trace.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

/// Of a head of P: the row and column of a nonzero entry above the diagonal, and, where none is,
/// whether a row from the fourth on has no 0 up to the diagonal, as behind a causal mask: heads
/// that attend to themselves, the first or the previous token alone may have none.
struct Triangle {
    std::optional<std::pair<Index, Index>> above = {};
    bool full = false;
};
template <class T>
std::vector<Triangle> triangles(const Tensor& p) {
    const std::vector<T> copy = p.backend().host_memory() ? std::vector<T>() : p.to_host<T>();
    std::vector<Triangle> out(std::size_t(p.batch()));
    for (Index h = 0; h < p.batch(); ++h) {
        Triangle& own = out[std::size_t(h)];
        for (Index i = 0; i < p.rows() && !own.above; ++i) {
            const T* row =
                copy.empty() ? p.view().row<T>(h, i) : copy.data() + (h * p.rows() + i) * p.cols();
            own.full = own.full || (i >= 3 && std::find(row, row + i + 1, T(0)) == row + i + 1);
            for (Index j = i + 1; j < p.cols() && !own.above; ++j)
                if (row[j] != T(0)) own.above = {i, j};
        }
    }
    return out;
}
std::vector<Triangle> triangles(const Tensor& p) {
    return p.type() == Type::f32 ? triangles<float>(p) : triangles<double>(p);
}

/// Throws `FormatError` for an entry above the diagonal.
void require_lower(const std::vector<Triangle>& heads, const std::string& source) {
    for (std::size_t h = 0; h < heads.size(); ++h)
        if (const auto& above = heads[h].above)
            throw FormatError(fmt::format(
                "{}: entry ({}, {}, {}) above the diagonal is not 0, expected 0 with --causal.",
                source, h, above->first, above->second));
}

/// Upper bound on |row sum - 1| when each entry was rounded twice to `format`, after the division
/// and on saving: each time by a relative u or by half of the least positive number eta, together
/// 2 u + n eta.  0 for float64.
double row_rounding(DType format, Index n) {
    if (format == DType::f32) return 16 * rounding_of(format);  // of the sum that divides a row
    if (format != DType::f16 && format != DType::bf16) return 0;
    return 2 * rounding_of(format) + double(n) * (format == DType::f16 ? 0x1p-24 : 0x1p-133);
}

/// What the entries of given matrices P say about them.
class Doubts {
  public:
    /// Of one P, of which `kept` tokens are measured (empty: all).  False: it is no attention
    /// matrix.
    bool admit(const Tensor& p, std::span<const Index> kept, double rounding,
               const std::string& array) {
        const RowStatistics rows = row_statistics(p, {}, false, 0, {});
        Seen seen{.allowed = std::max(least_allowed, rounding)};
        std::vector<Index> all(std::size_t(p.rows()));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = Index(i);
        for (Index head = 0; head < p.batch(); ++head)
            for (const Index i : kept.empty() ? std::span<const Index>(all) : kept) {
                const auto at = std::size_t(head * p.rows() + i);
                seen.rows.add(rows.sum[at]);
                seen.negative = seen.negative || rows.negative[at] > 0;
            }
        if (!kept.empty()) {
            const RowStatistics inside =
                row_statistics(take_rows_and_columns(p, kept), {}, false, 0, {});
            for (std::size_t i = 0; i < inside.sum.size(); ++i) {
                const auto head = Index(i / kept.size());
                const double whole = rows.sum[std::size_t(head * p.rows() + kept[i % kept.size()])];
                seen.hidden = std::max(seen.hidden, (whole - inside.sum[i]) / whole);
            }
        }
        if (seen.rows.within(seen.allowed) && !seen.negative && !(seen.hidden > seen.allowed))
            return true;
        if (++count_ == 1) array_ = array;
        for (const double sum : column_sum(p).to_host<double>()) seen.columns.add(sum);
        Tensor heads;
        for (Index i = 0; i < p.batch() && p.batch() > 1; ++i)
            heads = i == 0 ? p.batch_range(0, 1) : add(heads, p.batch_range(i, 1));
        if (heads.defined())
            for (const double sum : heads.to_host<double>()) seen.over_heads.add(sum);
        seen_.add(seen);
        return false;
    }

    /// In words, what is given in place of attention matrices, by all of them; empty: nothing.
    std::string text() const {
        if (count_ == 0) return {};
        std::string out = fmt::format("{}{} is not what a softmax gives: ", array_,
                                      count_ > 1 ? fmt::format(" (and {} more)", count_ - 1) : "");
        const Range& sums = seen_.rows;
        if (sums.within(seen_.allowed) && !seen_.negative)
            return out + fmt::format(
                             "up to {} of a row is on tokens that the mask hides: the mask "
                             "is inverted, or is not the model's",
                             as_percent(seen_.hidden));
        const double spread = sums.most - sums.least, middle = (sums.least + sums.most) / 2;
        const bool same = spread < seen_.allowed * std::abs(middle);
        out += same ? fmt::format("its rows sum to {:.4g}, expected 1", middle)
                    : fmt::format("its rows sum to {:.4g} to {:.4g}, expected 1", sums.least,
                                  sums.most);
        return out + cause(same, middle);
    }

  private:
    static constexpr double least_allowed = 1e-4;  ///< of a sum of thousands of float32
    struct Range {
        double least = HUGE_VAL, most = -HUGE_VAL, sum = 0;
        Index count = 0;
        void add(double x) {
            least = std::min(least, x);
            most = std::max(most, x);
            sum += x;
            ++count;
        }
        bool within(double off) const { return !(least < 1 - off) && !(most > 1 + off); }
        void add(const Range& other) {
            least = std::min(least, other.least);
            most = std::max(most, other.most);
            sum += other.sum;
            count += other.count;
        }
        double mean() const { return sum / double(count); }
    };
    struct Seen {
        double allowed = 0;
        Range rows = {}, columns = {}, over_heads = {};
        bool negative = false;
        double hidden = 0;  ///< the largest share of a row on tokens that a mask hides
        void add(const Seen& other) {
            allowed = std::max(allowed, other.allowed);
            rows.add(other.rows);
            columns.add(other.columns);
            over_heads.add(other.over_heads);
            negative = negative || other.negative;
            hidden = std::max(hidden, other.hidden);
        }
    };

    /// What gives such sums, where one thing does.
    std::string cause(bool same, double middle) const {
        if (seen_.negative) return ", and it has negative entries, as logits before the softmax";
        if (seen_.columns.within(seen_.allowed)) return "; its columns do: it is transposed";
        if (seen_.over_heads.count > 0 && seen_.over_heads.within(seen_.allowed))
            return "; over the heads it does: the softmax was taken over another axis";
        if (same && std::abs(middle - 100) < 1) return "; these are percent";
        if (same && middle > 1.5 && std::abs(middle - std::round(middle)) < seen_.allowed * middle)
            return fmt::format(", as a sum of {:.0f} heads does", middle);
        if (seen_.rows.most <= 1 + seen_.allowed)
            return "; a column was cut off (that of a sink, say), or entries were masked after the "
                   "softmax";
        constexpr double near_one = 0.1;
        if (std::abs(seen_.rows.mean() - 1) < near_one)
            return "; dropout was left on (model.eval() turns it off), or entries were rounded";
        return "; rows were not divided by their sums";
    }

    Seen seen_ = {};
    std::string array_;
    Index count_ = 0;
};

/// Is P taken from `attentions.L`?  It is formed from queries and keys where a variant other than
/// softmax is requested.
bool uses_given(const SavedTrace& trace, Index layer, const TraceOptions& options) {
    const bool forms_other = !options.attention.empty() && options.attention != "softmax";
    return trace.attentions().contains(layer) && !(forms_other && trace.queries().contains(layer));
}

/// Of the logits, where queries have so many columns.
double scale_of(const TraceOptions& options, Index columns) {
    const bool unscaled = !options.attention.empty() && attention(options.attention).unscaled;
    return options.scale.value_or(unscaled ? 1 : 1 / std::sqrt(double(columns)));
}

/// |X|_F^2 of all batches.
double squares(const Tensor& x) {
    double sum = 0;
    for (const double one : column_sum(multiply(x, x)).to_host<double>()) sum += one;
    return sum;
}

/// |Pi2 X|_F^2; nothing where it is below the rounding of the elements, as metrics are.
std::optional<double> centred_squares(const Tensor& x, double rounding) {
    const double part = squares(subtract_column_mean(x)), least = 8 * rounding;
    return part > least * least * squares(x) ? std::optional(part) : std::nullopt;
}

/// Adds the squared norms of the rows of X, each that of all batches together.
void add_row_squares(const Tensor& x, std::vector<double>& sums) {
    const std::vector<double> of_heads = row_sum(multiply(x, x)).to_host<double>();
    sums.resize(std::size_t(x.rows()));
    for (std::size_t i = 0; i < of_heads.size(); ++i) sums[i % sums.size()] += of_heads[i];
}

/// The standard deviation over the mean of norms, whose squares these are.
double spread_of(std::vector<double> norms) {
    double mean = 0, off = 0;
    for (double& one : norms) one = std::sqrt(one);
    for (const double one : norms) mean += one / double(norms.size());
    for (const double one : norms) off += (one - mean) * (one - mean);
    return std::sqrt(off / double(norms.size())) / mean;
}

/// |Pi2 SA|_F^2 over the mean of |Pi2 P_k X|_F^2 over the heads: the expectation of the former over
/// random W_V^k W_O^k is a2 times the latter, and biases, which add one row to all of SA, are no
/// part of it.  Nothing where X or SA is missing, all tokens are equal, or the rows of SA have one
/// norm that those of P X do not have: then a norm stands behind it.
std::optional<double> measured_gain(const AttentionOperator& op, const Tensor& x, const Tensor& sa,
                                    double rounding, Index block_rows) {
    if (!x.defined() || !sa.defined() || x.rows() != op.tokens()) return std::nullopt;
    // P X is (h, n, d), and made of some columns at a time.
    constexpr Index largest = Index{1} << 21;
    const Index chunk = std::max<Index>(1, largest / std::max<Index>(1, op.heads() * op.tokens()));
    std::vector<double> mixed_rows, sa_rows;
    double parts = 0, all = 0;
    for (Index first = 0; first < x.cols(); first += chunk) {
        const Index count = std::min(chunk, x.cols() - first);
        const Tensor mixed = op.apply(contiguous(x.col_range(first, count)), block_rows);
        add_row_squares(mixed, mixed_rows);
        parts += squares(subtract_column_mean(mixed));
        all += squares(mixed);
    }
    add_row_squares(sa, sa_rows);
    const double least = std::max(8 * rounding, 1e-3);  // eps of a norm spreads them too
    const double spread = spread_of(sa_rows), known = 8 * rounding;
    if (spread < least && spread < 0.1 * spread_of(mixed_rows)) return std::nullopt;
    const std::optional<double> whole = centred_squares(sa, rounding);
    if (!whole || !(parts > known * known * all)) return std::nullopt;
    const double gain = *whole / (parts / double(op.heads()));
    return std::isfinite(gain) && gain > 0 ? std::optional(gain) : std::nullopt;
}

class Replay {
  public:
    Replay(const std::vector<SavedTrace>& batches, const Backend& backend, Observer& observer,
           const ReplaySettings& settings)
        : batches_(batches),
          backend_(backend),
          observer_(observer),
          settings_(settings),
          placement_(placement_of(batches.front(), settings.trace.placement, settings.masks)),
          before_ffn_(steps_before_ffn(batches, settings.masks)) {}

    std::string no_attention() const { return doubts_.text(); }
    /// Of each batch the first P as stored that has entries above its diagonal; none: none has.
    const std::map<std::size_t, std::string>& sees_later() const { return sees_later_; }
    std::vector<std::string> notes() const {
        std::vector<std::string> out;
        if (rounded_.off > 0)
            out.push_back(fmt::format(
                "attentions: row sums in {} differ from 1 by up to {:.1e}, within the rounding of "
                "that format (up to {:.1e}); rows were divided by their sums",
                rounded_.format, rounded_.off, rounded_.allowed));
        if (lower_.count > 0 && open_.count > 0)
            out.push_back(fmt::format(
                "attention: {} of {} P have no entry above the diagonal, as by a causal mask "
                "(first {}), the others have (first {}); each is measured as it is",
                lower_.count, lower_.count + open_.count, lower_.first, open_.first));
        if (unseen_.tokens > 0)
            out.push_back(
                fmt::format("{}: no token attends to {} of {} tokens, as where they are "
                            "padding; --mask FILE leaves padding out",
                            unseen_.array, unseen_.tokens, unseen_.of));
        return out;
    }

    void layer(Index layer) {
        batch_ = 0;
        sample_ = -1;
        for (Index s = 0; s < settings_.samples; ++s) {
            observer_.begin_sample(s);
            if (++sample_ == trace().summary().samples) ++batch_, sample_ = 0;
            kept_.clear();
            if (!settings_.masks.empty())
                kept_ = kept(settings_.masks[std::size_t(s)], settings_.mask_source);
            require_as_others(layer, s);
            states(layer);
            observer_.end_sample(s);
        }
        observer_.end_layer(layer);
    }

  private:
    const SavedTrace& trace() const { return batches_[batch_]; }
    /// Throws where what was found in one sample does not hold in this one.
    void require_as_others(Index layer, Index number) const {
        if (trace().stages().empty() && trace().outer().empty()) return;
        const SampleTokens sample = tokens_of_sample();
        require_same_states(trace(), layer, sample, number);
        if (trace().stages().empty()) return;
        require_placement(trace(), placement_, layer, sample, number);
        require_steps(trace(), before_ffn_, layer, sample, number);
    }
    SampleTokens tokens_of_sample() const {
        SampleTokens out{sample_, kept_, trace().summary().state_rounding};
        if (!kept_.empty()) return out;
        out.tokens.resize(std::size_t(trace().summary().tokens));
        std::iota(out.tokens.begin(), out.tokens.end(), Index{0});
        return out;
    }
    Tensor load(const SavedTrace::Array& array) const {
        const RawTensor raw = array.sample(sample_);
        const bool flat = raw.shape.size() == 2;
        const Shape shape = flat ? Shape{1, raw.shape[0], raw.shape[1]}
                                 : Shape{raw.shape[0], raw.shape[1], raw.shape[2]};
        // Hidden rows may hold anything; what is kept is checked by `checked`.
        return to_tensor(raw, shape, backend_, settings_.type, array.name,
                         settings_.allow_nonfinite || !kept_.empty());
    }
    /// What is kept of `array`; throws `NonFiniteError` where it is not finite, unless allowed.
    Tensor checked(Tensor x, const SavedTrace::Array& array) const {
        if (settings_.allow_nonfinite) return x;
        if (const Index bad = first_nonfinite(x); bad >= 0)
            throw NonFiniteError(fmt::format(
                "{}: row {} of a token that is not hidden is not finite, expected finite numbers; "
                "pass --allow-nonfinite to continue.",
                array.name, kept_[std::size_t(bad / x.cols() % x.rows())]));
        return x;
    }
    /// The kept rows of an array; undefined where there is none.
    Tensor rows_of(const SavedTrace::Array* array) const {
        if (!array) return {};
        const Tensor x = load(*array);
        return kept_.empty() ? x : checked(take_rows(x, kept_), *array);
    }
    Tensor rows_of(const SavedTrace::Layers& layers, Index layer) const {
        const auto found = layers.find(layer);
        return rows_of(found == layers.end() ? nullptr : &found->second);
    }

    Tensor stage(std::string_view name, Index layer) const {
        const auto found = trace().stages().find(name);
        return found == trace().stages().end() ? Tensor() : rows_of(found->second, layer);
    }

    void states(Index layer) {
        const Tensor in = rows_of(trace().states(), layer);
        const bool first = normed_first(placement_);
        const Tensor normed = first ? stage("norm1", layer) : Tensor();
        std::set<std::string_view> emitted;
        const auto emit = [&](std::string_view name, std::string_view pred, const Tensor& x) {
            if (!x.defined()) return;
            emitted.insert(name);
            observer_.on_hidden({layer, name, emitted.contains(pred) ? pred : "", x});
        };
        emit("embed", "", rows_of(trace().outer("embed", layer)));
        emit("in", "", in);
        if (first) emit("norm1", "", normed);
        if (observer_.wants_rows(layer) || observer_.wants_attention(layer))
            attention(layer, in, normed);
        // `attention_inputs` of a layer without a norm before attention are its `in`.
        const bool norm1_is_emitted = first || trace().attention_inputs();
        Tensor last;  // of the stages, which is the output
        for (const auto& [name, pred] : stages_of(trace(), placement_, before_ffn_)) {
            last = name != "norm1" || !norm1_is_emitted ? stage(name, layer) : Tensor();
            emit(name, pred, last);
        }
        const SavedTrace::Array* out = trace().output(layer);
        emit("out", "", out || !trace().merges_behind(layer) ? rows_of(out) : last);
        emit("merge", "", rows_of(trace().merged(layer)));
        for (const char* name : {"class", "final_norm"})
            emit(name, "", rows_of(trace().outer(name, layer)));
    }

    /// Divides by their sums the rows of the heads whose sums differ from 1 by rounding alone.
    Tensor with_sums_of_one(const Tensor& p, const RawTensor& raw) {
        const DType format = precision_of(raw);
        if (format == DType::f64 || (format == DType::f32 && p.type() == Type::f32)) return p;
        const double allowed = row_rounding(format, p.cols());
        const RowStatistics rows = row_statistics(p, {}, false, 0, {});
        std::vector<double> factors(rows.sum.size(), 1.0);
        const auto n = std::size_t(p.rows());
        for (std::size_t first = 0; first < factors.size(); first += n) {
            double off = 0;
            const auto look_at = [&](std::size_t i) {
                off = std::max(off, rows.negative[i] > 0 ? HUGE_VAL : std::abs(rows.sum[i] - 1));
            };
            for (std::size_t i = 0; i < n && kept_.empty(); ++i) look_at(first + i);
            for (const Index i : kept_) look_at(first + std::size_t(i));
            if (!(off <= allowed)) continue;
            for (std::size_t i = first; i < first + n; ++i)
                if (rows.sum[i] > 0) factors[i] = 1 / rows.sum[i];
            if (off > rounded_.off) rounded_ = {off, allowed, std::string(name(format))};
        }
        return multiply(p, Tensor::from_host(backend_, {p.batch(), p.rows(), 1},
                                             std::span<const double>(factors), p.type()));
    }

    /// Counts the tokens whose columns of P are 0 in every head.
    void note_unseen(const Tensor& p, const std::string& array) {
        const std::vector<double> sums = column_sum(multiply(p, p)).to_host<double>();
        const auto n = std::size_t(p.cols());
        Index tokens = 0;
        for (std::size_t j = 0; j < n; ++j) {
            bool seen = false;
            for (std::size_t at = j; at < sums.size(); at += n) seen = seen || sums[at] != 0;
            tokens += !seen;
        }
        if (tokens > unseen_.tokens) unseen_ = {tokens, p.cols(), array};
    }

    /// P of heads, and the first of them.
    struct Maps {
        Index count = 0;
        std::string first = {};
    };
    static void add_map(Maps& to, Index layer, Index head) {
        if (to.count++ == 0) to.first = fmt::format("layer {}, head {}", layer, head);
    }
    /// Are all heads of P lower triangular, whatever produced them?  Then its eigenvalues are its
    /// diagonal.
    bool is_lower(const Tensor& p, Index layer, const std::string& source) {
        const std::vector<Triangle> heads = triangles(p);
        if (settings_.trace.causal) require_lower(heads, source);
        bool lower = p.rows() > 1;
        for (std::size_t h = 0; h < heads.size(); ++h) {
            const auto& [above, full] = heads[h];
            lower = lower && !above;
            if (above || full) add_map(above ? open_ : lower_, layer, Index(h));
        }
        if (!lower && p.rows() > 1) sees_later_.emplace(batch_, source);
        return lower;
    }

    std::unique_ptr<AttentionOperator> operator_of(Index layer) {
        const TraceOptions& options = settings_.trace;
        if (uses_given(trace(), layer, options)) {
            const SavedTrace::Array& array = trace().attentions().at(layer);
            Tensor p = load(array);
            p = with_sums_of_one(p, array.raw);
            if (kept_.empty()) note_unseen(p, array.name);
            const bool sound = doubts_.admit(
                p, kept_, row_rounding(precision_of(array.raw), p.cols()), array.name);
            if (!kept_.empty()) p = checked(take_rows_and_columns(p, kept_), array);
            const bool causal = is_lower(p, layer, array.name);
            return given_attention(std::move(p), causal, sound ? options.attention : "");
        }
        if (!trace().queries().contains(layer)) return nullptr;
        AttentionInput input;
        input.q = rows_of(trace().queries(), layer);
        input.k = rows_of(trace().keys(), layer);
        const std::string& variant = options.attention.empty() ? "softmax" : options.attention;
        input.scale = scale_of(options, input.q.cols());
        input.causal = options.causal;
        input.position.assign(kept_.begin(), kept_.end());
        for (Index h = 0; h < input.q.batch() && input.q.rows() > 1; ++h)
            add_map(input.causal ? lower_ : open_, layer, h);
        return tsdiag::attention(variant).make(std::move(input));
    }

    /// Of the elements of states, relative.
    double rounding() const {
        return std::max(trace().summary().state_rounding,
                        rounding_of(settings_.type == Type::f32 ? DType::f32 : DType::f64));
    }

    /// `sa`, unless `attn` is there and not in + sa, as where LayerScale or DeepNorm stand between.
    Tensor added(Index layer, const Tensor& in) const {
        Tensor sa = stage("sa", layer);
        const Tensor attn = stage("attn", layer);
        if (!sa.defined() || !attn.defined() || !in.defined()) return sa;
        const double allowed = std::max(4 * rounding(), 1e-3),
                     off = squares(subtract(subtract(attn, in), sa));
        return off <= allowed * allowed * (squares(in) + squares(attn)) ? sa : Tensor();
    }

    void attention(Index layer, const Tensor& in, const Tensor& normed) {
        const std::unique_ptr<AttentionOperator> op = operator_of(layer);
        if (!op) return;
        const Index n = op->tokens();
        const double memory = settings_.memory > 0 ? double(settings_.memory) : 4 * op->bytes();
        constexpr double usual = 2e9;
        const double whole = backend_.host_memory() ? memory / 2 : std::min(usual, memory / 2);
        const bool keep = observer_.wants_attention(layer) && op->bytes() <= whole;
        op->keep_rows(keep);
        if (observer_.wants_rows(layer)) {
            // A product with a vector visits each row once; its result is not used.
            const std::vector<double> ones(std::size_t(n), 1.0);
            const Tensor one =
                Tensor::from_host(backend_, {1, n, 1}, std::span<const double>(ones), op->type());
            op->apply(one, op->rows_at_once(memory - (keep ? op->bytes() : 0)),
                      [&](const RowBlock& rows) { observer_.on_attention_rows(layer, rows); });
        }
        if (!observer_.wants_attention(layer)) return;
        const Tensor& input = normed_first(placement_) ? normed : in;
        const bool normed_branch = placement_ == NormPlacement::branch;
        std::optional<double> gain = settings_.trace.a2;
        if (!gain && !normed_branch)
            gain = measured_gain(*op, input, added(layer, in), rounding(), op->rows_at_once(whole));
        observer_.on_attention({.layer = layer,
                                .op = *op,
                                .input = input,
                                .residual = in,
                                .a2 = gain.value_or(std::nan("")),
                                .memory = whole,
                                .pre_norm = normed_first(placement_),
                                .why_no_estimate = normed_branch
                                                       ? "the attention branch is normalised"
                                                   : gain ? nullptr
                                                          : "a2 is not known (--a2)"});
    }

    const std::vector<SavedTrace>& batches_;
    const Backend& backend_;
    Observer& observer_;
    const ReplaySettings& settings_;
    NormPlacement placement_;
    StepNames before_ffn_;
    std::size_t batch_ = 0;
    Index sample_ = 0;  ///< of the batch
    std::vector<Index> kept_;
    Doubts doubts_;
    std::map<std::size_t, std::string> sees_later_;
    Maps lower_, open_;  ///< without and with entries above the diagonal
    struct {
        double off = 0, allowed = 0;
        std::string format = {};
    } rounded_;  ///< the half-precision row whose sum is farthest from 1
    struct {
        Index tokens = 0, of = 0;
        std::string array = {};
    } unseen_;  ///< the P with the most tokens that no token attends to
};

/// The files of a trace, one a batch.
std::vector<const Checkpoint*> files_of(const Checkpoint& file) {
    const auto* several = dynamic_cast<const TraceBatches*>(&file);
    if (!several) return {&file};
    std::vector<const Checkpoint*> out;
    for (const std::unique_ptr<Checkpoint>& batch : several->batches()) out.push_back(batch.get());
    return out;
}

bool names_causality(std::string_view name) { return name == "is_causal" || name == "causal"; }

/// What a file says of its attention, and by which name.
struct Causality {
    std::string name;
    bool causal = false;
};
std::vector<Causality> causality_in(const Checkpoint& file) {
    std::vector<Causality> out;
    if (const auto files = files_of(file); files.front() != &file) {
        for (const Checkpoint* batch : files)
            std::ranges::move(causality_in(*batch), std::back_inserter(out));
        return out;
    }
    for (const std::string& name : file.names()) {
        if (!names_causality(name)) continue;
        const RawTensor raw = file.tensor(name);
        if (raw.dtype > DType::f64) continue;
        std::vector<double> values(std::size_t(raw.count()));
        widen<double>(raw, values);
        out.push_back({name, std::ranges::any_of(values, [](double v) { return v != 0; })});
    }
    for (const char* name : {"is_causal", "causal"}) {
        const Json& said = file.metadata()[name];
        if (said.is_bool()) out.push_back({name, said.boolean()});
        if (said.is_number()) out.push_back({name, said.number() != 0});
    }
    return out;
}

/// Throws `UsageError` where P is formed with another mask than the file tells of.
void require_causal(const Checkpoint& file, const SavedTrace& trace, const TraceOptions& options) {
    const bool formed = std::ranges::any_of(trace.queries(), [&](const auto& query) {
        return !uses_given(trace, query.first, options);
    });
    if (!formed) return;
    for (const auto& [name, causal] : causality_in(file))
        if (causal && !options.causal)
            throw UsageError(fmt::format(
                "{}: '{}' is true, but P is formed of queries and keys without a mask; pass "
                "--causal, or leave '{}' out.",
                file.source(), name, name));
        else if (!causal && options.causal)
            throw UsageError(fmt::format(
                "{}: '{}' is false, but --causal forms P with a mask; leave one of both out.",
                file.source(), name));
}

/// The scale of logits that a file tells of under that name.
std::optional<double> scale_in(const Checkpoint& file, std::string_view name) {
    const std::vector<std::string>& names = file.names();
    if (std::ranges::find(names, name) != names.end()) {
        const RawTensor raw = file.tensor(name);
        double out = 0;
        if (raw.count() != 1 || raw.dtype > DType::f64) return std::nullopt;
        widen<double>(raw, {&out, 1});
        return out;
    }
    const Json& said = file.metadata()[name];
    return said.is_number() ? std::optional(said.number()) : std::nullopt;
}

/// Throws `UsageError` where logits of P that is formed have another scale than a file tells of.
void require_scale(const Checkpoint& file, const std::vector<SavedTrace>& batches,
                   const TraceOptions& options) {
    constexpr double rounding = 0x1p-8;  // of bfloat16, in which it may be stored
    const std::vector<const Checkpoint*> files = files_of(file);
    for (std::size_t b = 0; b < files.size(); ++b)
        for (const char* name : {"scale", "scaling", "softmax_scale"}) {
            const std::optional<double> scale = scale_in(*files[b], name);
            for (const auto& [layer, query] : batches[b].queries()) {
                if (!scale || uses_given(batches[b], layer, options)) continue;
                const double used = scale_of(options, query.raw.shape.back());
                if (std::abs(used - *scale) <= rounding * std::abs(used)) continue;
                throw UsageError(fmt::format(
                    "{}: '{}' is {:.6g}, but logits of layer {} are multiplied by {:.6g}; pass "
                    "--scale X with the right one, and leave '{}' out where it is another.",
                    files[b]->source(), name, *scale, layer, used, name));
            }
        }
}

/// Throws `UsageError` for a mask of tokens where some states have others.
void require_one_set_of_tokens(const SavedTrace& trace, const ReplaySettings& settings) {
    if (settings.masks.empty()) return;
    const bool merges = trace.parts().size() > 1;
    if (merges || trace.outer().contains("class"))
        throw UsageError(
            fmt::format("{}: hides tokens, but {}; leave the mask out.", settings.mask_source,
                        merges ? fmt::format("these merge behind layer {}",
                                             std::next(trace.parts().begin())->first - 1)
                               : std::string("stage class has a row more")));
}

/// Says of the P that are stored beside queries and keys whether they are theirs.
void describe_fit(std::span<const SavedTrace> batches, const TraceOptions& options,
                  const std::vector<std::vector<bool>>& masks, TraceNotes& notes) {
    const std::vector<MapFit> all = map_fits(batches, options.scale, masks);
    std::vector<MapFit> apart = all;
    std::erase_if(apart, [](const MapFit& fit) { return fit.fits(); });
    if (!all.empty() && apart.empty()) {
        notes.ignored.push_back("queries, keys: attentions contains their P");
        return;
    }
    notes.ignored.push_back("queries, keys: attentions are taken as stored");
    if (apart.empty()) return;
    const MapFit& worst = *std::ranges::max_element(apart, {}, &MapFit::apart);
    const std::string others =
        apart.size() > 1 ? fmt::format(" (and {} more)", apart.size() - 1) : "";
    const std::string softmax = options.scale ? fmt::format("softmax({:g} q k^T)", *options.scale)
                                              : std::string("softmax(q k^T / sqrt(d))");
    notes.warnings.push_back(
        fmt::format("attentions: P of layer {}{}{} is not {} of the queries and keys beside it, "
                    "up to {:.2g} apart, as by a bias, a mask or another pass; P is taken as "
                    "stored",
                    worst.layer, worst.sample > 0 ? fmt::format(", sample {},", worst.sample) : "",
                    others, softmax, worst.apart));
}

std::string layers_text(const SavedTrace::Layers& layers) {
    const Index first = layers.begin()->first, last = layers.rbegin()->first;
    return first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
}

/// " of width 8"; nothing where no state says it.
std::string of_width(const SavedTrace::Part& part) {
    return part.width > 0 ? fmt::format(" of width {}", part.width) : "";
}

/// Says where tokens merge, and which outputs of layers are missing in front of that.
void describe_merges(const SavedTrace& trace, TraceNotes& notes) {
    const SavedTrace::Part* before = nullptr;
    const std::vector<Stage> stages =
        stages_of(trace, notes.placement, steps_before_ffn({&trace, 1}));
    const auto last = trace.stages().find(stages.back().name);
    std::vector<std::string> missing;
    for (const auto& [layer, part] : trace.parts()) {
        if (before) {
            notes.recognised.push_back(fmt::format("behind layer {} the {} tokens{} merge to {}{}",
                                                   layer - 1, before->tokens, of_width(*before),
                                                   part.tokens, of_width(part)));
            const bool ends = last != trace.stages().end() && last->second.contains(layer - 1);
            if (!trace.states().empty() && !trace.output(layer - 1) && !ends)
                missing.push_back(fmt::format("out.{}", layer - 1));
        }
        before = &part;
    }
    if (!missing.empty())
        notes.warnings.push_back(
            fmt::format("what a layer returns before its tokens merge is not there and not "
                        "measured; save it as {}",
                        fmt::join(missing, ", ")));
}

}  // namespace

Replayed replay(const Checkpoint& file, const Backend& backend, Observer& observer,
                const ReplaySettings& settings) {
    const std::vector<SavedTrace> batches = saved_traces(file);
    const SavedTrace& trace = batches.front();
    const std::string& variant = settings.trace.attention;
    if (!variant.empty()) attention(variant);  // throws for an unknown name before any work
    for (const auto& [layer, array] : trace.attentions())
        if (!variant.empty() && variant != "softmax" && uses_given(trace, layer, settings.trace))
            throw UsageError(
                fmt::format("{}: a given P can only be declared as softmax, not '{}', which needs "
                            "queries and keys.",
                            array.name, variant));
    const std::vector<const Checkpoint*> files = files_of(file);
    if (settings.masks.empty())
        for (std::size_t b = 0; b < files.size(); ++b) batches[b].refuse_unread_lengths(*files[b]);
    require_causal(file, trace, settings.trace);
    require_scale(file, batches, settings.trace);
    require_one_set_of_tokens(trace, settings);
    const Index end = settings.last_layer < 0 ? trace.summary().layers : settings.last_layer + 1;
    Replay run(batches, backend, observer, settings);
    for (Index layer = settings.first_layer; layer < end; ++layer) run.layer(layer);
    std::vector<std::string> notes = run.notes();
    for (const auto& [batch, array] : run.sees_later()) {
        std::vector<Causality> said = causality_in(*files[batch]);
        if (said.empty()) said = causality_in(file);
        const auto causal = std::ranges::find_if(said, &Causality::causal);
        if (causal == said.end()) continue;
        notes.push_back(fmt::format(
            "'{}' is true, but {} has entries above its diagonal; it is taken as stored",
            causal->name, array));
        break;
    }
    return {std::move(notes), run.no_attention()};
}

std::vector<std::vector<bool>> saved_masks(const Checkpoint& file, Index samples) {
    std::vector<std::vector<bool>> masks;
    bool hides = false;
    for (const SavedTrace& batch : saved_traces(file)) {
        const TraceSummary& sizes = batch.summary();
        std::vector<std::vector<bool>> own(std::size_t(sizes.samples),
                                           std::vector<bool>(std::size_t(sizes.tokens), true));
        if (batch.mask())
            own = masks_of(batch.mask()->raw, batch.mask()->name, sizes.samples, sizes.tokens);
        for (std::vector<bool>& one : own) {
            if (std::ssize(masks) == samples) break;
            hides = hides || std::ranges::find(one, false) != one.end();
            masks.push_back(std::move(one));
        }
    }
    if (!hides) masks.clear();
    return masks;
}

TraceNotes describe_trace(const Checkpoint& file, const TraceOptions& options,
                          const std::vector<std::vector<bool>>& masks) {
    const std::vector<SavedTrace> batches = saved_traces(file);
    const SavedTrace& trace = batches.front();
    TraceNotes notes;
    if (batches.size() > 1)
        notes.recognised.push_back(
            fmt::format("{} batches, in the order of their numbers", batches.size()));
    notes.placement = placement_of(trace, options.placement, masks);
    if (!options.placement && !trace.stages().empty())
        notes.recognised.push_back(
            fmt::format("placement {}, which the arrays fit", name(notes.placement)));
    notes.warnings = trace.gaps(masks);
    notes.defaults = trace.assumed();
    // Of states alone nothing else tells which axis is which.
    if (const TraceSummary& sizes = trace.summary();
        sizes.samples > sizes.tokens && !sizes.has_attention && !trace.mask())
        notes.defaults.push_back(
            fmt::format("hidden_states: their axes are samples, tokens, width: {} samples of {} "
                        "token{}",
                        sizes.samples, sizes.tokens, sizes.tokens == 1 ? "" : "s"));
    const auto used = [&](const SavedTrace::Layers& layers, std::string_view what) {
        if (!layers.empty())
            notes.recognised.push_back(fmt::format("{} {}", what, layers_text(layers)));
    };
    used(trace.states(), "hidden_states");
    for (const auto& [stage, layers] : trace.stages())
        used(layers, stage == "norm1" && trace.attention_inputs() ? "attention_inputs" : stage);
    for (const auto& [stage, layers] : trace.outer()) used(layers, stage);
    used(trace.attentions(), "attentions");
    used(trace.queries(), "queries, keys");
    describe_merges(trace, notes);
    if (!trace.values().empty())
        notes.ignored.push_back("values: no metric needs them without an output projection");
    if (trace.mask()) {
        notes.recognised.push_back("attention_mask: tokens that it hides are left out");
        const std::vector<std::int64_t>& shape = trace.mask()->raw.shape;
        if (shape.size() == 2 && shape[0] == shape[1])
            notes.defaults.push_back("attention_mask: its axes are samples, tokens");
    }
    for (const std::string& name : trace.others())
        if (!names_causality(name)) notes.ignored.push_back(name);
    bool given = false, formed = false;
    for (const auto& [layer, array] : trace.attentions())
        given = given || uses_given(trace, layer, options);
    for (const auto& [layer, array] : trace.queries())
        formed = formed || !uses_given(trace, layer, options);
    if (std::ranges::any_of(trace.queries(), [&](const auto& query) {
            return uses_given(trace, query.first, options);
        }))
        describe_fit(batches, options, masks, notes);
    if (std::ranges::any_of(trace.attentions(), [&](const auto& map) {
            return !uses_given(trace, map.first, options);
        }))
        notes.ignored.push_back(fmt::format(
            "attentions: --attention {} forms P of queries and keys", options.attention));
    if (given && options.attention.empty())
        notes.defaults.push_back("attentions: of unknown activation (--attention softmax)");
    if (formed && options.attention.empty())
        notes.defaults.push_back("attention: softmax (--attention)");
    if (formed && !options.scale) {
        const bool unscaled = !options.attention.empty() && attention(options.attention).unscaled;
        notes.defaults.push_back(unscaled ? "scale: 1 (--scale)"
                                          : "scale: 1/sqrt(columns of a head) (--scale)");
    }
    if (formed && !options.causal) notes.defaults.push_back("causal: no (--causal)");
    if (!options.a2 && trace.summary().has_attention && notes.placement != NormPlacement::branch)
        notes.defaults.push_back(trace.stages().contains("sa")
                                     ? "a2: measured, |Pi2 SA|^2 over that of P X (--a2)"
                                     : "a2: not known, which est1, est2 and est_mu need (--a2)");
    return notes;
}

}  // namespace tsdiag
