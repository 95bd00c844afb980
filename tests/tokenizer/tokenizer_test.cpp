#include "tsdiag/tokenizer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/files.hpp"
#include "support/places.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/random.hpp"
#include "unicode.hpp"

namespace tsdiag {
namespace {

using Ids = std::vector<std::int64_t>;

/// A tokenizer.json of these members.
Tokenizer made(const std::string& model, const std::string& rest = "") {
    return parse_tokenizer(
        fmt::format(R"({{"version":"1.0","model":{}{}{}}})", model, rest.empty() ? "" : ",", rest),
        "t.json");
}

std::string refusal(const std::string& model, const std::string& rest = "") {
    try {
        made(model, rest);
    } catch (const FormatError& e) {
        return e.what();
    }
    return "accepted";
}

/// The pieces of the ids, separated by '|'.
std::string pieces(const Tokenizer& t, const std::string& text) {
    std::string out;
    for (const std::int64_t id : t.wrapped(t.encode(text)))
        out += (out.empty() ? "" : "|") + t.piece(id);
    return out;
}

/// BPE over the characters of `alphabet` with merges.
std::string bpe(const std::vector<std::string>& tokens, const std::string& merges,
                const std::string& more = "") {
    std::string vocab;
    for (const std::string& token : tokens)
        vocab += fmt::format(R"({}"{}":{})", vocab.empty() ? "" : ",", token,
                             std::count(vocab.begin(), vocab.end(), ':'));
    return fmt::format(R"({{"type":"BPE","vocab":{{{}}},"merges":[{}]{}}})", vocab, merges, more);
}

class WithUnicode : public ::testing::Test {
    void SetUp() override {
        if (!tokenizer::has_unicode()) GTEST_SKIP() << "built without ICU";
    }
};
using TokenizerFiles = WithUnicode;
using TokenizerModels = ::testing::Test;

TEST_F(TokenizerModels, BpeOfSennrichMergesTheExampleOfThePaper) {
    // Sennrich et al. 2016, Figure 1: "low lower newest widest" learns e s, es t, est </w>, l o,
    // lo w; so "lowest" is low est</w>.
    const std::string model =
        bpe({"l", "o", "w", "e", "s", "t</w>", "es", "est</w>", "lo", "low", "n", "r</w>"},
            R"("e s","es t</w>","l o","lo w")", R"(,"end_of_word_suffix":"</w>")");
    EXPECT_EQ(pieces(made(model), "lowest"), "low|est</w>");
    EXPECT_EQ(pieces(made(model), "newer"), "n|e|w|e|r</w>");
}

TEST_F(TokenizerModels, WordPieceTakesTheLongestPieceFirst) {
    // The example of the published code of BERT: unaffable is un ##aff ##able.
    const std::string model =
        R"({"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":10,"vocab":{"[UNK]":0,"un":1,"##aff":2,"##able":3,"##a":4,"u":5}})";
    EXPECT_EQ(pieces(made(model), "unaffable"), "un|##aff|##able");
    EXPECT_EQ(pieces(made(model), "unaffx"), "[UNK]");
    EXPECT_EQ(pieces(made(model), "ununununun"), "[UNK]");
    EXPECT_EQ(pieces(made(model), "uaaaaaaaaaa"), "[UNK]");  // 11 characters
}

TEST_F(TokenizerModels, UnigramTakesTheGreatestSumOfScores) {
    // The documented example of the tokenizers library.
    const std::string model =
        R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["a",0.0],["b",0.0],["c",0.0],["d",0.0],["cd",1.0],["ab",2.0],["abc",5.0],["abcd",10.0]]})";
    EXPECT_EQ(pieces(made(model), "abcdacdxx"), "abcd|a|cd|<unk>");
}

TEST_F(TokenizerModels, OfEqualScoresTheDivisionThatBeginsFirstIsTaken) {
    const std::string model =
        R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",-9],["a",-1],["b",-1],["ab",-2]]})";
    EXPECT_EQ(pieces(made(model), "ab"), "ab");
}

