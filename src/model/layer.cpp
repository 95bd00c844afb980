#include "layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attention_parts.hpp"
#include "steps/feed_forward.hpp"
#include "steps/step.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {

namespace {

[[noreturn]] void refuse(const Tensor& x, Index bad, Index layer, std::string_view stage) {
    throw NonFiniteError(fmt::format(
        "layer {}, stage '{}': token {}, feature {} is NaN or infinite, although weights and input "
        "are finite: values leave the range of {}; pass {}--allow-nonfinite to continue",
        layer, stage, bad / x.cols() % x.rows(), bad % x.cols(),
        x.type() == Type::f32 ? "float32" : "float64",
        x.type() == Type::f32 ? "--dtype f64, or " : ""));
}

}  // namespace

void require_finite(const Tensor& x, Index layer, std::string_view stage, bool allow) {
    if (allow) return;
    if (const Index bad = first_nonfinite(x); bad >= 0) refuse(x, bad, layer, stage);
}

void FiniteStates::add(const Tensor& x, Index layer, std::string_view stage) {
    if (x.backend().host_memory()) return require_finite(x, layer, stage, false);
    states_.push_back(x.detached());
    places_.emplace_back(layer, stage);
}

void FiniteStates::require() {
    auto found = first_nonfinite_later(states_);
    for (std::size_t i = 0; i < states_.size(); ++i)
        if (const Index bad = found.get()[i]; bad >= 0)
            refuse(states_[i], bad, places_[i].first, places_[i].second);
    states_.clear();
    places_.clear();
}

namespace {

/// The part of a batched tensor that belongs to one sample.
Tensor of_sample(const Tensor& x, Index sample, Index samples) {
    if (samples == 1 || !x.defined()) return x;
    const Index each = x.batch() / samples;
    return x.batch_range(sample * each, each);
}

/// The attention inputs of one sample.
AttentionParts of_sample(const AttentionParts& all, Index sample, Index samples) {
    AttentionParts one = all;
    for (Tensor* t : {&one.input.q, &one.input.k, &one.input.q2, &one.input.k2, &one.input.x,
                      &one.v, &one.projections.q, &one.projections.k, &one.projections.q_raw,
                      &one.projections.k_raw, &one.x})
        *t = of_sample(*t, sample, samples);
    one.input.samples = 1;
    return one;
}

/// An attention of the layer: the only one, or of half of its heads.
struct HeadGroup {
    AttentionSpec spec;
    AttentionWeights weights;
};

std::vector<HeadGroup> head_groups(const AttentionSpec& a, const AttentionWeights& w) {
    if (!a.second) return {{a, w}};
    std::vector<HeadGroup> out;
    for (const Index half : {0, 1}) {
        HeadGroup group{a, w};
        AttentionSpec& spec = group.spec;
        spec.second.reset();
        spec.heads /= 2;
        spec.kv_heads /= 2;
        if (half == 1) {
            spec.variant = a.second->variant;
            spec.options = a.second->options;
            spec.output_norm = a.second->output_norm;
            spec.qk_activation = a.second->qk_activation;
        }
        for (Linear* map : {&group.weights.q, &group.weights.k, &group.weights.v}) {
            const Index rows = map->weight.rows() / 2;
            map->weight = map->weight.row_range(half * rows, rows);
            if (map->bias.defined()) map->bias = map->bias.col_range(half * rows, rows);
        }
        out.push_back(std::move(group));
    }
    return out;
}

/// Heads of one sample, those of the first attention before those of the second.
Tensor stacked(const std::vector<Tensor>& parts) {
    return parts.size() == 1 ? parts.front() : concat_batches(parts);
}
Projections stacked(const std::vector<AttentionParts>& groups) {
    Projections out = groups.front().projections;
    if (groups.size() == 1) return out;
    const Projections& other = groups.back().projections;
    for (Tensor Projections::*part :
         {&Projections::q, &Projections::k, &Projections::q_raw, &Projections::k_raw})
        out.*part = concat_batches(std::vector{out.*part, other.*part});
    return out;
}
Tensor values_of(const std::vector<AttentionParts>& groups) {
    std::vector<Tensor> all;
    for (const AttentionParts& group : groups) all.push_back(group.v);
    return stacked(all);
}

/// One layer on one batch.
class LayerPass final : public StepRun {
  public:
    LayerPass(const LayerRun& run, const Batch& batch)
        : run_(run),
          b_(run.block),
          w_(run.weights),
          batch_(batch),
          samples_(batch.x.batch()),
          groups_(head_groups(run.block.attention, run.weights.attention)) {}

