#include "vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::tokenizer {

namespace {
constexpr std::size_t longest_token = 4096;
}

void Vocabulary::add(std::string token, Id id, std::string_view source) {
    if (token.size() > longest_token)
        throw FormatError(fmt::format("{}: token {} has {} bytes, expected at most {}.", source, id,
                                      token.size(), longest_token));
    if (id < 0 || id > largest_id)
        throw FormatError(fmt::format("{}: token '{}' has the id {}, expected 0 to {}.", source,
                                      visible(token), id, largest_id));
    const auto [place, fresh] = ids_.insert_or_assign(std::move(token), id);
    tokens_[id] = place->first;
    size_ = std::max(size_, id + 1);
}

Id Vocabulary::find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? none : found->second;
}

std::string Vocabulary::token(Id id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? "" : std::string(found->second);
}

Id Vocabulary::of_byte(unsigned char byte) const { return find(fmt::format("<0x{:02X}>", byte)); }

PrefixIndex::PrefixIndex(const Vocabulary& vocabulary) {
    vocabulary.each([&](std::string_view token, Id id) {
        if (!token.empty()) tokens_.emplace_back(token, id);
    });
    std::ranges::sort(tokens_);
    for (const auto& [token, id] : tokens_) ++first_[static_cast<unsigned char>(token[0]) + 1U];
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

void PrefixIndex::follow(Place& place, char byte) const {
    const auto wanted = static_cast<unsigned char>(byte);
    const std::size_t depth = place.depth++;
    if (depth == 0) {
        place.low = first_[wanted];
        place.high = first_[wanted + 1U];
        return;
    }
    // the one that ends here sorts before those that go on
    const auto at = [depth](const auto& token) {
        return token.first.size() <= depth ? -1
                                           : int(static_cast<unsigned char>(token.first[depth]));
    };
    const auto begin = tokens_.begin() + std::ptrdiff_t(place.low);
    const auto end = tokens_.begin() + std::ptrdiff_t(place.high);
    const auto found = std::ranges::equal_range(begin, end, int(wanted), {}, at);
    place.low = std::size_t(found.begin() - tokens_.begin());
    place.high = std::size_t(found.end() - tokens_.begin());
}

Id PrefixIndex::at(const Place& place) const {
    if (place.dead() || tokens_[place.low].first.size() != place.depth) return none;
    return tokens_[place.low].second;
}

void Model::no_unknown(std::string_view part) const {
    throw FormatError(
        fmt::format("{}: has no token for '{}' and none for what is unknown; leave that out of the "
                    "text.",
                    source, visible(shortened(part, 40))));
}

}  // namespace tsdiag::tokenizer
