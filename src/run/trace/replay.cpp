#include "replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "arrays.hpp"
#include "batches.hpp"
#include "trace.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

/// Index (head, row, col) of a nonzero entry above the diagonal; nullopt if P is lower triangular.
template <class T>
std::optional<std::vector<Index>> above_diagonal(const Tensor& p) {
    const std::vector<T> copy = p.backend().host_memory() ? std::vector<T>() : p.to_host<T>();
    for (Index h = 0; h < p.batch(); ++h)
        for (Index i = 0; i < p.rows(); ++i) {
            const T* row =
                copy.empty() ? p.view().row<T>(h, i) : copy.data() + (h * p.rows() + i) * p.cols();
            for (Index j = i + 1; j < p.cols(); ++j)
                if (row[j] != T(0)) return std::vector<Index>{h, i, j};
        }
    return std::nullopt;
}

/// P is treated as causal if it is lower triangular, whatever produced it: its eigenvalues are its
/// diagonal.
bool lower_triangular(const Tensor& p, bool promised, const std::string& source) {
    const auto entry = p.type() == Type::f32 ? above_diagonal<float>(p) : above_diagonal<double>(p);
    if (entry && promised)
        throw FormatError(fmt::format(
            "{}: entry ({}, {}, {}) above the diagonal is not 0, expected 0 with --causal.", source,
            (*entry)[0], (*entry)[1], (*entry)[2]));
    return !entry && p.rows() > 1;
}

/// Upper bound on |row sum - 1| when each entry was rounded twice to `format`, after the division
/// and on saving: each time by a relative u or by half of the least positive number eta, together
/// 2 u + n eta.  0 for formats other than half precision.
double row_rounding(DType format, Index n) {
    if (format == DType::f16) return 0x1p-10 + double(n) * 0x1p-24;
    if (format == DType::bf16) return 0x1p-7 + double(n) * 0x1p-133;
    return 0;
}

/// Is P taken from `attentions.L`?  It is formed from queries and keys where a variant other than
/// softmax is requested.
bool uses_given(const SavedTrace& trace, Index layer, const TraceOptions& options) {
    const bool forms_other = !options.attention.empty() && options.attention != "softmax";
    return trace.attentions().contains(layer) && !(forms_other && trace.queries().contains(layer));
}

/// The stages of a layer in order, each with the stage that xi and r are measured from
/// (docs/metrics.md).
using Stages = std::span<const std::pair<std::string_view, std::string_view>>;
Stages stages_of(NormPlacement placement) {
    static constexpr std::pair<std::string_view, std::string_view> post[] = {
        {"sa", ""},       {"attn", "in"},   {"norm1", "attn"},
        {"ffn", "norm1"}, {"norm2", "ffn"}, {"deesc", "norm2"}};
    static constexpr std::pair<std::string_view, std::string_view> pre[] = {
        {"norm1", ""}, {"sa", ""},      {"attn", "in"},
        {"norm2", ""}, {"ffn", "attn"}, {"deesc", "ffn"}};
    static constexpr std::pair<std::string_view, std::string_view> parallel[] = {
        {"norm1", ""}, {"sa", ""}, {"norm2", ""}, {"ffn", "in"}};
    return placement == NormPlacement::post  ? Stages(post)
           : placement == NormPlacement::pre ? Stages(pre)
                                             : Stages(parallel);
}

NormPlacement placement_of(const SavedTrace& trace, const TraceOptions& options) {
    if (options.placement == NormPlacement::branch)
        throw UsageError("--placement branch: expected post, pre or parallel");
    if (options.placement) return *options.placement;
    if (trace.attention_inputs()) return NormPlacement::pre;
    if (!trace.stages().empty())
        throw UsageError(
            fmt::format("{}: stages inside layers need --placement post, pre or parallel.",
                        trace.stages().begin()->second.begin()->second.name));
    return NormPlacement::post;
}

class Replay {
  public:
    Replay(const std::vector<SavedTrace>& batches, const Backend& backend, Observer& observer,
           const ReplaySettings& settings)
        : batches_(batches),
          backend_(backend),
          observer_(observer),
          settings_(settings),
          placement_(placement_of(batches.front(), settings.trace)) {}

