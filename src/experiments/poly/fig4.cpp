#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "maps.hpp"
#include "tsdiag/error.hpp"
#include "vit.hpp"

/// [POLY] Figures 4 and 5: what trained heads attend to.
namespace tsdiag::experiment_list::poly_fig4 {
namespace {

constexpr std::array keys{
    key_few_steps("2", "100", "93835"),
    key_few_samples("16", "4096"),
    key_rate("1e-3", "3e-3", "greatest learning rate: linear warm-up, then a cosine"),
    key_layers("2", "3", "12"),
    key_d("8", "32", "768"),
    key_heads("2", "4", "12"),
    key_image("8", "16", "224"),
    key_patch("4", "2", "16"),
    key_classes("10", "1000"),
    whole_key("early", "0", "0", "1", "layer of Figure 4, from 0", 0),
    whole_key("late", "1", "2", "11", "layer of Figure 5, from 0", 0),
    listed(whole_key("shown", "1,0", "3,2", "7,5",
                     "heads shown of the early and the late layer, from 0", 0)),
    ExperimentKey{"samples", "4", "128", "128", "held-out images over which a map is averaged"},
    key_trials("5", "5")};

constexpr PolyActivation cube{3, PolyActivation::Scale::dynamic}, usual{};

/// The name of its map in a file.
std::string map_name(const PolyActivation& a) { return a.power == 0 ? "softmax" : "cube"; }

/// Means of the maps of several samples.
class MeanMaps final : public Sink {
  public:
    void scalar(const Place&, std::string_view, const Value&) override {}
    void point(const Place&, std::string_view, double, const Value&) override {}
    void matrix(Map map) override {
        const auto same = [&](const Sum& s) { return s.map.at == map.at; };
        const auto found = std::ranges::find_if(sums_, same);
        if (found == sums_.end()) {
            sums_.push_back({std::move(map)});
            return;
        }
        for (std::size_t i = 0; i < map.values.size(); ++i) found->map.values[i] += map.values[i];
        found->count += 1;
    }
    std::vector<Map> means() const {
        std::vector<Map> out;
        for (const Sum& s : sums_) {
            out.push_back(s.map);
            for (double& v : out.back().values) v /= s.count;
        }
        return out;
    }

