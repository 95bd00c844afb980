#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <tuple>

#include "arena.hpp"
#include "tsdiag/error.hpp"

/// [DEVIL] Table 7: speed and memory of a step against the length of the input.
namespace tsdiag::experiment_list::devil_table7 {
namespace {

// only Nystromformer and TransNormer ask for them
constexpr Index features = 64, block = 64;

/// A row of the table: steps per second on an A6000 at 1K and at the largest length given.
struct Row {
    const char *label, *keys;
    bool gated;  ///< has GLU and an attention of its own, or gated attention units
    const char *inference, *training;
};
constexpr std::array rows = {
    Row{"Transformer", "softmax", false, "39.06 at 1K, 10.05 at 2K", "15.34 at 1K, 3.05 at 2K"},
    Row{"FLASH-quad", "gau", true, "44.64 at 1K, 5.39 at 5K", "19.84 at 1K, 2.92 at 5K"},
    Row{"FLASH", "flash,shift=0,group={b}", true, "40.32 at 1K, 13.16 at 5K",
        "20.49 at 1K, 6.93 at 5K"},
    Row{"LS", "transformer_ls", false, "32.05 at 1K, 9.06 at 5K", "15.43 at 1K, 4.76 at 5K"},
    Row{"Performer", "performer", false, "104.17 at 1K, 31.25 at 5K", "28.41 at 1K, 9.06 at 5K"},
    Row{"cosFormer", "cosformer", false, "86.21 at 1K, 25.00 at 5K", "22.94 at 1K, 7.14 at 5K"},
    Row{"Linformer", "linformer", false, "104.17 at 1K, 26.32 at 5K", "27.17 at 1K, 7.42 at 5K"},
    Row{"Reformer", "reformer,rounds=2", false, "78.13 at 1K, 16.23 at 5K",
        "20.16 at 1K, 4.70 at 5K"},
    Row{"Nystromformer", "nystrom", false, "58.14 at 1K, 20.33 at 5K", "14.12 at 1K, 5.26 at 5K"},
    Row{"TransNormer T1", "transnormer1-mlm", true, "113.64 at 1K, 35.71 at 5K",
        "28.41 at 1K, 10.12 at 5K"},
    Row{"TransNormer T2", "transnormer2-mlm", true, "119.05 at 1K, 36.23 at 5K",
        "29.41 at 1K, 10.16 at 5K"}};

constexpr std::array keys{
    ExperimentKey{.name = "tokens",
                  .tiny = "64,128",
                  .quick = "512,1024,2048",
                  .paper = "1024,2048,3072,4096,5120",
                  .description = "tokens n, multiples of 64 (landmarks of Nystromformer)",
                  .list = true,
                  .least = 64,
                  .most = 65536},
    key_arena_layers,
    key_arena_d("64"),
    key_arena_heads,
    key_arena_glu("85"),
    key_trials("5", "10")};

void time_row(const ExperimentSetting& setting, const Row& row, Index n, Table& table) {
    const ArenaModel model{.label = row.label, .keys = row.keys, .own = row.gated, .scores = {}};
    const StepCosts costs =
        step_costs(setting, arena_model_text(setting, model, n, features, block), n);
    for (const double seconds : costs.forward)
        table.point({}, "inference_speed", double(n), 1 / seconds);
    for (const double seconds : costs.training)
        table.point({}, "train_speed", double(n), 1 / seconds);
    table.point({}, "step_bytes", double(n), costs.bytes);
}

RunResult measure(const ExperimentSetting& setting) {
    const std::vector<Index> all = setting.counts("tokens");
    for (const Index n : all)
        if (n % 64 != 0)
            throw UsageError(fmt::format(
                "{}: tokens={} is not a multiple of 64, the landmarks of Nystromformer.",
                setting.entry().name, n));
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
             .caption = fmt::format(
                 "A step is a forward pass of one sample, in training with the gradient with "
                 "respect to all parameters; means of repeated timings on this machine. {}",
                 bands),
             .panels = {std::move(inference), std::move(training), std::move(bytes)}};
    f.alt = in_words(f.panels);
    return f;
}

/// A model of the paper's own.
bool is_own(const Row& row) { return std::string_view(row.label).starts_with("TransNormer"); }

Findings find(const Table& table, const ExperimentSetting& setting) {
    Findings found{.figures = {figure_of(table)}};
    const auto [least, most] = std::ranges::minmax(setting.numbers("tokens"));
    const Row& fastest = rows.back();
    for (const auto& [curve, what, paper] :
         {std::tuple{"inference_speed", "inference", &Row::inference},
          std::tuple{"train_speed", "training", &Row::training}}) {
        const auto own = curve_of(table, fastest.label, curve);
        for (const Row& row : rows) {
            const auto speed = curve_of(table, row.label, curve);
            found.comparisons.push_back(compare(
                fmt::format("exponent in n of the seconds per step, {} to {}, {}, {}", least, most,
                            what, row.label),
                fmt::format("[DEVIL] Table 7, steps per second on an A6000: {}", row.*paper),
                std::nullopt, scaled(exponent(least, speed.at(least), most, speed.at(most)), -1)));
            if (!is_own(row))
                found.comparisons.push_back(
                    order_of(fmt::format("steps per second, {}, n = {}", what, most), fastest.label,
                             row.label, own.at(most), speed.at(most),
                             "[DEVIL] 5.3: \"our TransNormer achieves faster speed\""));
        }
    }
    const auto bytes = [&](const Row& row) {
        Number of = curve_of(table, row.label, "step_bytes").at(most);
        if (of.value) of.value = std::log2(*of.value);
        return of;
    };
    for (const Row& row : std::span(rows).subspan(1))  // behind the vanilla transformer
        if (!is_own(row))
            found.comparisons.push_back(counted_up(order_of(
                fmt::format("log2 of bytes per step in training, n = {}", most),
                fmt::format("1 more than {}", row.label), fastest.label, scaled(bytes(row), 1, 1),
                bytes(fastest),
                "[DEVIL] 5.3: \"comparable GPU memory footprints\", read as at most twice as "
                "much")));
    found.notes.push_back(
        "Seconds depend on this machine and its load: they vary between runs and cannot be "
        "compared with those of a GPU.");
    found.notes.push_back(
        "Everything but attention is linear in n, so exponents lie between 1 and that of the "
        "attention. P of FLASH is computed row by row with its zeros, forward and backward, and "
        "Linformer keeps a quarter of the n tokens: their time and memory grow as n^2. Performer, "
        "cosFormer and Nystromformer multiply by their factors; LS works on segments, Reformer and "
        "TransNormer's block attention on chunks.");
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
        "comparable GPU memory footprints\" than other efficient transformers.",
    .method =
        "Encoders with random weights of appendix E's size (2 layers, 64 features, 2 heads, GLU of "
        "85), one sample on the CPU in float32: steps per second forward, and forward with the "
        "gradient with respect to all parameters; the peak bytes of tensors. All but TransNormer "
        "and FLASH use BERT's block with a feed-forward step of as many weights in place of the "
        "GLU. FLASH and FLASH-quad are gated attention units, two per layer, as in the paper's "
        "encoders (5.1), FLASH with groups of 64 tokens. Reformer hashes twice, as in the code of "
        "Skyformer, whose configuration "
        "the paper follows; LS has segments of 8 and rank 32, as in its own code for these tasks: "
        "the paper states neither its settings nor its batch size.",
    .table =
        "curves inference_speed, train_speed (steps per second) and step_bytes over the tokens, "
        "for each attention",
    .keys = keys,
    .timed = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_table7