    std::vector<std::string> notes() const {
        std::vector<std::string> out;
        if (rounded_.off > 0)
            out.push_back(fmt::format(
                "attentions: row sums in {} differ from 1 by up to {:.1e}, within the rounding of "
                "that format (up to {:.1e}); rows were divided by their sums",
                rounded_.format, rounded_.off, rounded_.allowed));
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
            states(layer);
            observer_.end_sample(s);
        }
        observer_.end_layer(layer);
    }

  private:
    const SavedTrace& trace() const { return batches_[batch_]; }
    Tensor load(const SavedTrace::Array& array) const {
        const RawTensor raw = array.sample(sample_);
        const bool flat = raw.shape.size() == 2;
        const Shape shape = flat ? Shape{1, raw.shape[0], raw.shape[1]}
                                 : Shape{raw.shape[0], raw.shape[1], raw.shape[2]};
        return to_tensor(raw, shape, backend_, settings_.type, array.name,
                         settings_.allow_nonfinite);
    }
    /// The kept rows of the array of `layer`; undefined where there is none.
    Tensor rows_of(const SavedTrace::Layers& layers, Index layer) const {
        const auto found = layers.find(layer);
        if (found == layers.end()) return {};
        const Tensor x = load(found->second);
        return kept_.empty() ? x : take_rows(x, kept_);
    }

    Tensor stage(std::string_view name, Index layer) const {
        const auto found = trace().stages().find(name);
        return found == trace().stages().end() ? Tensor() : rows_of(found->second, layer);
    }

    void states(Index layer) {
        const Tensor in = rows_of(trace().states(), layer);
        const bool normed_first = placement_ != NormPlacement::post;
        const Tensor normed = normed_first ? stage("norm1", layer) : Tensor();
        std::set<std::string_view> told;
        const auto tell = [&](std::string_view name, std::string_view pred, const Tensor& x) {
            if (!x.defined()) return;
            told.insert(name);
            observer_.on_hidden({layer, name, told.contains(pred) ? pred : "", x});
        };
        tell("in", "", in);
        if (normed_first) tell("norm1", "", normed);
        if (observer_.wants_rows(layer) || observer_.wants_attention(layer))
            attention(layer, in, normed);
        for (const auto& [name, pred] : stages_of(placement_))
            if (name != "norm1" || !normed_first) tell(name, pred, stage(name, layer));
        const Tensor out = rows_of(trace().states(), layer + 1);
        if (out.defined()) observer_.on_hidden({layer, "out", "", out});
    }

    /// Divides by their sums the rows of the heads whose sums differ from 1 by rounding alone.
    Tensor with_sums_of_one(const Tensor& p, const RawTensor& raw) {
        const double allowed = row_rounding(raw.dtype, p.cols());
        if (allowed == 0) return p;
        const RowStatistics rows = row_statistics(p, {}, false, 0, {});
        std::vector<double> factors(rows.sum.size(), 1.0);
        const auto n = std::size_t(p.rows());
        for (std::size_t first = 0; first < factors.size(); first += n) {
            double off = 0;
            for (std::size_t i = first; i < first + n; ++i)
                off = std::max(off, rows.negative[i] > 0 ? HUGE_VAL : std::abs(rows.sum[i] - 1));
            if (!(off <= allowed)) continue;
            for (std::size_t i = first; i < first + n; ++i) factors[i] = 1 / rows.sum[i];
            if (off > rounded_.off)
                rounded_ = {off, allowed, raw.dtype == DType::f16 ? "float16" : "bfloat16"};
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

    std::unique_ptr<AttentionOperator> operator_of(Index layer) {
        const TraceOptions& options = settings_.trace;
        if (uses_given(trace(), layer, options)) {
            const SavedTrace::Array& array = trace().attentions().at(layer);
            Tensor p = load(array);
            p = with_sums_of_one(p, array.raw);
            if (kept_.empty()) note_unseen(p, array.name);
            if (!kept_.empty()) p = take_rows_and_columns(p, kept_);
            const bool causal = lower_triangular(p, options.causal, array.name);
            return given_attention(std::move(p), causal, options.attention);
        }
        if (!trace().queries().contains(layer)) return nullptr;
        AttentionInput input;
        input.q = rows_of(trace().queries(), layer);
        input.k = rows_of(trace().keys(), layer);
        input.scale = options.scale.value_or(1 / std::sqrt(double(input.q.cols())));
        input.causal = options.causal;
        input.position.assign(kept_.begin(), kept_.end());
        const std::string& variant = options.attention.empty() ? "softmax" : options.attention;
        return tsdiag::attention(variant).make(std::move(input));
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
        const bool pre_norm = placement_ != NormPlacement::post;
        observer_.on_attention({.layer = layer,
                                .op = *op,
                                .input = pre_norm ? normed : in,
                                .residual = in,
                                .a2 = settings_.trace.a2.value_or(1),
                                .memory = whole,
                                .pre_norm = pre_norm});
    }

    const std::vector<SavedTrace>& batches_;
    const Backend& backend_;
    Observer& observer_;
    const ReplaySettings& settings_;
    NormPlacement placement_;
    std::size_t batch_ = 0;
    Index sample_ = 0;  ///< of the batch
    std::vector<Index> kept_;
    struct {
        double off = 0, allowed = 0;
        std::string format = {};
    } rounded_;  ///< the half-precision row whose sum is farthest from 1
    struct {
        Index tokens = 0, of = 0;
        std::string array = {};
    } unseen_;  ///< the P with the most tokens that no token attends to
};

std::string layers_text(const SavedTrace::Layers& layers) {
    const Index first = layers.begin()->first, last = layers.rbegin()->first;
    return first == last ? fmt::format("{}", first) : fmt::format("{} to {}", first, last);
}

}  // namespace

