#include <fmt/format.h>

#include <array>

#include "courses.hpp"

/// [TSE] Figure 6: deep vision transformers in training.
namespace tsdiag::experiment_list::tse_fig6 {
namespace {

constexpr std::array keys{
    key_steps("200", "58594"),
    key_batch("16", "128"),
    key_rate("1e-3", "1e-4",
             "learning rate, a fifth of it from 70 % and from 90 % of the steps on"),
    key_rate("5e-4", "5e-5", "the same of the post-norm network", "post_rate"),
    ExperimentKey{"layers", "3", "24", "80", "blocks"},
    ExperimentKey{"d", "8", "48", "192", "width"},
    ExperimentKey{"heads", "2", "2", "8", "heads, a divisor of d"},
    ExperimentKey{"ffn", "16", "96", "384", "inner width of the feed-forward step"},
    ExperimentKey{"image", "8", "16", "32", "pixels of a side"},
    ExperimentKey{"patch", "4", "4", "4", "pixels of a patch"},
    ExperimentKey{.name = "tau",
                  .tiny = "1",
                  .quick = "1",
                  .paper = "1",
                  .description = "strength of the de-escalation step (21)",
                  .whole = false,
                  .least = 0,
                  .most = 1},
    ExperimentKey{
        .name = "init",
        .tiny = "normal",
        .quick = "normal",
        .paper = "normal",
        .description = "normal: N(0, 0.02^2), as ViT's code has it; torch: PyTorch's Linear",
        .words = "normal torch",
        .numbers = false},
    key_trials("4", "3")};

struct Kind {
    const char *label, *keys, *rate;
    bool deescalated;
};
constexpr std::array kinds = {Kind{"post-norm", "placement=post", "post_rate", false},
                              Kind{"pre-norm", "placement=pre", "rate", false},
                              Kind{"de-escalated", "placement=post", "rate", true}};

TrainOptions options_for(const ExperimentSetting& setting, const Kind& kind) {
    std::string model = fmt::format(
        "random:deit-tiny,layers={},d={},heads={},ffn={},image={},patch={},init={},{}",
        setting.text("layers"), setting.text("d"), setting.text("heads"), setting.text("ffn"),
        setting.text("image"), setting.text("patch"), setting.text("init"), kind.keys);
    if (kind.deescalated) model += ",deesc=" + setting.text("tau");
    TrainOptions options = train_options(setting, std::move(model), "patterns");
    options.schedule = {.kind = Schedule::Kind::multistep,
                        .rate = setting.number(kind.rate),
                        .milestones = {options.steps * 7 / 10, options.steps * 9 / 10},
                        .factor = 0.2};
    options.adam = {.beta1 = 0.9, .beta2 = 0.999, .decay = 0.1};
    options.eval_every = std::max<Index>(1, options.steps / 10);
    options.probe_every = options.eval_every;
    options.probe_samples = 2;
    options.probes = {"t_sim"};
    return options;
}

RunResult measure(const ExperimentSetting& setting) {
    std::vector<Trained> models;
    for (const Kind& kind : kinds) models.push_back({kind.label, options_for(setting, kind)});
    return trained_with_similarity(setting, models);
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    std::vector<std::string> networks;
    for (const Kind& kind : kinds) networks.emplace_back(kind.label);
    Findings found = course_findings(
        table,
        {.name = "tse_fig6",
         .title = fmt::format("{} blocks in training", setting.count("layers")),
         .caption = fmt::format("Means over seeds; t_sim of held-out images. {}", bands)},
        networks, true);
    std::vector<Comparison>& all = found.comparisons;
    const auto of = [&](const char* label, const char* metric) {
        return numbers.at(label, metric, "", -1);
    };
    constexpr const char* gap =
        "[TSE] 3.3: \"a significant performance gap\" between post-norm and de-escalated";
    for (const auto& [metric, what] : {std::pair{"final_loss", "final training loss"},
                                       std::pair{"final_test_loss", "final held-out loss"}})
        all.push_back(order_of(what, "post-norm", "de-escalated", of("post-norm", metric),
                               of("de-escalated", metric), gap));
    all.push_back(order_of(
        "final training loss", "pre-norm", "de-escalated", of("pre-norm", "final_loss"),
        of("de-escalated", "final_loss"),
        "[TSE] 3.3: de-escalated \"slightly outperformed its pre-norm counterpart in terms of "
        "training loss\""));
    return found;
}

}  // namespace

extern const ExperimentEntry tse_fig6 = {
    .name = "tse.fig6",
    .title = "Deep post-norm, pre-norm and de-escalated networks in training",
    .source = "[TSE] Figure 6, Table 1, section 3.3",
    .claim =
        "With 80 blocks on CIFAR10 there is \"a significant performance gap between the pure "
        "post-norm model and our de-escalated post-norm model\", which \"also slightly "
        "outperformed "
        "its pre-norm counterpart in terms of training loss\".",
    .method =
        "A ViT with the de-escalation step (21) at the end of each block, AdamW with betas 0.9 and "
        "0.999 and weight decay 0.1 (of matrices), the rates and their two steps of the paper. The "
        "paper does not tell the initialisation; init=torch is PyTorch's Linear default. At paper "
        "scale its sizes, batch and 150 "
        "epochs of 50000 images, without its auto-augmentation, on CIFAR-10 "
        "with --data images:DIR. At quick scale fewer and narrower blocks, fewer steps at ten "
        "times the rates, and gratings in noise (10 classes). The paper's histories are not "
        "numbers.",
    .table =
        "final_loss, final_test_loss, final_accuracy, diverged of each network; curves train_loss, "
        "train_grad_norm, test_loss, accuracy, t_sim_last over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::tse_fig6
