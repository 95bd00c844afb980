#include "learned.hpp"

#include <algorithm>

namespace tsdiag::families {

std::vector<LearnedNumber> learned_by(const ModelSpec& spec, Index layer, Index tokens) {
    std::vector<LearnedNumber> out;
    for (std::size_t l = 0; l < spec.blocks.size(); ++l) {
        const BlockSpec& b = spec.blocks[l];
        const AttentionEntry& entry = attention(b.attention.variant);
        if ((b.shares < 0 ? Index(l) : b.shares) != layer || entry.learned == nullptr) continue;
        for (const LearnedNumber& number : entry.learned(b.attention.options, tokens))
            if (std::ranges::find(out, number.name, &LearnedNumber::name) == out.end())
                out.push_back(number);
    }
    return out;
}

}  // namespace tsdiag::families
