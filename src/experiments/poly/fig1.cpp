#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tsdiag/error.hpp"
#include "vit.hpp"

/// [POLY] Figure 1: the scale of a cubic attention against the number of tokens.
namespace tsdiag::experiment_list::poly_fig1 {

namespace {

constexpr std::array keys{
    key_steps("150", "156250"),
    key_batch("16", "128"),
    key_rate("1e-3", "5e-4"),
    key_layers("1", "4", "12"),
    key_vit_d,
    key_vit_heads,
    key_vit_image,
    ExperimentKey{.name = "patches",
                  .tiny = "4,8x4",
                  .quick = "2,4",
                  .paper = "4,8,16,32x16",
                  .description = "pixels of a patch, divisors of image: each gives another N",
                  .words = "4x2 8x4 16x8 32x16",
                  .list = true},
    key_classes("30", "200"),
    listed(real_key("scales", "1,4", "0.001,0.1,1,4,8,64,1000",
                    "0.001,0.01,0.1,1,3,4,8,16,64,256,1000", "k of x^3 / k", 1e-6, 1e8)),
    key_trials("3", "3")};

std::string model_of(Index tokens, double k) {
    return fmt::format("N = {}, k = {:.6g}", tokens, k);
}
std::string family_of(Index tokens) { return fmt::format("N = {}", tokens); }

/// For each seed the k of the highest accuracy, as log10; for ties the mean of the logarithms.
std::optional<double> best_scale(const std::vector<std::pair<double, double>>& accuracies) {
    double most = 0;
    for (const auto& [k, accuracy] : accuracies) most = std::max(most, accuracy);
    Moments best;
    for (const auto& [k, accuracy] : accuracies)
        if (accuracy == most) best.add(std::log10(k));
    return best.count() > 0 ? std::optional(best.mean()) : std::nullopt;
}

RunResult measure(const ExperimentSetting& setting) {
    const std::vector<double> scales = setting.numbers("scales");
    std::vector<Trained> models;
    for (const std::string& patch : setting.list("patches"))
        for (const double k : scales) {
            const std::string name = model_of(patches_of(setting, patch), k);
            models.push_back(
                {name,
                 train_options(setting,
                               vit(setting, patch,
                                   fmt::format("attention=polynomial,p=3,scale={:.17g}", 1 / k)),
                               gratings(setting))});
        }
    RunResult result = trained(setting, models);
    const Numbers numbers(result.table);
    for (const std::string& patch : setting.list("patches")) {
        const Index tokens = patches_of(setting, patch);
        Table best(family_of(tokens));
        std::map<double, ByTrial> accuracy;
        for (const double k : scales)
            accuracy[k] = numbers.trials(model_of(tokens, k), "final_accuracy");
        for (Index trial = 0; trial < setting.count("trials"); ++trial) {
            std::vector<std::pair<double, double>> known;
            for (const auto& [k, values] : accuracy)
                if (const auto found = values.find(double(trial)); found != values.end())
                    known.emplace_back(k, found->second);
            const auto found = best_scale(known);
            KeepByTrial(best, trial)
                .scalar({}, "best_scale", found ? Value(*found) : undefined("all runs diverged"));
        }
        result.table.append(best);
    }
    return result;
}

/// The scale that is nearest to sqrt(N) on a logarithmic axis.
double nearest_to_root(const std::vector<double>& scales, Index tokens) {
    return *std::ranges::min_element(
        scales, {}, [&](double k) { return std::abs(std::log(k * k / double(tokens))); });
}

/// The scale of the theory against both ends of the range, fixed before any run.
void compare_ends(const Numbers& numbers, const std::vector<double>& scales, Index tokens,
                  std::vector<Comparison>& all) {
    const double root = nearest_to_root(scales, tokens);
    const auto [least, most] = std::ranges::minmax(scales);
    all.push_back(
        compare(fmt::format("accuracy, N = {}, k = {:.4g}, nearest to sqrt(N)", tokens, root),
                fmt::format("no number; sqrt(N) = {:.3g}", std::sqrt(double(tokens))), std::nullopt,
                numbers.at(model_of(tokens, root), "final_accuracy")));
    const auto trials = [&](double k) {
        return numbers.trials(model_of(tokens, k), "final_accuracy");
    };
    std::vector<Order> orders;
    for (const double end : {least, most})
        if (end != root)
            orders.push_back({fmt::format("k = {:.4g}", root), fmt::format("k = {:.4g}", end),
                              trials(root), trials(end)});
    if (!orders.empty())
        all.push_back(all_orders(
            fmt::format("accuracy, N = {}", tokens), orders,
            "[POLY] 5: best for k = O(sqrt N), and \"should degrade for other values\""));
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::vector<double> scales = setting.numbers("scales");
    Findings found;
    Plot plot{.title = "x^3 / k",
              .x = {.title = "k", .scale = Scale::log},
              .y = {.title = "accuracy", .low = 0, .high = 1}};
    std::vector<Index> sizes;
    for (const std::string& patch : setting.list("patches"))
        sizes.push_back(patches_of(setting, patch));
    std::ranges::sort(sizes, std::greater());
    std::vector<double> means;
    for (const Index tokens : sizes) {
        std::map<double, Number> accuracy;
        for (const double k : scales) {
            accuracy[k] = numbers.at(model_of(tokens, k), "final_accuracy");
            if (accuracy[k].value) means.push_back(*accuracy[k].value);
            add_diverged(found, numbers, model_of(tokens, k));
        }
        plot.series.push_back(line(family_of(tokens), accuracy));
        compare_ends(numbers, scales, tokens, found.comparisons);
    }
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
        found.comparisons.push_back(order_of(
            "log10 of the best k of a seed", family_of(sizes[i]), family_of(sizes[i + 1]),
            numbers.trials(family_of(sizes[i]), "best_scale"),
            numbers.trials(family_of(sizes[i + 1]), "best_scale"),
            "[POLY] 5: \"as the sequence length increases the factor of k needs to increase\""));
    Figure f{.name = "poly_fig1",
             .title = "Accuracy against the scale of the cube",
             .caption =
                 "Final accuracy of held-out images of a ViT with attention x^3 / "
                 "k, mean over seeds; N counts the patches.",
             .panels = {std::move(plot)}};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    if (!means.empty()) {
        const auto [least, most] = std::ranges::minmax(means);
        found.notes.push_back(fmt::format(
            "The mean accuracies of all N and k lie from {:.3g} to {:.3g}.", least, most));
    }
    return found;
}

}  // namespace

extern const ExperimentEntry poly_fig1 = {
    .name = "poly.fig1",
    .title = "Accuracy against the scale of polynomial attention",
    .source = "[POLY] Figure 1, section 5",
    .claim =
        "Of ViT-Tiny with x^3 / k on Tiny-ImageNet \"the best accuracy should occur when k = "
        "O(sqrt N) and should degrade for other values due to training instability\"; \"as the "
        "sequence length increases the factor of k needs to increase\".",
    .method =
        "A ViT of the size in the readings with a class token, AdamW, on gratings in noise unless "
        "--data images:DIR names others; N, the number of patches, changes with their size. At "
        "paper scale ViT-Tiny on 64 x 64 pixels, N = 256, 64, 16 and 8, k from 1e-3 to 1e3, 200 "
        "epochs of 100000 images (told of its Figure 2), 200 classes; batch, rate, schedule and "
        "the number of runs are not told. Tiny-ImageNet itself: --data images:DIR. The directions "
        "and steps of quick scale were looked for (decisions.md, 53), since accuracies near 0 or 1 "
        "for every k tell nothing; the page says what they are.",
    .table =
        "final_loss, final_test_loss, final_accuracy, diverged of each N and k; best_scale of each "
        "N: log10 of the k of the greatest accuracy of a seed; curves train_loss, train_grad_norm, "
        "test_loss, accuracy over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::poly_fig1
