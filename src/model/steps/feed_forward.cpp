#include "feed_forward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "step.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

constexpr double never = -std::numeric_limits<double>::infinity();

/// Leaves of the experts of a token those in the groups that ExpertsSpec chooses.
void limit_to_groups(const ExpertsSpec& spec, std::span<double> p) {
    const std::size_t size = p.size() / std::size_t(spec.groups), best = spec.corrected ? 2 : 1;
    std::vector<std::pair<double, std::size_t>> groups;  // of equal ones the first
    std::vector<double> sorted;
    for (std::size_t g = 0; g < std::size_t(spec.groups); ++g) {
        sorted.assign(p.begin() + std::ptrdiff_t(g * size),
                      p.begin() + std::ptrdiff_t((g + 1) * size));
        std::ranges::sort(sorted, std::greater<>());
        double sum = 0;
        for (std::size_t k = 0; k < std::min(best, size); ++k) sum += sorted[k];
        groups.emplace_back(-sum, g);
    }
    std::ranges::sort(groups);
    for (std::size_t rank = std::size_t(spec.chosen_groups); rank < groups.size(); ++rank)
        std::ranges::fill(p.subspan(groups[rank].second * size, size), never);
}

/// The experts of the greatest p of each token; of equal ones the first.
Choices choose(const Tensor& p, const ExpertsSpec& spec) {
    std::vector<double> values = p.to_host<double>();
    const auto experts = std::size_t(p.cols());
    const Index each = spec.chosen;
    for (std::size_t at = 0; spec.groups > 1 && at < values.size(); at += experts)
        limit_to_groups(spec, std::span(values).subspan(at, experts));
    Choices out;
    std::vector<Index> order(experts);
    for (std::size_t at = 0; at < values.size(); at += experts) {
        std::iota(order.begin(), order.end(), Index{0});
        std::partial_sort(order.begin(), order.begin() + each, order.end(), [&](Index a, Index b) {
            const double x = values[at + std::size_t(a)], y = values[at + std::size_t(b)];
            return x != y ? x > y : a < b;
        });
        out.insert(out.end(), order.begin(), order.begin() + each);
    }
    return out;
}

/// sum of p over the chosen of each token, (1, n, 1).
Tensor chosen_mass(const Tensor& p, const Choices& chosen, Index each) {
    Tensor sum;
    for (Index rank = 0; rank < each; ++rank) {
        std::vector<Index> column;
        for (auto at = std::size_t(rank); at < chosen.size(); at += std::size_t(each))
            column.push_back(chosen[at]);
        const Tensor one = pick(p, column);
        sum = sum.defined() ? add(sum, one) : one;
    }
    return sum;
}

Tensor at_most(const Tensor& x, double bound) {
    return map(Unary::negate, at_least(map(Unary::negate, x), -bound));
}

/// One sample, (1, n, d).
Tensor routed(const FeedForwardSpec& spec, const FeedForwardWeights& weights, const Tensor& x,
              Tensor p, const Choices& chosen) {
    const ExpertsSpec& e = spec.experts;
    if (e.renormalised) p = divide(p, chosen_mass(p, chosen, e.chosen));
    if (e.scale != 1) p = scale(p, e.scale);
    std::vector<std::vector<Index>> tokens(std::size_t(e.count));
    for (std::size_t at = 0; at < chosen.size(); ++at)
        tokens[std::size_t(chosen[at])].push_back(Index(at) / e.chosen);
    Tensor sum;
    for (Index i = 0; i < e.count; ++i) {
        const std::vector<Index>& rows = tokens[std::size_t(i)];
        if (rows.empty()) continue;
        const FeedForwardMaps maps = weights.experts[std::size_t(i)]();
        const std::vector<Index> column(rows.size(), i);
        const Tensor share = pick(gather_rows(p, rows), column);
        const Tensor in = gather_rows(x, rows);
        const Tensor y = e.of_input ? apply_maps(spec, maps, multiply(in, share))
                                    : multiply(apply_maps(spec, maps, in), share);
        const Tensor placed = scatter_add_rows(y, rows, x.rows());
        sum = sum.defined() ? add(sum, placed) : placed;
    }
    return sum;
}

void declare_maps(const FeedForwardSpec& f, Index d, Index width, const std::string& at,
                  FeedForwardMaps& w, Parameters& to) {
    if (f.gated) to.linear(at + "gate", w.gate, width, d, f.bias);
    to.linear(at + "up", w.up, width, d, f.bias);
    to.linear(at + "down", w.down, d, width, f.bias);
}

void declare_experts(const FeedForwardSpec& f, Index d, FeedForwardWeights& w, Parameters& to) {
    const ExpertsSpec& e = f.experts;
    const auto maps = [&](const std::string& at, Index width) {
        return to.on_demand<FeedForwardMaps>(
            [f, d, width, at](FeedForwardMaps& into, Parameters& later) {
                declare_maps(f, d, width, at, into, later);
            });
    };
    to.linear("ffn.router", w.router, e.count, d, e.router_bias);
    if (e.corrected) to.vector("ffn.router.correction", w.correction, e.count);
    for (Index i = 0; i < e.count; ++i)
        w.experts.push_back(maps(fmt::format("ffn.expert.{}.", i), f.width));
    if (e.shared == 0) return;
    w.shared = maps("ffn.shared.", e.shared);
    if (e.shared_gate) to.linear("ffn.shared_gate", w.shared_gate, 1, d, false);
}

