#include "parts.hpp"
#include "tsdiag/text.hpp"
#include "unicode.hpp"

namespace tsdiag::tokenizer {
namespace {

constexpr std::size_t often = 4096;  ///< bytes between two looks at the clock

/// The code point that ends or begins a text that is not empty.
std::uint32_t last_of(std::string_view text) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80) --at;
    return code_point(text.substr(at));
}
std::uint32_t first_of(std::string_view text) {
    return code_point(text.substr(0, utf8_length(text.substr(0, 4))));
}

std::size_t spaces_before(std::string_view text) {
    std::size_t end = text.size();
    while (end > 0 && is_white_space(last_of(text.substr(0, end)))) {
        --end;
        while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
    }
    return end;
}

std::size_t spaces_at_start(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size() && is_white_space(first_of(text.substr(at))))
        at += utf8_length(text.substr(at, 4));
    return at;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
    if (token.content.empty()) return;
    order_.add(token.content, Id(tokens_.size()), "added_tokens");
    tokens_.push_back(std::move(token));
}

void AddedTokens::finish() { index_ = PrefixIndex(order_); }

std::vector<AddedTokens::Part> AddedTokens::divide(std::string_view text,
                                                   const Deadline& deadline) const {
    std::vector<Part> parts;
    std::size_t last = 0;      // the end of the part before
    std::size_t stripped = 0;  // white space reaches up to here from the last token
    for (std::size_t at = 0; at < text.size();) {
        if (at % often == often - 1) deadline.require("added tokens are long and begin alike");
        PrefixIndex::Place place = index_.root();
        Id longest = none;
        std::size_t stop = at;
        for (std::size_t i = at; i < text.size() && !place.dead(); ++i) {
            index_.follow(place, text[i]);
            if (const Id here = index_.at(place); here != none) {
                longest = here;
                stop = i + 1;
            }
        }
        if (longest == none) {
            ++at;
            continue;
        }
        const AddedToken& token = tokens_[std::size_t(longest)];
        std::size_t begin = at, end = stop;
        at = stop;  // searched on from here, whatever the token takes in addition
        if (token.single_word && ((begin > 0 && is_word(last_of(text.substr(0, begin)))) ||
                                  (end < text.size() && is_word(first_of(text.substr(end))))))
            continue;
        if (token.left_strip && begin > last)
            begin = last + spaces_before(text.substr(last, begin - last));
        else if (token.left_strip)
            begin = last;
        if (token.right_strip) {
            if (end >= stripped) stripped = end + spaces_at_start(text.substr(end));
            end = stripped;
        }
        if (last < begin) parts.push_back({none, last, begin});
        parts.push_back({token.id, begin, end});
        last = end;
    }
    if (last != text.size()) parts.push_back({none, last, text.size()});
    return parts;
}

}  // namespace tsdiag::tokenizer
