#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "arena.hpp"
#include "tsdiag/error.hpp"

/// [DEVIL] Figure 1: speed, memory and score on the Long-Range Arena.
namespace tsdiag::experiment_list::devil_fig1 {
namespace {

/// Those of both Table 6 and Table 7, of which the figure is made.
constexpr std::array<std::string_view, 11> labels = {
    "Transformer",   "FLASH-quad",     "FLASH",         "LS",
    "Performer",     "cosFormer",      "Linformer",     "Reformer",
    "Nystromformer", "TransNormer T1", "TransNormer T2"};
constexpr std::size_t own_models = 2;  // the last

constexpr ArenaSizes timed_sizes = {};  ///< the paper's, at every scale

constexpr auto keys =
    joined(std::array{whole_key("length", "128", "1024", "2048",
                                "tokens of the timed step, a multiple of its 128 features",
                                double(timed_sizes.features), 65536),
                      key_arena_tasks("listops", "text,listops,retrieval,pathfinder,image")},
           arena_keys, std::array{key_trials("3", "3")});

std::vector<ArenaModel> models() {
    std::vector<ArenaModel> out;
    for (const ArenaModel& model : arena_models())
        if (std::ranges::find(labels, model.label) != labels.end()) out.push_back(model);
    return out;
}

RunResult measure(const ExperimentSetting& setting) {
    const Index length = setting.count("length");
    if (length % timed_sizes.features != 0)
        throw UsageError(
            fmt::format("{}: length={} is not a multiple of {}, the landmarks of Nystromformer.",
                        setting.entry().name, length, timed_sizes.features));
    RunResult result = arena_trained(setting, models());
    for (const ArenaModel& model : models()) {
        const StepCosts costs =
            step_costs(setting, arena_model_text(timed_sizes, model, length), length);
        Table table(model.label);
        for (const double seconds : costs.training)
            table.point({}, "train_speed", double(length), 1 / seconds);
        table.point({}, "step_bytes", double(length), costs.bytes);
        result.table.append(table);
    }
    return result;
}

struct Bubble {
    std::string name;
    Number speed, bytes, score;
    ByTrial scores;
};
std::vector<Bubble> bubbles_of(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::vector<ArenaTask> tasks = arena_tasks_of(setting);
    const double length = setting.number("length");
    std::vector<Bubble> out;
    for (const ArenaModel& model : models()) {
        const auto at = [&](const char* curve) {
            return curve_of(table, model.label, curve)[length];
        };
        out.push_back({model.label, at("train_speed"), at("step_bytes"),
                       arena_score(numbers, model, tasks), arena_scores(numbers, model, tasks)});
    }
    return out;
}

Figure figure_of(const std::vector<Bubble>& bubbles, const ExperimentSetting& setting) {
    Plot plot{.title = fmt::format("one sample of {} tokens", setting.text("length")),
              .x = {.title = "training steps per second", .scale = Scale::log},
              .y = {.title = "mean accuracy, %"},
              .area_title = "bytes per step"};
    std::string words;
    for (const Bubble& b : bubbles) {
        if (!b.speed.value || !b.bytes.value || !b.score.value) continue;
        plot.series.push_back({.name = b.name,
                               .x = {*b.speed.value},
                               .y = {b.score.value},
                               .areas = {*b.bytes.value}});
        words += fmt::format("{} {}: {:.3g} steps per second, {:.3g} MB, {:.1f} %",
                             words.empty() ? "" : ";", b.name, *b.speed.value, *b.bytes.value / 1e6,
                             *b.score.value);
    }
    Figure f{.name = "devil_fig1",
             .title = "Speed, memory and score",
             .caption =
                 "Accuracy, the mean over tasks and seeds, against the speed of forward and "
                 "backward; the area of a circle is the memory of its tensors (CPU). Intervals are "
                 "given in the comparisons.",
             .alt = words + "."};
    if (!plot.series.empty()) f.panels.push_back(std::move(plot));
    return f;
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const std::vector<Bubble> bubbles = bubbles_of(table, setting);
    const Numbers numbers(table);
    Findings found;
    if (Figure f = figure_of(bubbles, setting); !f.panels.empty())
        found.figures.push_back(std::move(f));
    const std::string says =
        "[DEVIL] Figure 1: \"TransNormer has smaller memory footprints (circle sizes) and produces "
        "clearly favorable speed (x-axis) and overall scores (y-axis)\"";
    const std::span<const Bubble> own = std::span(bubbles).last(own_models),
                                  others = std::span(bubbles).first(bubbles.size() - own_models);
    for (const Bubble& a : own) {
        std::vector<Order> speeds, scores;
        for (const Bubble& b : others) {
            speeds.emplace_back(a.name, b.name, a.speed, b.speed);
            scores.emplace_back(a.name, b.name, a.scores, b.scores);
            found.comparisons.push_back(
                counted_up(order_of("bytes per step", b.name, a.name, b.bytes, a.bytes, says)));
        }
        found.comparisons.push_back(all_orders("steps per second", speeds, says));
        found.comparisons.push_back(all_orders("mean accuracy in per cent", scores, says));
    }
    for (const Bubble& b : bubbles)
        found.comparisons.push_back(compare(fmt::format("megabytes per step, {}", b.name), says,
                                            std::nullopt, scaled(b.bytes, 1e-6)));
    for (const ArenaTask& task : arena_tasks_of(setting))
        for (const ArenaModel& model : models()) add_diverged(found, numbers, on_task(model, task));
    std::ranges::move(constant_notes(numbers, models(), arena_tasks_of(setting)),
                      std::back_inserter(found.notes));
    found.notes.push_back(
        "The paper prints no numbers for this figure: its scores are those of Table 6, its speeds "
        "are like those of Table 7. Bytes are counted once, since they do not vary.");
    found.notes.push_back(
        "Speeds depend on this machine and its load. What the attention of the transformer and of "
        "FLASH-quad computes grows as n^2, as do Reformer's hashes, a small part of its work; all "
        "else grows as n, or not at all (devil.table7).");
    return found;
}

}  // namespace

extern const ExperimentEntry devil_fig1 = {
    .name = "devil.fig1",
    .title = "Speed, memory and score on the Long-Range Arena",
    .source = "[DEVIL] Figure 1",
    .claim =
        "\"TransNormer has smaller memory footprints (circle sizes) and produces clearly favorable "
        "speed (x-axis) and overall scores (y-axis), when evaluated on the challenging Long-Range "
        "Arena benchmark than the vanilla transformer and other competing methods.\"",
    .method =
        "The models that Tables 6 and 7 share. Scores are trained as for devil.table6, at quick "
        "scale on ListOps alone and with small models; speed and memory are those of a step with "
        "the gradient, one sample in float32, as for devil.table7, of the paper's sizes at every "
        "scale (2 layers, 64 features, 2 heads, GLU of 85, 128 landmarks, projected tokens or "
        "random features): speed on the device (--device), bytes as counted on the CPU. The "
        "paper's speeds are of an A6000; its batch size and the length are not stated.",
    .table =
        "final_accuracy, accuracy_excess, final_test_loss, final_loss, diverged of each model on "
        "each task; curves train_loss, train_grad_norm, test_loss and accuracy over steps, "
        "train_speed (steps per second) and step_bytes at the length",
    .keys = keys,
    .takes_data = true,
    .timed = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_fig1
