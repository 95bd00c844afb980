#include "models_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tsdiag/attention.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::families {
namespace {

/// Whether terms of the logits, beside q k^T, depend on q or k.
bool depends_on_distances(const AttentionSpec& a) {
    if (a.own.empty()) return false;
    AttentionInput in;
    in.q = in.k = zeros(cpu(), {1, 1, 2}, Type::f64);
    in.options = a.options;
    return !attention(a.variant).make(std::move(in))->structure().constant_terms;
}

/// Metrics that models of this spec have not, by its first layer.
std::vector<std::string> particulars(const ModelSpec& spec) {
    const BlockSpec& b = spec.blocks.front();
    const AttentionSpec& a = b.attention;
    std::vector<std::string> out;
    if (a.channels) out.emplace_back("P is over channels: what moves tokens is undefined");
    if (b.branch_norms || b.placement == NormPlacement::branch)
        out.emplace_back("no a2, est1, est2: branches are normalised");
    else if (a.gated_unit)
        out.emplace_back("no a2, est1, est2, jac_q_fro, jac_k_fro: P V is gated");
    else if (a.latent.rank > 0)
        out.emplace_back(
            "no a2, est1, est2, est_mu, jac_q_fro, jac_k_fro: keys and values are latent");
    else if (b.placement != NormPlacement::post)
        out.emplace_back("no est1, est2: not post-norm");
    if (a.qk_norm_whole)
        out.emplace_back("no jac_q_fro, jac_k_fro: q and k are normalised across heads");
    if (a.variant == "sink")
        out.emplace_back(
            "no omega, gaps, delta_pi, entropy, ds_bound: rows of P sum to less than 1");
    else if (depends_on_distances(a))
        out.emplace_back("no ds_bound, jac_q_fro, jac_k_fro: logits have terms of distances");
    else if (a.options.contains("alibi") || a.options.contains("cap") || !a.own.empty())
        out.emplace_back("no ds_bound: logits are not scale q k^T only");
    if (a.windows.side > 0) out.emplace_back("no mask");
    return out;
}

std::string line(const ArchitectureEntry& entry) {
    std::string random = "none", notes = "as its attention allows (attention.md)";
    if (entry.draw) {
        const auto names = entry.random_names();
        random = fmt::format("`{}`", fmt::join(names, "`, `"));
        const auto found = particulars(entry.draw(names.front(), {}).spec);
        notes = found.empty() ? "all" : fmt::format("{}", fmt::join(found, "; "));
    }
    return fmt::format("| {} | `{}` | {} | {} | {} |\n", entry.title, entry.name, entry.description,
                       random, notes);
}

}  // namespace

std::string models_markdown() {
    std::string out =
        "# Models\n\n"
        "The families that open by their name alone, generated from the list of\n"
        "`src/families/architectures.cpp`. A checkpoint of another family is refused, never run as "
        "one of these\n([checkpoints.md](checkpoints.md)). `family` is also the `model_type` of a "
        "config.json, where the library has one.\n\n"
        "What is measured: all metrics of [metrics.md](metrics.md), but for what the last column "
        "says; whether a metric of P is\ndefined depends on the attention. Encoder-decoder models, "
        "state-space models and cross-attention are not read.\n\n"
        "| model | family | what it is | `random:` | measured |\n|---|---|---|---|---|\n";
    for (const ArchitectureEntry* entry : architectures()) out += line(*entry);
    return out;
}

}  // namespace tsdiag::families
