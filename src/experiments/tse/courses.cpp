#include <fmt/format.h>

#include <array>

#include "training.hpp"

/// [TSE] Figures 6 and 7: deep networks in training, vision transformers and Transformer-XL.
namespace tsdiag::experiment_list::tse_courses {
namespace {

/// A network of a course.
struct Network {
    const char *label, *placement;
    const char* rate = "rate";      ///< the key of its learning rate
    const char* deescalation = "";  ///< what its model has besides; {}: tau
};

/// Networks of one depth that are trained alike.
struct Course {
    std::string_view kind;                    ///< of the random model
    std::span<const std::string_view> sizes;  ///< keys that the setting shares with it
    std::string_view data;                    ///< where there is no --data
    std::span<const Network> networks;
    bool classes = false;  ///< a sample has one, so there is an accuracy
    void (*recipe)(const ExperimentSetting& setting, const Network& network, TrainOptions& options);
};

TrainOptions options_for(const ExperimentSetting& setting, const Course& course,
                         const Network& network) {
    std::string model = fmt::format("random:{}", course.kind);
    for (const std::string_view key : course.sizes)
        model += fmt::format(",{}={}", key, setting.text(key));
    model += fmt::format(",placement={}", network.placement);
    model += fmt::format(fmt::runtime(network.deescalation), setting.text("tau"));
    TrainOptions options = train_options(setting, std::move(model), std::string(course.data));
    course.recipe(setting, network, options);
    options.probe_every = options.eval_every;
    options.probe_samples = 2;
    options.probes = {"t_sim"};
    return options;
}

/// With a curve t_sim_last over the steps: t_sim behind the last layer.
RunResult measure(const ExperimentSetting& setting, const Course& course) {
    std::vector<Trained> models;
    for (const Network& network : course.networks)
        models.push_back({.name = network.label, .options = options_for(setting, course, network)});
    const Index last = setting.count("layers") - 1;
    return trained(setting, models, [last](const Outcome& run, Sink& out) {
        for (const MetricRow& row : run.table.metrics())
            if (row.metric == "t_sim" && row.at.layer == last && row.at.stage == "out" && row.value)
                out.point({}, "t_sim_last", double(row.at.step), *row.value);
    });
}

/// What courses show alike: `figure` with losses, accuracy and t_sim_last over the steps, a line
/// per network; the final values of each network, and a note on runs that diverged.
Findings findings(const Table& table, const Course& course, Figure figure) {
    const auto add = [&](const char* title, const char* curve, Axis y) {
        Plot plot{.title = title, .x = {.title = "step"}, .y = std::move(y)};
        for (const Network& network : course.networks)
            plot.series.push_back(line(network.label, curve_of(table, network.label, curve)));
        figure.panels.push_back(std::move(plot));
    };
    add("training loss", "train_loss", {.title = "L, nats"});
    add("held-out loss", "test_loss", {.title = "L, nats"});
    if (course.classes)
        add("held-out accuracy", "accuracy", {.title = "share", .low = 0, .high = 1});
    add("t_sim after the last block", "t_sim_last", {.title = "t_sim", .low = 0, .high = 1.02});
    figure.alt = in_words(figure.panels);
    Findings found{.figures = {std::move(figure)}};
    const Numbers numbers(table);
    std::vector<std::pair<const char*, const char*>> finals = {
        {"final_loss", "final training loss"}, {"final_test_loss", "final held-out loss"}};
    if (course.classes) finals.emplace_back("final_accuracy", "final accuracy");
    for (const Network& network : course.networks) {
        for (const auto& [metric, what] : finals)
            found.comparisons.push_back(compare(fmt::format("{}, {}", what, network.label),
                                                "no number", std::nullopt,
                                                numbers.at(network.label, metric)));
        add_diverged(found, numbers, network.label);
    }
    return found;
}

constexpr ExperimentKey key_tau =
    real_key("tau", "1", "1", "1", "strength of the de-escalation step (21)", 0, 1);

constexpr std::array keys_fig6{
    key_steps("200", "58594"),
    key_batch("16", "128"),
    key_rate("1e-3", "1e-4",
             "learning rate, a fifth of it from 70 % and from 90 % of the steps on"),
    key_rate("5e-4", "5e-5", "the same of the post-norm network", "post_rate"),
    key_layers("3", "24", "80"),
    key_d("8", "48", "192"),
    key_heads("2", "2", "8"),
    key_ffn("16", "96", "384"),
    key_image("8", "16", "32"),
    key_patch("4", "4", "4"),
    key_tau,
    word_key("init", "normal", "normal", "normal",
             "normal: N(0, 0.02^2), as ViT's code has it; torch: PyTorch's Linear", "normal torch"),
    key_trials("4", "3")};

constexpr std::array<std::string_view, 7> sizes_fig6 = {"layers", "d",     "heads", "ffn",
                                                        "image",  "patch", "init"};
constexpr std::array networks_fig6 = {Network{"post-norm", "post", "post_rate"},
                                      Network{"pre-norm", "pre"},
                                      Network{"de-escalated", "post", "rate", ",deesc={}"}};

void recipe_fig6(const ExperimentSetting& setting, const Network& network, TrainOptions& options) {
    options.schedule = {.kind = Schedule::Kind::multistep,
                        .rate = setting.number(network.rate),
                        .milestones = {options.steps * 7 / 10, options.steps * 9 / 10},
                        .factor = 0.2};
    options.adam = {.beta1 = 0.9, .beta2 = 0.999, .decay = 0.1};
    options.eval_every = std::max<Index>(1, options.steps / 10);
}

constexpr Course course_fig6{.kind = "deit-tiny",
                             .sizes = sizes_fig6,
                             .data = "patterns",
                             .networks = networks_fig6,
                             .classes = true,
                             .recipe = recipe_fig6};

Findings find_fig6(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found =
        findings(table, course_fig6,
                 {.name = "tse_fig6",
                  .title = fmt::format("{} blocks in training", setting.count("layers")),
                  .caption = "Means over seeds; t_sim of held-out images."});
    std::vector<Comparison>& all = found.comparisons;
    const auto of = [&](const char* label, const char* metric) {
        return numbers.trials(label, metric);
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

constexpr std::array keys_fig7{
    key_few_steps("6", "100", "50000"),
    key_few_samples("4", "40"),
    key_rate("1e-3", "2.5e-4", "greatest learning rate: a cosine over `cosine` steps"),
    whole_key("cosine", "24", "400", "200000", "steps until the rate would be 0", 1, 1e8),
    key_layers("2", "16", "60"),
    key_d("8", "32", "410"),
    key_heads("2", "2", "10"),
    key_ffn("16", "64", "820"),
    whole_key("tokens", "6", "16", "150", "tokens n of a segment", 2, 4096),
    whole_key("memory", "4", "8", "150", "m tokens of the previous segment", 1, 4096),
    key_tau,
    key_trials("4", "3")};

constexpr std::array<std::string_view, 6> sizes_fig7 = {"layers", "d",      "heads",
                                                        "ffn",    "tokens", "memory"};
constexpr std::array networks_fig7 = {
    Network{"de-escalated", "post", "rate", ",deesc={},deesc_at=ffn,deesc_mean=all"},
    Network{"post-norm", "post"}, Network{"pre-norm", "pre"},
    Network{"de-escalated by the past", "post", "rate", ",deesc={},deesc_at=ffn,deesc_mean=past"}};

void recipe_fig7(const ExperimentSetting& setting, const Network& network, TrainOptions& options) {
    options.loss = "lm";
    options.tokens = setting.count("memory") + setting.count("tokens");
    options.schedule = {.kind = Schedule::Kind::cosine,
                        .rate = setting.number(network.rate),
                        .length = setting.count("cosine")};
    options.adam = {.decay = 0};
    options.eval_every = (options.steps + 4) / 5;
}

constexpr Course course_fig7{.kind = "transformer-xl",
                             .sizes = sizes_fig7,
                             .data = "markov:8",
                             .networks = networks_fig7,
                             .recipe = recipe_fig7};

Findings find_fig7(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found = findings(
        table, course_fig7,
        {.name = "tse_fig7",
         .title = fmt::format("Transformer-XL of {} blocks in training", setting.count("layers")),
         .caption = "Means over seeds; t_sim of held-out segments."});
    std::vector<Comparison>& all = found.comparisons;
    const auto loss = [&](const char* label) { return numbers.trials(label, "final_loss"); };
    const auto test_loss = [&](const char* label) {
        return numbers.trials(label, "final_test_loss");
    };
    constexpr const char *what = "final training loss", *base = networks_fig7.front().label;
    constexpr double similar = 0.05;  // of the loss; the paper shows curves and no numbers
    all.push_back(compare(
        fmt::format("{}, seed by seed: post-norm over {}, as a ratio, less {}", what, base,
                    1 + similar),
        "[TSE] 3.4: \"a huge performance gap\" between post-norm and de-escalated, read as more "
        "than 5 %",
        std::nullopt, scaled(mean_of(ratio(loss("post-norm"), loss(base))), 1, -1 - similar),
        Comparison::Kind::order));
    for (const auto& [label, says] :
         {std::pair{"post-norm",
                    "[TSE] 3.4: a gap between post-norm and de-escalated, of any size"},
          std::pair{"de-escalated by the past",
                    "the mean in (21) over a segment includes future tokens; the paper does not "
                    "mention it"}}) {
        all.push_back(order_of(what, label, base, loss(label), loss(base), says));
        all.push_back(
            order_of("final held-out loss", label, base, test_loss(label), test_loss(base), says));
    }
    all.push_back(resolved(
        compare(fmt::format("{}, seed by seed: pre-norm over {}, as a ratio", what, base),
                "[TSE] 3.4: both \"performed similarly\", read as within 5 %", 1.0,
                mean_of(ratio(loss("pre-norm"), loss(base))), Comparison::Kind::comparable),
        similar));
    all.push_back(order_of(what, "post-norm", "de-escalated by the past", loss("post-norm"),
                           loss("de-escalated by the past"), "the same, with past tokens only"));
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
        "outperformed its pre-norm counterpart in terms of training loss\".",
    .method =
        "A ViT with the de-escalation step (21) at the end of each block, AdamW with betas 0.9 and "
        "0.999 and weight decay 0.1 (of matrices), the rates and their two steps of the paper. The "
        "paper does not tell the initialisation; init=torch is PyTorch's Linear default. At paper "
        "scale its sizes, batch and 150 epochs of 50000 images, without its auto-augmentation, on "
        "CIFAR-10 with --data images:DIR. At quick scale fewer and narrower blocks, fewer steps at "
        "ten times the rates, and gratings in noise (10 classes). The paper's histories are not "
        "numbers.",
    .table =
        "final_loss, final_test_loss, final_accuracy, diverged of each network; curves train_loss, "
        "train_grad_norm, test_loss, accuracy, t_sim_last over steps",
    .keys = keys_fig6,
    .takes_data = true,
    .measure = [](const ExperimentSetting& setting) { return measure(setting, course_fig6); },
    .find = find_fig6};

extern const ExperimentEntry tse_fig7 = {
    .name = "tse.fig7",
    .title = "Deep post-norm, pre-norm and de-escalated Transformer-XL in training",
    .source = "[TSE] Figure 7, section 3.4",
    .claim =
        "With 60 blocks of Transformer-XL on WikiText-103 there is \"a huge performance gap "
        "between the post-norm and our de-escalated post-norm models (the former essentially "
        "failed, thus was cut short); while the pre-norm model and our de-escalated post-norm "
        "model performed similarly\".",
    .method =
        "Transformer-XL with the de-escalation step (21) at the input of each feed-forward step. A "
        "sample is a segment of m tokens, which becomes the memory, and n tokens, of which each "
        "but the last predicts the next; no gradient goes through the memory. The released code "
        "keeps its memory from batch to batch, so that it also carries information from older "
        "segments; here it starts anew with every sample. Adam without decay, warm-up, dropout and "
        "clipping, and a cosine schedule of which the steps are the first quarter: the paper keeps "
        "the settings of [TRANSFORMER-XL], whose script has 200000 steps, and shows 50000. The "
        "mean of (21) is over a segment, so a token receives information from those that it has to "
        "predict; a fourth network takes the mean over the tokens so far. At paper scale the "
        "paper's sizes (201M parameters with its vocabulary), rate and batch; each layer has its "
        "own u and v, and the softmax is over the whole vocabulary; with --data text:FILE it is "
        "that of bytes. Quick scale has fewer and narrower blocks, short segments, fewer steps at "
        "four times the rate, and a Markov chain over 8 symbols.",
    .table =
        "final_loss, final_test_loss, final_accuracy, diverged of each network, and each by trial; "
        "curves train_loss, train_grad_norm, test_loss, accuracy, t_sim_last over steps",
    .keys = keys_fig7,
    .takes_data = true,
    .measure = [](const ExperimentSetting& setting) { return measure(setting, course_fig7); },
    .find = find_fig7};

}  // namespace tsdiag::experiment_list::tse_courses