TEST_F(TokenizerModels, UnigramEqualsTheBestOfAllDivisions) {
    const std::vector<std::pair<std::string, double>> vocab{
        {"<unk>", -20}, {"a", -2},    {"b", -2.5},   {"ab", -3.25},     {"ba", -4.125},
        {"aba", -5},    {"bb", -4.5}, {"abb", -5.5}, {"bbaa", -7.03125}};
    std::string list;
    for (const auto& [piece, score] : vocab)
        list += fmt::format(R"({}["{}",{}])", list.empty() ? "" : ",", piece, score);
    const Tokenizer t = made(fmt::format(R"({{"type":"Unigram","unk_id":0,"vocab":[{}]}})", list));
    const Rng rng(7);
    for (int trial = 0; trial < 200; ++trial) {
        std::string text;
        for (int i = 0; i < 1 + trial % 12; ++i)
            text += rng.fork("text").fork(std::uint64_t(trial * 100 + i)).below(2) ? 'a' : 'b';
        // the naive twin: every division
        double best = -1e300;
        const std::function<void(std::size_t, double)> divide = [&](std::size_t at, double sum) {
            if (at == text.size()) best = std::max(best, sum);
            for (const auto& [piece, score] : vocab)
                if (text.compare(at, piece.size(), piece) == 0)
                    divide(at + piece.size(), sum + score);
        };
        divide(0, 0);
        double found = 0;
        std::string joined;
        for (const std::int64_t id : t.encode(text)) {
            found += vocab[std::size_t(id)].second;
            joined += t.piece(id);
        }
        EXPECT_EQ(joined, text);
        EXPECT_EQ(found, best) << text;  // scores are sums of powers of two
    }
}

/// The textbook's loop: again and again the pair of the least rank, from the left.
std::vector<std::string> naive_bpe(
    std::vector<std::string> symbols,
    const std::map<std::pair<std::string, std::string>, int>& ranks) {
    while (true) {
        int best = -1;
        std::size_t where = 0;
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
            const auto found = ranks.find({symbols[i], symbols[i + 1]});
            if (found != ranks.end() && (best < 0 || found->second < best)) {
                best = found->second;
                where = i;
            }
        }
        if (best < 0) return symbols;
        symbols[where] += symbols[where + 1];
        symbols.erase(symbols.begin() + std::ptrdiff_t(where) + 1);
    }
}

TEST_F(TokenizerModels, BpeEqualsTheTextbookLoop) {
    const Rng rng(3);
    for (int trial = 0; trial < 50; ++trial) {
        std::vector<std::string> tokens{"a", "b", "c"};
        std::map<std::pair<std::string, std::string>, int> ranks;
        std::string merges;
        auto draw = [&, k = 0](std::size_t below) mutable {
            return rng.fork("bpe").fork(std::uint64_t(trial)).fork(std::uint64_t(k++)).below(below);
        };
        for (int m = 0; m < 12; ++m) {
            const std::string left = tokens[draw(tokens.size())];
            const std::string right = tokens[draw(tokens.size())];
            const std::string both = left + right;
            if (std::find(tokens.begin(), tokens.end(), both) != tokens.end()) continue;
            tokens.push_back(both);
            merges += fmt::format(R"({}"{} {}")", merges.empty() ? "" : ",", left, right);
            ranks.emplace(std::pair(left, right), int(ranks.size()));
        }
        const Tokenizer t = made(bpe(tokens, merges));
        for (int word = 0; word < 20; ++word) {
            std::string text;
            std::vector<std::string> symbols;
            for (int i = 0; i < 40; ++i) {
                text += char('a' + int(draw(3)));
                symbols.emplace_back(1, text.back());
            }
            std::string expected;
            for (const std::string& s : naive_bpe(symbols, ranks))
                expected += (expected.empty() ? "" : "|") + s;
            EXPECT_EQ(pieces(t, text), expected);
        }
    }
}

