#include "layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "steps/attention.hpp"
#include "steps/feed_forward.hpp"
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

/// One layer on one batch.
class LayerPass final : public StepRun {
  public:
    LayerPass(const LayerRun& run, const Batch& batch)
        : run_(run),
          b_(run.block),
          batch_(batch),
          attention_(run.steps.attention()),
          feed_forward_(run.steps.feed_forward()),
          pass_(attention_.on(batch, run, *this)) {}

    Tensor run() {
        const Tensor& x = batch_.x;
        emit("in", "", x);
        Tensor y = applied_to(x);
        y = changed(StepPlace::end, y);
        if (run_.observer) run_.observer->on_states(run_.first, {run_.layer, "out", "", y});
        y = changed(StepPlace::behind, y);
        if (run_.observer) run_.observer->before_numbers_are_read();
        if (!run_.finite) own_finite_.require();
        pass_->emit();
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
    bool drops() const override { return bool(run_.dropout); }
    Tensor dropped(const Tensor& branch, std::string_view stage) const override {
        return run_.dropout ? run_.dropout(branch, stage) : branch;
    }
    void require_finite() override { finite().require(); }
    void emit_routing(Index sample, const Tensor& p, std::span<const Index> chosen,
                      Index each) override {
        if (!run_.observer) return;
        if (batch_.x.batch() > 1) run_.observer->begin_sample(run_.first + sample);
        run_.observer->on_routing({run_.layer, p, chosen, each});
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

    FiniteStates& finite() { return run_.finite ? *run_.finite : own_finite_; }

    bool norms() const { return b_.norm.kind != NormKind::none; }

    bool has(StepPlace place) const {
        return std::ranges::any_of(run_.steps.all(),
                                   [&](const auto& s) { return s->place() == place; });
    }
    /// y behind the steps of `place`.
    Tensor changed(StepPlace place, Tensor y) {
        for (const std::shared_ptr<Step>& step : run_.steps.all())
            if (step->place() == place) y = step->apply(*this, y);
        return y;
    }

    /// [TSE] Algorithm 1: Y = LN(X + alpha SA(X)), then LN(Y + FFN(Y)).
    Tensor post_norm(const Tensor& x) {
        Summed found = pass_->plus(x, x, norms() ? &attention_.norm() : nullptr);
        Tensor y = found.sum;
        emit("attn", "in", y);
        if (norms()) {
            y = normed_of(found, attention_);
            emit("norm1", "attn", y);
        }
        y = changed(StepPlace::between, y);
        if (b_.ffn.width == 0) return y;
        const std::string_view before = last_;
        found = feed_forward_.plus(*this, y, y, norms() ? &feed_forward_.norm() : nullptr);
        y = found.sum;
        emit("ffn", before, y);
        if (norms()) {
            y = normed_of(found, feed_forward_);
            emit("norm2", "ffn", y);
        }
        return y;
    }

    /// [TSE] (19): Y = X + alpha SA(LN(X)), then Y + FFN(LN(Y)); [OLMO2] has the norms in the
    /// branches instead.
    Tensor pre_norm(const Tensor& x) {
        const bool follows =
            norms() && !norms_of_branches() && b_.ffn.width > 0 && !has(StepPlace::between);
        const Summed found = pass_->plus(x, normed1(x), follows ? &feed_forward_.norm() : nullptr);
        Tensor y = found.sum;
        emit("attn", "in", y);
        y = changed(StepPlace::between, y);
        if (b_.ffn.width == 0) return y;
        const std::string_view before = last_;
        y = feed_forward_.plus(*this, y, normed2(y, found.normed), nullptr).sum;
        emit("ffn", before, y);
        return y;
    }

    /// X + alpha SA(LN(X)) + FFN(LN'(X)).
    Tensor parallel(const Tensor& x) {
        const Tensor normed = normed1(x);
        Tensor y = pass_->plus(x, normed, nullptr).sum;
        if (b_.ffn.width > 0)
            y = feed_forward_.plus(*this, y, b_.one_norm ? normed : normed2(x), nullptr).sum;
        emit("ffn", "in", y);
        return y;
    }

    static Tensor normed_of(const Summed& found, const Branch& branch) {
        return found.normed.defined() ? found.normed : branch.normed(found.sum);
    }
    /// Whether the norms of the placement are those of the branches.
    bool norms_of_branches() const { return b_.placement == NormPlacement::branch; }
    Tensor normed1(const Tensor& x) {
        if (!norms() || norms_of_branches() || !b_.attention_norm) return x;
        Tensor out = attention_.normed(x);
        emit("norm1", "", out);
        return out;
    }
    /// `known`: the norm of x, where it was computed.
    Tensor normed2(const Tensor& x, const Tensor& known = {}) {
        if (!norms() || norms_of_branches()) return x;
        Tensor out = known.defined() ? known : feed_forward_.normed(x);
        emit("norm2", "", out);
        return out;
    }

    const LayerRun& run_;
    const BlockSpec& b_;
    const Batch& batch_;
    const AttentionStep& attention_;
    const FeedForwardStep& feed_forward_;
    std::unique_ptr<AttentionPass> pass_;
    std::string_view last_;
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
    LayerRun silent{.layer = run.layer, .block = run.block, .steps = run.steps};
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
