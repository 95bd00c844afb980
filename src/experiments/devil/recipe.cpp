#include "recipe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"

namespace tsdiag::experiment_list {

std::string_view family(const ExperimentSetting& setting) {
    return setting.text("loss") == "mlm" ? "bert-base" : "gpt2";
}

TrainOptions devil_options(const ExperimentSetting& setting, std::string_view family,
                           const std::string& more) {
    TrainOptions options = devil_recipe(setting, family, more);
    options.loss = setting.text("loss");
    return options;
}

namespace {

/// Layers and heads; of gated units, which have one head and no feed-forward step, 10 for 6 layers
/// of a decoder and 24 for 12 of an encoder.  [DEVIL] 5.1
std::string layers_of(const ExperimentSetting& setting, std::string_view family) {
    const Index layers = setting.count("layers");
    if (!is_gated_unit(family))
        return fmt::format("layers={},heads={}", layers, setting.text("heads"));
    const bool decoder = family.find("causal=1") != family.npos;
    return fmt::format("layers={}", decoder ? (10 * layers + 3) / 6 : units_of_encoder(layers));
}

}  // namespace

bool is_gated_unit(std::string_view keys) {
    return keys.starts_with("flash") || keys.starts_with("gau");
}

TrainOptions devil_recipe(const ExperimentSetting& setting, std::string_view family,
                          const std::string& more) {
    TrainOptions options = train_options(
        setting,
        fmt::format("random:{},{},d={},tokens={}{}", family, layers_of(setting, family),
                    setting.text("d"), setting.text("tokens"), more),
        "markov:8");
    options.tokens = setting.count("tokens");
    options.dropout = setting.number("dropout");
    options.schedule.kind = Schedule::Kind::linear;
    options.schedule.warmup = setting.count("warmup");
    options.adam = {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-6, .decay = 0.01};
    return options;
}

std::string language_model(const ExperimentSetting& setting, std::string_view label, bool causal) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> attentions = {
        {{"Vanilla", "softmax"},
         {"LS", "transformer_ls"},
         {"1+elu", "linear"},
         {"Performer", "performer"}}};
    for (const auto& [name, attention] : attentions)
        if (name == label) {
            // the causal default is longer than these texts
            const std::string window =
                causal && label == "LS"
                    ? fmt::format(",segment={}", std::max<Index>(1, setting.count("tokens") / 4))
                    : "";
            return fmt::format("{},attention={}{}", causal ? "gpt2" : "bert-base", attention,
                               window);
        }
    const std::string unit = causal ? ",causal=1" : "";
    if (label == "FLASH")
        return fmt::format("flash,shift=0,group={}{}", setting.text("block"), unit);
    if (label == "FLASH-quad") return "gau" + unit;
    check(label == "TransNormer T1" || label == "TransNormer T2", "a model of Tables 4 and 5");
    return fmt::format("transnormer{}-{},block={}", label.back(), causal ? "lm" : "mlm",
                       setting.text("block"));
}

std::string note_on_glu(bool causal) {
    const auto millions = [causal](Index width) {
        Index sum = 0;
        const std::string text = fmt::format("transnormer1-{},tokens=512,ffn={}",
                                             causal ? "lm,layers=6,d=512,heads=8,vocab=267744"
                                                    : "mlm,layers=12,d=768,heads=12,vocab=50265",
                                             width);
        for (const Parameter& p : parameters(random_model(text).spec)) sum += p.shape.count();
        return double(sum) / 1e6;
    };
    return fmt::format(
        "[DEVIL] Table 13 gives GLUs of 2048 to the autoregressive models, of width 512, and of "
        "1365 to the masked ones, of width 768. The parameters that the paper counts decide for "
        "the opposite, which is done here: Table {} has {} million of TransNormer T1, which has "
        "{:.2f} here with 1365 and {:.2f} with 2048{}.",
        causal ? 4 : 5, causal ? "155.99" : "124.67", millions(1365), millions(2048),
        causal ? "" : ", without the head of masked training");
}

Figure figure_of(Figure figure, const Scores& scores,
                 const std::function<std::pair<Number, double>(std::size_t row)>& overall) {
    const auto cells = [&](std::string title, const std::vector<std::string>& columns,
                           const Scores::Value& value) {
        Grid grid{.rows = std::ssize(scores.models),
                  .cols = std::ssize(columns),
                  .row_title = "model",
                  .col_title = "task",
                  .value_title = "per cent",
                  .low = 0,
                  .high = 100,
                  .row_labels = scores.models,
                  .col_labels = columns,
                  .decimals = 1};
        for (std::size_t i = 0; i < scores.models.size(); ++i)
            for (std::size_t j = 0; j < columns.size(); ++j) grid.values.push_back(value(i, j));
        figure.panels.push_back({.title = std::move(title), .grid = std::move(grid)});
    };
    cells("here", scores.columns, scores.here);
    cells("[DEVIL] " + scores.table, scores.paper_columns, scores.paper);
    figure.alt = "mean in per cent, here and in the paper:";
    for (std::size_t i = 0; i < scores.models.size(); ++i) {
        const auto& [here, paper] = overall(i);
        figure.alt +=
            fmt::format(" {} {} and {:.1f};", scores.models[i],
                        here.value ? fmt::format("{:.1f}", *here.value) : "undefined", paper);
    }
    figure.alt.back() = '.';
    return figure;
}

void add_loss(Findings& found, const Numbers& numbers, const std::string& model, int table,
              double perplexity) {
    found.comparisons.push_back(compare(
        fmt::format("final_test_loss, {}", model),
        fmt::format("[DEVIL] Table {}, RoBERTa's pre-training on WikiText-103, perplexity {:.2f}",
                    table, perplexity),
        std::nullopt, numbers.at(model, "final_test_loss")));
    add_diverged(found, numbers, model);
}

}  // namespace tsdiag::experiment_list
