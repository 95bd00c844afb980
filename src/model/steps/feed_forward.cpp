#include "feed_forward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

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

/// Experts of each token in turn, most probable first.
using Choices = std::vector<Index>;

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

void declare(const FeedForwardSpec& f, Index d, Index width, const std::string& at,
             FeedForwardMaps& w, Parameters& to) {
    if (f.gated) to.linear(at + "gate", w.gate, width, d, f.bias);
    to.linear(at + "up", w.up, width, d, f.bias);
    to.linear(at + "down", w.down, d, width, f.bias);
}

/// act(gate x) * up x, clipped where `limit` says so, or act(up x) where it is not gated.
Tensor inner_state(const FeedForwardSpec& spec, const FeedForwardMaps& w, const Tensor& x) {
    if (spec.gated && spec.limit > 0) {
        const Tensor up = at_most(at_least(w.up(x), -spec.limit), spec.limit);
        return multiply(map(spec.activation, at_most(w.gate(x), spec.limit)), affine(up, 1, 1));
    }
    return spec.gated ? multiply(w.gate.mapped(x, spec.activation), w.up(x))
                      : w.up.mapped(x, spec.activation);
}

/// down(inner state).
Tensor apply_maps(const FeedForwardSpec& spec, const FeedForwardMaps& w, const Tensor& x) {
    return w.down(inner_state(spec, w, x));
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

}  // namespace

void FeedForwardStep::declare_maps(Index d, Parameters& to) {
    if (spec().experts.count > 0) return declare_experts(d, to);
    declare(spec(), d, spec().width, "ffn.", maps_, to);
}

void FeedForwardStep::declare_experts(Index d, Parameters& to) {
    const ExpertsSpec& e = spec().experts;
    const auto maps = [&](const std::string& at, Index width) {
        return to.on_demand<FeedForwardMaps>(
            [f = spec(), d, width, at](FeedForwardMaps& into, Parameters& later) {
                declare(f, d, width, at, into, later);
            });
    };
    to.linear("ffn.router", router_, e.count, d, e.router_bias);
    if (e.corrected) to.vector("ffn.router.correction", correction_, e.count);
    for (Index i = 0; i < e.count; ++i)
        experts_.push_back(maps(fmt::format("ffn.expert.{}.", i), spec().width));
    if (e.shared == 0) return;
    shared_ = maps("ffn.shared.", e.shared);
    if (e.shared_gate) to.linear("ffn.shared_gate", shared_gate_, 1, d, false);
}

void FeedForwardStep::describe(Json& out) const {
    const FeedForwardSpec& f = spec();
    out.set("ffn", f.width).set("activation", name(f.activation)).set("gated", f.gated);
    out.set("ffn_bias", f.bias);
    if (f.limit > 0) out.set("ffn_limit", f.limit);
    if (f.experts.count > 0) out.set("experts", experts_json(f.experts));
    if (block().ffn_alpha != 1) out.set("ffn_alpha", block().ffn_alpha);
}

void FeedForwardStep::stages(StageList& list) const {
    const BlockSpec& b = block();
    const bool parallel = b.placement == NormPlacement::parallel,
               norms = b.norm.kind != NormKind::none;
    if (there() && norms && (b.placement == NormPlacement::pre || (parallel && !b.one_norm)))
        list.aside("norm2");
    if (parallel) return list.sum_with_input("ffn");
    if (!there()) return;
    list.state("ffn");
    if (b.placement == NormPlacement::post && norms) list.state("norm2");
}

double FeedForwardStep::flops(double d, double tokens) const {
    const ExpertsSpec& e = spec().experts;
    const Index width = spec().width;
    const auto inner = double(e.count == 0 ? width : e.chosen * width + e.shared);
    return 2 * tokens * d * double(e.count) + (spec().gated ? 6 : 4) * tokens * d * inner;
}

HeldNumbers FeedForwardStep::held(double) const {
    return {.of_token = double(spec().width * (spec().gated ? 3 : 2))};
}

/// One sample, (1, n, d).
Tensor FeedForwardStep::routed(const Tensor& x, Tensor p, const Choices& chosen) const {
    const ExpertsSpec& e = spec().experts;
    if (e.renormalised) p = divide(p, chosen_mass(p, chosen, e.chosen));
    if (e.scale != 1) p = scale(p, e.scale);
    std::vector<std::vector<Index>> tokens(std::size_t(e.count));
    for (std::size_t at = 0; at < chosen.size(); ++at)
        tokens[std::size_t(chosen[at])].push_back(Index(at) / e.chosen);
    Tensor sum;
    for (Index i = 0; i < e.count; ++i) {
        const std::vector<Index>& rows = tokens[std::size_t(i)];
        if (rows.empty()) continue;
        const FeedForwardMaps maps = experts_[std::size_t(i)]();
        const std::vector<Index> column(rows.size(), i);
        const Tensor share = pick(gather_rows(p, rows), column);
        const Tensor in = gather_rows(x, rows);
        const Tensor y = e.of_input ? apply_maps(spec(), maps, multiply(in, share))
                                    : multiply(apply_maps(spec(), maps, in), share);
        const Tensor placed = scatter_add_rows(y, rows, x.rows());
        sum = sum.defined() ? add(sum, placed) : placed;
    }
    return sum;
}

/// The mixture of ExpertsSpec, x (s, n, d).  Only experts that some token chose are read.  Each
/// sample is routed alone, so that its numbers do not depend on the batch.  The choice itself has
/// no derivative.  Cost of a token: that of the chosen experts.
Tensor FeedForwardStep::mixture(StepRun& run, const Tensor& x) const {
    const ExpertsSpec& e = spec().experts;
    run.require_finite();  // before experts are chosen on the host
    std::vector<Tensor> samples;
    for (Index s = 0; s < x.batch(); ++s) {
        const Tensor one = x.batch_range(s, 1);
        const Tensor logits = router_(one);
        const Tensor p = e.sigmoid ? map(Unary::sigmoid, logits) : softmax_rows(logits, {});
        // Sigmoids that are rounded to 1 would be alike.
        const Tensor by = e.corrected ? add(p, correction_) : e.sigmoid ? logits : p;
        const Choices chosen = choose(by.detached(), e);
        run.emit_routing(s, e.sigmoid ? divide(p, row_sum(p)) : p, chosen, e.chosen);
        samples.push_back(routed(one, p, chosen));
    }
    Tensor out = samples.size() == 1 ? samples.front() : concat_batches(samples);
    if (e.shared == 0) return out;
    Tensor shared = apply_maps(spec(), shared_(), x);
    if (e.shared_gate) shared = multiply(shared, map(Unary::sigmoid, shared_gate_(x)));
    return add(out, shared);
}

Summed FeedForwardStep::plus(StepRun& run, const Tensor& y, const Tensor& x,
                             const Norm* next) const {
    if (spec().experts.count == 0 && plain(run)) {
        const Tensor inner = inner_state(spec(), maps_, x);
        if (!y.backend().fuses()) return {maps_.down.mapped(inner, Unary::copy, y), {}};
        const LinearSum found = mapped_sum(maps_.down, inner, y, next);
        return {found.sum, found.normed};
    }
    const Tensor branch =
        spec().experts.count == 0 ? apply_maps(spec(), maps_, x) : mixture(run, x);
    return {sum(y, run.dropped(scaled_and_normed(branch), "ffn")), {}};
}

}  // namespace tsdiag::model
