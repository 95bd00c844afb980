#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <limits>

#include "recipe.hpp"
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
    return listed(word_key("attention", "softmax,linear,transnormer2", quick, quick,
                           "variants whose rows sum to 1, or TransNormer T1, T2", attentions));
}
constexpr ExperimentKey own_layers{"layers", "4", "4", "12", "layers of the models"};
constexpr ExperimentKey own_d{"d", "16", "32", "768", "width"};
constexpr ExperimentKey own_heads{"heads", "2", "2", "12", "heads, a divisor of d"};
constexpr ExperimentKey own_tokens = whole_key("tokens", "8", "32", "256", "tokens n", 4, 512);

constexpr std::string_view vanilla = "softmax", linear = "linear", transnormer = "transnormer2";
constexpr std::string_view of_claims = "softmax,linear,transnormer2";
constexpr ExperimentKey key_trained =
    listed(word_key("trained", of_claims, of_claims, of_claims,
                    "those of the variants that are trained, too", attentions));
constexpr std::array sizes{key_trained, own_layers, own_d, own_heads, own_tokens};
constexpr std::array training{key_steps("200", "50000"),
                              key_batch("8", "512"),
                              key_devil_rate,
                              key_warmup("20", "updates of the warm-up"),
                              key_dropout("0.1"),
                              key_loss};
constexpr auto curve_keys =
    joined(std::array{key_attentions("softmax,linear,cosformer,performer,transnormer2")}, sizes,
           training, std::array{key_trials("6", "10")});
constexpr auto map_keys =
    joined(std::array{key_attentions("softmax,linear,cosformer,transnormer2")}, sizes,
           std::array{whole_key("layer", "1", "1", "1", "of the map", 0),
                      whole_key("head", "0", "0", "0", "of the map", 0)},
           training, std::array{key_trials("6", "10")});

bool is_whole(std::string_view attention) { return attention.starts_with("transnormer"); }
std::string family_of(const std::string& attention) {
    return is_whole(attention) ? attention + "-mlm" : "bert-base";
}
/// TransNormer's blocks are a quarter of the text: 64 of 256 tokens at paper scale.
std::string more_of(const ExperimentSetting& setting, const std::string& attention) {
    return is_whole(attention)
               ? fmt::format(",block={}", std::max<Index>(1, setting.count("tokens") / 4))
               : ",attention=" + attention;
}
/// The layers whose rows of P sum to 1.
Index stochastic_layers(const ExperimentSetting& setting, std::string_view attention) {
    return setting.count("layers") / (is_whole(attention) ? 2 : 1);
}

std::string drawn_model(const ExperimentSetting& setting, const std::string& attention) {
    const Index d = setting.count("d"), heads = setting.count("heads");
    if (d % heads != 0)
        throw UsageError(
            fmt::format("{}: heads={} is not a divisor of d={}.", setting.entry().name, heads, d));
    return fmt::format("random:{},layers={},d={},heads={}{}", family_of(attention),
                       setting.count("layers"), d, heads, more_of(setting, attention));
}

std::string trained_name(std::string_view attention) {
    return fmt::format("{}, trained", attention);
}

/// Trains the variants; `run` says what is measured at the end, on four held-out samples, and
/// `tell` what is kept of it.
RunResult trained_variants(const ExperimentSetting& setting, const RunOptions& run,
                           const std::function<void(const Outcome&, Sink&)>& tell) {
    std::vector<Trained> models;
    for (const std::string& attention : setting.list("trained")) {
        const std::string whole = fmt::format("{}-{}", attention, setting.text("loss"));
        TrainOptions options = devil_options(setting, is_whole(attention) ? whole : family(setting),
                                             more_of(setting, attention));
        options.probe_samples = 4;
        models.push_back(
            {.name = trained_name(attention),
             .options = std::move(options),
             .inspect = [&](const Model& model, std::span<const Input> samples, Sink& seen) {
                 measure(model, samples, {}, run, open_backend(setting.device()), Type::f32, seen);
             }});
    }
    return trained(setting, models, tell);
}

/// Whether all of these are trained.
bool trains(const ExperimentSetting& setting, std::initializer_list<std::string_view> variants) {
    const std::vector<std::string> asked = setting.list("trained");
    return std::ranges::all_of(variants, [&](std::string_view variant) {
        return std::ranges::find(asked, variant) != asked.end();
    });
}