  private:
    struct Sum {
        Map map;
        double count = 1;
    };
    std::vector<Sum> sums_;
};

void require_places(const ExperimentSetting& setting) {
    for (const char* key : {"early", "late"})
        if (setting.count(key) >= setting.count("layers"))
            throw UsageError(
                fmt::format("poly.fig4: {}={} is not a layer; layers count from 0 and there are {}",
                            key, setting.text(key), setting.text("layers")));
    if (setting.count("early") == setting.count("late"))
        throw UsageError(
            fmt::format("poly.fig4: early and late are both layer {}", setting.text("late")));
    const std::vector<Index> shown = setting.counts("shown");
    if (shown.size() != 2 || std::ranges::max(shown) >= setting.count("heads"))
        throw UsageError(
            fmt::format("poly.fig4: shown={} is not two heads; heads count from 0 and there are {}",
                        setting.text("shown"), setting.text("heads")));
}

/// Its maps by layer and head: means over the samples, and the scores of each layer, mean over its
/// heads.
void inspect(const ExperimentSetting& setting, const Model& model, std::span<const Input> samples,
             Sink& out) {
    RunOptions run;
    run.probes = {"row_max"};
    for (const char* key : {"early", "late"})
        for (Index h = 0; h < setting.count("heads"); ++h)
            run.maps.emplace_back(setting.count(key), h);
    MeanMaps means;
    measure(model, samples, {}, run, open_backend(setting.device()), Type::f32, means);
    std::map<std::pair<Index, std::string>, Moments> scores;
    for (Map& map : means.means()) {
        const PatchMap patches(map);
        const auto add = [&](std::string_view name, std::optional<double> value) {
            if (value) scores[{map.at.layer, std::string(name)}].add(*value);
        };
        for (const MapScore& score : {map_bands, map_row_bands, map_columns})
            add(score.name, score.of(patches));
        add("key_order", key_order(patches));
        add("negative",
            double(std::ranges::count_if(patches.values, [](double v) { return v < 0; })) /
                double(patches.values.size()));
        out.matrix(std::move(map));
    }
    for (const auto& [key, mean] : scores)
        out.scalar({.layer = key.first, .stage = "attn"}, key.second, mean.mean());
}

RunResult measure_maps(const ExperimentSetting& setting) {
    require_places(setting);
    const Index patches = patches_of(setting, setting.text("patch"));
    std::vector<Trained> models;
    for (const PolyActivation& a : {usual, cube}) {
        TrainOptions options =
            train_options(setting,
                          vit(setting, setting.text("patch"),
                              fmt::format("attention={}{}", a.power == 0 ? "softmax" : "polynomial",
                                          a.options(patches))),
                          gratings(setting));
        vit_recipe(options);
        options.probe_samples = setting.count("samples");
        models.push_back({.name = a.name(),
                          .options = std::move(options),
                          .inspect = [&](const Model& model, std::span<const Input> samples,
                                         Sink& seen) { inspect(setting, model, samples, seen); }});
    }
    return trained(setting, models, [&](const Outcome& run, Sink& out) {
        for (const MetricRow& row : run.seen.metrics())
            if (row.value) out.scalar(row.at, row.metric, *row.value);
        const std::vector<Index> shown = setting.counts("shown");
        for (Map map : run.seen.maps()) {
            if (map.at.head != shown[map.at.layer == setting.count("early") ? 0 : 1]) continue;
            map.name = map_name(run.model == usual.name() ? usual : cube);
            out.matrix(std::move(map));
        }
    });
}

Plot panel(const Map& map) {
    Grid grid{.rows = map.rows,
              .cols = map.cols,
              .row_title = "token",
              .col_title = "attends to",
              .value_title = "P",
              .image = true};
    for (const double v : map.values) grid.values.emplace_back(v);
    const auto [least, most] = std::ranges::minmax(map.values);
    const double limit = std::max(most, -least);
    grid.palette = least < 0 ? Palette::diverging : Palette::sequential;
    grid.low = least < 0 ? -limit : least;
    grid.high = limit;
    const PatchMap patches(map);
    std::string scores;
    for (const MapScore& score : {map_row_bands, map_columns})
        if (const auto value = score.of(patches))
            scores += fmt::format(", {} {:.2f}", score.name, *value);
    return {.title =
                fmt::format("{}, layer {}, head {}{}", map.name, map.at.layer, map.at.head, scores),
            .grid = std::move(grid)};
}

Figure maps_figure(const Table& table, const ExperimentSetting& setting, Index layer, int number) {
    Figure f{
        .name = fmt::format("poly_fig{}", number),
        .title = fmt::format("Mean attention of layer {}", layer),
        .caption = fmt::format(
            "P of one head of a trained model, mean over {} held-out images, of the first seed; "
            "row and column 0 are the class token, then patches row by row. Colours range from the "
            "least to the greatest entry of each map, symmetrically about 0 if it has negative "
            "entries. After the names: fractions of the variance of the entries explained by the "
            "distance between image rows (row_bands) and by the key (columns).",
            setting.text("samples")),
        .alt = "Attention maps."};
    for (const Map& map : table.maps()) {
        if (map.at.layer != layer) continue;
        f.panels.push_back(panel(map));
        f.alt += fmt::format(" {}: {} x {}.", f.panels.back().title, map.rows, map.cols);
    }
    return f;
}

Number score_of(const Numbers& numbers, const PolyActivation& a, std::string_view score,
                Index layer) {
    return numbers.at(a.name(), score, "attn", layer);
}

/// A score against what entries without any order have, and against that of softmax.
void compare_score(const Numbers& numbers, const ExperimentSetting& setting, const MapScore& score,
                   Index layer, const std::string& says, Findings& found) {
    const Index trials = setting.count("trials");
    const double chance = score.chance(setting.count("image") / setting.count("patch"));
    const std::string what =
        fmt::format("fraction of the map's variance explained by {}, layer {}", score.words, layer);
    found.comparisons.push_back(order_of(what, cube.name(), fmt::format("chance, {:.3g}", chance),
                                         score_of(numbers, cube, score.name, layer),
                                         {.value = chance, .error = 0, .count = trials}, says));
    found.comparisons.push_back(compare(
        fmt::format("{}: {} less {}", what, cube.name(), usual.name()),
        "[POLY] Figures 4, 5: a \"stark difference\", a \"contrast\"; no number", std::nullopt,
        difference(score_of(numbers, cube, score.name, layer),
                   score_of(numbers, usual, score.name, layer))));
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const Index early = setting.count("early"), late = setting.count("late");
    Findings found{
        .figures = {maps_figure(table, setting, early, 4), maps_figure(table, setting, late, 5)}};
    const std::string bands_claim =
        "[POLY] Figure 4: \"14 bands about the diagonal\", \"the same image row\"";
    compare_score(numbers, setting, map_bands, early, bands_claim, found);
    compare_score(numbers, setting, map_row_bands, early, bands_claim, found);
    compare_score(numbers, setting, map_columns, late,
                  "[POLY] Figure 5: \"vertical lines\", attention \"solely on key positions\"",
                  found);
    found.comparisons.push_back(
        order_of(fmt::format("correlation of a key's index with its attention, layer {}", late),
                 "0", cube.name(), {.value = 0, .error = 0, .count = setting.count("trials")},
                 score_of(numbers, cube, "key_order", late),
                 "[POLY] Figure 5: \"Smaller key indices receive higher attention weights\""));
    for (const Index layer : {early, late})
        found.comparisons.push_back(
            compare(fmt::format("fraction of negative entries, {}, layer {}", cube.name(), layer),
                    "[POLY] 6.1: \"both positive and negative values, unlike softmax\"; no number",
                    std::nullopt, score_of(numbers, cube, "negative", layer)));
    for (const PolyActivation& a : {usual, cube}) {
        found.comparisons.push_back(compare(fmt::format("final accuracy, {}", a.name()),
                                            "[POLY] Table 2, ViT-B on ImageNet: 80.3 %",
                                            std::nullopt, numbers.at(a.name(), "final_accuracy")));
        add_diverged(found, numbers, a.name());
    }
    found.notes.push_back(
        "The paper shows one head of each layer; the numbers here are means over all heads of the "
        "layer, the maps are of the heads set by the readings.");
    return found;
}

}  // namespace

extern const ExperimentEntry poly_fig4 = {
    .name = "poly.fig4",
    .title = "Heat maps of trained heads, their bands and columns",
    .source = "[POLY] Figures 4 and 5, section 6.1",
    .claim =
        "In ViT-B with x^3 and a dynamic scale \"we observe 14 bands about the diagonal, "
        "indicating that the head has learned to attend to patches in the same image row\" in "
        "layer 2, head 8, and \"vertical lines, showing attention that depends solely on key "
        "positions\" in layer 12, head 6, where \"Smaller key indices receive higher attention "
        "weights\"; scores are \"both positive and negative\", unlike softmax's.",
    .method =
        "ViTs with softmax, and with x^3 and a learned scale that starts at 1/sqrt(N) for N "
        "patches, are trained; then P is averaged over 128 held-out images. At paper scale ViT-B "
        "on 224 x 224 pixels in 14 x 14 patches, 300 epochs, with a class token and ViT's recipe "
        "as in poly.table2, layers and heads counted from 0 (1:7 and 11:5); ImageNet is not "
        "included, so images are gratings in noise unless --data images:DIR is given. Quick scale "
        "has 8 x 8 patches and a smaller model. What the paper judges by eye is scored on the "
        "patches: the fraction of the variance of the mean map's entries that lies between groups "
        "of entries, R^2, with groups of equal j - i (bands, of which the diagonal is one), equal "
        "distance between the image rows of i and j (row_bands) and equal key j (columns). For "
        "independent entries its mean is (groups - 1)/(n^2 - 1).",
    .table =
        "bands, row_bands, columns: R^2 by layer; key_order: correlation of j with the mean of "
        "column j; negative: fraction of negative entries; all means over the heads of a layer; "
        "final_accuracy, final_loss, final_test_loss, diverged; maps of the shown heads of the "
        "first seed; curves train_loss, train_grad_norm, test_loss, accuracy",
    .keys = keys,
    .takes_data = true,
    .measure = measure_maps,
    .find = find};

}  // namespace tsdiag::experiment_list::poly_fig4