std::vector<std::string> replay(const Checkpoint& file, const Backend& backend, Observer& observer,
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
    const Index end = settings.last_layer < 0 ? trace.summary().layers : settings.last_layer + 1;
    Replay run(batches, backend, observer, settings);
    for (Index layer = settings.first_layer; layer < end; ++layer) run.layer(layer);
    return run.notes();
}

TraceNotes describe_trace(const Checkpoint& file, const TraceOptions& options) {
    const std::vector<SavedTrace> batches = saved_traces(file);
    const SavedTrace& trace = batches.front();
    TraceNotes notes;
    if (batches.size() > 1)
        notes.recognised.push_back(
            fmt::format("{} batches, in the order of their numbers", batches.size()));
    notes.placement = placement_of(trace, options);
    notes.warnings = trace.gaps();
    notes.defaults = trace.assumed();
    const auto used = [&](const SavedTrace::Layers& layers, std::string_view what) {
        if (!layers.empty())
            notes.recognised.push_back(fmt::format("{} {}", what, layers_text(layers)));
    };
    used(trace.states(), "hidden_states");
    for (const auto& [stage, layers] : trace.stages())
        used(layers, stage == "norm1" && trace.attention_inputs() ? "attention_inputs" : stage);
    used(trace.attentions(), "attentions");
    used(trace.queries(), "queries, keys");
    if (!trace.values().empty())
        notes.ignored.push_back("values: no metric needs them without an output projection");
    for (const std::string& name : trace.others()) notes.ignored.push_back(name);
    bool given = false, formed = false;
    for (const auto& [layer, array] : trace.attentions())
        given = given || uses_given(trace, layer, options);
    for (const auto& [layer, array] : trace.queries())
        formed = formed || !uses_given(trace, layer, options);
    if (given && !trace.queries().empty() && !formed)
        notes.ignored.push_back("queries, keys: attentions contains their P");
    if (given && options.attention.empty())
        notes.defaults.push_back("attentions: of unknown activation (--attention softmax)");
    if (formed && options.attention.empty())
        notes.defaults.push_back("attention: softmax (--attention)");
    if (formed && !options.scale)
        notes.defaults.push_back("scale: 1/sqrt(columns of a head) (--scale)");
    if (formed && !options.causal) notes.defaults.push_back("causal: no (--causal)");
    if (!options.a2) notes.defaults.push_back("a2: 1 (--a2)");
    return notes;
}

}  // namespace tsdiag
