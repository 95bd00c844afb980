#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "vit.hpp"

/// [POLY] Figures 2, 3, 6, 7 and Table 1: norms of attention in the training of a small ViT.
namespace tsdiag::experiment_list::poly_fig2 {
namespace {

constexpr std::array keys{
    key_steps("300", "156250"),
    key_batch("16", "128"),
    key_rate("1e-3", "5e-4"),
    key_layers("2", "6", "12"),
    key_vit_d,
    key_vit_heads,
    key_vit_image,
    ExperimentKey{"patch", "4", "2", "4", "pixels of a patch, a divisor of image"},
    key_classes("10", "200"),
    listed(whole_key("chosen", "0,1", "0,2,5", "1,6,11",
                     "layers shown and compared, from 0; a figure of its own has all", 0)),
    key_trials("4", "3")};

struct Activation {
    std::string label, keys;
};
/// softmax, x^3 / sqrt N and x^3, N the patches of an image.
std::array<Activation, 3> activations_of(const ExperimentSetting& setting) {
    const double k = std::sqrt(double(patches_of(setting, setting.text("patch"))));
    return {Activation{"softmax", "attention=softmax"},
            Activation{fmt::format("x^3 / {:.4g}", k),
                       fmt::format("attention=polynomial,p=3,scale={:.17g}", 1 / k)},
            Activation{"x^3", "attention=polynomial,p=3,scale=none"}};
}

/// Records means over the heads of a layer at each probed step, and their level: the mean log10
/// over the second half of the steps.
void tell_norms(const Outcome& run, Sink& out) {
    std::map<std::tuple<std::string, Index, Index>, Moments> heads;
    for (const MetricRow& row : run.table.metrics())
        if (row.at.head >= 0 && row.value)
            heads[{row.metric, row.at.layer, row.at.step}].add(*row.value);
    std::map<std::pair<std::string, Index>, std::vector<double>> series;
    for (const auto& [key, mean] : heads) {
        const auto& [metric, layer, step] = key;
        out.point({.layer = layer, .stage = "attn"}, metric, double(step), mean.mean());
        series[{metric, layer}].push_back(mean.mean());
    }
    for (const auto& [key, norms] : series) {
        Moments level;
        bool positive = true;
        for (std::size_t i = norms.size() / 2; i < norms.size(); ++i) {
            positive = positive && norms[i] > 0;
            if (positive) level.add(std::log10(norms[i]));
        }
        out.scalar({.layer = key.second, .stage = "attn"}, "level_" + key.first,
                   positive ? Value(level.mean()) : undefined("a norm is 0"));
    }
}

RunResult measure(const ExperimentSetting& setting) {
    std::vector<Trained> models;
    for (const Activation& a : activations_of(setting)) {
        TrainOptions options =
            train_options(setting, vit(setting, setting.text("patch"), a.keys), gratings(setting));
        options.probe_every = std::max<Index>(1, options.steps / 20);
        options.eval_every = options.probe_every;
        options.probe_samples = 2;
        options.probes = {"attn_fro", "jac_fro"};
        models.push_back({a.label, std::move(options)});
    }
    return trained(setting, models, tell_norms);
}

struct Norm {
    const char *metric, *name, *title, *symbol;
    const char *unscaled, *scaled;  ///< statements on x^3, and on x^3 / k
    bool levels;                    ///< they are about levels; else about which is closer
};
constexpr std::array norms = {
    Norm{"attn_fro", "attention_norm", "Frobenius norm of the attention", "|P|_F",
         "[POLY] 5: x^3 is \"much larger than softmax\", read as more than twice",
         "[POLY] 5: scaling \"brings it down to softmax levels\"", true},
    Norm{"jac_fro", "jacobian_norm", "Frobenius norm of its Jacobian", "|dP/dS|_F",
         "[POLY] 5: follows from \"closer to softmax\"",
         "[POLY] 5: scaling \"brings the norms closer to softmax\"", false}};

/// A panel for each of these layers that the model has.
Figure norm_figure(const Table& table, const ExperimentSetting& setting, const Norm& norm,
                   const std::vector<Index>& layers, const std::string& where) {
    Figure f{.name = fmt::format("poly_fig2_{}{}", norm.name, where.empty() ? "" : "_all"),
             .title = fmt::format("{} through training{}", norm.title, where),
             .caption = fmt::format("{} of held-out images, mean over the heads of a layer and "
                                    "over seeds, one panel per layer.",
                                    norm.symbol)};
    for (const Index layer : layers) {
        if (layer >= setting.count("layers")) continue;
        Plot plot{.title = fmt::format("layer {}", layer),
                  .x = {.title = "step"},
                  .y = {.title = norm.symbol, .scale = Scale::log}};
        for (const Activation& a : activations_of(setting))
            plot.series.push_back(
                line(a.label, curve_of(table, a.label, norm.metric, layer), true));
        f.panels.push_back(std::move(plot));
    }
    f.alt = in_words(f.panels);
    return f;
}

/// Levels of one norm in one layer, as log10.
void compare_levels(const Numbers& numbers, const ExperimentSetting& setting, const Norm& norm,
                    Index layer, std::vector<Comparison>& all) {
    const auto [softmax, scaled_cube, cube] = activations_of(setting);
    const std::string what = fmt::format("log10 {}, second half, layer {}", norm.symbol, layer);
    const auto level = [&](const Activation& a) {
        return numbers.trials(a.label, fmt::format("level_{}", norm.metric), "attn", layer);
    };
    all.push_back(order_of(what, cube.label, softmax.label, level(cube), level(softmax),
                           norm.unscaled, norm.levels ? std::log10(2) : 0));
    all.push_back(order_of(what, cube.label, scaled_cube.label, level(cube), level(scaled_cube),
                           norm.scaled));
    all.push_back(
        norm.levels
            ? alike(what, scaled_cube.label, softmax.label, level(scaled_cube), level(softmax),
                    fmt::format("{}, read as within a factor of 2", norm.scaled), std::log10(2))
            : order_of(fmt::format("distance from softmax of {}", what), cube.label,
                       scaled_cube.label, distance(level(cube), level(softmax)),
                       distance(level(scaled_cube), level(softmax)), norm.scaled));
}

void compare_accuracies(const Numbers& numbers, const ExperimentSetting& setting,
                        std::vector<Comparison>& all) {
    const auto activations = activations_of(setting);
    constexpr std::array table1 = {50.26, 50.5, 45.3};
    const auto accuracy = [&](const Activation& a) {
        return numbers.trials(a.label, "final_accuracy");
    };
    for (std::size_t i = 0; i < activations.size(); ++i)
        all.push_back(
            compare(fmt::format("final accuracy, {}", activations[i].label),
                    fmt::format("[POLY] Table 1, ViT-Tiny on Tiny-ImageNet: {:.4g} %", table1[i]),
                    std::nullopt, numbers.at(activations[i].label, "final_accuracy")));
    const auto& [softmax, scaled_cube, cube] = activations;
    all.push_back(order_of("final accuracy", scaled_cube.label, cube.label, accuracy(scaled_cube),
                           accuracy(cube),
                           "[POLY] 5: unscaled x^3 \"yields significantly lower\" accuracy"));
    all.push_back(order_of("final accuracy", scaled_cube.label, softmax.label,
                           accuracy(scaled_cube), accuracy(softmax),
                           "[POLY] 5: x^3/16 \"delivers the best performance\""));
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found;
    std::vector<Index> all(std::size_t(setting.count("layers")));
    std::iota(all.begin(), all.end(), Index{0});
    for (const Norm& norm : norms) {
        found.figures.push_back(norm_figure(table, setting, norm, setting.counts("chosen"), ""));
        found.figures.push_back(norm_figure(table, setting, norm, all, ", every layer"));
        for (const Index layer : setting.counts("chosen"))
            if (layer < setting.count("layers"))
                compare_levels(numbers, setting, norm, layer, found.comparisons);
    }
    Plot accuracy{.title = "held out",
                  .x = {.title = "step"},
                  .y = {.title = "accuracy", .low = 0, .high = 1}};
    for (const Activation& a : activations_of(setting)) {
        accuracy.series.push_back(line(a.label, curve_of(table, a.label, "accuracy")));
        add_diverged(found, numbers, a.label);
    }
    compare_accuracies(numbers, setting, found.comparisons);
    Figure f{.name = "poly_fig2_accuracy",
             .title = "Accuracy through training",
             .caption = "Top-1 accuracy on held-out images, mean over seeds.",
             .panels = {std::move(accuracy)}};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    found.notes.push_back(
        "A softmax over all tokens never has a norm below 1, since rows that sum to 1 have squares "
        "that sum to 1/n or more.");
    for (const Index layer : setting.counts("chosen")) {
        const auto course =
            curve_of(table, activations_of(setting).back().label, "attn_fro", layer);
        if (course.empty() || !course.begin()->second.value || !course.rbegin()->second.value)
            continue;
        found.notes.push_back(fmt::format(
            "|P|_F of x^3 without a scale, layer {}: {:.3g} at step {:.0f}, {:.3g} at step {:.0f}, "
            "means over heads and seeds.",
            layer, *course.begin()->second.value, course.begin()->first,
            *course.rbegin()->second.value, course.rbegin()->first));
    }
    return found;
}

}  // namespace

extern const ExperimentEntry poly_fig2 = {
    .name = "poly.fig2",
    .title = "Norms of attention and of its Jacobian through training",
    .source = "[POLY] Figures 2, 3, 6, 7, Table 1",
    .claim =
        "In layers 2, 7 and 12 of ViT-Tiny on Tiny-ImageNet the Frobenius norm of x^3 \"is much "
        "larger than softmax but scaling it by 1/16 brings it down to softmax levels\", and "
        "scaling \"also brings\" the Jacobian's \"norms closer to softmax\"; x^3/16 \"delivers the "
        "best performance\", while unscaled x^3 \"yields significantly lower Top-1% accuracy\".",
    .method =
        "A ViT with the sizes of the readings and a class token, AdamW, on gratings in noise "
        "unless --data images:DIR is given. At paper scale ViT-Tiny on 64 x 64 pixels in 256 "
        "patches, 200 epochs of 100000 images, 200 classes, layers counted from 0; batch, rate, "
        "schedule and the number of runs are not stated. Tiny-ImageNet itself: --data images:DIR. "
        "Quick scale has a smaller model and images and fewer steps; its few runs have little "
        "statistical power. The scale is 1/sqrt(N) with N patches, 1/16 at paper scale, as in "
        "section 5 and in the captions of Figures 6 and 7; the text of A.2.3 has 1/14. Norms are "
        "measured on held-out images at twenty steps.",
    .table =
        "curves attn_fro and jac_fro by layer over steps (means over heads); level_attn_fro, "
        "level_jac_fro: mean of their log10 over the second half; train_loss, train_grad_norm, "
        "test_loss, accuracy; final_loss, final_test_loss, final_accuracy, diverged",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::poly_fig2
