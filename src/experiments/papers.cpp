#include <fmt/format.h>

#include "tsdiag/experiment.hpp"

/// Every figure and table of the three papers, in their order.
namespace tsdiag {
namespace {

constexpr const char* drawing = "a drawing of a model, not a measurement";
constexpr const char* generated_images =
    "ViT, DeiT, Swin and XCiT, on generated images or those of --data images:DIR; ImageNet "
    "would take its data and weeks of GPU time";

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
    return out;
}

}  // namespace tsdiag
