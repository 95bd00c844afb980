#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "training.hpp"

/// [POLY] Figures 1, 2, 3, 6, 7: polynomial attention in the training of a small ViT.
namespace tsdiag::experiment_list {
namespace {

constexpr ExperimentKey key_image{"image", "8", "16", "32", "pixels of a side"};
constexpr ExperimentKey key_vit_d{"d", "8", "48", "384", "width"};
constexpr ExperimentKey key_vit_heads{"heads", "2", "3", "6", "heads, a divisor of d"};

constexpr std::array keys_norms{
    key_steps("400", "50000"),
    key_batch("16", "128"),
    key_rate("1e-3", "5e-4"),
    ExperimentKey{"layers", "2", "6", "12", "blocks"},
    key_vit_d,
    key_vit_heads,
    key_image,
    ExperimentKey{"patch", "4", "2", "4", "pixels of a patch, a divisor of image"},
    ExperimentKey{.name = "chosen",
                  .tiny = "0,1",
                  .quick = "0,2,5",
                  .paper = "1,6,11",
                  .description = "layers that are drawn",
                  .list = true,
                  .least = 0},
    key_trials("2", "3")};

struct Activation {
    const char *label, *keys;
};
constexpr std::array activations = {
    Activation{"softmax", "attention=softmax"},
    Activation{"x^3 / sqrt N", "attention=polynomial,p=3,scale=1/sqrt(N)"},
    Activation{"x^3", "attention=polynomial,p=3,scale=none"}};

std::string vit(const ExperimentSetting& setting, const std::string& patch,
                const std::string& attention) {
    return fmt::format("random:deit-tiny,layers={},d={},heads={},image={},patch={},{}",
                       setting.text("layers"), setting.text("d"), setting.text("heads"),
                       setting.text("image"), patch, attention);
}

RunResult measure_norms(const ExperimentSetting& setting) {
    std::vector<Trained> models;
    for (const Activation& a : activations) {
        TrainOptions options =
            train_options(setting, vit(setting, setting.text("patch"), a.keys), "patterns");
        options.probe_every = std::max<Index>(1, options.steps / 20);
        options.eval_every = options.probe_every;
        options.probe_samples = 2;
        options.probes = {"attn_fro", "jac_fro"};
        models.push_back({a.label, std::move(options)});
    }
    return trained(setting, models, [](const Outcome& run, Sink& out) {
        // Means over the heads of a layer.
        std::map<std::tuple<std::string, Index, Index>, std::pair<double, Index>> means;
        for (const MetricRow& row : run.table.metrics())
            if (row.at.head >= 0 && row.value) {
                auto& [sum, count] = means[{row.metric, row.at.layer, row.at.step}];
                sum += *row.value;
                count += 1;
            }
        for (const auto& [key, mean] : means) {
            const auto& [metric, layer, step] = key;
            out.point({.layer = layer, .stage = "attn"}, metric, double(step),
                      mean.first / double(mean.second));
        }
    });
}

/// The last point of a curve.
Number end_of(const std::map<double, Number>& curve) {
    return curve.empty() ? Number{} : curve.rbegin()->second;
}

Findings find_norms(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found;
    const Index layers = setting.count("layers");
    for (const auto& [metric, name, title, symbol] :
         {std::tuple{"attn_fro", "attention_norm", "Frobenius norm of the attention", "|P|_F"},
          std::tuple{"jac_fro", "jacobian_norm", "Frobenius norm of its Jacobian", "|dP/dS|_F"}}) {
        Figure f{
            .name = fmt::format("poly_fig2_{}", name),
            .title = fmt::format("{} through training", title),
            .caption = fmt::format(
                "{} of held-out images, mean over the heads of a layer and over seeds, a panel "
                "an activation. Bands: two standard errors.",
                symbol)};
        for (const Activation& a : activations) {
            Plot plot{.title = a.label,
                      .x = {.title = "step"},
                      .y = {.title = symbol, .scale = Scale::log},
                      .ordered = true};
            for (const Index layer : setting.counts("chosen")) {
                if (layer >= layers) continue;
                const auto curve = curve_of(table, a.label, metric, layer);
                plot.series.push_back(line(fmt::format("layer {}", layer), curve, true));
                const Number first = curve.empty() ? Number{} : curve.begin()->second;
                found.comparisons.push_back(compare(
                    fmt::format("{} at the end over that at step 0, layer {}, {}", metric, layer,
                                a.label),
                    std::string(a.label) == "x^3" ? "larger than with the scale" : "stays moderate",
                    std::nullopt,
                    first.value && *first.value > 0 ? scaled(end_of(curve), 1 / *first.value)
                                                    : Number{}));
            }
            f.panels.push_back(std::move(plot));
        }
        f.alt = in_words(f.panels);
        found.figures.push_back(std::move(f));
    }
    Plot accuracy{.title = "held out",
                  .x = {.title = "step"},
                  .y = {.title = "accuracy", .low = 0, .high = 1}};
    for (const Activation& a : activations) {
        accuracy.series.push_back(line(a.label, curve_of(table, a.label, "accuracy")));
        found.comparisons.push_back(compare(fmt::format("final accuracy, {}", a.label), "no number",
                                            std::nullopt,
                                            numbers.at(a.label, "final_accuracy", "", -1)));
    }
    for (const std::size_t other : {std::size_t(0), std::size_t(2)})
        found.comparisons.push_back(
            order_of("final accuracy", activations[1].label, activations[other].label,
                     numbers.at(activations[1].label, "final_accuracy", "", -1),
                     numbers.at(activations[other].label, "final_accuracy", "", -1), other == 2));
    Figure f{.name = "poly_fig2_accuracy",
             .title = "Accuracy through training",
             .caption =
                 "Share of held-out images whose class has the greatest logit, mean over "
                 "seeds. Bands: two standard errors."};
    f.panels = {accuracy};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    return found;
}

// Figure 1 ---------------------------------------------------------------------------------------

constexpr std::array keys_scale{
    key_steps("250", "50000"),
    key_batch("16", "128"),
    key_rate("1e-3", "5e-4"),
    ExperimentKey{"layers", "1", "4", "12", "blocks"},
    key_vit_d,
    key_vit_heads,
    key_image,
    ExperimentKey{.name = "patches",
                  .tiny = "4,8",
                  .quick = "2,4",
                  .paper = "2,4,8",
                  .description = "pixels of a patch, divisors of image: each gives another N",
                  .list = true},
    ExperimentKey{.name = "scales",
                  .tiny = "1,4",
                  .quick = "0.1,1,4,16,64,1024",
                  .paper = "0.01,0.1,1,2,4,8,16,32,64,256,1024",
                  .description = "k of x^3 / k",
                  .whole = false,
                  .list = true,
                  .least = 1e-6,
                  .most = 1e8},
    key_trials("2", "3")};

Index tokens_of(const ExperimentSetting& setting, Index patch) {
    const Index side = setting.count("image") / patch;
    return side * side + 1;
}
std::string name_of(Index tokens, double k) { return fmt::format("N = {}, k = {:.6g}", tokens, k); }

RunResult measure_scale(const ExperimentSetting& setting) {
    std::vector<Trained> models;
    for (const Index patch : setting.counts("patches"))
        for (const double k : setting.numbers("scales"))
            models.push_back(
                {name_of(tokens_of(setting, patch), k),
                 train_options(setting,
                               vit(setting, std::to_string(patch),
                                   fmt::format("attention=polynomial,p=3,scale={:.17g}", 1 / k)),
                               "patterns")});
    return trained(setting, models);
}

Findings find_scale(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found;
    Plot plot{.title = "x^3 / k",
              .x = {.title = "k", .scale = Scale::log},
              .y = {.title = "accuracy", .low = 0, .high = 1}};
    for (const Index patch : setting.counts("patches")) {
        const Index n = tokens_of(setting, patch);
        std::map<double, Number> accuracy;
        double best = 0, nearest = 0;
        for (const double k : setting.numbers("scales")) {
            const Number number = numbers.at(name_of(n, k), "final_accuracy", "", -1);
            if (!number.value) {
                found.notes.push_back(
                    fmt::format("{}: training diverged in every run.", name_of(n, k)));
                continue;
            }
            accuracy[k] = number;
            if (best == 0 || *number.value > *accuracy[best].value) best = k;
            const auto off = [&](double x) { return std::abs(std::log(x * x / double(n))); };
            if (nearest == 0 || off(k) < off(nearest)) nearest = k;
        }
        plot.series.push_back(line(fmt::format("N = {}", n), accuracy));
        if (best == 0) continue;
        found.comparisons.push_back(
            compare(fmt::format("accuracy at the best k = {:.4g}, N = {}", best, n),
                    fmt::format("best near sqrt(N) = {:.3g}", std::sqrt(double(n))), std::nullopt,
                    accuracy[best]));
        if (nearest != best)
            found.comparisons.push_back(
                order_of(fmt::format("accuracy, N = {}", n), fmt::format("k = {:.4g}", best),
                         fmt::format("k = {:.4g}, nearest to sqrt(N)", nearest), accuracy[best],
                         accuracy[nearest], false));
    }
    Figure f{.name = "poly_fig1",
             .title = "Accuracy against the scale of the cube",
             .caption =
                 "Final accuracy of held-out images of a ViT with attention x^3 / k, mean over "
                 "seeds; N counts its tokens. Bands: two standard errors."};
    f.panels = {plot};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    return found;
}

}  // namespace

extern const ExperimentEntry poly_fig1 = {
    .name = "poly.fig1",
    .title = "Accuracy against the scale of polynomial attention",
    .source = "[POLY] Figure 1",
    .claim =
        "Polynomial attention needs a scale: x^3 / k is best for k of the order of sqrt(N), the "
        "number of tokens, and worse far from it.",
    .method =
        "A ViT of the size in the readings, trained from its initialisation N(0, 0.02^2) with "
        "AdamW on gratings in noise (10 classes) unless --data images:DIR names CIFAR; N "
        "changes with the size of a patch. The paper's curve is of a larger model and other "
        "images, so its numbers are not set beside these.",
    .table =
        "final_loss, final_accuracy, diverged of each N and k; curves train_loss, "
        "train_grad_norm, accuracy over steps",
    .keys = keys_scale,
    .takes_data = true,
    .measure = measure_scale,
    .find = find_scale};

extern const ExperimentEntry poly_fig2 = {
    .name = "poly.fig2",
    .title = "Norms of attention and of its Jacobian through training",
    .source = "[POLY] Figures 2, 3, 6, 7",
    .claim =
        "Softmax keeps the Frobenius norms of attention and of its Jacobian small through "
        "training; x^3 / sqrt N does so too and trains as well, x^3 without the scale does "
        "not.",
    .method =
        "A ViT of the size in the readings, trained from its initialisation N(0, 0.02^2) with "
        "AdamW on gratings in noise (10 classes) unless --data images:DIR names CIFAR; the "
        "paper's models and images are larger, so its numbers are not set beside these. "
        "Norms are those of held-out images at twenty steps.",
    .table =
        "curves attn_fro and jac_fro by layer over steps (means over heads); train_loss, "
        "train_grad_norm, accuracy; final_loss, final_accuracy, diverged",
    .keys = keys_norms,
    .takes_data = true,
    .measure = measure_norms,
    .find = find_norms};

}  // namespace tsdiag::experiment_list
