#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "byte_words.hpp"
#include "models.hpp"
#include "sentencepiece.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"

/// Files of tiktoken: a line a token, its bytes in base64 and its rank, which is its id.  Meta's
/// tokenizer.model is one, too.
namespace tsdiag::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_ranks = std::uint64_t{64} << 20;

struct PublishedRanks {
    std::string_view file;  ///< without .tiktoken
    ByteWords words;
};
/// The words of the published vocabularies; qwen's code composes a text first.
const PublishedRanks* known_ranks(std::string_view file) {
    static const PublishedRanks all[] = {{"cl100k_base", *byte_words("llama-bpe")},
                                         {"o200k_base", *byte_words("gpt-4o")},
                                         {"r50k_base", *byte_words("gpt-2")},
                                         {"p50k_base", *byte_words("gpt-2")},
                                         {"qwen", *byte_words("qwen2")}};
    const auto found = std::ranges::find(all, file, &PublishedRanks::file);
    return found == std::end(all) ? nullptr : &*found;
}

/// The tokens in the characters of bytes, by rank.
std::vector<std::string> read_ranks(const std::string& text, const std::string& source) {
    std::vector<std::string> tokens;
    const auto fail = [&](const std::string& what) {
        throw FormatError(fmt::format("{}: line {} {}.", source, tokens.size() + 1, what));
    };
    for (const std::string& line : split(text, '\n')) {
        if (line.empty()) continue;
        const std::vector<std::string> two = split(line, ' ');
        if (two.size() != 2) fail("is not a token in base64 and its rank");
        std::size_t rank = 0;
        const char* end = two[1].data() + two[1].size();
        const auto read = std::from_chars(two[1].data(), end, rank);
        if (read.ec != std::errc() || read.ptr != end || rank != tokens.size())
            fail(fmt::format("has the rank '{}', expected {}: ranks must have no gaps",
                             visible(shortened(two[1], 60)), tokens.size()));
        tokens.push_back(byte_characters(bytes_of_base64(two[0], source)));
        if (tokens.back().empty()) fail("has a token without a byte");
    }
    return tokens;
}

/// Words and merges; the caller finishes what is found in a text.
std::shared_ptr<Parts> parts_of(const std::string& text, const ByteWords& words,
                                const fs::path& file) {
    const std::string source = file.string();
    SentencePieces pieces;
    pieces.tokens = read_ranks(text, source);
    pieces.types.assign(pieces.tokens.size(), Piece::normal);
    auto model = std::make_unique<Bpe>();
    model->kind = "BPE";
    model->source = source;
    model->ignore_merges = true;  // a word that is a token is that
    for (std::size_t i = 0; i < pieces.tokens.size(); ++i) {
        model->vocabulary.add(pieces.tokens[i], Id(i), source);
        pieces.scores.push_back(-double(i));
    }
    for (int byte = 0; byte < 256; ++byte)
        if (model->vocabulary.find(byte_characters(std::string(1, char(byte)))) == none)
            throw FormatError(fmt::format("{}: has no token for byte {}.", source, byte));
    add_joins(*model, pieces, source);
    model->finish();
    auto parts = std::make_shared<Parts>();
    parts->source = source;
    parts->model = std::move(model);
    parts->size = Id(pieces.tokens.size());
    divide_bytes(words, *parts);
    parts->notes.push_back(fmt::format("{} {}", file.filename().string(), sha256(text)));
    return parts;
}

/// Ranks under Meta's name tokenizer.model, whose number tells the generation: its words, how many
/// ids are special, and those special tokens that all of its models have, the first of which
/// begins a text.
struct MetaRanks {
    Id ranks = 0, special = 0;
    std::string_view words;
    std::vector<std::string_view> model_types;
    std::vector<std::pair<Id, std::string_view>> tokens;
};
const std::vector<MetaRanks>& meta_ranks() {
    static const std::vector<MetaRanks> all{{128000,
                                             256,
                                             "llama-bpe",
                                             {"llama"},
                                             {{128000, "<|begin_of_text|>"},
                                              {128001, "<|end_of_text|>"},
                                              {128006, "<|start_header_id|>"},
                                              {128007, "<|end_header_id|>"},
                                              {128009, "<|eot_id|>"}}},
                                            {200000,
                                             2048,
                                             "gpt-4o",
                                             {"llama4", "llama4_text"},
                                             {{200000, "<|begin_of_text|>"},
                                              {200001, "<|end_of_text|>"},
                                              {200002, "<|fim_prefix|>"},
                                              {200003, "<|fim_middle|>"},
                                              {200004, "<|fim_suffix|>"},
                                              {200005, "<|header_start|>"},
                                              {200006, "<|header_end|>"},
                                              {200007, "<|eom|>"},
                                              {200008, "<|eot|>"}}}};
    return all;
}

