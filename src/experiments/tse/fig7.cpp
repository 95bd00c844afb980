#include <fmt/format.h>

#include <array>

#include "courses.hpp"

/// [TSE] Figure 7: deep Transformer-XL in training.
namespace tsdiag::experiment_list::tse_fig7 {
namespace {

constexpr std::array keys{
    ExperimentKey{.name = "steps",
                  .tiny = "6",
                  .quick = "100",
                  .paper = "50000",
                  .description = "updates",
                  .least = 1,
                  .most = 1e7},
    ExperimentKey{"batch", "1", "4", "40", "samples per update"},
    key_rate("1e-3", "2.5e-4", "greatest learning rate: a cosine over `cosine` steps"),
    ExperimentKey{.name = "cosine",
                  .tiny = "24",
                  .quick = "400",
                  .paper = "200000",
                  .description = "steps until the rate would be 0",
                  .least = 1,
                  .most = 1e8},
    ExperimentKey{"layers", "2", "16", "60", "blocks"},
    ExperimentKey{"d", "8", "32", "410", "width"},
    ExperimentKey{"heads", "2", "2", "10", "heads, a divisor of d"},
    ExperimentKey{"ffn", "16", "64", "820", "inner width of the feed-forward step"},
    ExperimentKey{.name = "tokens",
                  .tiny = "6",
                  .quick = "16",
                  .paper = "150",
                  .description = "tokens n of a segment",
                  .least = 2,
                  .most = 4096},
    ExperimentKey{.name = "memory",
                  .tiny = "4",
                  .quick = "8",
                  .paper = "150",
                  .description = "m tokens of the previous segment",
                  .least = 1,
                  .most = 4096},
    ExperimentKey{.name = "tau",
                  .tiny = "1",
                  .quick = "1",
                  .paper = "1",
                  .description = "strength of the de-escalation step (21)",
                  .whole = false,
                  .least = 0,
                  .most = 1},
    ExperimentKey{"trials", "2", "4", "3", "independent draws"}};

struct Kind {
    const char *label, *keys, *mean;  ///< mean: of the de-escalation; null: there is none
};
constexpr std::array kinds = {Kind{"de-escalated", "placement=post", "all"},
                              Kind{"post-norm", "placement=post", nullptr},
                              Kind{"pre-norm", "placement=pre", nullptr},
                              Kind{"de-escalated by the past", "placement=post", "past"}};

TrainOptions options_for(const ExperimentSetting& setting, const Kind& kind) {
    std::string model =
        fmt::format("random:transformer-xl,layers={},d={},heads={},ffn={},tokens={},memory={},{}",
                    setting.text("layers"), setting.text("d"), setting.text("heads"),
                    setting.text("ffn"), setting.text("tokens"), setting.text("memory"), kind.keys);
    if (kind.mean)
        model +=
            fmt::format(",deesc={},deesc_at=ffn,deesc_mean={}", setting.text("tau"), kind.mean);
    TrainOptions options = train_options(setting, std::move(model), "markov:8");
    options.loss = "lm";
    options.tokens = setting.count("memory") + setting.count("tokens");
    options.schedule = {.kind = Schedule::Kind::cosine,
                        .rate = setting.number("rate"),
                        .length = setting.count("cosine")};
    options.adam = {.decay = 0};
    options.eval_every = (options.steps + 4) / 5;
    options.probe_every = options.eval_every;
    options.probe_samples = 2;
    options.probes = {"t_sim"};
    return options;
}

RunResult measure(const ExperimentSetting& setting) {
    std::vector<Trained> models;
    for (const Kind& kind : kinds)
        models.push_back({.name = kind.label,
                          .options = options_for(setting, kind),
                          .base = models.empty() ? "" : kinds.front().label});
    return trained_with_similarity(setting, models);
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    std::vector<std::string> networks;
    for (const Kind& kind : kinds) networks.emplace_back(kind.label);
    Findings found = course_findings(
        table,
        {.name = "tse_fig7",
         .title = fmt::format("Transformer-XL of {} blocks in training", setting.count("layers")),
         .caption = fmt::format("Means over seeds; t_sim of held-out segments. {}", bands)},
        networks, false);
    std::vector<Comparison>& all = found.comparisons;
    const auto of = [&](const char* label, const char* metric) {
        return numbers.at(label, metric, "", -1);
    };
    constexpr const char *what = "final training loss", *base = kinds.front().label;
    constexpr double similar = 0.05;  // of the loss; the paper shows curves and no numbers
    all.push_back(compare(
        fmt::format("{}: post-norm over {}, as a ratio, less {}", what, base, 1 + similar),
        "[TSE] 3.4: \"a huge performance gap\" between post-norm and de-escalated, read as more "
        "than 5 %",
        std::nullopt,
        scaled(ratio(of("post-norm", "final_loss"), of(base, "final_loss")), 1, -1 - similar),
        Comparison::Kind::order));
    for (const auto& [label, says] :
         {std::pair{"post-norm",
                    "[TSE] 3.4: a gap between post-norm and de-escalated, of any size"},
          std::pair{"de-escalated by the past",
                    "the mean in (21) over a segment includes future tokens; the paper does not "
                    "mention it"}}) {
        all.push_back(
            order_of(what, label, base, of(label, "final_loss"), of(base, "final_loss"), says));
        all.push_back(over_base(numbers, label, base, 1, says));
    }
    all.push_back(resolved(compare(fmt::format("{}: pre-norm over {}, as a ratio", what, base),
                                   "[TSE] 3.4: both \"performed similarly\", read as within 5 %",
                                   1.0, ratio(of("pre-norm", "final_loss"), of(base, "final_loss")),
                                   Comparison::Kind::comparable),
                           similar));
    all.push_back(
        order_of(what, "post-norm", "de-escalated by the past", of("post-norm", "final_loss"),
                 of("de-escalated by the past", "final_loss"), "the same, with past tokens only"));
    return found;
}

}  // namespace

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
        "final_loss, final_test_loss, final_accuracy, diverged of each network; test_loss_excess: "
        "final_test_loss less that of the de-escalated one with the same seed; curves train_loss, "
        "train_grad_norm, test_loss, accuracy, t_sim_last over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::tse_fig7
