#include "byte_words.hpp"

#include <algorithm>
#include <array>

namespace tsdiag::tokenizer {
namespace {

constexpr std::string_view by_three =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view by_one =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view by_case =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view of_o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::array known_words{
    ByteWords{"gpt-2", ""},
    ByteWords{"phi-2", ""},
    ByteWords{.pre = "olmo", .regex = "", .composed = true},
    ByteWords{.pre = "mpt", .regex = "", .composed = true},
    ByteWords{.pre = "starcoder", .regex = "", .digits = true},
    ByteWords{.pre = "refact", .regex = "", .digits = true},
    ByteWords{.pre = "smollm", .regex = "", .digits = true},
    ByteWords{.pre = "command-r", .regex = "", .digits = true, .composed = true},
    ByteWords{.pre = "llama-bpe", .regex = by_three, .whole_first = true, .begins = true},
    ByteWords{.pre = "llama3", .regex = by_three, .whole_first = true, .begins = true},
    ByteWords{.pre = "llama-v3", .regex = by_three, .whole_first = true, .begins = true},
    ByteWords{.pre = "qwen2", .regex = by_one, .composed = true},
    ByteWords{.pre = "tekken", .regex = by_case, .whole_first = true, .begins = true},
    ByteWords{"gpt-4o", of_o200k},
};

}  // namespace

const ByteWords* byte_words(std::string_view pre) {
    const auto found = std::ranges::find(known_words, pre, &ByteWords::pre);
    return found == known_words.end() ? nullptr : &*found;
}

std::string known_byte_words() {
    std::string all;
    for (const ByteWords& one : known_words)
        all += (all.empty() ? "" : ", ") + std::string(one.pre);
    return all;
}

void divide_bytes(const ByteWords& words, Parts& parts) {
    if (words.composed) {
        const Json nfc = Json().set("type", "NFC");
        parts.normalizer = read_normalizer(Component(nfc, "NFC"));
    }
    parts.byte_level = true;

    Json::Array all;
    if (words.digits) all.push_back(Json().set("type", "Digits").set("individual_digits", true));
    if (!words.regex.empty())
        all.push_back(Json()
                          .set("type", "Split")
                          .set("pattern", Json().set("Regex", words.regex))
                          .set("behavior", "Isolated")
                          .set("invert", false));
    all.push_back(Json()
                      .set("type", "ByteLevel")
                      .set("add_prefix_space", false)
                      .set("trim_offsets", true)
                      .set("use_regex", words.regex.empty()));
    const Json json = Json().set("type", "Sequence").set("pretokenizers", std::move(all));
    parts.pre_tokenizer = read_pre_tokenizer(Component(json, parts.source), parts.byte_level);
}

}  // namespace tsdiag::tokenizer