void feed_forward_parameters(const BlockSpec& b, Index d, LayerWeights& layer, Parameters& to) {
    if (b.ffn.width == 0) return;
    if (!b.one_norm) to.norm("norm2", layer.norm2, b.norm.kind, d, b.norm.bias);
    if (b.ffn.experts.count > 0)
        declare_experts(b.ffn, d, layer.ffn, to);
    else
        declare_maps(b.ffn, d, b.ffn.width, "ffn.", layer.ffn.maps, to);
    if (b.layer_scale) to.vector("scale2", layer.scale2, d);
    if (b.branch_norms) to.norm("branch2", layer.branch2, b.norm.kind, d, b.norm.bias);
}

Json experts_json(const ExpertsSpec& e) {
    Json out;
    out.set("count", e.count).set("chosen", e.chosen).set("renormalised", e.renormalised);
    if (e.shared > 0) out.set("shared", e.shared).set("shared_gate", e.shared_gate);
    if (e.router_bias) out.set("router_bias", true);
    if (e.sigmoid) out.set("sigmoid", true);
    if (e.of_input) out.set("of_input", true);
    if (e.corrected) out.set("corrected", true);
    if (e.groups > 1) out.set("groups", e.groups).set("chosen_groups", e.chosen_groups);
    if (e.scale != 1) out.set("scale", e.scale);
    return out;
}

void describe_feed_forward(const BlockSpec& b, Json& out) {
    const FeedForwardSpec& f = b.ffn;
    out.set("ffn", f.width).set("activation", name(f.activation)).set("gated", f.gated);
    out.set("ffn_bias", f.bias);
    if (f.limit > 0) out.set("ffn_limit", f.limit);
    if (f.experts.count > 0) out.set("experts", experts_json(f.experts));
    if (b.ffn_alpha != 1) out.set("ffn_alpha", b.ffn_alpha);
}

void feed_forward_stages(const BlockSpec& b, StageList& list) {
    const bool parallel = b.placement == NormPlacement::parallel,
               norms = b.norm.kind != NormKind::none;
    const bool there = b.ffn.width > 0;
    if (there && norms && (b.placement == NormPlacement::pre || (parallel && !b.one_norm)))
        list.aside("norm2");
    if (parallel) return list.sum_with_input("ffn");
    if (!there) return;
    list.state("ffn");
    if (b.placement == NormPlacement::post && norms) list.state("norm2");
}

double feed_forward_flops(const BlockSpec& b, double d, double tokens) {
    const ExpertsSpec& e = b.ffn.experts;
    const auto inner = double(e.count == 0 ? b.ffn.width : e.chosen * b.ffn.width + e.shared);
    return 2 * tokens * d * double(e.count) + (b.ffn.gated ? 6 : 4) * tokens * d * inner;
}

class FeedForwardStep final : public Step {
  public:
    using Step::Step;

    StepPlace place() const override { return StepPlace::core; }
    void parameters(Index d, LayerWeights& layer, Parameters& to) override {
        feed_forward_parameters(block(), d, layer, to);
    }
    void stages(StageList& list) const override { feed_forward_stages(block(), list); }
    void describe(Json& layer) const override { describe_feed_forward(block(), layer); }
    double flops(double d, double tokens) const override {
        return feed_forward_flops(block(), d, tokens);
    }
    HeldNumbers held(double) const override {
        return {.of_token = double(block().ffn.width * (block().ffn.gated ? 3 : 2))};
    }
};

}  // namespace

Tensor inner_state(const FeedForwardSpec& spec, const FeedForwardMaps& w, const Tensor& x) {
    if (spec.gated && spec.limit > 0) {
        const Tensor up = at_most(at_least(w.up(x), -spec.limit), spec.limit);
        return multiply(map(spec.activation, at_most(w.gate(x), spec.limit)), affine(up, 1, 1));
    }
    return spec.gated ? multiply(w.gate.mapped(x, spec.activation), w.up(x))
                      : w.up.mapped(x, spec.activation);
}

Tensor apply_maps(const FeedForwardSpec& spec, const FeedForwardMaps& w, const Tensor& x) {
    return w.down(inner_state(spec, w, x));
}

Tensor mixture(const FeedForwardSpec& spec, const FeedForwardWeights& weights, const Tensor& x,
               const TellRouting& tell) {
    const ExpertsSpec& e = spec.experts;
    std::vector<Tensor> samples;
    for (Index s = 0; s < x.batch(); ++s) {
        const Tensor one = x.batch_range(s, 1);
        const Tensor logits = weights.router(one);
        const Tensor p = e.sigmoid ? map(Unary::sigmoid, logits) : softmax_rows(logits, {});
        // Sigmoids that are rounded to 1 would be alike.
        const Tensor by = e.corrected ? add(p, weights.correction) : e.sigmoid ? logits : p;
        const Choices chosen = choose(by.detached(), e);
        tell(s, e.sigmoid ? divide(p, row_sum(p)) : p, chosen);
        samples.push_back(routed(spec, weights, one, p, chosen));
    }
    Tensor out = samples.size() == 1 ? samples.front() : concat_batches(samples);
    if (e.shared == 0) return out;
    Tensor shared = apply_maps(spec, weights.shared(), x);
    if (e.shared_gate) shared = multiply(shared, map(Unary::sigmoid, weights.shared_gate(x)));
    return add(out, shared);
}

std::unique_ptr<Step> feed_forward_step(const BlockSpec& block) {
    return std::make_unique<FeedForwardStep>(block);
}

}  // namespace tsdiag::model
