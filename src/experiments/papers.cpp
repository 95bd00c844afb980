#include <fmt/format.h>

#include "tsdiag/experiment.hpp"

/// Every figure and table of the three papers, in their order.
namespace tsdiag {
namespace {

constexpr const char* drawing = "a drawing of a model, not a measurement";
constexpr const char* generated_images =
    "ViT, DeiT, Swin and XCiT, on generated images or those of --data images:DIR; ImageNet "
    "would take its data and years of GPU time (below)";

constexpr PaperDisplay displays[] = {
    {"[TSE]", "Figure 1", "similarity and gradient norm over 100 blocks of BERT and ALBERT",
     "tse.fig1"},
    {"[TSE]", "Figure 2", "similarity and xi1/xi2 of the steps of a block", "tse.fig2"},
    {"[TSE]", "Figure 3", "the estimates of the escalation rate", "tse.fig3"},
    {"[TSE]", "Figure 4", "a pre-norm model: similarity and norms", "tse.fig4"},
    {"[TSE]", "Figure 5", "diversity in de-escalated models", "tse.fig5"},
    {"[TSE]", "Figure 6", "losses of three ViT on CIFAR-10", "tse.fig6"},
    {"[TSE]", "Figure 7", "losses of three Transformer-XL on WikiText-103", "tse.fig7"},
    {"[TSE]", "Figure 8", "eta = E[xi1]/E[xi2] against its bound", "tse.fig8"},
    {"[TSE]", "Table 1", "sizes of the ViT of Figure 6", "tse.fig6"},
    {"[DEVIL]", "Figure 1", "speed, memory and score of models", "devil.fig1"},
    {"[DEVIL]", "Figure 2 (a)", "locally accumulated attention of variants", "devil.fig2a"},
    {"[DEVIL]", "Figure 2 (b)", "attention matrices of early layers", "devil.fig2b"},
    {"[DEVIL]", "Figure 3", "the architecture of TransNormer", "", drawing},
    {"[DEVIL]", "Table 1", "linear attention without its denominator", "devil.table1"},
    {"[DEVIL]", "Table 2", "relative standard deviation of gradients in training", "devil.table2"},
    {"[DEVIL]", "Table 3", "linear and vanilla attention in early and late layers", "devil.mixes"},
    {"[DEVIL]", "Table 4", "eight autoregressive language models", "devil.table4"},
    {"[DEVIL]", "Table 5", "GLUE", "devil.table5",
     "on the files of --data DIR, read as bytes; without them on Markov chains with errors"},
    {"[DEVIL]", "Table 6", "Long-Range Arena", "devil.table6",
     "all fifteen models; Text, Retrieval and Image with --data DIR"},
    {"[DEVIL]", "Table 7", "speed on the Long-Range Arena", "devil.table7"},
    {"[DEVIL]", "Table 8", "the proportion of both attentions", "devil.mixes"},
    {"[DEVIL]", "Table 9", "the order of both attentions", "devil.mixes"},
    {"[DEVIL]", "Table 10", "plain or gated feed-forward step", "devil.mixes"},
    {"[DEVIL]", "Table 11", "the size of a block", "devil.mixes"},
    {"[DEVIL]", "Table 12", "both attentions in turns, and side by side", "devil.mixes"},
    {"[DEVIL]", "Table 13", "settings of the trainings", "devil.table2",
     "those of the masked models; also in devil.mixes; devil.table4 has the autoregressive ones"},
    {"[POLY]", "Figure 1", "training ViT-Tiny with x^3/k by length and k", "poly.fig1"},
    {"[POLY]", "Figure 2", "norms of P in ViT-Tiny", "poly.fig2"},
    {"[POLY]", "Figure 3", "norms of the Jacobian in ViT-Tiny", "poly.fig2"},
    {"[POLY]", "Figure 4", "heat maps of P, layer 2", "poly.fig4"},
    {"[POLY]", "Figure 5", "heat maps of P, layer 12", "poly.fig4"},
    {"[POLY]", "Figure 6", "norms of P in ViT-Tiny, all layers", "poly.fig2"},
    {"[POLY]", "Figure 7", "norms of the Jacobian in ViT-Tiny, all layers", "poly.fig2"},
    {"[POLY]", "Table 1", "accuracy on Tiny-ImageNet", "poly.fig2",
     "on generated images or those of --data images:DIR"},
    {"[POLY]", "Table 2", "accuracy on ImageNet", "poly.table2", generated_images},
    {"[POLY]", "Table 3", "detection on COCO", "",
     "COCO would take its data and weeks of GPU time"},
    {"[POLY]", "Table 4", "Nystromformer on the Long-Range Arena", "poly.table4",
     "ListOps, Pathfinder and a task like Image are generated; Text, Retrieval and Image with "
     "--data DIR"},
    {"[POLY]", "Table 5", "accuracy on ImageNet, other activations", "poly.table5",
     generated_images},
    {"[POLY]", "Table 6", "PINNsformer on two equations", "poly.table6"},
};

/// The FLOPs of all trainings of an experiment at paper scale: three times `forward_flops` of each
/// model for each sample of each update, in all trials.
struct PaperCost {
    std::string_view experiment;
    double flops;
    bool rough = false;  ///< tasks that need files are taken from the generated ones, by tokens
};
constexpr PaperCost paper_costs[] = {
    {"tse.fig6", 6.7e17},           {"tse.fig7", 4.9e18},          {"devil.fig1", 6.6e18, true},
    {"devil.fig2a", 1.06e20},       {"devil.table1", 8.9e19},      {"devil.table2", 1.25e20},
    {"devil.mixes", 8.3e20},        {"devil.table4", 2.9e19},      {"devil.table5", 1.9e20},
    {"devil.table6", 1.1e19, true}, {"poly.fig1", 5.0e18},         {"poly.fig2", 8.2e17},
    {"poly.table2", 1.7e21},        {"poly.table4", 1.2e18, true}, {"poly.table5", 8.1e21},
    {"poly.fig4", 2.6e20}};
/// FLOPs a second of trainings in float32: of an H200, and of the two cores of PERFORMANCE.md.
constexpr double device_rate = 25e12, cores_rate = 0.14e12;

/// "9 hours", "13 days", "10 years"
std::string rounded_time(double seconds) {
    constexpr double hour = 3600, day = 24 * hour, year = 365.25 * day;
    if (seconds < 2 * day) return fmt::format("{:.2g} hours", seconds / hour);
    if (seconds < 2 * year) return fmt::format("{:.0f} days", seconds / day);
    return fmt::format("{:.0f} years", seconds / year);
}

/// What each scale shows, and what it takes.
std::string scales_markdown() {
    std::string out =
        "\n## What each scale shows, and what it takes\n\n"
        "**Quick**, 15 minutes for all on two cores: small models, trained for few updates on "
        "generated data. It shows whether an effect that the paper reports is there in such "
        "models, where it is as large as the differences that a page says its trials see. What is "
        "open or contradicted there is so of these models; it says little of the paper's.\n\n"
        "**Paper**: the sizes, updates and batches of the paper. With the paper's data (`--data`) "
        "a page tests the claim itself, but for what its method says is read otherwise; without "
        "it, the claim on generated data. Experiments that train nothing take seconds to minutes. "
        "The others take, by the FLOPs of their trainings at 25 TFLOP/s, about what an H200 "
        "reaches in float32 without TF32, and at 0.14 TFLOP/s on two cores "
        "([PERFORMANCE.md](../PERFORMANCE.md)):\n\n"
        "| experiment | FLOPs | one GPU | two cores |\n|---|---:|---:|---:|\n";
    for (const PaperCost& cost : paper_costs)
        out += fmt::format("| `{}` | {}{:.2g} | {} | {} |\n", cost.experiment,
                           cost.rough ? "about " : "", cost.flops,
                           rounded_time(cost.flops / device_rate),
                           rounded_time(cost.flops / cores_rate));
    return out +
           "\n`devil.fig2b` trains the models of `devil.fig2a`. `poly.table6` minimises by L-BFGS, "
           "whose evaluations are not counted beforehand. An experiment in which one claim is of "
           "interest costs a part: `--reading` leaves out models, tables and tasks.\n";
}

}  // namespace

std::span<const PaperDisplay> paper_displays() { return displays; }

std::string papers_markdown() {
    std::string out =
        "# Figures and tables of the papers\n\n"
        "Written by `papers_markdown()` from the list in `src/experiments/papers.cpp`; a test "
        "compares the two. Sources are keys of [references.md](references.md); what `tsdiag "
        "figure` makes is in [experiments.md](experiments.md), the numbered equations and "
        "statements, each with its verdict or why it has none, are in "
        "[statements.md](statements.md).\n\n| paper | display | of | made by "
        "|\n|---|---|---|---|\n";
    for (const PaperDisplay& d : displays) {
        std::string by =
            d.experiment.empty() ? "" : fmt::format("`tsdiag figure {}`", d.experiment);
        if (!by.empty() && !d.note.empty()) by += "; ";
        out += fmt::format("| {} | {} | {} | {}{} |\n", d.paper, d.name, d.title, by, d.note);
    }
    return out + scales_markdown();
}

}  // namespace tsdiag