    Tensor run() {
        const Tensor& x = batch_.x;
        emit("in", "", x);
        Tensor y = applied_to(x);
        y = changed(StepPlace::end, y);
        if (run_.observer) run_.observer->on_states(run_.first, {run_.layer, "out", "", y});
        y = changed(StepPlace::behind, y);
        if (run_.observer) run_.observer->before_numbers_are_read();
        if (!run_.finite) own_finite_.require();
        for (PendingAttention& pending : pending_) emit_attention(pending);
        return y;
    }

    Index layer() const override { return run_.layer; }
    const Grid& grid() const override { return batch_.grid; }
    void emit(std::string_view stage, std::string_view from, const Tensor& x) override {
        if (!run_.allow_nonfinite) finite().add(x, run_.layer, stage);
        if (run_.observer) run_.observer->on_states(run_.first, {run_.layer, stage, from, x});
        last_ = stage;
    }
    std::string_view last_stage() const override { return last_; }
    Tensor dropped(const Tensor& branch, std::string_view stage) const override {
        return run_.dropout ? run_.dropout(branch, stage) : branch;
    }

  private:
    Tensor applied_to(const Tensor& x) {
        switch (b_.placement) {
            case NormPlacement::post:
                return post_norm(x);
            case NormPlacement::pre:
            case NormPlacement::branch:
                return pre_norm(x);
            case NormPlacement::parallel:
                return parallel(x);
        }
        return x;
    }

    /// An attention to be emitted when the layer is done.
    struct PendingAttention {
        Index sample;
        std::unique_ptr<AttentionOperator> op;
        Projections projections;
        Tensor input, residual;
    };

    FiniteStates& finite() { return run_.finite ? *run_.finite : own_finite_; }

    Tensor norm(const Tensor& x, const Norm& parameters) const {
        return normed(b_.norm.kind, x, parameters, b_.norm.eps);
    }
    bool norms() const { return b_.norm.kind != NormKind::none; }

    bool has(StepPlace place) const {
        return std::ranges::any_of(w_.steps, [&](const auto& s) { return s->place() == place; });
    }
    /// y behind the steps of `place`.
    Tensor changed(StepPlace place, Tensor y) {
        for (const std::shared_ptr<const Step>& step : w_.steps)
            if (step->place() == place) y = step->apply(*this, y);
        return y;
    }

    /// [TSE] Algorithm 1: Y = LN(X + alpha SA(X)), then LN(Y + FFN(Y)).
    Tensor post_norm(const Tensor& x) {
        Summed found = plus_attention(x, x, norms() ? &w_.norm1 : nullptr);
        Tensor y = found.sum;
        emit("attn", "in", y);
        if (norms()) {
            y = normed_of(found, w_.norm1);
            emit("norm1", "attn", y);
        }
        y = changed(StepPlace::between, y);
        if (b_.ffn.width == 0) return y;
        const std::string_view before = last_;
        found = plus_feed_forward(y, y, norms() ? &w_.norm2 : nullptr);
        y = found.sum;
        emit("ffn", before, y);
        if (norms()) {
            y = normed_of(found, w_.norm2);
            emit("norm2", "ffn", y);
        }
        return y;
    }

    /// [TSE] (19): Y = X + alpha SA(LN(X)), then Y + FFN(LN(Y)); [OLMO2] has the norms in the
    /// branches instead.
    Tensor pre_norm(const Tensor& x) {
        const bool follows =
            norms() && !norms_of_branches() && b_.ffn.width > 0 && !has(StepPlace::between);
        const Summed found = plus_attention(x, normed1(x), follows ? &w_.norm2 : nullptr);
        Tensor y = found.sum;
        emit("attn", "in", y);
        y = changed(StepPlace::between, y);
        if (b_.ffn.width == 0) return y;
        const std::string_view before = last_;
        y = plus_feed_forward(y, normed2(y, found.normed)).sum;
        emit("ffn", before, y);
        return y;
    }

