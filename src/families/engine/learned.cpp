#include "learned.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

/// N: of windows the patches of one, else those of an image, or the tokens of the longest input.
Index longest_input(const ModelSpec& spec, const AttentionSpec& a) {
    const Index side = a.windows.side;
    return side > 0                            ? side * side
           : spec.embedding.image.channels > 0 ? spec.embedding.image.patches()
                                               : spec.embedding.max_tokens;
}

}  // namespace

std::vector<LearnedParameter> learned_by(const ModelSpec& spec, Index layer, bool drawn) {
    std::vector<LearnedParameter> out;
    for (std::size_t l = 0; l < spec.blocks.size(); ++l) {
        const BlockSpec& b = spec.blocks[l];
        const AttentionSpec& a = b.attention;
        const AttentionEntry& entry = attention(a.variant);
        if ((b.shares < 0 ? Index(l) : b.shares) != layer || entry.learned == nullptr) continue;
        const Index tokens = longest_input(spec, a);
        const bool prefix = spec.embedding.image.channels > 0 && a.windows.side == 0;
        const LearnedFor model{.tokens = tokens,
                               .longest = tokens + (prefix ? spec.embedding.prefix_tokens : 0),
                               .width = spec.width_of(Index(l)),
                               .heads = a.heads,
                               .kv_heads = a.kv_heads,
                               .head_dim = a.head_dim,
                               .causal = a.causal,
                               .drawn = drawn};
        for (const LearnedParameter& learned : entry.learned(a.options, model)) {
            const auto known = std::ranges::find(out, learned.name, &LearnedParameter::name);
            if (known == out.end())
                out.push_back(learned);
            else if (known->shape != learned.shape)
                throw UsageError(
                    fmt::format("layers that share their parameters have attentions whose '{}' "
                                "differs in size; give them the same options",
                                learned.name));
        }
    }
    return out;
}

}  // namespace tsdiag::families