TEST_F(TokenizerModels, OneWordOfAMegabyteTakesLessThanSeconds) {
    const std::string word(1 << 20, 'a');
    const auto start = std::chrono::steady_clock::now();
    const Tokenizer merged = made(bpe({"a", "aa", "aaaa"}, R"("a a","aa aa")"));
    EXPECT_EQ(merged.encode(word).size(), word.size() / 4);
    const Tokenizer unigram =
        made(R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-2],["aaa",-3]]})");
    EXPECT_EQ(unigram.encode(word).size(), word.size() / 3 + 1);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(TokenizerModels, UnknownCharactersFallBackToBytesOrAreOneToken) {
    const std::string bytes = bpe({"a", "<0xC3>", "<0xA9>"}, "", R"(,"byte_fallback":true)");
    EXPECT_EQ(pieces(made(bytes), "a\u00e9"), "a|<0xC3>|<0xA9>");
    const std::string apart = bpe({"a", "?"}, "", R"(,"unk_token":"?")");
    EXPECT_EQ(pieces(made(apart), "axya"), "a|?|?|a");
    const std::string fused = bpe({"a", "?"}, "", R"(,"unk_token":"?","fuse_unk":true)");
    EXPECT_EQ(pieces(made(fused), "axya"), "a|?|a");
}

/// What a model is given: one that knows no word names it in its refusal.
std::string left_of(const std::string& text, const std::string& parts) {
    const std::string model = R"({"type":"WordLevel","unk_token":"none","vocab":{}})";
    const Tokenizer t = made(model, parts);
    try {
        t.encode(text);
    } catch (const FormatError& e) {
        const std::string what = e.what();
        const std::size_t begin = what.find('\'') + 1;
        return what.substr(begin, what.find("' and none") - begin);
    }
    return "";
}

TEST_F(TokenizerFiles, NormalisersDoAsTheySay) {
    const auto by = [](const std::string& one, const std::string& text) {
        return left_of(text, fmt::format(R"("normalizer":{})", one));
    };
    EXPECT_EQ(by(R"({"type":"NFC"})", "e\u0301"), "\u00e9");
    EXPECT_EQ(by(R"({"type":"NFD"})", "\u00e9"), "e\u0301");
    EXPECT_EQ(by(R"({"type":"NFKC"})", "\ufb01\u00b2"), "fi2");
    EXPECT_EQ(by(R"({"type":"NFKD"})", "\ufb01"), "fi");
    EXPECT_EQ(by(R"({"type":"Lowercase"})", "\u00c4\u03a3X"), "\u00e4\u03c3x");
    EXPECT_EQ(by(R"({"type":"StripAccents"})", "e\u0301a"), "ea");
    EXPECT_EQ(by(R"({"type":"Prepend","prepend":"_"})", "ab"), "_ab");
    EXPECT_EQ(by(R"({"type":"Strip","strip_left":true,"strip_right":false})", " a "), "a ");
    EXPECT_EQ(by(R"({"type":"Replace","pattern":{"String":"ab"},"content":"x"})", "abcab"), "xcx");
    EXPECT_EQ(by(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"_"})", "a   b c"),
              "a_b c");
    EXPECT_EQ(
        by(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true})",
           "\u00c9t\u0065\u0301\u4e2d\x01"),
        "ete \u4e2d ");
    EXPECT_EQ(
        by(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"StripAccents"},{"type":"Lowercase"}]})",
           "\u00c9A"),
        "ea");
}

std::string base64_of(const std::string& bytes) {
    constexpr std::string_view letters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t bits = 0;
        for (std::size_t k = 0; k < 3; ++k)
            bits = bits << 8 | (i + k < bytes.size() ? std::uint8_t(bytes[i + k]) : 0U);
        for (std::size_t k = 0; k < 4; ++k)
            out += i + k > bytes.size() ? '=' : letters[bits >> (18 - 6 * k) & 63U];
    }
    return out;
}