/// The tokens that a tokenizer_config.json lists by their ids, which must be special ones.
std::vector<std::pair<Id, std::string>> listed_tokens(const Json& config, Id first, Id count,
                                                      const std::string& source) {
    std::vector<std::pair<Id, std::string>> out;
    const Json& listed = config["added_tokens_decoder"];
    if (!listed.is_object()) return out;
    for (const auto& [key, token] : listed.object()) {
        Id id = none;
        const char* end = key.data() + key.size();
        const auto read = std::from_chars(key.data(), end, id);
        const Json& content = token["content"];
        if (read.ec != std::errc() || read.ptr != end || id < first || id >= first + count ||
            !content.is_string())
            throw FormatError(fmt::format(
                "{}: tokenizer_config.json adds the token '{}', expected one of the ids {} to {}; "
                "name a tokenizer.json with --tokenizer FILE.",
                source, visible(shortened(key, 60)), first, first + count - 1));
        out.emplace_back(id, content.string());
    }
    return out;
}

}  // namespace

std::shared_ptr<Parts> read_tiktoken(const fs::path& file) {
    const PublishedRanks* known = known_ranks(file.stem().string());
    if (known == nullptr)
        throw FormatError(fmt::format(
            "{}: how it divides words is not known by its name (cl100k_base, o200k_base, "
            "r50k_base, p50k_base and qwen are); name a tokenizer.json with --tokenizer FILE.",
            file.string()));
    const auto parts =
        parts_of(file_text(file, "ranks of tiktoken", largest_ranks), known->words, file);
    parts->raw.finish();
    parts->normalised.finish();
    parts->notes.emplace_back("no special tokens: ranks of tiktoken do not have them");
    return parts;
}

bool holds_ranks(std::string_view text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::size_t space = line.find(' ');
    constexpr std::string_view digits = "0123456789";
    constexpr std::string_view base64 =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    return space != line.npos && space > 0 && space + 1 < line.size() &&
           line.substr(0, space).find_first_not_of(base64) == line.npos &&
           line.substr(space + 1).find_first_not_of(digits) == line.npos;
}

std::shared_ptr<Parts> read_meta_ranks(const fs::path& file, const std::string& text,
                                       const Json& config, const Json& tokenizer_config,
                                       bool alone) {
    const std::string source = file.string();
    const auto count = Id(std::ranges::count(text, '\n') + (text.ends_with('\n') ? 0 : 1));
    const auto known = std::ranges::find(meta_ranks(), count, &MetaRanks::ranks);
    if (known == meta_ranks().end())
        throw FormatError(
            fmt::format("{}: has {} ranks of tiktoken, of which it is not known how they divide "
                        "words (128000, Llama 3's, and 200000, Llama 4's, are); name a "
                        "tokenizer.json with --tokenizer FILE.",
                        source, count));
    const auto parts = parts_of(text, *byte_words(known->words), file);
    auto tokens = listed_tokens(tokenizer_config, known->ranks, known->special, source);
    const bool listed = !tokens.empty();
    if (!listed) tokens.assign(known->tokens.begin(), known->tokens.end());
    for (const auto& [id, content] : tokens) add_token(*parts, parts->raw, content, id);
    parts->size = known->ranks + known->special;
    parts->raw.finish();
    parts->normalised.finish();
    if (!listed)
        parts->notes.push_back(
            fmt::format("special tokens are the {} that all of its models have: a tokenizer.model "
                        "does not have them",
                        tokens.size()));
    if (alone) {
        parts->notes.emplace_back("nothing is put around a text: a .model does not say what is");
        return parts;
    }
    const Json& type = config["model_type"];
    const std::string said = type.is_string() ? type.string() : "";
    if (std::ranges::find(known->model_types, said) == known->model_types.end())
        throw FormatError(fmt::format(
            "{}: has the ranks of {}, but config.json says '{}'; name the file with --tokenizer "
            "to put nothing around a text.",
            source, known->model_types.front(), visible(shortened(said, 60))));
    add_declared_tokens(file.parent_path(), *parts, Missing::refused);
    const Json& begins = tokenizer_config["add_bos_token"];
    if (!begins.is_bool() || begins.boolean()) parts->before = {known->tokens.front().first};
    return parts;
}

}  // namespace tsdiag::tokenizer