    /// X + alpha SA(LN(X)) + FFN(LN'(X)).
    Tensor parallel(const Tensor& x) {
        const Tensor normed = normed1(x);
        Tensor y = plus_attention(x, normed).sum;
        if (b_.ffn.width > 0) y = plus_feed_forward(y, b_.one_norm ? normed : normed2(x)).sum;
        emit("ffn", "in", y);
        return y;
    }

    /// Whether the norms of the placement are those of the branches.
    bool norms_of_branches() const { return b_.placement == NormPlacement::branch; }
    Tensor normed1(const Tensor& x) {
        if (!norms() || norms_of_branches() || !b_.attention_norm) return x;
        Tensor out = norm(x, w_.norm1);
        emit("norm1", "", out);
        return out;
    }
    /// `known`: the norm of x, where it was computed.
    Tensor normed2(const Tensor& x, const Tensor& known = {}) {
        if (!norms() || norms_of_branches()) return x;
        Tensor out = known.defined() ? known : norm(x, w_.norm2);
        emit("norm2", "", out);
        return out;
    }

    /// A state and, where it was computed along, its norm.
    struct Summed {
        Tensor sum, normed;
    };
    Tensor normed_of(const Summed& of, const Norm& parameters) const {
        return of.normed.defined() ? of.normed : norm(of.sum, parameters);
    }
    /// A branch is the map of a state, as it is.
    bool plain_branches() const {
        return !run_.dropout && !norms_of_branches() && !b_.branch_norms;
    }
    /// The map of x plus `added`; on a device with the norm `next` of the sum, where there is one.
    LinearSum mapped_sum(const Linear& map, const Tensor& x, const Tensor& added,
                         const Norm* next) const {
        const auto norm =
            next ? as_row_norm(b_.norm.kind, *next, b_.norm.eps) : std::optional<RowNorm>();
        return linear_sum(x, map.weight, map.bias, added, norm ? &*norm : nullptr);
    }

    /// x plus the attention branch of `in`; `next`: the norm behind, for a device.
    Summed plus_attention(const Tensor& x, const Tensor& in, const Norm* next = nullptr) {
        const bool one_map = !b_.attention.value_projection_only && !w_.scale1.defined() &&
                             b_.attention.windows.side == 0 && b_.alpha == 1 && plain_branches();
        if (one_map && x.backend().fuses()) {
            const LinearSum found = mapped_sum(w_.attention.o, attended(in, x, {}), x, next);
            emit("sa", "", found.branch);
            return {found.sum, found.normed};
        }
        const Tensor branch = dropped(attend(in, x), "sa");
        return {add(x, b_.alpha == 1 ? branch : scale(branch, b_.alpha)), {}};
    }

    /// y plus the feed-forward branch of `x`.
    Summed plus_feed_forward(const Tensor& y, const Tensor& x, const Norm* next = nullptr) {
        if (b_.ffn.experts.count == 0 && !w_.scale2.defined() && b_.ffn_alpha == 1 &&
            plain_branches()) {
            const Tensor inner = inner_state(b_.ffn, w_.ffn.maps, x);
            if (!y.backend().fuses()) return {w_.ffn.maps.down.mapped(inner, Unary::copy, y), {}};
            const LinearSum found = mapped_sum(w_.ffn.maps.down, inner, y, next);
            return {found.sum, found.normed};
        }
        Tensor branch =
            w_.scale2.defined() ? multiply(feed_forward(x), w_.scale2) : feed_forward(x);
        branch = dropped(branch_normed(branch, w_.norm2, w_.branch2), "ffn");
        return {add(y, b_.ffn_alpha == 1 ? branch : scale(branch, b_.ffn_alpha)), {}};
    }
    /// A branch as it is added.
    Tensor branch_normed(const Tensor& branch, const Norm& placed, const Norm& own) const {
        if (norms_of_branches()) return norm(branch, placed);
        return b_.branch_norms ? norm(branch, own) : branch;
    }