TEST_F(TokenizerFiles, TheRulesOfSentencePieceReplaceWholeClusters) {
    // A double array by hand: the root (unit 0) has the offset 1, so 'A' is unit 1 ^ 0x41 = 64; its
    // offset is 1 as well, so its value is in unit 64 ^ 1 = 65.
    std::vector<std::uint32_t> units(66, 0);
    units[0] = 1U << 10;
    units[64] = 0x41U | 1U << 8 | 1U << 10;
    units[65] = 1U << 31 | 2U;  // the replacement begins at byte 2
    std::string blob;
    const auto put = [&](std::uint32_t v) {
        for (int k = 0; k < 4; ++k) blob += char(v >> (8 * k) & 0xffU);
    };
    put(std::uint32_t(4 * units.size()));
    for (const std::uint32_t unit : units) put(unit);
    const auto by = [&](const std::string& charsmap, const std::string& text) {
        return left_of(
            text,
            fmt::format(R"("normalizer":{{"type":"Precompiled","precompiled_charsmap":"{}"}})",
                        base64_of(charsmap)));
    };
    const std::string whole = blob + std::string("x\0bc\0", 5);
    EXPECT_EQ(by(whole, "zAz"), "zbcz");
    EXPECT_EQ(by(whole, "A\u0301z"), "bcz");  // a cluster that begins with a rule
    EXPECT_EQ(by(whole, "z\u0301\u0302A"), "z\u0301\u0302bc");
    for (std::size_t cut = 0; cut < blob.size(); ++cut)
        EXPECT_THROW(by(blob.substr(0, cut), "A"), FormatError) << cut;
}

/// Words that a pre-tokenizer makes: each is one token of a WordLevel model that knows them.
std::string words_of(const std::string& pre, const std::string& text,
                     const std::vector<std::string>& known) {
    std::string vocab = R"("UNK":0)";
    for (const std::string& word : known)
        vocab += fmt::format(R"(,"{}":{})", word, 1 + std::count(vocab.begin(), vocab.end(), ','));
    return pieces(
        made(fmt::format(R"({{"type":"WordLevel","unk_token":"UNK","vocab":{{{}}}}})", vocab),
             fmt::format(R"("pre_tokenizer":{})", pre)),
        text);
}

TEST_F(TokenizerFiles, PreTokenizersDivideAsTheySay) {
    const std::vector<std::string> some{"the",    "final",      "-",       "countdown",
                                        "the-",   "-countdown", "final--", "--",
                                        "final-", "I",          "'",       "m"};
    const auto split = [&](const std::string& behaviour) {
        return words_of(
            fmt::format(
                R"({{"type":"Split","pattern":{{"String":"-"}},"behavior":"{}","invert":false}})",
                behaviour),
            "the-final--countdown", some);
    };
    // the documented example of the five behaviours
    EXPECT_EQ(split("Removed"), "the|final|countdown");
    EXPECT_EQ(split("Isolated"), "the|-|final|-|-|countdown");
    EXPECT_EQ(split("Contiguous"), "the|-|final|--|countdown");
    EXPECT_EQ(split("MergedWithPrevious"), "the-|final-|-|countdown");
    EXPECT_EQ(split("MergedWithNext"), "the|UNK|-|-countdown");  // "-final" is not known
    EXPECT_EQ(words_of(R"({"type":"BertPreTokenizer"})", " I'm  the", some), "I|'|m|the");
    EXPECT_EQ(words_of(R"({"type":"Whitespace"})", "I'm the--", some), "I|'|m|the|--");
    EXPECT_EQ(words_of(R"({"type":"WhitespaceSplit"})", " the- final-\n", some), "the-|final-");
    EXPECT_EQ(words_of(R"({"type":"Digits","individual_digits":false})", "a12b", {"a", "12", "b"}),
              "a|12|b");
    EXPECT_EQ(words_of(R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always"})",
                       "a b", {"\u2581a", "\u2581b"}),
              "\u2581a|\u2581b");
    EXPECT_EQ(words_of(R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})",
                       "I'm  a\u00e9 12", {"I", "'m", "\u0120", "\u0120a\u00c3\u00a9", "\u012012"}),
              "I|'m|\u0120|\u0120a\u00c3\u00a9|\u012012");
}

TEST_F(TokenizerFiles, AddedTokensAreFoundFirstAndTheLongestWins) {
    const std::string added =
        R"("added_tokens":[{"id":5,"content":"<s>","special":true,"normalized":false},{"id":6,"content":"<s>x","special":true,"normalized":false},{"id":7,"content":"ab","single_word":true,"normalized":false},{"id":8,"content":"[M]","lstrip":true,"rstrip":true,"normalized":false}])";
    const Tokenizer t = made(bpe({"a", "b", "x", " ", "<"}, ""), added);
    EXPECT_EQ(t.encode("a<s>x<s>"), (Ids{0, 6, 5}));
    EXPECT_EQ(t.encode("ab abx"), (Ids{7, 3, 0, 1, 2}));
    EXPECT_EQ(t.encode("a  [M] b"), (Ids{0, 8, 1}));
    EXPECT_EQ(t.size(), 9);
}

