#include <fmt/format.h>

#include "tsdiag/attention.hpp"

namespace tsdiag {
namespace {

/// The text for always, sometimes or never; empty: nothing is printed.
std::string_view choose(Holds holds, std::string_view always, std::string_view sometimes,
                        std::string_view never) {
    return holds == Holds::always ? always : holds == Holds::sometimes ? sometimes : never;
}

/// A table cell, with "|" escaped.
std::string cell(std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
}

std::string section(const AttentionEntry& entry) {
    std::string out = fmt::format("## {}\n\n{}. Source: {}.\n\nStructure: {}.\n", entry.name,
                                  entry.description, entry.source, describe(entry.facts));
    if (entry.output_norm != "none")
        out += fmt::format("\nOutput norm of a drawn model: `{}` (`output_norm=`).\n",
                           entry.output_norm);
    if (entry.options.empty()) return out + "\n";
    out += "\n| option | default | values | meaning |\n|---|---|---|---|\n";
    for (const AttentionOption& o : entry.options)
        out += fmt::format("| `{}` | `{}` | {} | {} |\n", o.name, o.fallback, cell(range_of(o)),
                           cell(o.description));
    return out + "\n";
}

}  // namespace

std::string describe(const AttentionFacts& facts) {
    std::string out;
    const auto say = [&](std::string_view text) {
        if (!text.empty()) out += fmt::format("{}{}", out.empty() ? "" : "; ", text);
    };
    say(choose(facts.row_stochastic, "rows sum to 1", "rows may sum to 1", "rows do not sum to 1"));
    say(choose(facts.negative_entries, "entries of either sign", "entries may be negative",
               "no negative entry"));
    say(choose(facts.factors, "low rank", "low rank except with some options", ""));
    say(choose(facts.blocks, "block-diagonal", "may be block-diagonal", ""));
    say(choose(facts.slope, "", "the Jacobian with respect to the logits may be undefined",
               "no Jacobian with respect to the logits"));
    say(facts.causal() ? "causal or not" : "never causal");
    say(facts.window ? "sliding window or not" : "no sliding window");
    say(facts.channels ? "over tokens or channels" : "");
    say(facts.windows ? "in windows of a grid or not" : "");
    say(facts.memory ? "if causal, with or without keys of a memory" : "");
    return out;
}

std::string attention_markdown() {
    std::string out =
        "# Attentions\n\n"
        "Written by `attention_markdown()` from the list in `src/attention/variants.cpp`; a test "
        "compares the two.\n"
        "`tsdiag probe random:post-norm,attention=NAME,OPTION=VALUE` measures any of them.\n\n"
        "P is the n x n matrix of one head that multiplies the values; S = scale q k^T its logits, "
        "scale = 1/sqrt(d)\nunless stated otherwise, d the width of a head. Structure lists what "
        "holds for every P of a variant; a metric without\nmeaning for a P is undefined, with its "
        "reason (metrics.md). Sources are keys of references.md.\n\n"
        "What an attention draws at random follows the `--seed` and the trial of the run, the "
        "layer and the option `seed`; all\nsamples have the same draw, and a saved trace that of "
        "seed 0. A checkpoint holds none of "
        "it, so `probe` draws it by its own `--seed`. During a training\n`redraw` says after how "
        "many updates it is drawn again.\n\n";
    for (const AttentionEntry* entry : attentions()) out += section(*entry);
    out +=
        "## In windows of a grid\n\n"
        "Attention of [SWIN] 3.2, of `random:swin-*` and its checkpoints: a token sees those of "
        "its window of\nside x side patches alone,\n\n"
        "    P = a(scale q k^T + B),  B_ij the entry of a learned table for the offset from i to "
        "j,\n\n"
        "in every other layer after the grid was turned up and left by half a window, where it is "
        "larger than one. Patches\nthat the turn made neighbours do not see each other: exactly 0 "
        "here, exp(-100) in its code. P is n x n,\nblock-diagonal in the order of the windows. "
        "`attention=softmax` and `polynomial` have the option; N of `scale=1/sqrt(N)`\nis the "
        "number of tokens of a window.\n\n"
        "    tsdiag probe random:swin-tiny\n"
        "    tsdiag probe random:swin-tiny,depths=2-2,image=32,window=4,patch=2,attention="
        "polynomial\n\n"
        "## Over channels\n\n"
        "Cross-covariance attention [XCIT] (2), of `random:xcit-*` and its checkpoints: with Q, K, "
        "V "
        "(n x d_h) of a head,\n\n"
        "    out = V P^T,  P = a(t Q'^T K'), d_h x d_h,\n\n"
        "where Q' and K' are Q and K with columns of unit length, t = 1/tau is learned per head, "
        "and a is the activation of a\nvariant listed above as over channels. Row c of P holds the "
        "weights of the channels of V in channel c of the output,\nso rows sum to 1 with softmax; "
        "N in an option is d_h ([POLY] uses 1/14, from 196 tokens: `scale=1/14`). Metrics of "
        "P\nare those of this matrix and say so in their note; those in which P acts on tokens are "
        "undefined (metrics.md).\n\n"
        "    tsdiag probe random:xcit-nano\n"
        "    tsdiag probe random:xcit-small,attention=polynomial,scale=1/14\n\n"
        "## Layers\n\n`attention=` of a `random:` model is one variant, a plan, or ranges of\n"
        "layers, each layer in one: `attention=0-5:diag_attention:block=32;6-11:norm_attention`,\n"
        "in quotes, because a semicolon ends a shell command. Options after a colon apply to "
        "that\nrange; an option given as a separate key applies to every layer whose variant has "
        "it and\ndoes not set it.\n\n"
        "`diag_attention:block=32+norm_attention`, in place of one variant, is two attentions of a "
        "layer side by side: each\nwith all heads, its own queries, keys and values and its own "
        "output norm, their outputs concatenated before the output\nprojection ([DEVIL] Table "
        "12). Heads 0 to h - 1 are those of the first, h to 2 h - 1 those of the second. Where "
        "only "
        "one\ndivides its rows, metrics of the Jacobian are undefined; c1 is of P V, before the "
        "norms, and no bound is known. Such\na model has no file.\n\n"
        "Plans, the first attention in the first half of the layers:\n\n"
        "| name | attention | source |\n|---|---|---|\n";
    for (const AttentionPlan& plan : attention_plans())
        out += fmt::format("| `{}` | {} | {} |\n", plan.name, plan.description, plan.source);
    out +=
        "\n## Spectra\n\nMethods for |lambda_2(P)| and |Pi2 P|_2, in the order in which they are "
        "tried: each gets the heads that no earlier\nroute has certified. `--spectra` accepts the "
        "names with a star and replaces the routes after exact structure (`diagonal`,\n`blocks`, "
        "`classes`). Cost: operations per head.\n\n"
        "| name | applies to | certified by | cost |\n|---|---|---|---|\n";
    for (const SpectralRoute& route : spectral_routes())
        out += fmt::format("| `{}`{} | {} | {} | {} |\n", route.name, route.on_request ? "*" : "",
                           route.applies, route.certifies, route.cost);
    return out;
}

}  // namespace tsdiag