    Tensor feed_forward(const Tensor& x) {
        if (b_.ffn.experts.count == 0) return apply_maps(b_.ffn, w_.ffn.maps, x);
        finite().require();  // before experts are chosen on the host
        const bool emits = run_.observer != nullptr;
        return mixture(
            b_.ffn, w_.ffn, x, [&](Index sample, const Tensor& p, const Choices& chosen) {
                if (!emits) return;
                if (samples_ > 1) run_.observer->begin_sample(run_.first + sample);
                run_.observer->on_routing({run_.layer, p, chosen, b_.ffn.experts.chosen});
            });
    }

    /// The attention branch of `x`, to be added to `residual`.
    Tensor attend(const Tensor& x, const Tensor& residual) {
        const bool windowed = b_.attention.windows.side > 0;
        Partition windows;
        if (windowed) windows = partition(b_.attention.windows, batch_.grid, run_.layer);
        Tensor branch = windowed ? attended(rows_of_each(x, windows.order),
                                            rows_of_each(residual, windows.order), windows)
                                 : attended(x, residual, {});
        if (!b_.attention.value_projection_only) branch = w_.attention.o(branch);
        if (w_.scale1.defined()) branch = multiply(branch, w_.scale1);
        branch = branch_normed(branch, w_.norm1, w_.branch1);
        if (windowed) branch = rows_of_each(branch, windows.back);
        emit("sa", "", branch);
        return branch;
    }

    /// The heads' outputs beside each other, gated where there is a gate; x and the residual in the
    /// order of `windows`, where there are any.
    Tensor attended(const Tensor& x, const Tensor& residual, const Partition& windows) {
        Tensor memory = batch_.memory;
        if (memory.defined() && b_.placement != NormPlacement::post)
            memory = norm(memory, w_.norm1);
        std::vector<AttentionParts> groups;
        for (const HeadGroup& group : groups_) {
            groups.push_back(attention_parts(group.spec, group.weights, batch_, x, memory));
            AttentionInput& input = groups.back().input;
            if (!windows.ends.empty()) {
                input.windows = {windows.ends, b_.attention.windows.side, windows.place,
                                 w_.attention.relative};
                input.position = {};
            }
            input.rng = attention_rng();
            input.update = run_.update;
        }
        // On the CPU samples are bitwise independent, unless a derivative is taken.
        const Tensor& v = groups.front().v;
        const bool together =
            !run_.observer && (x.tracked() || v.tracked() || !x.backend().host_memory());
        std::vector<Tensor> outputs;
        if (run_.observer && observed_together(groups))
            outputs.push_back(all_at_once(groups.front(), residual));
        else if (!together)
            outputs = one_by_one(groups, residual);
        for (std::size_t i = 0; together && i < groups.size(); ++i)
            outputs.push_back(applied({groups[i]}, i, nullptr));
        if (run_.tape) outputs = recorded(groups, outputs);
        std::vector<Tensor> branches;
        for (std::size_t i = 0; i < groups.size(); ++i)
            branches.push_back(output_norm(
                groups_[i].spec,
                merge_heads(b_.attention.channels ? transpose(outputs[i]) : outputs[i], samples_)));
        Tensor branch = branches.size() == 1 ? branches.front() : concat_cols(branches);
        if (run_.tape && groups.size() == 1 && b_.attention.output_norm != OutputNorm::none)
            run_.tape->normed = branch;
        if (const Tensor& gate = groups.front().gate; gate.defined())
            branch = multiply(branch, gate);
        return branch;
    }

    /// The source of what the attention draws: layers that share their parameters share it.
    Rng attention_rng() const {
        return run_.rng.fork("attention")
            .fork(std::uint64_t(b_.shares < 0 ? run_.layer : b_.shares));
    }

    /// Fills the tape, of one sample, and returns the outputs as parts of its O.
    std::vector<Tensor> recorded(const std::vector<AttentionParts>& groups,
                                 const std::vector<Tensor>& outputs) {
        AttentionTape& tape = *run_.tape;
        for (const AttentionParts& group : groups) tape.inputs.push_back(group.input);
        tape.v = values_of(groups);
        tape.projections = stacked(groups);
        tape.output = stacked(outputs);
        return split(tape.output);
    }

