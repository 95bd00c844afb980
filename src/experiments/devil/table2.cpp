#include <fmt/format.h>

#include <array>
#include <cmath>

#include "recipe.hpp"
#include "tsdiag/series.hpp"

/// [DEVIL] Table 2: how gradients vary in training.
namespace tsdiag::experiment_list::devil_table2 {
namespace {

/// An attention, and what the paper measured for it.
struct Variant {
    const char *label, *keys;
    double rsd;  ///< [DEVIL] Table 2
};
constexpr std::array variants = {
    Variant{"1+elu", "linear", 0.58}, Variant{"Performer", "performer", 0.47},
    Variant{"vanilla", "softmax", 0.25}, Variant{"NormAttention", "norm_attention", 0.20}};

constexpr std::array keys{key_steps("300", "50000"),
                          key_batch("8", "512"),
                          key_devil_rate,
                          key_warmup("30", "updates of the warm-up, left out of grad_rsd"),
                          key_dropout("0.1"),
                          key_layers("1", "4", "12"),
                          key_devil_d,
                          key_devil_heads,
                          key_devil_tokens("8", 8),
                          key_loss,
                          key_trials("6", "4")};

std::vector<Trained> models(const ExperimentSetting& setting) {
    std::vector<Trained> out;
    for (const Variant& v : variants)
        out.push_back({v.label, devil_options(setting, family(setting),
                                              fmt::format(",attention={}", v.keys))});
    return out;
}

RunResult measure(const ExperimentSetting& setting) {
    const auto warmup = std::size_t(setting.count("warmup"));
    return trained(setting, models(setting), [warmup](const Outcome& run, Sink& out) {
        std::vector<double> norms;  // after the warm-up, where the series is closer to stationary
        for (std::size_t i = warmup; i < run.steps.size(); ++i)
            norms.push_back(run.steps[i].grad_norm);
        const Value rsd =
            run.diverged.empty() ? dispersion(norms).rsd : undefined("training diverged");
        // The mean over seeds is compared; a run's own interval would be averaged.
        out.scalar({}, "grad_rsd", rsd.value ? Value(*rsd.value) : rsd);
        // Log of the upper end: one run near a unit root would dominate the mean of the ends.
        if (rsd.value && rsd.high && *rsd.value > 0)
            out.scalar({}, "grad_rsd_reach", std::log10(*rsd.high / *rsd.value));
    });
}

Figure figure_of(const Table& table) {
    Plot norms{.title = "gradient norm",
               .x = {.title = "step"},
               .y = {.title = "|dL/dw|", .scale = Scale::log}},
        loss{.title = "training loss", .x = {.title = "step"}, .y = {.title = "L, nats"}};
    for (const Variant& v : variants) {
        norms.series.push_back(line(v.label, curve_of(table, v.label, "train_grad_norm"), true));
        loss.series.push_back(line(v.label, curve_of(table, v.label, "train_loss")));
    }
    Figure f{.name = "devil_table2",
             .title = "Gradients through training",
             .caption =
                 "Mean over seeds of the norm of the gradient of a step's "
                 "batch, and of its loss; averaged over parts of the run.",
             .panels = {std::move(norms), std::move(loss)}};
    f.alt = in_words(f.panels);
    return f;
}

/// What the text says of the table: kernel attention above vanilla, NormAttention more stable.
constexpr const char* deviations =
    "[DEVIL] 4.2: linear methods \"have substantially higher deviations compared to vanilla\"";
constexpr const char* stable = "[DEVIL] 4.2: NormAttention \"produces more stable gradients\"";
struct Claim {
    std::size_t under;  ///< the variant that both kinds of kernel attention are above
    const char* says;
};
constexpr std::array claims = {Claim{2, deviations}, Claim{3, stable}};

Findings find(const Table& table, const ExperimentSetting&) {
    const Numbers numbers(table);
    Findings found{.figures = {figure_of(table)}};
    std::vector<Comparison>& all = found.comparisons;
    const auto rsd = [&](const Variant& v) { return numbers.at(v.label, "grad_rsd"); };
    for (const Variant& v : variants)
        all.push_back(compare(
            fmt::format("grad_rsd, {}", v.label),
            fmt::format("[DEVIL] Table 2, RoBERTa base on WikiText-103, 50k updates: {:.2f}",
                        v.rsd),
            std::nullopt, rsd(v)));
    for (const Claim& claim : claims) {
        std::vector<Order> orders;
        for (const std::size_t over : {std::size_t{0}, std::size_t{1}}) {
            const Variant &a = variants[over], &b = variants[claim.under];
            orders.push_back({a.label, b.label, numbers.trials(a.label, "grad_rsd"),
                              numbers.trials(b.label, "grad_rsd")});
        }
        all.push_back(all_orders("grad_rsd", orders, claim.says));
    }
    for (const Variant& v : variants) {
        all.push_back(compare(fmt::format("mean loss of the last tenth, {}", v.label), "no number",
                              std::nullopt, numbers.at(v.label, "final_loss")));
        add_diverged(found, numbers, v.label);
        const Number reach = numbers.at(v.label, "grad_rsd_reach");
        if (reach.value)
            found.notes.push_back(fmt::format(
                "{}: one run's own 95 % interval reaches up to {:.2g} times its grad_rsd "
                "(geometric mean over seeds), since a trend cannot be separated from variation; "
                "the standard errors above are those between seeds.",
                v.label, std::pow(10, *reach.value)));
    }
    found.notes.push_back(
        "The paper does not say of which gradient the deviation is taken. Here it is the norm of "
        "the gradient of all parameters together, step by step, without clipping; a trend counts "
        "as variation.");
    found.notes.push_back(
        "Its text gives a learning rate of 0.005, its Table 13 a peak of 5e-4: the table's is "
        "used. There is no dropout on P here; the paper drops a tenth of vanilla's.");
    return found;
}

}  // namespace

extern const ExperimentEntry devil_table2 = {
    .name = "devil.table2",
    .title = "How much gradients vary in training, by attention",
    .source = "[DEVIL] Table 2, section 4.2, Table 13",
    .claim =
        "Over 50k iterations \"existing linear methods [...] have substantially higher deviations "
        "compared to vanilla attention\", and NormAttention \"produces more stable gradients\": "
        "relative standard deviations of 0.58 (1+elu), 0.47 (Performer), 0.25 (vanilla) and 0.20 "
        "(NormAttention).",
    .method =
        "At paper scale the recipe of Table 13: masked tokens with RoBERTa base (post-norm "
        "encoder), warm-up over 3k updates to 5e-4, then linear decay, Adam with betas 0.9 and "
        "0.98, eps 1e-6 and weight decay 0.01, dropout 0.1, no clipping, 512 samples of 512 "
        "tokens, 50k updates. Its data is WikiText-103 in 50265 BPE tokens; here a Markov chain of "
        "second order over 8 symbols, or the bytes of --data text:FILE. At quick scale, where "
        "masked training does not leave its plateau within the steps, a small decoder predicts "
        "next tokens. All attentions share their seeds. grad_rsd = std(g)/mean(g) of the gradient "
        "norms after the warm-up; the paper uses all iterations.",
    .table =
        "grad_rsd, grad_rsd_reach (log10 of the upper end of a run's own interval over its "
        "grad_rsd), final_loss, final_test_loss, final_accuracy, diverged of each attention; "
        "curves train_loss, train_grad_norm, test_loss and accuracy over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_table2
