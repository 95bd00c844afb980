#include "sentencepiece.hpp"

#include <algorithm>
#include <functional>
#include <map>

#include "tsdiag/error.hpp"
#include "unicode.hpp"

namespace tsdiag::tokenizer {
namespace {

std::unique_ptr<Model> merged(const SentencePieces& p, const std::string& source) {
    auto model = std::make_unique<Bpe>();
    model->kind = "BPE";
    model->byte_fallback = model->fuse_unknown = true;
    for (std::size_t i = 0; i < p.tokens.size(); ++i)
        if (p.types[i] == Piece::normal || p.types[i] == Piece::byte || Id(i) == p.unknown)
            model->vocabulary.add(p.tokens[i], Id(i), source);
    model->unknown = p.tokens[std::size_t(p.unknown)];
    add_joins(*model, p, source);
    model->finish();
    return model;
}

std::unique_ptr<Model> scored(const SentencePieces& p, const std::string& source, bool& words) {
    auto model = std::make_unique<Unigram>();
    model->kind = "Unigram";
    model->unknown = p.unknown;
    double best = 0;
    bool any = false;
    for (std::size_t i = 0; i < p.tokens.size(); ++i)
        if (p.types[i] == Piece::normal) {
            best = any ? std::max(best, p.scores[i]) : p.scores[i];
            any = true;
        }
    for (std::size_t i = 0; i < p.tokens.size(); ++i) {
        const bool piece = p.types[i] == Piece::normal, byte = p.types[i] == Piece::byte;
        if (piece || byte) model->vocabulary.add(p.tokens[i], Id(i), source);
        model->scores.push_back(piece ? p.scores[i] : best);  // others have none
        model->byte_fallback = model->byte_fallback || byte;
        words = words && p.tokens[i].find(space_mark, 1) == std::string::npos;
    }
    model->finish();
    return model;
}

Json of_type(const char* type) { return Json().set("type", type); }

}  // namespace

void add_joins(Bpe& model, const SentencePieces& p, const std::string& source) {
    std::map<double, std::int64_t, std::greater<>> ranks;
    for (std::size_t i = 0; i < p.tokens.size(); ++i)
        if (p.types[i] == Piece::normal) ranks.emplace(p.scores[i], 0);
    std::int64_t rank = 0;
    for (auto& [score, place] : ranks) place = rank++;
    const auto joins = [&](std::string_view piece) {
        const Id id = model.vocabulary.find(piece);
        return id != none && p.types[std::size_t(id)] == Piece::normal;
    };
    constexpr std::size_t most_work = std::size_t{1} << 30;  // a second; of real ones 2^25
    std::size_t work = 0;
    for (std::size_t i = 0; i < p.tokens.size(); ++i) {
        const std::string_view piece = p.tokens[i];
        if (p.types[i] != Piece::normal || model.vocabulary.find(piece) != Id(i)) continue;
        work += piece.size() * piece.size();
        if (work > most_work)
            throw FormatError(source + ": has more long pieces than a tokenizer has, at piece " +
                              std::to_string(i) + "; is it damaged?");
        for (std::size_t at = 1; at < piece.size(); ++at) {
            if ((static_cast<unsigned char>(piece[at]) & 0xc0U) == 0x80) continue;
            const std::string_view left = piece.substr(0, at), right = piece.substr(at);
            if (joins(left) && joins(right))
                model.add_merge(std::string(left), std::string(right), ranks.at(p.scores[i]),
                                source);
        }
    }
}

Normalizer normalizer_of(const Json& json) {
    return read_normalizer(Component(json, "its normalizer"));
}

void add_token(Parts& parts, AddedTokens& where, const std::string& content, Id id) {
    AddedToken token;
    token.content = content;
    token.id = id;
    parts.added[id] = content;
    where.add(std::move(token));
}

Normalizer normalizer_of(const SentencePieces& p, const std::string& source) {
    Json::Array steps;
    const auto replace = [&](const char* kind, std::string_view what, std::string_view with) {
        steps.push_back(
            of_type("Replace").set("pattern", Json().set(kind, what)).set("content", with));
    };
    if (p.single_spaces) {
        replace("Regex", R"(\A +)", "");
        replace("Regex", " {2,}", " ");
    }
    if (p.space_before) steps.push_back(of_type("Prepend").set("prepend", space_mark));
    replace("String", " ", space_mark);
    // As in the library: at the end also those that were marks before.
    if (p.single_spaces) replace("Regex", std::string(space_mark) + R"(+\z)", "");
    Normalizer spaces = normalizer_of(of_type("Sequence").set("normalizers", std::move(steps)));
    if (p.charsmap.empty()) return spaces;
    return [first = precompiled(p.charsmap, source), then = std::move(spaces)](
               std::string& text, const Limits& limits) {
        first(text, limits);
        then(text, limits);
    };
}

void read_sentence_pieces(const SentencePieces& p, const std::string& source, Parts& parts) {
    bool words = true;  // no piece reaches from one word into the next
    parts.model = p.unigram ? scored(p, source, words) : merged(p, source);
    parts.normalizer = normalizer_of(p, source);
    if (!p.unigram || !words) return;
    const Json division = of_type("Split")
                              .set("pattern", Json().set("String", space_mark))
                              .set("behavior", "MergedWithNext")
                              .set("invert", false);
    parts.pre_tokenizer = read_pre_tokenizer(Component(division, source), parts.byte_level);
}

}  // namespace tsdiag::tokenizer
