#include <array>

#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array option_list{AttentionOption{.name = "group",
                                                 .fallback = "256",
                                                 .words = "",
                                                 .numbers = true,
                                                 .whole = true,
                                                 .least = 1,
                                                 .description = "g, positions a group"}};

/// The columns of the groups before that of each row.
Visible before(const Visible& group) {
    Visible out;
    out.first.assign(group.first.size(), 0);
    out.last = group.first;
    return out;
}

}  // namespace

extern const AttentionEntry flash;
const AttentionEntry flash = {
    .name = "flash",
    .description =
        "P = relu(S/g + bias)^2 inside groups of g tokens, plus S/n everywhere (causal: "
        "plus S/g towards earlier groups); the gate is outside P; both parts share q "
        "and k",
    .source = "[FLASH]",
    .options = option_list,
    .facts = {.negative_entries = Holds::sometimes, .window = false},
    .make = [](AttentionInput input) {
        refuse_window(flash, input);
        require_fit(input);
        const Options options(flash, input.options);
        const Index g = options.count("group");
        const double share = 1 / double(g), far = input.causal ? share : 1 / double(input.q.rows());
        AttentionInput whole = input;
        whole.causal = false;
        ScoreRule rule;
        rule.fill = [=](Logits logits, RowBlock& block) {
            const Index first = block.first, count = logits.s.rows();
            const Visible near = seen(input, g, first, count);
            const Tensor s = scale(logits.s, share);
            const Tensor r = map(Unary::relu, logits.bias.defined() ? add(s, logits.bias) : s);
            const Visible& linear =
                input.causal ? before(seen(whole, g, first, count)) : block.visible;
            block.p = add(hide(map(Unary::square, r), near), hide(scale(logits.s, far), linear));
            block.slope =
                add(hide(scale(r, 2 * share), near), hide(affine(logits.s, 0, far), linear));
        };
        return score_attention(input, std::move(rule));
    }};

}  // namespace tsdiag::variants
