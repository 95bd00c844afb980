#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "support/files.hpp"
#include "support/places.hpp"
#include "support/ranks.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/text.hpp"
#include "tsdiag/tokenizer.hpp"
#include "unicode.hpp"

/// SentencePiece models and the tokenizers inside GGUF files: ids are those of the library itself
/// (tests/data/sentencepiece) and of the published tokenizer.json of each kind.
namespace tsdiag {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

const std::filesystem::path models_of_sentencepiece =
    std::filesystem::path(test::test_data()) / "sentencepiece";

/// What the library says of a model.
struct Reference {
    Json json;
    explicit Reference(const std::string& name)
        : json(Json::parse(test::read_file(models_of_sentencepiece / (name + ".json")), name)) {}
    bool has_symbols() const {
        return std::ranges::any_of(json["pieces"].array(), [](const Json& piece) {
            return piece.array()[2].integer() == 4;  // user-defined
        });
    }
    void expect_ids(const Tokenizer& tokenizer, const std::string& without = "") const {
        Ids expected;
        std::size_t compared = 0;
        for (const Json& one : json["texts"].array()) {
            const std::string text = one.array()[0].string();
            // Found as tokens, in a checkpoint's tokenizer.
            if (text.find("<s>") != text.npos) continue;
            if (!without.empty() && text.find(without) != text.npos) continue;
            expected.clear();
            for (const Json& id : one.array()[1].array()) expected.push_back(id.integer());
            EXPECT_EQ(tokenizer.encode(text), expected) << '"' << text << '"';
            ++compared;
        }
        EXPECT_GT(compared, 100U);
    }
    /// As llama.cpp's converter writes it.
    Json gguf(const std::string& model) const {
        Json::Array tokens, scores, types;
        for (const Json& piece : json["pieces"].array()) {
            tokens.push_back(piece.array()[0]);
            scores.push_back(piece.array()[1]);
            types.push_back(piece.array()[2]);
        }
        Json out;
        out.set("tokenizer.ggml.model", model).set("tokenizer.ggml.tokens", std::move(tokens));
        out.set("tokenizer.ggml.scores", std::move(scores));
        out.set("tokenizer.ggml.token_type", std::move(types));
        out.set("tokenizer.ggml.add_space_prefix", json["space_before"]);
        if (model == "t5")
            out.set("tokenizer.ggml.remove_extra_whitespaces", json["single_spaces"])
                .set("tokenizer.ggml.unknown_token_id", unknown());
        if (!json["charsmap"].array().empty())
            out.set("tokenizer.ggml.precompiled_charsmap", json["charsmap"]);
        return out.set("general.architecture", "llama");
    }
    std::int64_t unknown() const {
        const auto found = std::ranges::find_if(json["pieces"].array(), [](const Json& piece) {
            return piece.array()[2].integer() == 2;
        });
        return found - json["pieces"].array().begin();
    }
};

Tokenizer of_gguf(const Json& metadata) {
    return gguf_tokenizer(
        metadata, [&](std::string_view key) { return metadata[key]; }, "m.gguf");
}
std::string refusal_of(const Json& metadata) {
    try {
        of_gguf(metadata);
    } catch (const FormatError& error) {
        return error.what();
    }
    return "accepted";
}

class WithUnicodeTables : public testing::Test {
    void SetUp() override {
        if (!tokenizer::has_unicode()) GTEST_SKIP() << "built without ICU";
    }
};
class EverySentencePieceModel : public testing::TestWithParam<const char*> {
    void SetUp() override {
        if (!tokenizer::has_unicode()) GTEST_SKIP() << "built without ICU";
    }
};

TEST_P(EverySentencePieceModel, GivesTheIdsOfTheLibrary) {
    const Tokenizer tokenizer =
        open_tokenizer(models_of_sentencepiece / (std::string(GetParam()) + ".model"));
    Reference(GetParam()).expect_ids(tokenizer);
    EXPECT_TRUE(tokenizer.before().empty());
    EXPECT_TRUE(tokenizer.after().empty());
}

/// Those whose symbols are found alike: llama.cpp finds them before spaces are marked.
class EverySentencePieceOfGguf : public EverySentencePieceModel {};

TEST_P(EverySentencePieceOfGguf, GivesTheIdsOfTheLibrary) {
    const Reference reference(GetParam());
    const std::string name = GetParam();
    const Tokenizer tokenizer = of_gguf(reference.gguf(name.starts_with("bpe") ? "llama" : "t5"));
    reference.expect_ids(tokenizer, reference.has_symbols() ? "<sep>" : "");
}

TEST_P(EverySentencePieceModel, IsRefusedWhereItIsCut) {
    const test::TemporaryDirectory folder;
    const std::string whole =
        test::read_file(models_of_sentencepiece / (std::string(GetParam()) + ".model"));
    std::size_t accepted = 0;
    for (std::size_t cut = 0; cut < whole.size(); cut += 1 + whole.size() / 400) {
        test::write_file(folder.path() / "m.model", std::string_view(whole).substr(0, cut));
        try {
            open_tokenizer(folder.path() / "m.model");
            ++accepted;
        } catch (const FormatError&) {
        }
    }
    EXPECT_EQ(accepted, 0U);
}

TEST_P(EverySentencePieceModel, SurvivesFlippedBits) {
    const test::TemporaryDirectory folder;
    const std::string whole =
        test::read_file(models_of_sentencepiece / (std::string(GetParam()) + ".model"));
    for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 300) {
        std::string flipped = whole;
        flipped[at] = char(flipped[at] ^ (1 << at % 8));
        test::write_file(folder.path() / "m.model", flipped);
        try {
            open_tokenizer(folder.path() / "m.model").encode("A text of 12 words.");
        } catch (const Error&) {
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, EverySentencePieceModel,
                         testing::Values("bpe", "bpe_symbols", "unigram", "unigram_bytes"),
                         [](const auto& info) { return std::string(info.param); });

INSTANTIATE_TEST_SUITE_P(Models, EverySentencePieceOfGguf,
                         testing::Values("bpe", "unigram", "unigram_bytes"),
                         [](const auto& info) { return std::string(info.param); });

using SentencePieceFolder = WithUnicodeTables;

TEST_F(SentencePieceFolder, PutsWhatItsModelPutsAroundATextAround) {
    const test::TemporaryDirectory folder;
    std::filesystem::copy_file(models_of_sentencepiece / "bpe.model",
                               folder.path() / "tokenizer.model");
    const auto put = [&](const char* name, const std::string& text) {
        test::write_file(folder.path() / name, text);
    };
    EXPECT_THROW(open_tokenizer(folder.path()), FormatError);  // of what model?
    put("config.json", R"({"model_type":"llama"})");
    const Ids ids = open_tokenizer(folder.path()).encode("the fox");
    const auto wrapped = [&] { return open_tokenizer(folder.path()).wrapped(ids); };
    Ids begun = ids;
    begun.insert(begun.begin(), 1);
    EXPECT_EQ(wrapped(), begun);
    put("tokenizer_config.json",
        R"({"add_bos_token":false,"add_eos_token":true,"eos_token":"</s>","bos_token":"<s>"})");
    Ids ended = ids;
    ended.push_back(2);
    EXPECT_EQ(wrapped(), ended);
    put("tokenizer_config.json", R"({"added_tokens_decoder":{"700":{"content":"<pad>"}}})");
    EXPECT_THROW(wrapped(), FormatError);
    put("tokenizer_config.json", R"({"added_tokens_decoder":{"1":{"content":"<s>"}}})");
    EXPECT_EQ(wrapped(), begun);
    put("config.json", R"({"model_type":"t5"})");
    EXPECT_THROW(wrapped(), FormatError);
}

using GgufTokenizer = WithUnicodeTables;

TEST_F(GgufTokenizer, PutsTokensAroundATextByItsKeys) {
    const Reference bpe("bpe"), unigram("unigram");
    Json llama = bpe.gguf("llama"), t5 = unigram.gguf("t5");
    const auto around = [](const Json& metadata) {
        const Tokenizer t = of_gguf(metadata);
        return std::pair(Ids(t.before().begin(), t.before().end()),
                         Ids(t.after().begin(), t.after().end()));
    };
    EXPECT_EQ(around(llama), std::pair(Ids{1}, Ids{}));
    EXPECT_EQ(around(t5), std::pair(Ids{}, Ids{1}));
    llama.set("tokenizer.ggml.add_bos_token", false).set("tokenizer.ggml.add_eos_token", true);
    llama.set("tokenizer.ggml.eos_token_id", 7);
    EXPECT_EQ(around(llama), std::pair(Ids{}, Ids{7}));
    t5.set("tokenizer.ggml.add_bos_token", true);
    EXPECT_THAT(refusal_of(t5), HasSubstr("no tokenizer.ggml.bos_token_id"));
    t5.set("tokenizer.ggml.bos_token_id", 100000);
    EXPECT_THAT(refusal_of(t5), HasSubstr("tokenizer.ggml.bos_token_id is 100000"));
}

TEST_F(GgufTokenizer, RefusesWhatItDoesNotKnowByName) {
    const Json good = Reference("bpe").gguf("llama");
    const auto with = [&](const char* key, const Json& value) {
        Json changed = good;
        return refusal_of(changed.set(std::string("tokenizer.ggml.") + key, value));
    };
    EXPECT_EQ(with("eot_token_id", 5), "accepted");
    EXPECT_EQ(with("token_type_count", 2), "accepted");
    EXPECT_THAT(with("normalizer.lowercase", true), HasSubstr("normalizer.lowercase"));
    EXPECT_THAT(with("model", "rwkv"), HasSubstr("'rwkv', which is not supported"));
    EXPECT_THAT(with("model", Json()), HasSubstr("has no tokenizer"));
    EXPECT_THAT(with("model", 1), HasSubstr("tokenizer.ggml.model is 1"));
    EXPECT_THAT(with("tokens", Json()), HasSubstr("no list tokenizer.ggml.tokens"));
    EXPECT_THAT(with("scores", Json::Array{1.0}), HasSubstr("tokenizer.ggml.scores"));
    EXPECT_THAT(with("token_type", Json::Array{1}), HasSubstr("tokenizer.ggml.token_type"));
    EXPECT_THAT(with("add_bos_token", "yes"), HasSubstr("add_bos_token is \"yes\""));
    EXPECT_THAT(with("unknown_token_id", -1), HasSubstr("unknown_token_id is -1"));
}

/// Of long pieces each division would be tried: a few megabytes would take hours.
TEST_F(GgufTokenizer, RefusesMoreLongPiecesThanATokenizerHas) {
    Json::Array tokens{"<unk>"}, scores{0.0}, types{2};
    for (int i = 0; i < 200; ++i) {
        tokens.emplace_back(std::string(4000, 'a') + std::to_string(i));
        scores.emplace_back(-double(i));
        types.emplace_back(1);
    }
    Json metadata;
    metadata.set("tokenizer.ggml.model", "llama").set("tokenizer.ggml.tokens", std::move(tokens));
    metadata.set("tokenizer.ggml.scores", std::move(scores));
    metadata.set("tokenizer.ggml.token_type", std::move(types));
    metadata.set("tokenizer.ggml.add_bos_token", false);
    EXPECT_THAT(refusal_of(metadata), HasSubstr("more long pieces"));
}

class EveryTiktokenFile : public testing::TestWithParam<const char*> {
    void SetUp() override {
        if (!tokenizer::has_unicode()) GTEST_SKIP() << "built without ICU";
    }
};

TEST_P(EveryTiktokenFile, GivesTheIdsOfJsTiktoken) {
    const std::string name = std::string(GetParam()) + ".tiktoken";
    const Tokenizer tokenizer = open_tokenizer(models_of_sentencepiece / name);
    const Json texts =
        Json::parse(test::read_file(models_of_sentencepiece / (name + ".json")), name);
    EXPECT_GT(texts.array().size(), 100U);
    for (const Json& one : texts.array()) {
        Ids expected;
        for (const Json& id : one.array()[1].array()) expected.push_back(id.integer());
        EXPECT_EQ(tokenizer.encode(one.array()[0].string()), expected) << one.array()[0].string();
    }
}

INSTANTIATE_TEST_SUITE_P(Files, EveryTiktokenFile,
                         testing::Values("cl100k_base", "o200k_base", "r50k_base"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(SentencePieceFolder, RefusesRanksThatAreNotThoseOfAWholeFile) {
    const test::TemporaryDirectory folder;
    const std::string whole = test::read_file(models_of_sentencepiece / "cl100k_base.tiktoken");
    const auto refusal = [&](const std::string& name, const std::string& text) {
        test::write_file(folder.path() / name, text);
        try {
            open_tokenizer(folder.path() / name);
        } catch (const FormatError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_EQ(refusal("cl100k_base.tiktoken", whole), "accepted");
    EXPECT_THAT(refusal("mine.tiktoken", whole), HasSubstr("not known by its name"));
    EXPECT_THAT(refusal("qwen.tiktoken", whole.substr(0, 200)), HasSubstr("line"));
    EXPECT_THAT(refusal("qwen.tiktoken", "IQ== 0\nIg== 1\n"), HasSubstr("no token for byte 0"));
    EXPECT_THAT(refusal("qwen.tiktoken", "IQ== 0\nIg== 2\n"), HasSubstr("no gaps"));
    EXPECT_THAT(refusal("qwen.tiktoken", "I$== 0\n"), HasSubstr("not base64"));
    EXPECT_THAT(refusal("qwen.tiktoken", "IQ== 0 1\n"), HasSubstr("line 1"));
}

/// Meta's tokenizer.model from Llama 3 on: ranks, whose number tells the generation.
class MetaRanks : public testing::Test {
  protected:
    void SetUp() override {
        if (!tokenizer::has_unicode()) GTEST_SKIP() << "built without ICU";
    }
    /// Pairs of bytes have the ranks behind those of the bytes, in their order.
    static std::int64_t pair(char a, char b) {
        return 256 + 256 * std::int64_t(std::uint8_t(a)) + std::uint8_t(b);
    }
    std::string refusal() const {
        try {
            open_tokenizer(folder_.path());
        } catch (const FormatError& error) {
            return error.what();
        }
        return "accepted";
    }
    void write(const std::string& name, const std::string& text) const {
        test::write_file(folder_.path() / name, text);
    }
    test::TemporaryDirectory folder_;
};

TEST_F(MetaRanks, DivideWordsAndKnowTheTokensOfTheirGeneration) {
    write("third.model", test::ranks_of_all_pairs(128000));
    const Tokenizer third = open_tokenizer(folder_.path() / "third.model");
    // Words of letters and of up to three digits.
    EXPECT_EQ(third.encode("Hi"), (Ids{pair('H', 'i')}));
    EXPECT_EQ(third.encode("Hi 1234"), (Ids{pair('H', 'i'), ' ', pair('1', '2'), '3', '4'}));
    EXPECT_EQ(third.encode("<|begin_of_text|>x<|eot_id|><|eom_id|>").front(), 128000);
    EXPECT_EQ(third.encode("x<|eot_id|>y"), (Ids{'x', 128009, 'y'}));
    // Not of all models of the third generation: no token, but a text.
    EXPECT_GT(third.encode("<|eom_id|>").size(), 3U);
    write("fourth.model", test::ranks_of_all_pairs(200000));
    const Tokenizer fourth = open_tokenizer(folder_.path() / "fourth.model");
    EXPECT_EQ(fourth.encode("x<|header_start|>y<|eot|>"), (Ids{'x', 200005, 'y', 200008}));
    // For the fourth a word ends before a capital, for the third it does not.
    EXPECT_EQ(third.encode("aB"), (Ids{pair('a', 'B')}));
    EXPECT_EQ(fourth.encode("aB"), (Ids{'a', 'B'}));
    // Of two joins in a word that of the lower rank.
    EXPECT_EQ(third.encode("aBc"), (Ids{'a', pair('B', 'c')}));
    EXPECT_EQ(third.encode("acB"), (Ids{pair('a', 'c'), 'B'}));
}

TEST_F(MetaRanks, BeginATextInAFolder) {
    const auto wrapped = [&](const char* text) {
        const Tokenizer own = open_tokenizer(folder_.path());
        return own.wrapped(own.encode(text));
    };
    write("tokenizer.model", test::ranks_of_all_pairs(128000));
    EXPECT_THAT(refusal(), HasSubstr("has the ranks of llama, but config.json says ''"));
    write("config.json", R"({"model_type": "gpt2"})");
    EXPECT_THAT(refusal(), HasSubstr("config.json says 'gpt2'"));
    write("config.json", R"({"model_type": "llama"})");
    EXPECT_EQ(wrapped("a"), (Ids{128000, 'a'}));
    write("tokenizer_config.json", R"({"add_bos_token": false, "added_tokens_decoder": {
        "128000": {"content": "<|begin_of_text|>"}, "128008": {"content": "<|eom_id|>"}}})");
    EXPECT_EQ(wrapped("a<|eom_id|>"), (Ids{'a', 128008}));
    write("tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "<|x|>"}}})");
    EXPECT_THAT(refusal(), HasSubstr("adds the token '5', expected one of the ids 128000 to"));
    std::filesystem::remove(folder_.path() / "tokenizer_config.json");
    std::filesystem::remove(folder_.path() / "config.json");
    write("params.json", "{}");  // Meta's own folder
    EXPECT_EQ(wrapped("a"), (Ids{128000, 'a'}));
    write("tokenizer.model", test::ranks_of_all_pairs(127999));
    EXPECT_THAT(refusal(), HasSubstr("has 127999 ranks of tiktoken, of which it is not known"));
    write("tokenizer.model", "IQ== 0 1\n");
    EXPECT_THAT(refusal(), HasSubstr("is no whole SentencePiece model"));
}

/// A byte-level vocabulary of all bytes and a few merges, as tokenizer.json and in GGUF.
struct ByteLevel {
    std::vector<std::string> tokens,
        merges{"t h", "th e", "i n", "1 2", "12 3", "Ġ t", "Ġt h", "Ġth e", "Ġ Ġ", "a b", "ab c"};
    ByteLevel() {
        for (int b = 0; b < 256; ++b) {
            const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
            tokens.push_back(utf8(printable ? std::uint32_t(b) : next_++));
        }
        for (const std::string& merge : merges) {
            const std::size_t space = merge.find(' ');
            tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
        }
        tokens.emplace_back("abcab");  // no merge leads to it
        tokens.emplace_back("<|end|>");
    }
    Tokenizer published(const std::string& normalizer, const std::string& words,
                        bool whole_first) const {
        Json::Object vocabulary;
        for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
            vocabulary.emplace_back(tokens[i], std::int64_t(i));
        Json::Array list;
        for (const std::string& merge : merges) list.emplace_back(merge);
        Json model;
        model.set("type", "BPE").set("vocab", std::move(vocabulary)).set("merges", std::move(list));
        model.set("ignore_merges", whole_first);
        Json all;
        all.set("model", std::move(model)).set("pre_tokenizer", Json::parse(words, "words"));
        if (!normalizer.empty()) all.set("normalizer", Json().set("type", normalizer));
        Json added;
        added.set("id", std::int64_t(tokens.size() - 1)).set("content", "<|end|>");
        added.set("normalized", false).set("special", true);
        all.set("added_tokens", Json::Array{added});
        return parse_tokenizer(all.dump(), "tokenizer.json");
    }
    Json gguf(const std::string& pre) const {
        Json::Array texts, types, list;
        for (const std::string& token : tokens) {
            texts.emplace_back(token);
            types.emplace_back(token == "<|end|>" ? 3 : 1);
        }
        for (const std::string& merge : merges) list.emplace_back(merge);
        Json out;
        out.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.pre", pre);
        out.set("tokenizer.ggml.tokens", std::move(texts));
        out.set("tokenizer.ggml.token_type", std::move(types));
        out.set("tokenizer.ggml.merges", std::move(list));
        return out.set("tokenizer.ggml.bos_token_id", std::int64_t(tokens.size() - 1));
    }

  private:
    std::uint32_t next_ = 0x100;
};

struct PublishedWords {
    const char *pre, *normalizer, *words;
    bool whole_first, begins;
    friend void PrintTo(const PublishedWords& w, std::ostream* out) { *out << w.pre; }
};
constexpr const char* gpt2_bytes =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
constexpr const char* digits_first =
    R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}]})";
