#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "recipe.hpp"
#include "tsdiag/error.hpp"

/// [DEVIL] Tables 3 and 8 to 12: which attention in which layer.
namespace tsdiag::experiment_list::devil_mixes {
namespace {

constexpr std::string_view diag = "diag_attention", norm = "norm_attention",
                           side_by_side = "D beside N";

constexpr std::array keys{
    key_steps("200", "50000"),
    key_batch("8", "512"),
    key_devil_rate,
    key_warmup("20", "updates of the warm-up"),
    key_dropout("0"),
    ExperimentKey{"layers", "4", "4", "12", "blocks, a multiple of 4"},
    key_devil_d,
    key_devil_heads,
    key_devil_tokens("16", 16, "tokens n, a multiple of 16; blocks have n/16, n/8 and n/4"),
    key_loss,
    word_key("kinds", "t1", "t1", "both", "t1: relu(S) and elu; t2: softmax and 1+elu",
             "t1 t2 both"),
    listed(whole_key("tables", "3,9", "3,8,9,10,11,12", "3,8,9,10,11,12",
                     "which of the paper's tables", 3, 12)),
    key_trials("6", "4")};

/// A model of the tables and its perplexity there.
struct Mix {
    std::string name, keys;
    int table;
    double perplexity;
    std::string base = {};                ///< the model it is compared with; empty: none
    double sign = 1;                      ///< 1: worse than its base by the paper; -1: better
    double diag_layers = -1, block = -1;  ///< position in Table 8, Table 11
};

/// `early` in the first `count` of the layers, `late` in the others.
std::string halves(Index count, Index layers, std::string_view early, std::string_view late) {
    if (count == 0) return fmt::format("0-{}:{}", layers - 1, late);
    if (count == layers) return fmt::format("0-{}:{}", layers - 1, early);
    return fmt::format("0-{}:{};{}-{}:{}", count - 1, early, count, layers - 1, late);
}
std::string alternating(Index layers, std::string_view first, std::string_view second) {
    std::string out;
    for (Index l = 0; l < layers; ++l)
        out += fmt::format("{}{}:{}", l > 0 ? ";" : "", l, l % 2 == 0 ? first : second);
    return out;
}

/// T1 or T2 of Tables 8 to 12.
std::vector<Mix> mixes_of(std::string_view kind, Index layers, Index tokens) {
    const bool one = kind == "T1";
    const Index half = layers / 2, usual_block = tokens / 8;
    std::vector<Mix> out;
    const auto add = [&](std::string name, int table, const std::string& attention,
                         const std::string& more, double t1, double t2) -> Mix& {
        std::string base = out.empty() ? "" : out.front().name;
        return out.emplace_back(Mix{.name = fmt::format("{}, {}", kind, name),
                                    .keys = fmt::format(",attention={}{}", attention, more),
                                    .table = table,
                                    .perplexity = one ? t1 : t2,
                                    .base = std::move(base)});
    };
    const auto block = [](Index size) { return fmt::format(",block={}", size); };
    const std::string early = halves(half, layers, diag, norm), same = block(usual_block);
    Mix& usual = add("TransNormer", 8, early, same, 3.82, 3.81);
    usual.diag_layers = double(half);
    usual.block = double(usual_block);
    struct DiagLayers {
        Index twelfths;
        double t1, t2;
    };
    for (const auto& [twelfths, t1, t2] : {DiagLayers{0, 4.23, 4.48}, DiagLayers{3, 4.13, 3.83},
                                           DiagLayers{9, 3.87, 3.86}, DiagLayers{12, 4.75, 4.66}}) {
        const Index count = layers * twelfths / 12;
        add(fmt::format("{} D then {} N", count, layers - count), 8,
            halves(count, layers, diag, norm), count > 0 ? same : "", t1, t2)
            .diag_layers = double(count);
    }
    add("N before D", 9, halves(half, layers, norm, diag), same, 4.13, 4.21);
    add("plain FFN", 10, early, same + ",glu=0", 3.93, 3.93);
    const Index small = usual_block / 2, large = 2 * usual_block;
    add(fmt::format("blocks of {}", small), 11, early, block(small), 3.92, 3.90).block =
        double(small);
    Mix& larger = add(fmt::format("blocks of {}", large), 11, early, block(large), 3.72, 3.69);
    larger.block = double(large);
    larger.sign = -1;
    add("D and N in turns", 12, alternating(layers, diag, norm), same, 4.19, 4.23);
    add("N and D in turns", 12, alternating(layers, norm, diag), same, 4.11, 4.21);
    add(std::string(side_by_side), 12, fmt::format("{}+{}", diag, norm), same, 3.77, 3.82).sign =
        one ? -1 : 1;
    return out;
}

/// Table 3.
std::vector<Mix> vanilla_mixes(Index layers) {
    const auto attention = [&](std::string_view early, std::string_view late) {
        return ",attention=" + halves(layers / 2, layers, early, late);
    };
    const std::string base = "1+elu before vanilla";
    return {{base, attention("linear", "softmax"), 3, 3.90},
            {"1+elu", attention("linear", "linear"), 3, 4.98, base},
            {"vanilla before 1+elu", attention("softmax", "linear"), 3, 3.76, base, -1}};
}

std::vector<std::string> kinds(const ExperimentSetting& setting) {
    const std::string said = setting.text("kinds");
    if (said == "both") return {"T1", "T2"};
    return {said == "t1" ? "T1" : "T2"};
}

void require_sizes(const ExperimentSetting& setting) {
    for (const Index table : setting.counts("tables"))
        if (table > 3 && table < 8)
            throw UsageError(fmt::format("devil.mixes: Table {} is none of 3 and 8 to 12", table));
    if (setting.count("layers") % 4 != 0)
        throw UsageError(
            fmt::format("devil.mixes: layers={} is not a multiple of 4", setting.text("layers")));
    if (setting.count("tokens") % 16 != 0)
        throw UsageError(
            fmt::format("devil.mixes: tokens={} is not a multiple of 16", setting.text("tokens")));
}

bool asked_for(const ExperimentSetting& setting, int table) {
    return std::ranges::count(setting.counts("tables"), Index{table}) > 0;
}

/// The requested models of the tables, and their bases.
std::vector<Mix> asked_for(const ExperimentSetting& setting, const std::vector<Mix>& mixes) {
    std::vector<Mix> out;
    for (const Mix& mix : mixes)
        if (asked_for(setting, mix.table)) out.push_back(mix);
    const auto same = [&](const Mix& mix) { return mix.name == mixes.front().name; };
    if (!out.empty() && std::ranges::none_of(out, same)) out.insert(out.begin(), mixes.front());
    return out;
}

std::vector<Mix> of_kind(const ExperimentSetting& setting, std::string_view kind) {
    return asked_for(setting, mixes_of(kind, setting.count("layers"), setting.count("tokens")));
}
std::vector<Mix> of_vanilla(const ExperimentSetting& setting) {
    return asked_for(setting, vanilla_mixes(setting.count("layers")));
}

std::vector<Trained> models(const ExperimentSetting& setting) {
    std::vector<Trained> out;
    const auto add = [&](std::string_view model, const Mix& mix) {
        out.push_back({mix.name, devil_options(setting, model, mix.keys)});
    };
    for (const Mix& mix : of_vanilla(setting)) add(family(setting), mix);
    for (const std::string& kind : kinds(setting))
        for (const Mix& mix : of_kind(setting, kind))
            add(fmt::format("transnormer{}-{}", kind[1], setting.text("loss")), mix);
    return out;
}

std::vector<Mix> all_mixes(const ExperimentSetting& setting) {
    std::vector<Mix> out = of_vanilla(setting);
    for (const std::string& kind : kinds(setting))
        std::ranges::move(of_kind(setting, kind), std::back_inserter(out));
    return out;
}

RunResult measure(const ExperimentSetting& setting) {
    require_sizes(setting);
    return trained(setting, models(setting));
}

/// The loss of a mix in each trial.
ByTrial loss_of(const Numbers& numbers, const std::string& mix) {
    return numbers.trials(mix, "final_test_loss");
}

Figure figure_of(const Table& table, const ExperimentSetting& setting) {
    const Axis excess{.title = "loss above TransNormer's, nats"};
    Plot share{.title = "DiagAttention first (Table 8)",
               .x = {.title = "layers of DiagAttention"},
               .y = excess},
        size{.title = "block size (Table 11)", .x = {.title = "tokens a block"}, .y = excess},
        order{.title = "order (Tables 3, 9 and 12)",
              .x = {.title = "step"},
              .y = {.title = "training loss, nats"}};
    const Numbers numbers(table);
    for (const Mix& mix : of_vanilla(setting))
        order.series.push_back(line(mix.name, curve_of(table, mix.name, "train_loss")));
    for (const std::string& kind : kinds(setting)) {
        std::map<double, Number> by_share, by_size;
        for (const Mix& mix : of_kind(setting, kind)) {
            const Number above =
                mix.base.empty()
                    ? Number{.value = 0, .error = 0, .count = setting.count("trials")}
                    : mean_of(difference(loss_of(numbers, mix.name), loss_of(numbers, mix.base)));
            if (mix.diag_layers >= 0) by_share[mix.diag_layers] = above;
            if (mix.block >= 0) by_size[mix.block] = above;
            if (mix.base.empty() || mix.table == 9 || mix.table == 12)
                order.series.push_back(line(mix.name, curve_of(table, mix.name, "train_loss")));
        }
        if (by_share.size() > 1) share.series.push_back(line(kind, by_share));
        if (by_size.size() > 1) size.series.push_back(line(kind, by_size));
    }
    Figure f{.name = "devil_mixes",
             .title = "Which attention in which layer",
             .caption =
                 "Loss of held-out samples at the end of training, less that of TransNormer of the "
                 "same seed, and training loss; means over seeds."};
    for (Plot* plot : {&share, &size, &order})
        if (!plot->series.empty()) f.panels.push_back(std::move(*plot));
    f.alt = in_words(f.panels);
    return f;
}

/// The paper's statement on a mix and its base.
const char* saying(const Mix& mix) {
    switch (mix.table) {
        case 3:
            return mix.sign > 0
                       ? "[DEVIL] 4.3: \"by replacing partial layers of linear transformers with "
                         "vanilla attention, the performance on language modeling is evidently "
                         "improved\""
                       : "[DEVIL] 4.3: \"capturing more local information in early layers are more "
                         "helpful than otherwise\"";
        case 8:
            return "[DEVIL] Table 8: \"the balanced structure achieves the best result\"";
        case 9:
            return "[DEVIL] Table 9: \"Using DiagAttention in the early stage achieves better "
                   "results than using it on later stage\"";
        case 10:
            return "[DEVIL] Table 10: \"The GLU leads to better results\"";
        case 11:
            return "[DEVIL] Table 11: \"The larger block size the better results\"";
        case 12:
            if (mix.name.ends_with(side_by_side) && mix.sign < 0)
                return "[DEVIL] Table 12, T1: 3.77 in parallel, 3.82 of TransNormer; its text: "
                       "\"without improving the performance\"";
            if (mix.name.ends_with(side_by_side))
                return "[DEVIL] 5: in parallel they \"double the computation complexities without "
                       "improving the performance\"";
            return "[DEVIL] Table 12, of two layers that \"appear in an interleaved manner\"";
    }
    throw BrokenInvariant(fmt::format("devil.mixes has no Table {}", mix.table));
}

/// One comparison for each statement on a base: it is of all mixes of a table.
void compare_statements(const Numbers& numbers, const std::vector<Mix>& all, Findings& found) {
    for (auto mix = all.begin(); mix != all.end();) {
        const std::string says = mix->base.empty() ? "" : saying(*mix), base = mix->base;
        std::vector<Order> orders;
        for (; mix != all.end() && mix->base == base && (base.empty() || saying(*mix) == says);
             ++mix) {
            const ByTrial own = loss_of(numbers, mix->name), other = loss_of(numbers, base);
            orders.push_back(mix->sign > 0 ? Order{mix->name, base, own, other}
                                           : Order{base, mix->name, other, own});
        }
        if (!base.empty()) found.comparisons.push_back(all_orders("final_test_loss", orders, says));
    }
}

/// The order of the mixes of each kind, where it could be told from one by chance.
void compare_order(const Numbers& numbers, const ExperimentSetting& setting, Findings& found) {
    constexpr std::size_t fewest = 5;  // of four the probability is 2 / 4! at least
    for (const std::string& kind : kinds(setting)) {
        std::vector<Placed> placed;
        for (const Mix& mix : of_kind(setting, kind))
            placed.push_back({loss_of(numbers, mix.name), mix.perplexity});
        if (placed.size() >= fewest)
            found.comparisons.push_back(
                same_order(fmt::format("final_test_loss, {}", kind), placed,
                           "[DEVIL] Tables 8 to 12, the order of their perplexities"));
    }
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    Findings found{.figures = {figure_of(table, setting)}};
    const std::vector<Mix> all = all_mixes(setting);
    compare_statements(numbers, all, found);
    compare_order(numbers, setting, found);
    for (const Mix& mix : all) add_loss(found, numbers, mix.name, mix.table, mix.perplexity);
    found.notes.push_back(
        "The caption of Table 12 has both attentions \"in an interleaved manner\", its text "
        "\"sequentially in a layer\": here layers take turns, so that all models have as many "
        "layers and parameters. In its last way, both in one layer side by side, each has all "
        "heads and its own queries, keys and values, and their outputs, each behind its own norm, "
        "are concatenated before the output projection: the attention has twice the parameters.");
    found.notes.push_back(
        "A plain feed-forward step has an inner width of 4 d, the gated one of 8 d / 3: as many "
        "parameters.");
    found.notes.push_back(note_on_glu(false));
    return found;
}

}  // namespace

extern const ExperimentEntry devil_mixes = {
    .name = "devil.mixes",
    .title = "Which attention in which layer",
    .source = "[DEVIL] Tables 3 and 8 to 12, sections 4.3 and 5",
    .claim =
        "Vanilla attention in half of the layers of a linear transformer improves it, in the early "
        "ones more (Table 3). DiagAttention in the first half of the layers and NormAttention in "
        "the second, \"the balanced structure\", is best (Table 8), in that order (Table 9), with "
        "a gated feed-forward step (Table 10) and large blocks (Table 11), and better than both in "
        "turns (Table 12).",
    .method =
        "At paper scale the recipe of Table 13 as for devil.table2: masked tokens, RoBERTa's "
        "sizes, TransNormer T1 and T2 with blocks of 64 of 512 tokens. Its data is WikiText-103; "
        "here a Markov chain of second order over 8 symbols, or the bytes of --data text:FILE. At "
        "quick scale next tokens with a small decoder, T1 alone, blocks of the same share of n. "
        "What is compared is the mean loss of held-out samples, the logarithm of the paper's "
        "perplexity, seed by seed: models of one seed see the same samples.",
    .table =
        "final_loss, final_test_loss, final_accuracy, diverged of each model, and each by trial; "
        "curves train_loss, train_grad_norm, test_loss and accuracy over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_mixes