TEST_F(TokenizerFiles, PostProcessorsSurroundTheText) {
    const std::string model = bpe({"a", "[CLS]", "[SEP]"}, "");
    const std::string by_template =
        R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"[SEP]","type_id":0}}],"pair":[],"special_tokens":{"[CLS]":{"id":"[CLS]","ids":[1],"tokens":["[CLS]"]},"[SEP]":{"id":"[SEP]","ids":[2],"tokens":["[SEP]"]}}})";
    EXPECT_EQ(pieces(made(model, by_template), "aa"), "[CLS]|a|a|[SEP]");
    for (const char* type : {"BertProcessing", "RobertaProcessing"})
        EXPECT_EQ(
            pieces(
                made(model,
                     fmt::format(
                         R"("post_processor":{{"type":"{}","sep":["[SEP]",2],"cls":["[CLS]",1]}})",
                         type)),
                "a"),
            "[CLS]|a|[SEP]");
}

TEST_F(TokenizerFiles, WhatIsNotImplementedIsRefusedByName) {
    const std::string model = bpe({"a"}, "");
    const auto names = [&](const std::string& part, const std::string& what) {
        const std::string said = refusal(model, part);
        EXPECT_NE(said.find(what), std::string::npos) << said;
    };
    names(R"("normalizer":{"type":"Magic"})", "'Magic' is not supported");
    names(R"("normalizer":{"type":"NFC","extra":1})", "'extra'");
    names(R"("pre_tokenizer":{"type":"UnicodeScripts"})", "'UnicodeScripts' is not supported");
    names(R"("post_processor":{"type":"Other"})", "'Other' is not supported");
    names(R"("unheard":1)", "'unheard'");
    names(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a\\b"},"behavior":"Isolated"})",
          "'\\b' at byte");
    for (const char* regex : {"(?<n>a)", "\\\\1", "a(?i)b", "[[:alpha:]]", "\\\\h", "a{2}+", "[]a]",
                              "\\\\p{Foo}", "(?m:a)"})
        names(
            fmt::format(
                R"("pre_tokenizer":{{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated"}})",
                regex),
            "not supported");
    EXPECT_NE(
        refusal(R"({"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]})").find("'dropout'"),
        std::string::npos);
    EXPECT_NE(refusal(R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})").find("'b'"),
              std::string::npos);
    EXPECT_NE(refusal(R"({"type":"Neural"})").find("'Neural'"), std::string::npos);
}

TEST_F(TokenizerFiles, RegularExpressionsAreThoseOfOniguruma) {
    const auto parts = [](const std::string& regex, const std::string& text,
                          const std::vector<std::string>& known) {
        return words_of(
            fmt::format(
                R"({{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Removed","invert":true}})",
                regex),
            text, known);
    };
    EXPECT_EQ(parts("\\\\p{N}{1,3}", "12345", {"123", "45"}), "123|45");
    EXPECT_EQ(parts("[^\\\\r\\\\n\\\\p{L}]+", "a1 b", {"1 "}), "1 ");
    EXPECT_EQ(parts("(?i:'S|'T)", "x's", {"'s"}), "'s");
    EXPECT_EQ(parts("[a-c&&[^b]]", "abc", {"a", "c"}), "a|c");
    EXPECT_EQ(parts("a.", "ab a\\u0085", {"ab", "a\u0085"}).substr(0, 2), "ab");
    EXPECT_EQ(parts("b$", "ab\nb", {"b"}), "b|b");  // at the end of every line
}