void add_diverged(Findings& found, const Numbers& numbers, const ExperimentSetting& setting) {
    for (const std::string& attention : setting.list("trained"))
        experiment_list::add_diverged(found, numbers, trained_name(attention));
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
RunOptions checkpoint_options(const ExperimentSetting& setting) {
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
    const auto add = [&](RunOptions run, Index stochastic) {
        run.probes = {"local_acc", "local_auc"};
        run.derive = [stochastic](const Table& trial, Sink& out) {
            derive(trial, stochastic, out);
        };
        runs.push_back(std::move(run));
    };
    for (const std::string& attention : setting.list("attention"))
        add(options_for(setting, drawn_model(setting, attention), setting.count("trials")),
            stochastic_layers(setting, attention));
    if (!setting.model().empty())
        add(checkpoint_options(setting), std::numeric_limits<Index>::max());
    RunResult all = together(setting, runs);
    RunOptions at_end;
    at_end.probes = {"local_acc", "local_auc"};
    all.table.append(trained_variants(setting, at_end, [&](const Outcome& run, Sink& out) {
                         derive(run.seen, stochastic_layers(setting, run.model), out);
                         for (const CurveRow& row : run.seen.curves())
                             if (row.curve == "local_acc" && row.at.head < 0 && row.y)
                                 out.point(row.at, row.curve, row.x, *row.y);
                     }).table);
    return all;
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
    const Number layers = numbers.at(model, "local_auc_layers");
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
        std::nullopt, numbers.at(setting.model(), "local_auc_mean")));
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
                                            std::nullopt, numbers.at(model, "local_auc_mean")));
    }
    drawn.series.push_back(uniform_line());
    Plot learned{.title = "trained, layer 0", .x = window, .y = inside};
    for (const std::string& attention : setting.list("trained")) {
        const std::string model = trained_name(attention);
        const auto curves = layer_curves(table, model);
        if (!curves.empty()) learned.series.push_back(line(attention, curves.begin()->second));
        found.comparisons.push_back(compare(area_of(numbers, model, model), "no number",
                                            std::nullopt, numbers.at(model, "local_auc_mean")));
    }
    if (trains(setting, {vanilla, linear}))
        found.comparisons.push_back(order_of(
            "area under C(L), mean over the layers whose rows sum to 1", trained_name(vanilla),
            trained_name(linear), numbers.trials(trained_name(vanilla), "local_auc_mean"),
            numbers.trials(trained_name(linear), "local_auc_mean"),
            "[DEVIL] 3.2: \"The area under the vanilla model curve is significantly larger than "
            "that of the linear model\""));
    if (trains(setting, {linear, transnormer}))
        found.comparisons.push_back(order_of(
            "area under C(L), mean over the layers whose rows sum to 1", trained_name(transnormer),
            trained_name(linear), numbers.trials(trained_name(transnormer), "local_auc_mean"),
            numbers.trials(trained_name(linear), "local_auc_mean"),
            "[DEVIL] Figure 2: \"Our model greatly alleviates the attention dilution issue for "
            "linear models\""));
    add_diverged(found, numbers, setting);
    Figure f{.name = "devil_fig2a",
             .title = "Locally accumulated attention",
             .caption =
                 "C(L), the attention inside the nested window of L tokens around a row's own, "
                 "over L/n [DEVIL] 3.2, mean over rows, heads and trials, in the first layer of "
                 "models with random weights, and of trained ones, which are causal where loss=lm. "
                 "Uniform attention without a causal mask lies on the straight line.",
             .panels = {std::move(drawn), std::move(learned)}};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    if (!setting.model().empty()) find_checkpoint(found, table, setting);
    found.notes.push_back(
        "The paper compares trained models, and so does the claim: models with random weights "
        "neither confirm nor refute it. Those trained at quick scale are small, and have seen a "
        "chain of letters unless --data names a text.");
    if (trains(setting, {transnormer})) found.notes.push_back(note_on_glu(false));
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
        runs.push_back(checkpoint_options(setting));
        names.emplace_back("checkpoint");
    }
    for (RunOptions& run : runs) {
        run.probes = {"row_max", "entropy"};
        run.maps = {where};
    }
    const std::vector<RunResult> results = run_together(runs, setting.progress(), setting.units());
    RunResult all;
    all.run = described_runs(results, false);
    for (std::size_t i = 0; i < results.size(); ++i) {
        all.table.append(results[i].table.metrics(), results[i].table.curves());
        for (Map map : results[i].table.maps()) {
            map.name = names[i];
            all.table.matrix(std::move(map));
        }
    }
    RunOptions at_end;
    at_end.probes = {"row_max", "entropy", "local_auc"};
    at_end.maps = {where};
    RunResult learned = trained_variants(setting, at_end, [&](const Outcome& run, Sink& out) {
        for (const MetricRow& row : run.seen.metrics())
            if (row.at.head < 0 && row.at.layer == where.first && row.value)
                out.scalar(row.at, row.metric, *row.value);
        for (Map map : run.seen.maps()) {
            map.name = run.model;
            if (run.trial == 0) out.matrix(std::move(map));
        }
    });
    for (Map map : learned.table.maps()) all.table.matrix(std::move(map));
    all.table.append(learned.table.metrics(), learned.table.curves());
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
    for (const std::string& attention : setting.list("trained"))
        found.comparisons.push_back(compare(
            fmt::format("the same, layer {}, {}", layer, trained_name(attention)), "no number",
            std::nullopt, numbers.at(trained_name(attention), "row_max", "attn", layer)));
    const auto trials = [&](std::string_view attention, std::string_view metric) {
        return numbers.trials(trained_name(attention), metric, "attn", layer);
    };
    if (trains(setting, {vanilla, linear}))
        found.comparisons.push_back(order_of(
            fmt::format("mean over rows and heads of the greatest entry, layer {}", layer),
            trained_name(vanilla), trained_name(linear), trials(vanilla, "row_max"),
            trials(linear, "row_max"),
            "[DEVIL] 3.2: \"the attention maps for vanilla model are more concentrated than the "
            "linear model\""));
    // NormAttention's rows do not sum to 1, so that its C(L) is no share.
    if (trains(setting, {vanilla, linear, transnormer}) &&
        layer < stochastic_layers(setting, transnormer)) {
        const auto from_vanilla = [&](std::string_view attention) {
            return distance(trials(attention, "local_auc"), trials(vanilla, "local_auc"));
        };
        found.comparisons.push_back(order_of(
            fmt::format("distance from vanilla's of the area under C(L), layer {}", layer),
            trained_name(linear), trained_name(transnormer), from_vanilla(linear),
            from_vanilla(transnormer),
            "[DEVIL] Figure 2: TransNormer \"produces more similar patterns to the original "
            "vanilla transformer\", read as attention that is as local"));
    }
    add_diverged(found, numbers, setting);
    if (trains(setting, {transnormer})) found.notes.push_back(note_on_glu(false));
    return found;
}

