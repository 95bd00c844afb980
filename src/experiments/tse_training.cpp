#include <fmt/format.h>

#include <array>

#include "training.hpp"

/// [TSE] Figures 6 and 7: deep networks in training.
namespace tsdiag::experiment_list {
namespace {

constexpr std::array keys{key_steps("200", "20000"),
                          key_batch("8", "128"),
                          key_rate("1e-3", "5e-4"),
                          ExperimentKey{"layers", "3", "24", "100", "blocks"},
                          ExperimentKey{"d", "8", "32", "192", "width"},
                          ExperimentKey{"heads", "2", "2", "3", "heads, a divisor of d"},
                          ExperimentKey{"image", "8", "16", "32", "pixels of a side"},
                          ExperimentKey{"patch", "4", "4", "4", "pixels of a patch"},
                          ExperimentKey{.name = "tau",
                                        .tiny = "0.5",
                                        .quick = "0.5",
                                        .paper = "0.5",
                                        .description = "strength of the de-escalation step (21)",
                                        .whole = false,
                                        .least = 0,
                                        .most = 1},
                          key_trials("3", "3")};

struct Kind {
    const char *label, *keys;
    bool deescalated;
};
constexpr std::array kinds = {Kind{"post-norm", "placement=post", false},
                              Kind{"pre-norm", "placement=pre", false},
                              Kind{"de-escalated", "placement=post", true}};

RunResult measure(const ExperimentSetting& setting) {
    std::vector<Trained> models;
    for (const Kind& kind : kinds) {
        std::string model =
            fmt::format("random:deit-tiny,layers={},d={},heads={},image={},patch={},{}",
                        setting.text("layers"), setting.text("d"), setting.text("heads"),
                        setting.text("image"), setting.text("patch"), kind.keys);
        if (kind.deescalated) model += ",deesc=" + setting.text("tau");
        TrainOptions options = train_options(setting, std::move(model), "patterns");
        options.eval_every = std::max<Index>(1, options.steps / 10);
        options.probe_every = options.eval_every;
        options.probe_samples = 2;
        options.probes = {"t_sim"};
        models.push_back({kind.label, std::move(options)});
    }
    const Index last = setting.count("layers") - 1;
    return trained(setting, models, [last](const Outcome& run, Sink& out) {
        for (const MetricRow& row : run.table.metrics())
            if (row.metric == "t_sim" && row.at.layer == last && row.at.stage == "out" && row.value)
                out.point({}, "t_sim_last", double(row.at.step), *row.value);
    });
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found;
    const Axis steps{.title = "step"};
    Plot loss{.title = "training loss", .x = steps, .y = {.title = "L, nats"}};
    Plot accuracy{
        .title = "accuracy, held out", .x = steps, .y = {.title = "share", .low = 0, .high = 1}};
    Plot similarity{.title = "t_sim behind the last block",
                    .x = steps,
                    .y = {.title = "t_sim", .low = 0, .high = 1.02}};
    Plot gradient{
        .title = "gradient norm", .x = steps, .y = {.title = "|dL/dw|", .scale = Scale::log}};
    for (const Kind& kind : kinds) {
        loss.series.push_back(line(kind.label, curve_of(table, kind.label, "train_loss")));
        accuracy.series.push_back(line(kind.label, curve_of(table, kind.label, "accuracy")));
        similarity.series.push_back(line(kind.label, curve_of(table, kind.label, "t_sim_last")));
        gradient.series.push_back(
            line(kind.label, curve_of(table, kind.label, "train_grad_norm"), true));
        found.comparisons.push_back(compare(fmt::format("final loss, {}", kind.label), "no number",
                                            std::nullopt,
                                            numbers.at(kind.label, "final_loss", "", -1)));
        found.comparisons.push_back(compare(fmt::format("final accuracy, {}", kind.label),
                                            "no number", std::nullopt,
                                            numbers.at(kind.label, "final_accuracy", "", -1)));
    }
    const auto of = [&](const char* label) { return numbers.at(label, "final_loss", "", -1); };
    found.comparisons.push_back(order_of("final loss", "post-norm", "de-escalated", of("post-norm"),
                                         of("de-escalated"), true));
    found.comparisons.push_back(
        order_of("final loss", "post-norm", "pre-norm", of("post-norm"), of("pre-norm"), true));
    Figure f{.name = "tse_fig6",
             .title = fmt::format("{} blocks in training", setting.count("layers")),
             .caption = "Means over seeds; t_sim of held-out images. Bands: two standard errors."};
    f.panels = {loss, accuracy, similarity, gradient};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig6 = {
    .name = "tse.fig6",
    .title = "Deep post-norm, pre-norm and de-escalated networks in training",
    .source = "[TSE] Figures 6, 7",
    .claim =
        "Deep post-norm networks, whose tokens are alike from the start, do not train; pre-norm "
        "ones do, and so does a post-norm network with the de-escalation step (21).",
    .method =
        "A deep ViT from the initialisation N(0, 0.02^2), AdamW, on gratings in noise (10 "
        "classes) unless --data images:DIR names CIFAR. The paper's networks are wider, and "
        "its histories are not numbers: they are not set beside these.",
    .table =
        "final_loss, final_accuracy, diverged of each network; curves train_loss, "
        "train_grad_norm, accuracy, t_sim_last over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list
