#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "attention.hpp"
#include "attention_parts.hpp"
#include "tsdiag/ops.hpp"
#include "windows.hpp"

/// Runs the attention of a layer: its inputs, P V of all heads and samples, and what observers
/// receive of it.
namespace tsdiag::model {
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
    std::vector<HeadGroup> out;
    for (AttentionSpec& spec : attentions_of(a)) {
        const Index half = std::ssize(out);
        out.push_back({std::move(spec), w});
        if (!a.second) return out;
        AttentionWeights& weights = out.back().weights;
        for (Linear* map : {&weights.q, &weights.k, &weights.v}) {
            const Index rows = map->weight.rows() / 2;
            map->weight = map->weight.row_range(half * rows, rows);
            if (map->bias.defined()) map->bias = map->bias.col_range(half * rows, rows);
        }
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

class Pass final : public AttentionPass {
  public:
    Pass(const AttentionStep& step, const Batch& batch, const LayerRun& run, StepRun& layer)
        : step_(step),
          b_(run.block),
          spec_(step.spec()),
          batch_(batch),
          run_(run),
          layer_(layer),
          samples_(batch.x.batch()),
          groups_(head_groups(step.spec(), step.weights())),
          over_{.channels = step.spec().channels} {}

    Summed plus(const Tensor& x, const Tensor& in, const Norm* next) override {
        const bool one_map = !spec_.value_projection_only && spec_.windows.side == 0;
        if (one_map && step_.plain(layer_) && x.backend().fuses()) {
            const LinearSum found =
                step_.mapped_sum(step_.weights().o, attended(in, x, {}), x, next);
            layer_.emit("sa", "", found.branch);
            return {found.sum, found.normed};
        }
        return {step_.sum(x, layer_.dropped(attend(in, x), "sa")), {}};
    }

    void emit() override {
        std::optional<Attention> all;
        if (together_.op)
            all.emplace(
                event(*together_.op, together_.projections, together_.input, together_.residual));
        if (all) all->memory *= double(samples_);
        for (PendingAttention& pending : pending_) {
            if (samples_ > 1) run_.observer->begin_sample(run_.first + pending.sample);
            Attention one =
                event(*pending.op, pending.projections, pending.input, pending.residual);
            one.together = all ? &*all : nullptr;
            one.sample = pending.sample;
            run_.observer->on_attention(one);
            pending = {};
        }
        together_ = {};
    }

  private:
    /// An attention to be emitted when the layer is done.
    struct PendingAttention {
        Index sample;
        std::unique_ptr<AttentionOperator> op;
        Projections projections;
        Tensor input, residual;
    };
    /// That of all samples, whose operator those of `pending_` hold; null: there is none.
    struct SharedInput {
        const AttentionOperator* op = nullptr;
        Projections projections;
        Tensor input, residual;
    };

    /// The attention branch of `x`, to be added to `residual`.
    Tensor attend(const Tensor& x, const Tensor& residual) {
        const bool windowed = spec_.windows.side > 0;
        Partition windows;
        if (windowed) {
            windows = partition(spec_.windows, batch_.grid, run_.layer);
            over_.order = std::make_shared<const std::vector<Index>>(windows.order);
        }
        Tensor branch = windowed ? attended(rows_of_each(x, windows.order),
                                            rows_of_each(residual, windows.order), windows)
                                 : attended(x, residual, {});
        if (!spec_.value_projection_only) branch = step_.weights().o(branch);
        branch = step_.scaled_and_normed(branch);
        if (windowed) branch = rows_of_each(branch, windows.back);
        layer_.emit("sa", "", branch);
        return branch;
    }

    /// The heads' outputs beside each other, gated where there is a gate; x and the residual in the
    /// order of `windows`, where there are any.
    Tensor attended(const Tensor& x, const Tensor& residual, const Partition& windows) {
        Tensor memory = batch_.memory;
        if (memory.defined() && b_.placement != NormPlacement::post) memory = step_.normed(memory);
        std::vector<AttentionParts> groups;
        for (const HeadGroup& group : groups_) {
            groups.push_back(attention_parts(group.spec, group.weights, batch_, x, memory));
            AttentionInput& input = groups.back().input;
            if (!windows.ends.empty()) {
                input.windows = {windows.ends, spec_.windows.side, windows.place,
                                 step_.weights().relative};
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
                merge_heads(over_.channels ? transpose(outputs[i]) : outputs[i], samples_)));
        Tensor branch = branches.size() == 1 ? branches.front() : concat_cols(branches);
        if (run_.tape && groups.size() == 1 && spec_.output_norm != OutputNorm::none)
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
        tape.over = over_;
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
        together_ = {op.get(), all.projections, all.x, residual};
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
                block.over = over_;
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
        return !spec_.gated_unit && !over_.channels && spec_.latent.rank == 0;
    }

    const char* why_no_estimate() const {
        if (over_.channels) return "P is over channels";
        if (spec_.gated_unit) return "P V is gated";
        if (spec_.latent.rank > 0) return "V is of a normalised latent state";
        if (b_.placement == NormPlacement::branch || b_.branch_norms)
            return "the attention branch is normalised";
        const bool norm = std::ranges::any_of(
            groups_, [](const HeadGroup& s) { return s.spec.output_norm != OutputNorm::none; });
        return norm ? "P V is normalised" : nullptr;
    }

    Attention event(const AttentionOperator& op, const Projections& projections,
                    const Tensor& input, const Tensor& residual) const {
        return {.layer = run_.layer,
                .op = op,
                .input = input,
                .residual = residual,
                .projections = has_projections() ? &projections : nullptr,
                .a2 = run_.a2,
                .memory = map_memory(),
                .pre_norm =
                    b_.placement == NormPlacement::pre || b_.placement == NormPlacement::parallel,
                .why_no_estimate = why_no_estimate(),
                .over = over_};
    }

    const AttentionStep& step_;
    const BlockSpec& b_;
    const AttentionSpec& spec_;
    const Batch& batch_;
    const LayerRun& run_;
    StepRun& layer_;
    Index samples_;
    std::vector<HeadGroup> groups_;
    AttentionOver over_;
    std::vector<PendingAttention> pending_;
    SharedInput together_;
};

}  // namespace

std::unique_ptr<AttentionPass> AttentionStep::on(const Batch& batch, const LayerRun& run,
                                                 StepRun& layer) const {
    return std::make_unique<Pass>(*this, batch, run, layer);
}

}  // namespace tsdiag::model
