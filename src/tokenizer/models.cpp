#include "models.hpp"

#include <algorithm>
#include <queue>

#include "tsdiag/text.hpp"
#include "unicode.hpp"

namespace tsdiag::tokenizer {
namespace {

constexpr std::size_t starts_a_look = 4096;  ///< starts of tokens between two looks at the clock
constexpr std::string_view long_pieces = "the vocabulary has long tokens that begin alike";

struct Symbol {
    Id id = none;
    std::int32_t before = -1, after = -1;
    bool removed = false;
};

struct Candidate {
    std::int64_t rank = 0;
    std::int32_t at = 0;
    Id made = none;
    /// The least rank first, then the leftmost.
    bool operator<(const Candidate& other) const {
        return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
};

std::size_t characters(std::string_view text) {
    return std::size_t(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

}  // namespace

std::optional<std::vector<Id>> bytes_of(const Vocabulary& vocabulary, std::string_view text) {
    std::vector<Id> ids;
    for (const char c : text) {
        ids.push_back(vocabulary.of_byte(static_cast<unsigned char>(c)));
        if (ids.back() == none) return std::nullopt;
    }
    return ids;
}

std::vector<Id> Bpe::first_symbols(std::string_view word) const {
    std::vector<Id> ids;
    ids.reserve(word.size());
    bool pending = false;  // an unknown token that the next one may join
    std::string text;
    const auto flush = [&] {
        if (pending) ids.push_back(unknown_id_);
        pending = false;
    };
    std::size_t at = 0;
    each_character(word, [&](std::uint32_t, std::string_view bytes) {
        text.clear();
        if (at > 0) text += continuing_prefix;
        text += bytes;
        at += bytes.size();
        if (at == word.size()) text += end_suffix;
        if (const Id id = vocabulary.find(text); id != none) {
            flush();
            ids.push_back(id);
            return;
        }
        if (byte_fallback)
            if (const auto fallen = bytes_of(vocabulary, text)) {
                // as in the library: an unknown token before them stays behind them
                ids.insert(ids.end(), fallen->begin(), fallen->end());
                return;
            }
        if (!unknown) return;  // as in the library: left out
        if (unknown_id_ == none) no_unknown(bytes);
        if (!fuse_unknown) flush();
        pending = true;
    });
    flush();
    return ids;
}

void Bpe::finish() {
    if (unknown) unknown_id_ = vocabulary.find(*unknown);
}

void Bpe::append(std::string_view word, const Deadline&, std::vector<Id>& out) const {
    if (ignore_merges)
        if (const Id whole = vocabulary.find(word); whole != none) {
            out.push_back(whole);
            return;
        }
    const std::vector<Id> ids = first_symbols(word);
    std::vector<Symbol> symbols(ids.size());
    const auto count = std::int32_t(ids.size());
    std::vector<Candidate> start;
    const auto candidate = [&](std::int32_t at, const auto& put) {
        const Symbol& left = symbols[std::size_t(at)];
        if (left.after < 0) return;
        const auto found = merges_.find(key(left.id, symbols[std::size_t(left.after)].id));
        if (found != merges_.end()) put(Candidate{found->second.rank, at, found->second.made});
    };
    for (std::int32_t i = 0; i < count; ++i)
        symbols[std::size_t(i)] = {ids[std::size_t(i)], i - 1, i + 1 < count ? i + 1 : -1};
    for (std::int32_t i = 0; i < count; ++i)
        candidate(i, [&](const Candidate& c) { start.push_back(c); });
    std::priority_queue<Candidate> queue({}, std::move(start));
    while (!queue.empty()) {
        const Candidate top = queue.top();
        queue.pop();
        Symbol& left = symbols[std::size_t(top.at)];
        if (left.removed || left.after < 0) continue;
        Symbol& right = symbols[std::size_t(left.after)];
        const auto now = merges_.find(key(left.id, right.id));
        if (now == merges_.end() || now->second.made != top.made) continue;  // it has changed since
        left.id = top.made;
        left.after = right.after;
        right.removed = true;
        if (left.after >= 0) symbols[std::size_t(left.after)].before = top.at;
        const auto put = [&](const Candidate& c) { queue.push(c); };
        if (left.before >= 0) candidate(left.before, put);
        candidate(top.at, put);
    }
    for (const Symbol& symbol : symbols)
        if (!symbol.removed) out.push_back(symbol.id);
}

void WordPiece::finish() { index_ = PrefixIndex(vocabulary); }

void WordPiece::append(std::string_view word, const Deadline& deadline,
                       std::vector<Id>& out) const {
    const auto give_up = [&] {
        const Id id = vocabulary.find(unknown);
        if (id == none) no_unknown(word);
        out.push_back(id);
    };
    if (characters(word) > longest_word) return give_up();
    const std::size_t before = out.size();
    for (std::size_t start = 0, steps = 0; start < word.size(); ++steps) {
        if (steps % starts_a_look == starts_a_look - 1) deadline.require(long_pieces);
        PrefixIndex::Place place = index_.root();
        if (start > 0)
            for (const char c : continuing_prefix) index_.follow(place, c);
        std::size_t longest = 0;
        Id id = none;
        for (std::size_t i = start; i < word.size() && !place.dead(); ++i) {
            index_.follow(place, word[i]);
            if (const Id here = index_.at(place); here != none) {
                id = here;
                longest = i + 1 - start;
            }
        }
        if (id == none) {
            out.resize(before);
            return give_up();
        }
        out.push_back(id);
        start += longest;
    }
}

void WordLevel::append(std::string_view word, const Deadline&, std::vector<Id>& out) const {
    Id id = vocabulary.find(word);
    if (id == none) id = vocabulary.find(unknown);
    if (id == none) no_unknown(word);
    out.push_back(id);
}

void Unigram::finish() {
    index_ = PrefixIndex(vocabulary);
    least_score_ = scores.empty() ? 0 : *std::ranges::min_element(scores);
}

void Unigram::append(std::string_view word, const Deadline& deadline, std::vector<Id>& out) const {
    constexpr double penalty = 10;  // of an unknown character, as in SentencePiece
    struct Node {
        double score = 0;
        std::int64_t start = -1;
        Id id = none;
    };
    std::vector<Node> best(word.size() + 1);
    const auto offer = [&](std::size_t end, std::size_t start, double score, Id id) {
        Node& node = best[end];
        if (node.start < 0 || score > node.score) node = {score, std::int64_t(start), id};
    };
    std::size_t steps = 0;
    std::size_t at = 0;
    each_character(word, [&](std::uint32_t, std::string_view bytes) {
        if (++steps % starts_a_look == 0) deadline.require(long_pieces);
        const double here = best[at].score;
        bool single = false;
        PrefixIndex::Place place = index_.root();
        for (std::size_t i = at; i < word.size() && !place.dead(); ++i) {
            index_.follow(place, word[i]);
            const Id id = index_.at(place);
            if (id == none) continue;
            offer(i + 1, at, scores[std::size_t(id)] + here, id);
            single = single || i + 1 - at == bytes.size();
        }
        if (!single) {
            if (unknown == none) no_unknown(bytes);
            offer(at + bytes.size(), at, least_score_ - penalty + here, unknown);
        }
        at += bytes.size();
    });
    std::vector<std::pair<std::size_t, std::size_t>> parts;  // from the last one on
    bool joins = false;                                      // unknown parts side by side are one
    for (std::size_t end = word.size(); end > 0;) {
        const Node& node = best[end];
        const bool is_unknown = unknown != none && node.id == unknown;
        if (is_unknown && joins)
            parts.back().first = std::size_t(node.start);
        else
            parts.emplace_back(std::size_t(node.start), end);
        joins = is_unknown;
        end = std::size_t(node.start);
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        const std::string_view text = word.substr(part->first, part->second - part->first);
        const Id id = vocabulary.find(text);
        if (id != none) {
            out.push_back(id);
            continue;
        }
        const auto fallen = byte_fallback ? bytes_of(vocabulary, text) : std::nullopt;
        if (fallen)
            out.insert(out.end(), fallen->begin(), fallen->end());
        else
            out.push_back(unknown);
    }
}

}  // namespace tsdiag::tokenizer