    /// The heads of each group.
    std::vector<Tensor> split(const Tensor& heads) const {
        if (groups_.size() == 1) return {heads};
        const Index half = heads.batch() / 2;
        return {heads.batch_range(0, half), heads.batch_range(half, half)};
    }

    /// Whether the samples may share an operator that is observed: on a device, where what is
    /// known of P, and whether it is defined, is the same for all samples.
    bool observed_together(const std::vector<AttentionParts>& groups) const {
        const AttentionFacts& facts = attention(groups_.front().spec.variant).facts;
        const Tensor& q = groups.front().input.q;
        const double bytes = double(q.batch()) * double(q.rows()) *
                             double(groups.front().input.k.rows()) * double(bytes_of(q.type()));
        return !q.backend().host_memory() && samples_ > 1 && groups.size() == 1 &&
               !run_.allow_nonfinite && !run_.team && facts.row_stochastic != Holds::sometimes &&
               facts.factors == Holds::never &&
               (!run_.observer->wants_attention(run_.layer) ||
                bytes <= double(samples_) * map_memory());
    }

    /// P V of all samples by one operator, of which each sample's part is emitted.
    Tensor all_at_once(const AttentionParts& all, const Tensor& residual) {
        const bool emits = run_.observer->wants_attention(run_.layer);
        std::unique_ptr<AttentionOperator> op;
        Tensor output = applied({all}, 0, emits ? &op : nullptr, samples_);
        if (!emits) return output;
        std::vector<std::unique_ptr<AttentionOperator>> own =
            of_each_sample(std::move(op), samples_);
        for (Index s = 0; s < samples_; ++s) {
            AttentionParts one = of_sample(all, s, samples_);
            pending_.push_back({s, std::move(own[std::size_t(s)]), std::move(one.projections),
                                std::move(one.x), of_sample(residual, s, samples_)});
        }
        return output;
    }

    /// P V of all samples, each with its own operator, for each group.
    std::vector<Tensor> one_by_one(const std::vector<AttentionParts>& all, const Tensor& residual) {
        auto outputs = std::vector<std::vector<Tensor>>(groups_.size());
        for (Index s = 0; s < samples_; ++s) {
            if (run_.observer && samples_ > 1) run_.observer->begin_sample(run_.first + s);
            const bool emits = run_.observer && run_.observer->wants_attention(run_.layer);
            std::vector<AttentionParts> one;
            for (const AttentionParts& group : all) one.push_back(of_sample(group, s, samples_));
            std::unique_ptr<AttentionOperator> op;
            const std::vector<Tensor> found = split(applied(one, 0, emits ? &op : nullptr));
            for (std::size_t i = 0; i < found.size(); ++i) outputs[i].push_back(found[i]);
            if (emits)
                pending_.push_back({s, std::move(op), stacked(one), std::move(one.front().x),
                                    of_sample(residual, s, samples_)});
        }
        std::vector<Tensor> out;
        for (const std::vector<Tensor>& group : outputs) out.push_back(concat_batches(group));
        return out;
    }

    /// P V of these groups, the first of which is group `first`, heads of all samples of `groups`
    /// at once; `kept`: receives the operator, with P; `observed`: samples whose rows are emitted.
    Tensor applied(const std::vector<AttentionParts>& groups, std::size_t first,
                   std::unique_ptr<AttentionOperator>* kept, Index observed = 1) const {
        const auto made = [&](std::size_t i) {
            return attention(groups_[first + i].spec.variant).make(groups[i].input);
        };
        std::unique_ptr<AttentionOperator> op =
            groups.size() == 1 ? made(0) : side_by_side(made(0), made(1));
        const double count = double(observed);
        const bool keep = kept && op->bytes() <= count * map_memory();
        op->keep_rows(keep);
        op->sample_rows_from(attention_rng());
        const double rest = run_.memory == 0
                                ? std::numeric_limits<double>::infinity()
                                : count * double(run_.memory) - (keep ? op->bytes() : 0);
        RowVisitor visit;
        if (run_.observer && run_.observer->wants_rows(run_.layer))
            visit = [&](RowBlock block) {
                block.channels = b_.attention.channels;
                if (observed == 1)
                    run_.observer->on_attention_rows(run_.layer, block);
                else
                    run_.observer->on_rows_of_samples(run_.first, observed, run_.layer, block);
            };
        // A derivative needs the whole P anyway.
        const Tensor v = values_of(groups);
        const Index block = v.tracked() ? v.rows() : op->rows_at_once(rest);
        op->share(visit && run_.observer->wants_entries(run_.layer) ? nullptr : run_.team);
        Tensor output = op->apply(v, block, visit);
        op->share(run_.team);
        if (kept) *kept = std::move(op);
        return output;
    }