constexpr std::string_view claim =
    "\"The area under the vanilla model curve is significantly larger than that of the linear "
    "model\", so that vanilla attention \"is more concentrated locally, while the linear "
    "transformer suffers from the issue of attention dilution\".";

constexpr std::string_view map_claim =
    "\"[T]he attention maps for vanilla model are more concentrated than the linear model\"; "
    "TransNormer \"produces more similar patterns to the original vanilla transformer\" in early "
    "layers.";

}  // namespace

extern const ExperimentEntry devil_fig2a = {
    .name = "devil.fig2a",
    .title = "Locally accumulated attention of several variants",
    .source = "[DEVIL] Figure 2 (a), section 3.2",
    .claim = claim,
    .method =
        "BERT-like encoders with random weights and each variant, TransNormer T2, and with --model "
        "a checkpoint with its own attention; vanilla, 1+elu and TransNormer T2 are trained, too, "
        "as for devil.table2 (on a Markov chain of second order over 8 symbols, or --data; at "
        "quick scale small decoders that predict next tokens, else encoders of masked tokens), and "
        "measured at the end on four held-out samples, seed by seed. The sizes of the paper's "
        "models are not stated. C(L) is what section 3.2 defines; the pseudo-code of appendix F "
        "differs (references.md). The rows of NormAttention, in TransNormer's second half, do not "
        "sum to 1.",
    .table =
        "local_auc by layer, curve local_acc over L/n, as in metrics.md; local_auc_mean: mean over "
        "the layers that have it, local_auc_layers: their number, both of each trial; of trained "
        "models also final_loss, "
        "final_test_loss, final_accuracy, diverged and the curves of training",
    .keys = curve_keys,
    .takes_model = true,
    .takes_data = true,
    .measure = measure_curves,
    .find = find_curves};

extern const ExperimentEntry devil_fig2b = {
    .name = "devil.fig2b",
    .title = "Attention maps of several variants",
    .source = "[DEVIL] Figure 2 (b)",
    .claim = map_claim,
    .method =
        "P of one layer and head of BERT-like encoders with random weights and each variant, of "
        "TransNormer T2, and with --model of a checkpoint; of those trained as for devil.fig2a "
        "that of the first held-out sample, with the first seed. That patterns are similar is read "
        "as equally local, by the area under C(L).",
    .table =
        "row_max, entropy by layer and head; of trained models also local_auc, final_loss, "
        "final_test_loss, final_accuracy, diverged and the curves of training; maps.npz: the "
        "maps, named after their variant",
    .keys = map_keys,
    .takes_model = true,
    .takes_data = true,
    .measure = measure_maps,
    .find = find_maps};

}  // namespace tsdiag::experiment_list::devil_attention
