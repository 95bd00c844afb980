#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "support.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"

/// [DEVIL] Figure 2: how local attention is, and what it looks like.
namespace tsdiag::experiment_list::devil_attention {
namespace {

/// Attentions with rows of P that sum to 1, so that their cumulative curves are comparable; for
/// TransNormer, the first half of its layers.
constexpr std::string_view attentions =
    "softmax linear cosformer performer diag_attention transnormer1 transnormer2";

constexpr ExperimentKey key_attentions(std::string_view quick) {
    return {.name = "attention",
            .tiny = "softmax,linear,transnormer2",
            .quick = quick,
            .paper = quick,
            .description = "variants whose rows sum to 1, or TransNormer T1, T2",
            .words = attentions,
            .numbers = false,
            .list = true};
}
constexpr ExperimentKey own_layers{"layers", "2", "4", "12", "layers of the random model"};
constexpr ExperimentKey own_d{"d", "16", "256", "768", "width"};
constexpr ExperimentKey own_heads{"heads", "2", "4", "12", "heads, a divisor of d"};
constexpr ExperimentKey own_tokens{.name = "tokens",
                                   .tiny = "8",
                                   .quick = "128",
                                   .paper = "256",
                                   .description = "tokens n",
                                   .least = 2,
                                   .most = 512};

constexpr std::array curve_keys{key_attentions("softmax,linear,cosformer,performer,transnormer2"),
                                own_layers,
                                own_d,
                                own_heads,
                                own_tokens,
                                key_trials("5", "10")};
constexpr std::array map_keys{key_attentions("softmax,linear,cosformer,transnormer2"),
                              own_layers,
                              own_d,
                              own_heads,
                              own_tokens,
                              ExperimentKey{.name = "layer",
                                            .tiny = "1",
                                            .quick = "1",
                                            .paper = "1",
                                            .description = "of the map",
                                            .least = 0},
                              ExperimentKey{.name = "head",
                                            .tiny = "0",
                                            .quick = "0",
                                            .paper = "0",
                                            .description = "of the map",
                                            .least = 0}};

std::string drawn_model(const ExperimentSetting& setting, const std::string& attention) {
    const Index d = setting.count("d"), heads = setting.count("heads");
    if (d % heads != 0)
        throw UsageError(
            fmt::format("{}: heads={} is not a divisor of d={}.", setting.entry().name, heads, d));
    const bool whole = attention.starts_with("transnormer");
    return fmt::format("random:{},layers={},d={},heads={}{}",
                       whole ? attention + "-mlm" : "bert-base", setting.count("layers"), d, heads,
                       whole ? "" : ",attention=" + attention);
}

RunOptions options_for(const ExperimentSetting& setting, std::string model, Index trials) {
    RunOptions options;
    options.subject.model = std::move(model);
    options.tokens = setting.count("tokens");
    options.trials = trials;
    options.seed = setting.seed();
    options.device = setting.device();
    return options;
}

/// The checkpoint, with at most as many tokens as it allows.
RunOptions trained(const ExperimentSetting& setting) {
    RunOptions options = options_for(setting, setting.model(), 1);
    SubjectOptions subject;
    subject.model = setting.model();
    const Subject opened = open_subject(subject);
    if (opened.is_trace() || opened.kind != Subject::Kind::checkpoint)
        throw UsageError(
            fmt::format("--model {}: expected a checkpoint or a directory.", setting.model()));
    const Index longest = opened.spec().embedding.max_tokens;
    if (longest > 0) options.tokens = std::min(options.tokens, longest);
    return options;
}

/// For each trial: the mean area over the layers whose rows sum to 1,
/// the first `stochastic`, and their number.
void derive(const Table& trial, Index stochastic, Sink& out) {
    Moments area;
    for (const MetricRow& row : trial.metrics())
        if (row.metric == "local_auc" && row.at.head < 0 && row.value && row.at.layer < stochastic)
            area.add(*row.value);
    out.scalar({}, "local_auc_mean",
               area.count() > 0 ? Value(area.mean()) : undefined("no layer has a local_auc"));
    out.scalar({}, "local_auc_layers", double(area.count()));
}

RunResult measure_curves(const ExperimentSetting& setting) {
    std::vector<RunOptions> runs;
    const Index layers = setting.count("layers");
    const auto add = [&](RunOptions run, Index stochastic) {
        run.probes = {"local_acc", "local_auc"};
        run.derive = [stochastic](const Table& trial, Sink& out) {
            derive(trial, stochastic, out);
        };
        runs.push_back(std::move(run));
    };
    for (const std::string& attention : setting.list("attention"))
        add(options_for(setting, drawn_model(setting, attention), setting.count("trials")),
            attention.starts_with("transnormer") ? layers / 2 : layers);
    if (!setting.model().empty()) add(trained(setting), std::numeric_limits<Index>::max());
    return together(setting, runs);
}

/// Layer -> the layer's mean curve over the heads.
std::map<Index, std::map<double, Number>> layer_curves(const Table& table, std::string_view model) {
    std::map<Index, std::map<double, Number>> found;
    for (const CurveRow& row : table.curves())
        if (row.curve == "local_acc" && row.model == model && row.at.head < 0)
            found[row.at.layer][row.x] = {row.y, row.standard_error, row.count, {}};
    return found;
}

const Axis window{.title = "window, fraction of the tokens", .low = 0, .high = 1};
const Axis inside{.title = "attention inside", .low = 0, .high = 1.02};

Series uniform_line() { return {.name = "uniform", .x = {0, 1}, .y = {0.0, 1.0}, .dashed = true}; }

/// "area under C(L), softmax, mean over 4 layers"
std::string area_of(const Numbers& numbers, const std::string& model, const std::string& label) {
    const Number layers = numbers.at(model, "local_auc_layers", "", -1);
    return fmt::format("area under C(L), {}, mean over {:.0f} layers", label,
                       layers.value.value_or(0));
}

void find_checkpoint(Findings& found, const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Plot read{.title = "the checkpoint, by layer", .x = window, .y = inside, .ordered = true};
    for (const auto& [layer, curve] : layer_curves(table, setting.model()))
        read.series.push_back(line(fmt::format("layer {}", layer), curve));
    read.series.push_back(uniform_line());
    Figure own{
        .name = "devil_fig2a_checkpoint",
        .title = "Locally accumulated attention of the checkpoint",
        .caption =
            "C(L) of each layer, mean over rows and heads, on ids drawn at random unless the "
            "checkpoint takes other inputs.",
        .panels = {std::move(read)}};
    own.alt = in_words(own.panels);
    found.figures.push_back(std::move(own));
    found.comparisons.push_back(compare(
        area_of(numbers, setting.model(), "the checkpoint"),
        "[DEVIL] 3.2: that of vanilla is \"significantly larger than that of the linear model\"",
        std::nullopt, numbers.at(setting.model(), "local_auc_mean", "", -1)));
}

Findings find_curves(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const double uniform = (setting.number("tokens") + 1) / (2 * setting.number("tokens"));
    Findings found;
    Plot drawn{.title = "random weights, layer 0", .x = window, .y = inside};
    for (const std::string& attention : setting.list("attention")) {
        const std::string model = drawn_model(setting, attention);
        const auto curves = layer_curves(table, model);
        if (curves.empty()) continue;
        drawn.series.push_back(line(attention, curves.begin()->second));
        found.comparisons.push_back(compare(area_of(numbers, model, attention + ", random weights"),
                                            fmt::format("uniform attention: {:.4f}", uniform),
                                            std::nullopt,
                                            numbers.at(model, "local_auc_mean", "", -1)));
    }
    drawn.series.push_back(uniform_line());
    Figure f{.name = "devil_fig2a",
             .title = "Locally accumulated attention",
             .caption = fmt::format(
                 "C(L), the attention inside the nested window of L tokens around a row's own, "
                 "over L/n [DEVIL] 3.2, mean over rows, heads and trials, in the first layer of "
                 "models with random weights. Uniform attention lies on the straight line. {}",
                 bands),
             .panels = {std::move(drawn)}};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    if (!setting.model().empty())
        find_checkpoint(found, table, setting);
    else
        found.notes.push_back(
            "No checkpoint was given: all of these are models at initialisation. `--model PATH` "
            "adds a trained one.");
    found.notes.push_back(
        "The paper compares trained models; models with random weights neither confirm nor refute "
        "a claim about training.");
    return found;
}

/// A map of the chosen head for each variant, named after it.
RunResult measure_maps(const ExperimentSetting& setting) {
    std::vector<RunOptions> runs;
    const std::pair<Index, Index> where{setting.count("layer"), setting.count("head")};
    std::vector<std::string> names = setting.list("attention");
    for (const std::string& attention : names)
        runs.push_back(options_for(setting, drawn_model(setting, attention), 1));
    if (!setting.model().empty()) {
        runs.push_back(trained(setting));
        names.emplace_back("checkpoint");
    }
    for (RunOptions& run : runs) {
        run.probes = {"row_max", "entropy"};
        run.maps = {where};
    }
    const std::vector<RunResult> results = run_together(runs, setting.progress(), setting.units());
    RunResult all;
    Json::Array described;
    for (std::size_t i = 0; i < results.size(); ++i) {
        all.table.append(results[i].table.metrics(), results[i].table.curves());
        for (Map map : results[i].table.maps()) {
            map.name = names[i];
            all.table.matrix(std::move(map));
        }
        Json run = Json::Object{};
        for (const char* key : {"model", "input", "settings"}) run.set(key, results[i].run[key]);
        described.push_back(std::move(run));
    }
    all.run.set("runs", std::move(described));
    return all;
}

Plot map_panel(const Map& map) {
    Grid grid{.rows = map.rows,
              .cols = map.cols,
              .row_title = "token",
              .col_title = "attends to",
              .value_title = "P",
              .image = true};
    double most = 0;
    for (const double v : map.values) {
        grid.values.emplace_back(v);
        most = std::max(most, v);
    }
    grid.low = 0;
    grid.high = most;
    return {.title = fmt::format("{}, greatest entry {:.3g}", map.name, most), .grid = grid};
}

Findings find_maps(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const Index layer = setting.count("layer");
    const double tokens = setting.number("tokens");
    Findings found;
    Figure f{.name = "devil_fig2b",
             .title = "Attention maps",
             .caption =
                 "P of one head: row i is what token i attends to. Each map has its own colour "
                 "scale, from 0 to its greatest entry.",
             .alt = "Attention maps."};
    for (const Map& map : table.maps()) {
        f.panels.push_back(map_panel(map));
        f.alt += fmt::format(" {}: {} x {}.", f.panels.back().title, map.rows, map.cols);
    }
    if (!f.panels.empty()) found.figures.push_back(std::move(f));
    for (const std::string& attention : setting.list("attention"))
        found.comparisons.push_back(
            compare(fmt::format("mean over rows and heads of the greatest entry, layer {}, {}",
                                layer, attention),
                    fmt::format("uniform attention: 1/n = {:.4g}", 1 / tokens), std::nullopt,
                    numbers.at(drawn_model(setting, attention), "row_max", "attn", layer)));
    if (!setting.model().empty())
        found.comparisons.push_back(
            compare(fmt::format("the same, layer {}, the checkpoint", layer),
                    fmt::format("uniform attention: 1/n = {:.4g}", 1 / tokens), std::nullopt,
                    numbers.at(setting.model(), "row_max", "attn", layer)));
    else
        found.notes.push_back(
            "No checkpoint was given: all of these are maps at initialisation. `--model PATH` adds "
            "one of a trained model.");
    return found;
}

constexpr std::string_view claim =
    "\"The area under the vanilla model curve is significantly larger than that of the linear "
    "model\", so that vanilla attention \"is more concentrated locally, while the linear "
    "transformer "
    "suffers from the issue of attention dilution\".";

constexpr std::string_view map_claim =
    "\"Attention maps for vanilla model are more concentrated than the linear model\"; TransNormer "
    "\"produces more similar patterns to the original vanilla transformer\" in early layers.";

}  // namespace

extern const ExperimentEntry devil_fig2a = {
    .name = "devil.fig2a",
    .title = "Locally accumulated attention of several variants",
    .source = "[DEVIL] Figure 2 (a), section 3.2",
    .claim = claim,
    .method =
        "BERT-like encoders with random weights and each variant, TransNormer T2, and with --model "
        "a checkpoint with its own attention. The paper's models are trained; their sizes are not "
        "stated. C(L) is what section 3.2 defines; the pseudo-code of appendix F differs "
        "(references.md). The rows of NormAttention, in TransNormer's second half, do not sum to "
        "1.",
    .table =
        "local_auc by layer, curve local_acc over L/n, as in metrics.md; local_auc_mean: mean over "
        "the layers that have it, local_auc_layers: their number, both of each trial",
    .keys = curve_keys,
    .takes_model = true,
    .measure = measure_curves,
    .find = find_curves};

extern const ExperimentEntry devil_fig2b = {
    .name = "devil.fig2b",
    .title = "Attention maps of several variants",
    .source = "[DEVIL] Figure 2 (b)",
    .claim = map_claim,
    .method =
        "P of one layer and head of BERT-like encoders with random weights and each variant, of "
        "TransNormer T2, and with --model of a checkpoint. The paper's models are trained.",
    .table = "row_max, entropy by layer and head; maps.npz: the maps, named after their variant",
    .keys = map_keys,
    .takes_model = true,
    .measure = measure_maps,
    .find = find_maps};

}  // namespace tsdiag::experiment_list::devil_attention