TEST_F(TokenizerFiles, HostileExpressionsAndTextsEndInTime) {
    const auto start = std::chrono::steady_clock::now();
    const auto encode = [](const std::string& regex, const std::string& text) {
        made(
            bpe({"a", "b"}, "", R"(,"unk_token":"a")"),
            fmt::format(
                R"("pre_tokenizer":{{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated"}})",
                regex))
            .encode(text);
    };
    EXPECT_THROW(encode("(?:a+)+c", std::string(5000, 'a')), FormatError);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
    // a text that each normaliser makes ten times longer
    std::string steps;
    for (int i = 0; i < 12; ++i)
        steps += std::string(i ? "," : "") +
                 R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})";
    EXPECT_THROW(
        made(bpe({"a"}, ""),
             fmt::format(R"("normalizer":{{"type":"Sequence","normalizers":[{}]}})", steps))
            .encode("a"),
        FormatError);
}

TEST_F(TokenizerFiles, VocabularyFilesOfBertGpt2AndRobertaAreRead) {
    const test::TemporaryDirectory folder;
    const auto put = [&](const std::string& name, const std::string& text) {
        test::write_file(folder.path() / name, text);
    };
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n");
    EXPECT_EQ(pieces(open_tokenizer(folder.path()), "UNaffable [MASK]x"),
              "[CLS]|un|##aff|##able|[MASK]|[UNK]|[SEP]");
    put("tokenizer_config.json", R"({"do_lower_case":false})");
    EXPECT_EQ(pieces(open_tokenizer(folder.path()), "UNaffable"), "[CLS]|[UNK]|[SEP]");
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##X\n");
    test::write_file(folder.path() / "tokenizer_config.json", "{}");
    EXPECT_EQ(pieces(open_tokenizer(folder.path()), "unX"), "[CLS]|un|##X|[SEP]");
    put("vocab.json",
        R"({"<s>":0,"</s>":1,"<pad>":2,"<unk>":3,"<mask>":4,"a":5,"b":6,"ab":7,"\u0120":8,"\u0120ab":9,"<|endoftext|>":10})");
    put("merges.txt", "#version: 0.2\na b\n\u0120 ab\n");
    put("config.json", R"({"model_type":"gpt2"})");
    EXPECT_EQ(pieces(open_tokenizer(folder.path()), "ab ab<|endoftext|>a"),
              "ab|\u0120ab|<|endoftext|>|a");
    put("config.json", R"({"model_type":"roberta"})");
    EXPECT_EQ(pieces(open_tokenizer(folder.path()), "ab <mask>a"), "<s>|ab|<mask>|a|</s>");
    put("config.json", R"({"model_type":"bart"})");
    EXPECT_THROW(open_tokenizer(folder.path()), FormatError);
}

TEST_F(TokenizerFiles, EveryPrefixOfAFileIsRefused) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::path(test::test_data()) / "tokenizers")) {
        std::string text = test::read_file(entry.path());
        while (text.back() == '\n') text.pop_back();
        EXPECT_FALSE(parse_tokenizer(text, "whole").encode("Free  12").empty());
        for (std::size_t cut = 0; cut < text.size(); cut += 3)
            EXPECT_THROW(parse_tokenizer(text.substr(0, cut), "cut"), FormatError) << cut;
        ++files;
    }
    EXPECT_EQ(files, 3);
}

TEST_F(TokenizerFiles, ATextThatIsNotUtf8IsRefusedWithItsByte) {
    try {
        made(bpe({"a"}, "")).encode("aa\xff");
        FAIL();
    } catch (const FormatError& e) {
        EXPECT_NE(std::string(e.what()).find("byte 2 is 0xff"), std::string::npos) << e.what();
    }
}

TEST_F(TokenizerFiles, TokensAreShownAsReadersWriteThem) {
    const Tokenizer t = made(
        bpe({"\u0120the", "\u00c3", "\u00c3\u00a9", "\u010a"}, ""),
        R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"added_tokens":[{"id":4,"content":"<s>"}])");
    EXPECT_EQ(t.shown(0), "\u2581the");
    EXPECT_EQ(t.shown(1), "\\xc3");
    EXPECT_EQ(t.shown(2), "\u00e9");
    EXPECT_EQ(t.shown(3), "\\n");
    EXPECT_EQ(t.shown(4), "<s>");
}

}  // namespace
}  // namespace tsdiag
