#include "pinnsformer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag::experiment_list {
namespace {

using Parameters = Pinnsformer::Parameters;

const Tensor& parameter_of(const Parameters& with, std::string_view name, std::string_view part) {
    return with.find(fmt::format("{}.{}", name, part))->second;
}
Tensor linear_of(const Parameters& with, const std::string& name, const Tensor& x) {
    return linear(x, parameter_of(with, name, "weight"), parameter_of(with, name, "bias"));
}
Tensor wave_of(const Parameters& with, const std::string& name, const Tensor& x) {
    return add(multiply(map(Unary::sine, x), parameter_of(with, name, "w1")),
               multiply(map(Unary::cosine, x), parameter_of(with, name, "w2")));
}
Tensor feed_of(const Parameters& with, const std::string& name, const Tensor& x) {
    Tensor h = linear_of(with, name + ".0", x);
    for (const auto& [act, next] : {std::pair{".1", ".2"}, std::pair{".3", ".4"}})
        h = linear_of(with, name + next, wave_of(with, name + act, h));
    return h;
}

/// The rows of one of three stacked matrices.
Tensor third(const Tensor& stacked, Index which) {
    const Index rows = stacked.rows() / 3;
    return stacked.row_range(which * rows, rows);
}

}  // namespace

Pinnsformer::Pinnsformer(PinnsformerSizes sizes) : sizes_(std::move(sizes)) {
    if (sizes_.d % sizes_.heads != 0)
        throw UsageError(
            fmt::format("PINNsformer: heads={} do not divide d={}.", sizes_.heads, sizes_.d));
    const AttentionEntry& entry = attention(sizes_.attention);
    check_options(entry, sizes_.options);
    if (entry.learned)
        learned_ = entry.learned(sizes_.options, {.width = sizes_.d,
                                                  .heads = sizes_.heads,
                                                  .kv_heads = sizes_.heads,
                                                  .head_dim = sizes_.d / sizes_.heads});
    add_linear("linear_emb", sizes_.d, 2);
    for (const std::string part : {"encoder", "decoder"}) {
        for (Index i = 0; i < sizes_.layers; ++i) add_layer(fmt::format("{}.layers.{}", part, i));
        add_wave(part + ".act");
    }
    add_feed("linear_out", sizes_.d, sizes_.hidden, 1);
}

void Pinnsformer::add_linear(const std::string& name, Index out, Index in) {
    parameters_.emplace_back(name + ".weight", Shape{1, out, in});
    parameters_.emplace_back(name + ".bias", Shape{1, 1, out});
}

void Pinnsformer::add_wave(const std::string& name) {
    for (const char* omega : {".w1", ".w2"}) parameters_.emplace_back(name + omega, Shape{1, 1, 1});
}

void Pinnsformer::add_feed(const std::string& name, Index in, Index inner, Index out) {
    add_linear(name + ".0", inner, in);
    add_wave(name + ".1");
    add_linear(name + ".2", inner, inner);
    add_wave(name + ".3");
    add_linear(name + ".4", out, inner);
}

void Pinnsformer::add_layer(const std::string& name) {
    const Index d = sizes_.d;
    parameters_.emplace_back(name + ".attn.in_proj_weight", Shape{1, 3 * d, d});
    parameters_.emplace_back(name + ".attn.in_proj_bias", Shape{1, 1, 3 * d});
    add_linear(name + ".attn.out_proj", d, d);
    for (const LearnedParameter& learned : learned_)
        parameters_.emplace_back(fmt::format("{}.attn.{}", name, learned.name), learned.shape);
    add_feed(name + ".ff.linear", d, sizes_.ffn, d);
    add_wave(name + ".act1");
    add_wave(name + ".act2");
}

Index Pinnsformer::count() const {
    Index sum = 0;
    for (const auto& [name, shape] : parameters_) sum += shape.count();
    return sum;
}

std::vector<double> Pinnsformer::draw(const Rng& rng) const {
    std::vector<double> out;
    for (const auto& [name, shape] : parameters_) {
        const auto count = std::size_t(shape.count());
        const auto learned = std::ranges::find_if(learned_, [&](const LearnedParameter& one) {
            return name.ends_with(fmt::format("attn.{}", one.name));
        });
        if (learned != learned_.end() && learned->matrix) {
            auto values = std::vector<double>(count);
            learned->law == Law::uniform
                ? rng.fork(name).fill_uniform(values, -learned->spread, learned->spread)
                : rng.fork(name).fill_normal(values, 0, learned->spread);
            out.insert(out.end(), values.begin(), values.end());
            continue;
        }
        if (name.ends_with("weight")) {
            const double bound = std::sqrt(6.0 / double(shape.rows + shape.cols));
            auto values = std::vector<double>(count);
            rng.fork(name).fill_uniform(values, -bound, bound);
            out.insert(out.end(), values.begin(), values.end());
            continue;
        }
        double value = name.ends_with("in_proj_bias") ? 0 : name.ends_with("bias") ? 0.01 : 1;
        if (learned != learned_.end()) value = learned->start;
        out.insert(out.end(), count, value);
    }
    return out;
}

Parameters Pinnsformer::tensors(const Backend& backend, std::span<const double> numbers) const {
    check(std::ssize(numbers) == count(), "every parameter has its numbers");
    Parameters out;
    for (const auto& [name, shape] : parameters_) {
        const auto size = std::size_t(shape.count());
        out.emplace(name, Tensor::from_host(backend, shape, numbers.first(size), Type::f64));
        numbers = numbers.subspan(size);
    }
    return out;
}

Tensor Pinnsformer::attend(const Parameters& with, const std::string& name, const Tensor& q,
                           const Tensor& m) const {
    const Index samples = q.batch(), heads = sizes_.heads;
    const Tensor &weight = parameter_of(with, name, "in_proj_weight"),
                 &bias = parameter_of(with, name, "in_proj_bias");
    const auto head = [&](const Tensor& x, Index which) {
        return split_heads(
            linear(x, third(weight, which), bias.col_range(which * sizes_.d, sizes_.d)), heads);
    };
    AttentionInput input{
        .q = head(q, 0),
        .k = head(m, 1),
        .samples = samples,
        .scale = attention(sizes_.attention).unscaled ? 1 : 1 / std::sqrt(double(sizes_.d / heads)),
        .options = sizes_.options};
    input.parameter = [&](std::string_view own) {
        const auto found = with.find(fmt::format("{}.{}", name, own));
        return found == with.end() ? Tensor() : found->second;
    };
    const Index tokens = q.rows();
    const auto p = attention(sizes_.attention).make(std::move(input));
    return linear_of(with, name + ".out_proj", merge_heads(p->apply(head(m, 2), tokens), samples));
}

Tensor Pinnsformer::forward(const Parameters& with, const Tensor& points) const {
    const Tensor embedded = linear_of(with, "linear_emb", points);
    Tensor memory;
    for (const std::string part : {"encoder", "decoder"}) {
        Tensor h = embedded;
        for (Index i = 0; i < sizes_.layers; ++i) {
            const std::string name = fmt::format("{}.layers.{}", part, i);
            const Tensor q = wave_of(with, name + ".act1", h);
            h = add(h, attend(with, name + ".attn", q, memory.defined() ? memory : q));
            h = add(h, feed_of(with, name + ".ff.linear", wave_of(with, name + ".act2", h)));
        }
        memory = wave_of(with, part + ".act", h);
    }
    return feed_of(with, "linear_out", memory);
}

}  // namespace tsdiag::experiment_list
