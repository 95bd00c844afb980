#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "attention.hpp"
#include "feed_forward.hpp"
#include "step.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {

extern const StepEntry contranorm_step;

std::span<const StepEntry* const> further_steps() {
    static constexpr std::array list = {&contranorm_step};
    return list;
}

namespace {

const StepEntry& step_entry(std::string_view name) {
    std::vector<std::string_view> names;
    for (const StepEntry* entry : further_steps()) {
        if (entry->name == name) return *entry;
        names.push_back(entry->name);
    }
    throw UsageError(fmt::format("unknown step '{}'; expected {}", name, fmt::join(names, ", ")));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

StepSpec step_named(std::string_view text) {
    const std::vector<std::string> parts = split(text, ':');
    const StepEntry& entry = step_entry(parts.front());
    StepSpec out{.name = std::string(entry.name)};
    for (const std::string& part : std::span(parts).subspan(1)) {
        const std::size_t sign = part.find('=');
        if (sign == part.npos)
            throw UsageError(fmt::format("step={}: '{}' is not OPTION=VALUE", text, part));
        if (!out.options.emplace(part.substr(0, sign), part.substr(sign + 1)).second)
            throw UsageError(
                fmt::format("step={}: option '{}' is given twice", text, part.substr(0, sign)));
    }
    if (const auto at = out.options.extract("at"); !at.empty()) {
        if (at.mapped() != "ffn" && at.mapped() != "end")
            throw UsageError(
                fmt::format("step={}: at={} is neither ffn nor end", text, at.mapped()));
        out.before_ffn = at.mapped() == "ffn";
    }
    check_options(fmt::format("step '{}'", entry.name), entry.options, out.options,
                  "docs/steps.md");
    return out;
}

}  // namespace

std::vector<StepSpec> steps_named(std::string_view text) {
    std::vector<StepSpec> out;
    for (std::size_t from = 0; from <= text.size();) {
        std::size_t end = text.find('+', from);
        while (end + 1 < text.size() && is_digit(text[end + 1]))  // that of 1e+3
            end = text.find('+', end + 1);
        out.push_back(step_named(text.substr(from, end - from)));
        from = end == text.npos ? text.size() + 1 : end + 1;
        if (std::ranges::count(out, out.back().name, &StepSpec::name) > 1)
            throw UsageError(fmt::format("step={}: a layer has '{}' once", text, out.back().name));
    }
    return out;
}

std::string steps_text(const BlockSpec& block) {
    std::string out;
    for (const StepSpec& step : block.steps) {
        out += (out.empty() ? "" : "+") + step.name;
        if (step.before_ffn) out += ":at=ffn";
        for (const auto& [name, value] : step.options) out += fmt::format(":{}={}", name, value);
    }
    return out;
}

void check_steps(const BlockSpec& block) {
    for (const StepSpec& step : block.steps) {
        if (step.before_ffn && (block.placement == NormPlacement::parallel || block.ffn.width == 0))
            throw UsageError(
                fmt::format("step={}: a layer has no feed-forward step after its attention; omit "
                            "at=ffn",
                            step.name));
        step_entry(step.name).make(block, step);
    }
}

std::string steps_markdown() {
    std::string out =
        "# Steps of a layer\n\nWritten by `steps_markdown()` from the list in "
        "`src/model/steps/steps.cpp`; a test compares the two. A drawn model of any family has "
        "such a step in each layer by `step=NAME:OPTION=VALUE`, several with `+` between: at the "
        "end of the layer, or with the option `at=ffn` on the input of its feed-forward step. It "
        "belongs to what `init` and `train` write, and `probe` measures its state as the stage of "
        "its name. De-escalation [TSE] is `deesc=TAU`; the steps that belong to a family are in "
        "[checkpoints.md](checkpoints.md), the stages of all in [metrics.md](metrics.md).\n";
    for (const StepEntry* entry : further_steps()) {
        out += fmt::format(
            "\n## {}\n\n{}. Source: {}.\n\n| option | default | values | meaning "
            "|\n|---|---|---|---|\n",
            entry->name, entry->description, entry->source);
        for (const NamedOption& o : entry->options)
            out += fmt::format("| `{}` | `{}` | {} | {} |\n", o.name, o.fallback, range_of(o),
                               o.description);
    }
    return out;
}

}  // namespace tsdiag

namespace tsdiag::model {

Tensor Step::apply(StepRun&, const Tensor& x) const {
    check(false, "the layer itself applies a step of its core");
    return x;
}

LayerSteps::LayerSteps(const BlockSpec& block)
    : attention_(std::make_shared<AttentionStep>(block)),
      feed_forward_(std::make_shared<FeedForwardStep>(block)) {
    const auto append = [&](std::shared_ptr<Step> step) {
        if (step) all_.push_back(std::move(step));
    };
    const auto changes = [&](bool before_ffn) {
        if (block.deesc.before_ffn == before_ffn) append(deescalation_step(block));
        for (const StepSpec& step : block.steps)
            if (step.before_ffn == before_ffn) append(step_entry(step.name).make(block, step));
    };
    append(attention_);
    append(local_step(block));
    changes(true);
    append(feed_forward_);
    changes(false);
    append(merge_step(block));
}

void LayerSteps::declare(Index width, Parameters& to) {
    for (const std::shared_ptr<Step>& step : all_) step->parameters(width, to);
}

LayerSteps load_layer(const Weights& weights, const ModelSpec& spec, Index layer) {
    const BlockSpec& block = spec.blocks[std::size_t(layer)];
    const Index owner = block.shares < 0 ? layer : block.shares;
    LayerSteps out(block);
    LoadedParameters own(weights, fmt::format("layer.{}.", owner));
    out.declare(spec.width_of(layer), own);
    out.bytes = own.bytes();
    const Index variant = block.attention.own_of < 0 ? owner : block.attention.own_of;
    if (variant == layer) return out;
    LoadedParameters others(weights, fmt::format("layer.{}.", variant));
    out.attention().declare_own(spec.blocks[std::size_t(variant)].attention.own, others);
    return out;
}

}  // namespace tsdiag::model

namespace tsdiag {

std::vector<Stage> stages_of(const BlockSpec& block) {
    model::StageList list;
    const model::LayerSteps steps(block);
    for (const bool behind : {false, true}) {
        for (const std::shared_ptr<model::Step>& step : steps.all())
            if ((step->place() == model::StepPlace::behind) == behind) step->stages(list);
        if (!behind) list.aside("out");
    }
    return list.list();
}

std::vector<std::string_view> all_stages() {
    BlockSpec every;  // each step, and the norms that precede them
    every.placement = NormPlacement::pre;
    every.local.kernel = every.ffn.width = every.merge.width = 1;
    every.deesc.tau = 1;
    for (const StepEntry* entry : further_steps())
        every.steps.push_back({std::string(entry->name)});
    std::vector<std::string_view> out = {"embed"};
    for (const Stage& stage : stages_of(every)) out.push_back(stage.name);
    out.insert(out.end(), {"class", "final_norm"});
    return out;
}

}  // namespace tsdiag