    Tensor output_norm(const AttentionSpec& spec, const Tensor& y) const {
        switch (spec.output_norm) {
            case OutputNorm::none:
                return y;
            case OutputNorm::rms:
                return rms_norm(y, {}, b_.norm.eps);
            case OutputNorm::layer:
                return layer_norm(y, {}, {}, b_.norm.eps);
            case OutputNorm::simple_rms:
                return normed(NormKind::simple_rms, y, {}, 0);
        }
        return y;
    }

    /// Memory for a whole P: half of it, the rest is for the blocks.
    double map_memory() const {
        constexpr double usual = 2e9;
        const double half = run_.memory == 0 ? usual : double(run_.memory) / 2;
        return batch_.x.backend().host_memory() ? half : std::min(usual, half);
    }

    /// Whether queries and keys are maps of the attention's input.
    bool has_projections() const {
        const AttentionSpec& a = b_.attention;
        return !a.gated_unit && !a.channels && a.latent.rank == 0;
    }

    const char* why_no_estimate() const {
        if (b_.attention.channels) return "P is over channels";
        if (b_.attention.gated_unit) return "P V is gated";
        if (b_.attention.latent.rank > 0) return "V is of a normalised latent state";
        if (norms_of_branches() || b_.branch_norms) return "the attention branch is normalised";
        const bool norm = std::ranges::any_of(
            groups_, [](const HeadGroup& s) { return s.spec.output_norm != OutputNorm::none; });
        return norm ? "P V is normalised" : nullptr;
    }

    void emit_attention(PendingAttention& pending) {
        if (samples_ > 1) run_.observer->begin_sample(run_.first + pending.sample);
        run_.observer->on_attention(
            {.layer = run_.layer,
             .op = *pending.op,
             .input = pending.input,
             .residual = pending.residual,
             .projections = has_projections() ? &pending.projections : nullptr,
             .a2 = run_.a2,
             .memory = map_memory(),
             .pre_norm =
                 b_.placement == NormPlacement::pre || b_.placement == NormPlacement::parallel,
             .why_no_estimate = why_no_estimate(),
             .channels = b_.attention.channels});
        pending = {};
    }

    const LayerRun& run_;
    const BlockSpec& b_;
    const LayerWeights& w_;
    const Batch& batch_;
    Index samples_;
    std::vector<HeadGroup> groups_;
    std::string_view last_;
    std::vector<PendingAttention> pending_;
    FiniteStates own_finite_;
};

}  // namespace

Tensor apply_layer(const LayerRun& run, const Batch& batch) { return LayerPass(run, batch).run(); }

Tensor next_memory(const LayerRun& run, const Batch& batch) {
    if (!batch.memory.defined()) return {};
    Batch before;
    before.x = batch.memory;
    before.length = batch.memory.rows();
    before.position.assign(batch.position.begin(), batch.position.begin() + before.length);
    LayerRun silent{.layer = run.layer, .block = run.block, .weights = run.weights};
    silent.memory = run.memory;
    silent.allow_nonfinite = run.allow_nonfinite;
    silent.rng = run.rng;
    silent.update = run.update;
    return apply_layer(silent, before).detached();
}

Batch after_layer(const BlockSpec& block, Batch batch, Tensor y, Tensor memory) {
    batch.x = std::move(y);
    batch.memory = std::move(memory);
    if (block.merge.width == 0) return batch;
    batch.grid = halved(batch.grid);
    batch.length = batch.x.rows();
    batch.position.resize(std::size_t(batch.length));
    return batch;
}

}  // namespace tsdiag::model
