#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "recipe.hpp"

/// [DEVIL] Table 4: eight autoregressive language models.
namespace tsdiag::experiment_list::devil_table4 {
namespace {

struct Row {
    const char* label;
    double validation, test;  ///< perplexities
};
constexpr std::array rows = {
    Row{"Vanilla", 29.63, 31.01},        Row{"LS", 32.37, 32.59},
    Row{"FLASH-quad", 31.88, 33.50},     Row{"FLASH", 33.18, 34.63},
    Row{"1+elu", 32.63, 34.25},          Row{"Performer", 75.29, 77.65},
    Row{"TransNormer T1", 29.89, 31.35}, Row{"TransNormer T2", 29.57, 31.01}};
constexpr std::size_t first_linear = 1, first_own = 6;

constexpr std::array keys{key_steps("60", "100000"),
                          key_batch("8", "128"),
                          real_key("rate", "3e-3", "3e-3", "5e-4",
                                   "greatest learning rate: linear warm-up, then proportional to "
                                   "1/sqrt(step); the text says 0.005",
                                   1e-8, 1),
                          whole_key("warmup", "3", "10", "8000", "updates of the warm-up", 1, 1e7),
                          key_dropout("0"),
                          key_layers("2", "2", "6"),
                          key_d("8", "32", "512"),
                          key_heads("2", "2", "8"),
                          key_few_tokens,
                          key_block,
                          key_trials("8", "4")};

RunResult measure(const ExperimentSetting& setting) {
    std::vector<Trained> models;
    for (const Row& row : rows) {
        TrainOptions options = devil_recipe(setting, language_model(setting, row.label, true), "");
        options.loss = "lm";
        options.schedule.kind = Schedule::Kind::inverse_sqrt;
        options.adam.eps = 1e-8;
        models.push_back({row.label, options});
    }
    return trained(setting, models);
}

Figure figure_of(const Table& table) {
    Plot training{.title = "training loss", .x = {.title = "step"}, .y = {.title = "L, nats"}};
    for (const Row& row : rows)
        training.series.push_back(line(row.label, curve_of(table, row.label, "train_loss")));
    Figure f{
        .name = "devil_table4",
        .title = "Eight language models",
        .caption = "Mean over seeds of the loss of a step's batch; averaged over parts of the run.",
        .panels = {std::move(training)}};
    f.alt = in_words(f.panels);
    return f;
}

/// "Comparable", in nats: half of the way from the vanilla model to the nearest one that the paper
/// calls worse.
double comparable_loss() {
    double nearest = rows[first_linear].validation;
    for (std::size_t i = first_linear; i < first_own; ++i)
        nearest = std::min(nearest, rows[i].validation);
    return std::log(nearest / rows.front().validation) / 2;
}

Findings find(const Table& table, const ExperimentSetting&) {
    const Numbers numbers(table);
    Findings found{.figures = {figure_of(table)}};
    const Row& vanilla = rows.front();
    const double margin = comparable_loss();
    const auto loss = [&](const Row& row) { return numbers.trials(row.label, "final_test_loss"); };
    for (std::size_t own = first_own; own < rows.size(); ++own) {
        found.comparisons.push_back(order_of(
            "final_test_loss", vanilla.label, rows[own].label, loss(vanilla), loss(rows[own]),
            "[DEVIL] 5.2: \"both TransNormer variants get comparable or better perplexity to the "
            "vanilla attention\"; comparable: within half of the distance to FLASH-quad, the "
            "nearest that is called worse",
            -margin));
        std::vector<Order> orders;
        for (std::size_t other = first_linear; other < first_own; ++other)
            orders.push_back(
                {rows[other].label, rows[own].label, loss(rows[other]), loss(rows[own])});
        found.comparisons.push_back(
            all_orders("final_test_loss", orders,
                       "[DEVIL] 5.2: \"outperform all existing linear models with a clear "
                       "margin\", read as by more than what is comparable",
                       margin));
    }
    std::vector<Placed> placed;
    for (const Row& row : rows) placed.push_back({loss(row), row.validation});
    found.comparisons.push_back(same_order(
        "final_test_loss", placed, "[DEVIL] Table 4, the order of its perplexities (validation)"));
    for (const Row& row : rows) {
        found.comparisons.push_back(
            compare(fmt::format("final_test_loss, {}", row.label),
                    fmt::format("[DEVIL] Table 4, WikiText-103, perplexity {:.2f} (validation), "
                                "{:.2f} (test)",
                                row.validation, row.test),
                    std::nullopt, numbers.at(row.label, "final_test_loss")));
        add_diverged(found, numbers, row.label);
    }
    found.notes.push_back(note_on_glu(true));
    return found;
}

}  // namespace

extern const ExperimentEntry devil_table4 = {
    .name = "devil.table4",
    .title = "Eight autoregressive language models",
    .source = "[DEVIL] Table 4, section 5.2, Table 13",
    .claim =
        "\"both TransNormer variants get comparable or better perplexity to the vanilla attention "
        "and outperform all existing linear models with a clear margin\": 29.57 (T2) and 29.89 "
        "(T1) on the validation set, vanilla 29.63, the others from 31.88 to 75.29.",
    .method =
        "At paper scale the recipe of Table 13: 6 layers of 512 features, 8 heads, 128 samples of "
        "512 tokens, 100000 updates, warm-up over 8000 of them to 5e-4, then proportional to "
        "1/sqrt(step), Adam with betas 0.9 and 0.98, eps 1e-8, decay 0.01, dropout 0.1, no "
        "clipping. Its data is WikiText-103 in BPE tokens; here the bytes of --data wikitext:DIR, "
        "whose losses do not give word perplexities, or a Markov chain of second order over 8 "
        "symbols. The paper's validation and test perplexities are both shown beside one loss on "
        "held-out samples (with --data, on the validation file): the test set is not used. All but "
        "TransNormer and FLASH use GPT-2's pre-norm block; FLASH and FLASH-quad have 10 gated "
        "attention units for 6 layers, as in the paper. The settings of LS, the block size and the "
        "groups of FLASH are not stated: LS has windows of a quarter of the text, as in its own "
        "code (512 of 2048 tokens), where its code's 512 would be full attention; groups are as "
        "long as TransNormer's blocks. Quick scale has a small decoder and few updates.",
    .table =
        "final_loss, final_test_loss, final_accuracy, diverged of each model, and each by trial; "
        "curves train_loss, train_grad_norm, test_loss and accuracy over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_table4