#define SPLIT_BY(regex)                                                                         \
    R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" regex         \
    R"("},"behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,)" \
    R"("trim_offsets":true,"use_regex":false}]})"
/// The words of the published files of GPT-2, OLMo, StarCoder, SmolLM, Command R, Llama 3, Qwen 2,
/// Mistral Nemo and gpt-oss.
const PublishedWords published_words[] = {
    {"gpt-2", "", gpt2_bytes, false, false},
    {"olmo", "NFC", gpt2_bytes, false, false},
    {"starcoder", "", digits_first, false, false},
    {"smollm", "", digits_first, false, false},
    {"command-r", "NFC", digits_first, false, false},
    {"llama-bpe", "",
     SPLIT_BY(
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"),
     true, true},
    {"qwen2", "NFC",
     SPLIT_BY(
         R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"),
     false, false},
    {"tekken", "",
     SPLIT_BY(
         R"([^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"),
     true, true},
    {"gpt-4o", "",
     SPLIT_BY(
         R"([^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"),
     false, false},
};

class EveryByteLevelKind : public testing::TestWithParam<PublishedWords> {
    void SetUp() override {
        if (!tokenizer::has_unicode()) GTEST_SKIP() << "built without ICU";
    }
};

TEST_P(EveryByteLevelKind, GivesTheIdsOfItsTokenizerJson) {
    const PublishedWords& words = GetParam();
    const ByteLevel bytes;
    const Tokenizer there = bytes.published(words.normalizer, words.words, words.whole_first),
                    here = of_gguf(bytes.gguf(words.pre));
    const Json texts = Reference("bpe").json["texts"];
    for (const Json& one : texts.array()) {
        const std::string text = one.array()[0].string() + "the  THE abcab<|end|> 12345 it's in";
        EXPECT_EQ(here.encode(text), there.encode(text)) << text;
    }
    EXPECT_EQ(here.before().size(), words.begins ? 1U : 0U);
    EXPECT_TRUE(here.after().empty());
    EXPECT_EQ(here.shown(here.encode("é").front()), "\\xc3");
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryByteLevelKind, testing::ValuesIn(published_words),
                         [](const auto& info) {
                             std::string name = info.param.pre;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

TEST_F(GgufTokenizer, RefusesUnknownWordsAndMerges) {
    const ByteLevel bytes;
    EXPECT_THAT(refusal_of(bytes.gguf("default")), HasSubstr("tokenizer.ggml.pre 'default'"));
    EXPECT_THAT(refusal_of(bytes.gguf("")), HasSubstr("tokenizer.ggml.pre ''"));
    Json metadata = bytes.gguf("gpt-2");
    EXPECT_THAT(refusal_of(metadata.set("tokenizer.ggml.merges", Json::Array{"abc"})),
                HasSubstr("merge 0"));
    EXPECT_THAT(refusal_of(metadata.set("tokenizer.ggml.merges", Json::Array{"q z"})),
                HasSubstr("which is not in the vocabulary"));
    EXPECT_THAT(refusal_of(metadata.set("tokenizer.ggml.merges", Json())),
                HasSubstr("no list tokenizer.ggml.merges"));
}

/// The converter writes a word of BERT with U+2581 and the rest of one without ##.
TEST_F(GgufTokenizer, GivesTheIdsOfBertsVocabulary) {
    const std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]",  "[SEP]", "[MASK]",
                                              "un",    "##aff", "##able", "a",     "##a",
                                              "!",     "caf",   "##e"};
    const test::TemporaryDirectory folder;
    std::string lines;
    Json::Array tokens, types;
    for (const std::string& token : vocabulary) {
        lines += token + "\n";
        const bool special = token.starts_with('[');
        tokens.emplace_back(special                   ? token
                            : token.starts_with("##") ? token.substr(2)
                                                      : "\xe2\x96\x81" + token);
        types.emplace_back(special ? 3 : 1);
    }
    test::write_file(folder.path() / "vocab.txt", lines);
    Json metadata;
    metadata.set("tokenizer.ggml.model", "bert").set("tokenizer.ggml.tokens", std::move(tokens));
    metadata.set("tokenizer.ggml.token_type", std::move(types));
    metadata.set("tokenizer.ggml.seperator_token_id", 3).set("tokenizer.ggml.pre", "jina-v2-en");
    const Tokenizer there = open_tokenizer(folder.path()), here = of_gguf(metadata);
    for (const char* text : {"UNaffable!", "unaffable [MASK] café", "", "aaa x", "Un  a\n!"})
        EXPECT_EQ(here.wrapped(here.encode(text)), there.wrapped(there.encode(text))) << text;
    EXPECT_EQ(here.encode("caf\xc3\xa9"), (Ids{11, 12}));
    Json other = metadata;
    EXPECT_THAT(refusal_of(other.set("tokenizer.ggml.cls_token_id", 1)), HasSubstr("[CLS]"));
    other = metadata;
    EXPECT_THAT(refusal_of(other.set("tokenizer.ggml.add_bos_token", false)),
                HasSubstr("add_bos_token is false"));
}

}  // namespace
}  // namespace tsdiag
