#include "tsdiag/input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "tsdiag/attention.hpp"

/// How many tokens samples have, may have, and which numbers of them attentions remark on.
namespace tsdiag {

Index fitting_tokens(const ModelSpec& spec, Index most) {
    const Index longest =
        spec.embedding.max_tokens > 0 ? std::min(spec.embedding.max_tokens, most) : most;
    Index step = 1;
    for (const BlockSpec& b : spec.blocks)
        if (const auto multiple = attention(b.attention.variant).token_multiple)
            step = std::min(std::lcm(step, multiple(b.attention.options)), longest + 1);
    return step > longest ? longest : longest / step * step;
}

std::vector<std::string> remarks_on_attention(const ModelSpec& spec, Index tokens) {
    std::vector<std::string> said, out;
    for (std::size_t l = 0; l < spec.blocks.size(); ++l) {
        const AttentionSpec& a = spec.blocks[l].attention;
        const AttentionEntry& entry = attention(a.variant);
        std::string remark = entry.remark ? entry.remark(a.options, tokens) : std::string();
        if (remark.empty() || std::ranges::find(said, remark) != said.end()) continue;
        out.push_back(fmt::format("attention '{}' of layer {}: {}", a.variant, l, remark));
        said.push_back(std::move(remark));
    }
    return out;
}

Index tokens_of(const ModelSpec& spec, const Input& input) {
    return std::max<Index>(
        {1, std::ssize(input.ids), input.hidden.defined() ? input.hidden.rows() : 0,
         input.embeddings.defined() ? input.embeddings.rows() : 0,
         input.image.defined() ? spec.embedding.image.patches() + spec.embedding.prefix_tokens
                               : 0});
}

}  // namespace tsdiag
