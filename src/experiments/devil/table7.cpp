#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "arena.hpp"
#include "tsdiag/error.hpp"

/// [DEVIL] Table 7: speed and memory of a step against the length of the input.
namespace tsdiag::experiment_list::devil_table7 {
namespace {

/// Steps per second on an A6000.
struct Speed {
    double first, last;  ///< at 1K and at the largest length given
};
struct Row {
    const char* label;
    int longest;  ///< that length, in K
    Speed inference, training;
};
constexpr std::array rows = {Row{"Transformer", 2, {39.06, 10.05}, {15.34, 3.05}},
                             Row{"FLASH-quad", 5, {44.64, 5.39}, {19.84, 2.92}},
                             Row{"FLASH", 5, {40.32, 13.16}, {20.49, 6.93}},
                             Row{"LS", 5, {32.05, 9.06}, {15.43, 4.76}},
                             Row{"Performer", 5, {104.17, 31.25}, {28.41, 9.06}},
                             Row{"cosFormer", 5, {86.21, 25.00}, {22.94, 7.14}},
                             Row{"Linformer", 5, {104.17, 26.32}, {27.17, 7.42}},
                             Row{"Reformer", 5, {78.13, 16.23}, {20.16, 4.70}},
                             Row{"Nystromformer", 5, {58.14, 20.33}, {14.12, 5.26}},
                             Row{"TransNormer T1", 5, {113.64, 35.71}, {28.41, 10.12}},
                             Row{"TransNormer T2", 5, {119.05, 36.23}, {29.41, 10.16}}};
constexpr Index block = ArenaSizes{}.block;

constexpr std::array keys{
    listed(whole_key("tokens", "64,128", "512,1024,2048", "1024,2048,3072,4096,5120",
                     "tokens n, multiples of features", 64, 65536)),
    ExperimentKey{"features", "16", "128", "128",
                  "landmarks of Nystromformer, projected tokens of Linformer, and random features "
                  "of Performer"},
    key_arena_layers,
    key_arena_d("64"),
    key_arena_heads,
    key_arena_glu("85"),
    key_trials("5", "10")};

void time_row(const ExperimentSetting& setting, const Row& row, Index n, Table& table) {
    const StepCosts costs = step_costs(
        setting, arena_model_text(arena_sizes(setting, block), arena_model(row.label), n), n);
    for (const double seconds : costs.forward)
        table.point({}, "inference_speed", double(n), 1 / seconds);
    for (const double seconds : costs.training)
        table.point({}, "train_speed", double(n), 1 / seconds);
    table.point({}, "step_bytes", double(n), costs.bytes);
}

RunResult measure(const ExperimentSetting& setting) {
    const std::vector<Index> all = setting.counts("tokens");
    for (const Index n : all)
        if (n % setting.count("features") != 0)
            throw UsageError(fmt::format(
                "{}: tokens={} is not a multiple of features={}, the landmarks of Nystromformer.",
                setting.entry().name, n, setting.text("features")));
    RunResult result;
    double done = 0;
    for (const Row& row : rows) {
        Table table(row.label);
        for (const Index n : all) {
            time_row(setting, row, n, table);
            done += 1 / double(rows.size() * all.size());
            if (setting.progress()) setting.progress()({.phase = "measure", .fraction = done});
        }
        result.table.append(table);
    }
    return result;
}

Figure figure_of(const Table& table) {
    const Axis tokens{.title = "tokens n", .scale = Scale::log};
    Plot inference{
        .title = "inference", .x = tokens, .y = {.title = "steps per second", .scale = Scale::log}};
    Plot training = inference, bytes = inference;
    training.title = "training: forward and backward";
    bytes.title = "memory of forward and backward";
    bytes.y.title = "bytes";
    for (const Row& row : rows) {
        const auto series = [&](const char* curve) {
            return line(row.label, curve_of(table, row.label, curve), true);
        };
        inference.series.push_back(series("inference_speed"));
        training.series.push_back(series("train_speed"));
        bytes.series.push_back(series("step_bytes"));
    }
    Figure f{.name = "devil_table7",
             .title = "Speed and memory by length",
             .caption =
                 "A step is a forward pass of one sample, in training with the gradient with "
                 "respect to all parameters; means of repeated timings on this machine. Bytes are "
                 "those of the CPU's tensors.",
             .panels = {std::move(inference), std::move(training), std::move(bytes)}};
    f.alt = in_words(f.panels);
    return f;
}

/// A model of the paper's own.
bool is_own(const Row& row) { return std::string_view(row.label).starts_with("TransNormer"); }

const Row& row_of(std::string_view label) {
    return *std::ranges::find_if(rows, [&](const Row& row) { return row.label == label; });
}

const Row& fastest() { return rows.back(); }
const Row& quadratic() { return row_of("FLASH-quad"); }

/// A half of the table.
struct Half {
    const char *curve, *what;
    Speed Row::*paper;
    double faster;  ///< by so many per cent than FLASH-quad, in 5.3
};
constexpr std::array halves = {Half{"inference_speed", "inference", &Row::inference, 150},
                               Half{"train_speed", "training", &Row::training, 300}};

/// The sentence of 5.3 about FLASH-quad, against the paper's own table and against this one at n.
void compare_with_quadratic(const Table& table, const Half& half, double n, Findings& found) {
    const auto compare_at = [&](const std::string& where, const std::string& more,
                                const Number& percent) {
        return compare(
            fmt::format("per cent by which {} takes more steps per second than {}, {}, {}",
                        fastest().label, quadratic().label, half.what, where),
            fmt::format("[DEVIL] 5.3: over {} % faster in {}{}", half.faster, half.what, more),
            half.faster, percent, Comparison::Kind::at_least);
    };
    const auto of_paper = [&](double Speed::*at) {
        return 100 * (fastest().*half.paper.*at / (quadratic().*half.paper.*at) - 1);
    };
    found.comparisons.push_back(counted_up(compare_at(
        fmt::format("{}K of [DEVIL] Table 7 itself", fastest().longest),
        fmt::format("; no length of the table speaks more for it, and at 1K it is {:.0f} %",
                    of_paper(&Speed::first)),
        {.value = of_paper(&Speed::last), .count = 1})));
    const auto here = [&](const Row& row) { return curve_of(table, row.label, half.curve).at(n); };
    found.comparisons.push_back(
        compare_at(fmt::format("n = {}", n), "",
                   scaled(ratio(here(fastest()), here(quadratic())), 100, -100)));
}

void compare_speeds(const Table& table, const Half& half, double least, double most,
                    Findings& found) {
    compare_with_quadratic(table, half, most, found);
    const auto own = curve_of(table, fastest().label, half.curve);
    for (const Row& row : rows) {
        const auto speed = curve_of(table, row.label, half.curve);
        found.comparisons.push_back(compare(
            fmt::format("exponent in n of the seconds per step, {} to {}, {}, {}", least, most,
                        half.what, row.label),
            fmt::format("[DEVIL] Table 7, steps per second on an A6000: {:.2f} at 1K, "
                        "{:.2f} at {}K",
                        (row.*half.paper).first, (row.*half.paper).last, row.longest),
            std::nullopt, scaled(exponent(least, speed.at(least), most, speed.at(most)), -1)));
        if (!is_own(row))
            found.comparisons.push_back(
                order_of(fmt::format("steps per second, {}, n = {}", half.what, most),
                         fastest().label, row.label, own.at(most), speed.at(most),
                         "[DEVIL] 5.3: \"our TransNormer achieves faster speed\""));
    }
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    Findings found{.figures = {figure_of(table)}};
    const auto [least, most] = std::ranges::minmax(setting.numbers("tokens"));
    for (const Half& half : halves) compare_speeds(table, half, least, most, found);
    const auto bytes = [&](const Row& row) {
        Number of = curve_of(table, row.label, "step_bytes").at(most);
        if (of.value) of.value = std::log2(*of.value);
        return of;
    };
    for (const Row& row : std::span(rows).subspan(1))  // behind the vanilla transformer
        if (!is_own(row))
            found.comparisons.push_back(counted_up(order_of(
                fmt::format("log2 of bytes per step in training, n = {}", most),
                fmt::format("1 more than {}", row.label), fastest().label, scaled(bytes(row), 1, 1),
                bytes(fastest()),
                "[DEVIL] 5.3: \"comparable GPU memory footprints\", read as at most twice as "
                "much")));
    found.notes.push_back(
        "Seconds depend on this machine and its load: they vary between runs and cannot be "
        "compared with those of a GPU.");
    found.notes.push_back(
        "What is computed grows as n^2 in the attention of the transformer and of FLASH-quad, and "
        "in a small part of Reformer, its hashes, whose buckets grow with the chunks. All else "
        "grows as n or, as the inverse of Nystromformer's landmarks, not at all. Exponents of "
        "seconds may lie beyond: short inputs use a processor worse, long ones its caches.");
    return found;
}

}  // namespace

extern const ExperimentEntry devil_table7 = {
    .name = "devil.table7",
    .title = "Speed and memory against the length of the input",
    .source = "[DEVIL] Table 7, section 5.3, appendix E",
    .claim =
        "From 1K to 5K tokens \"the vanilla transformer is substantially slow and exhausts GPU "
        "memory with sequence longer than 3k\", while \"our TransNormer achieves faster speed with "
        "comparable GPU memory footprints\" than other efficient transformers: compared to "
        "FLASH-quad it \"performs over 300% faster during training and 150% faster during "
        "inference\".",
    .method =
        "Encoders with random weights of appendix E's size (2 layers, 64 features, 2 heads, GLU of "
        "85), one sample in float32 on the device (--device): steps per second forward, and "
        "forward with the gradient with respect to all parameters; the peak bytes of tensors, "
        "counted on the CPU whatever the device. The models are those of devil.table6: all but "
        "TransNormer and FLASH use BERT's block with a feed-forward step of as many weights in "
        "place of the GLU; FLASH and FLASH-quad are gated attention units, two per layer, as in "
        "the paper's encoders (5.1). The paper follows the configuration of Skyformer: 128 "
        "landmarks, projected tokens or random features, and its Reformer, Hugging Face's with two "
        "rounds. LS has segments of 8 and rank 32, as in its own code for these tasks, and blocks "
        "and FLASH's groups have 64 tokens: the paper states neither its settings nor its batch "
        "size.",
    .table =
        "curves inference_speed, train_speed (steps per second) and step_bytes over the tokens, "
        "for each attention",
    .keys = keys,
    .timed = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_table7
