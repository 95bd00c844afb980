#include "tsdiag/tokenizer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
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
    const std::clock_t start = std::clock();
    const Tokenizer merged = made(bpe({"a", "aa", "aaaa"}, R"("a a","aa aa")"));
    EXPECT_EQ(merged.encode(word).size(), word.size() / 4);
    const Tokenizer unigram =
        made(R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-2],["aaa",-3]]})");
    EXPECT_EQ(unigram.encode(word).size(), word.size() / 3 + 1);
    EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);
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
    const std::clock_t start = std::clock();
    const auto encode = [](const std::string& regex, const std::string& text) {
        made(
            bpe({"a", "b"}, "", R"(,"unk_token":"a")"),
            fmt::format(
                R"("pre_tokenizer":{{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated"}})",
                regex))
            .encode(text);
    };
    EXPECT_THROW(encode("(?:a+)+c", std::string(5000, 'a')), FormatError);
    EXPECT_LT(std::clock() - start, 40 * CLOCKS_PER_SEC);
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
    EXPECT_NE(open_tokenizer(folder.path()).assumption().find("vocab.txt has capitals"),
              std::string::npos);
    put("tokenizer_config.json", R"({"do_lower_case":false})");
    EXPECT_EQ(open_tokenizer(folder.path()).assumption(), "");
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

/// Transformers reads the lines of merges.txt but for the first and for what is behind the last
/// newline, whatever they are.
TEST_F(TokenizerFiles, MergesThatALibraryWouldLoseAreRefused) {
    const test::TemporaryDirectory folder;
    const auto put = [&](const std::string& name, const std::string& text) {
        test::write_file(folder.path() / name, text);
    };
    put("vocab.json", R"({"a":0,"b":1,"c":2,"ab":3,"abc":4,"<|endoftext|>":5})");
    put("config.json", R"({"model_type":"gpt2"})");
    const auto refusal = [&](const std::string& merges) {
        put("merges.txt", merges);
        try {
            return "accepted: " + pieces(open_tokenizer(folder.path()), "abc");
        } catch (const FormatError& e) {
            return std::string(e.what());
        }
    };
    EXPECT_EQ(refusal("#version: 0.2\na b\nab c\n"), "accepted: abc");
    EXPECT_EQ(refusal("#version: 0.2\r\na b\r\nab c\r\n"), "accepted: abc");
    EXPECT_EQ(refusal("#version: 0.2\n"), "accepted: a|b|c");
    EXPECT_NE(refusal("a b\nab c\n").find("begins with 'a b', expected '#version: 0.2'"),
              std::string::npos);
    EXPECT_NE(refusal("").find("expected '#version: 0.2'"), std::string::npos);
    EXPECT_NE(refusal("#version: 0.2\na b\nab c").find("ends with 'ab c' and without a newline"),
              std::string::npos);
}

TEST_F(TokenizerFiles, TokensBesideAVocabularyAreItsOwn) {
    const test::TemporaryDirectory folder;
    const auto put = [&](const std::string& name, const std::string& text) {
        test::write_file(folder.path() / name, text);
    };
    const auto ids = [&](const std::string& text) {
        const Tokenizer tokenizer = open_tokenizer(folder.path());
        return tokenizer.wrapped(tokenizer.encode(text));
    };
    using Ids = std::vector<std::int64_t>;
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n<\n>\ne\n##1\nhello\ne1\n");
    EXPECT_EQ(ids("<e1> hello"), (Ids{2, 5, 10, 6, 9, 3}));
    put("tokenizer_config.json",
        R"({"do_lower_case":true,"added_tokens_decoder":{"11":{"content":"<E1>","special":true}}})");
    EXPECT_EQ(ids("<E1> HELLO <e1>"), (Ids{2, 11, 9, 5, 10, 6, 3}));  // before lower case
    // Behind a gap: one of Transformers' two tokenizers gives it the next id.
    put("tokenizer_config.json", R"({"added_tokens_decoder":{"12":{"content":"<E1>"}}})");
    EXPECT_THROW(ids("hello"), FormatError);
    put("tokenizer_config.json", R"({"added_tokens_decoder":{"12":{"content":"<b>"},
        "11":{"content":"<a>"}},"additional_special_tokens":["<c>"]})");
    EXPECT_EQ(ids("<a><b><c>"), (Ids{2, 11, 12, 13, 3}));
    put("tokenizer_config.json", R"({"additional_special_tokens":["<x>", "hello"]})");
    EXPECT_EQ(ids("<x>hello"), (Ids{2, 11, 9, 3}));  // the next id, and that of the vocabulary
    put("tokenizer_config.json", "{}");
    put("added_tokens.json", R"({"<Y>": 12})");
    EXPECT_THROW(ids("hello"), FormatError);
    put("added_tokens.json", R"({"<Y>": 11})");
    EXPECT_EQ(ids("<y> hello"), (Ids{2, 11, 9, 3}));  // found in what is lower case
    put("added_tokens.json", R"({"hello": 12})");
    EXPECT_THROW(ids("hello"), FormatError);  // of two ids
    put("added_tokens.json", "{}");
    put("special_tokens_map.json", R"({"unk_token":"[MASK]","cls_token":{"content":"<"}})");
    EXPECT_EQ(ids("zzz"), (Ids{5, 4, 3}));
    put("tokenizer_config.json", R"({"cls_token":"[CLS]"})");
    EXPECT_THROW(ids("zzz"), FormatError);  // of two names
    put("tokenizer_config.json", R"({"cls_token":"<"})");
    EXPECT_EQ(ids("zzz"), (Ids{5, 4, 3}));
    put("special_tokens_map.json", "{}");
    for (const char* key : {R"({"never_split":["<e1>"]})", R"({"do_split_on_punc":false})",
                            R"({"something_new":true})"}) {
        put("tokenizer_config.json", key);
        EXPECT_THROW(ids("hello"), FormatError) << key;
    }
    put("tokenizer_config.json",
        R"({"model_max_length":512,"something_new":null,"tokenizer_class":"BertTokenizerFast"})");
    EXPECT_EQ(ids("hello"), (Ids{2, 9, 3}));
}

TEST_F(TokenizerFiles, TheClassOfATokenizerDecidesOrIsRefused) {
    const test::TemporaryDirectory folder;
    const auto put = [&](const std::string& name, const std::string& text) {
        test::write_file(folder.path() / name, text);
    };
    const auto refusal = [&] {
        try {
            open_tokenizer(folder.path());
        } catch (const FormatError& e) {
            return std::string(e.what());
        }
        return std::string("accepted");
    };
    const auto said = [&](const std::string& name) {
        put("tokenizer_config.json", fmt::format(R"({{"tokenizer_class":"{}"}})", name));
    };
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n");
    said("EsmTokenizer");
    EXPECT_NE(refusal().find("tokenizer_class is EsmTokenizer, but beside it there is only vocab"),
              std::string::npos)
        << refusal();
    for (const char* name : {"DistilBertTokenizer", "PreTrainedTokenizerFast"}) {
        said(name);
        EXPECT_EQ(refusal(), "accepted") << name;
    }
    // Where tokenizer_config.json has none, Transformers takes that of config.json.
    put("config.json", R"({"model_type":"bert","tokenizer_class":"BertJapaneseTokenizer"})");
    EXPECT_EQ(refusal(), "accepted");
    put("tokenizer_config.json", "{}");
    EXPECT_NE(refusal().find("config.json: tokenizer_class is BertJapaneseTokenizer"),
              std::string::npos)
        << refusal();
    put("vocab.json",
        R"({"<s>":0,"</s>":1,"<pad>":2,"<unk>":3,"<mask>":4,"a":5,"b":6,"ab":7,"<|endoftext|>":8})");
    put("merges.txt", "#version: 0.2\na b\n");
    put("config.json", R"({"model_type":"roberta"})");
    said("GPT2Tokenizer");
    const Tokenizer plain = open_tokenizer(folder.path());
    EXPECT_EQ(pieces(plain, "ab"), "ab");
    const auto notes = [](const Tokenizer& tokenizer) {
        return fmt::format("{}", fmt::join(tokenizer.notes(), "; "));
    };
    EXPECT_NE(notes(plain).find("though the model is 'roberta'"), std::string::npos);
    put("tokenizer_config.json", "{}");
    EXPECT_EQ(pieces(open_tokenizer(folder.path()), "ab"), "<s>|ab|</s>");
    put("config.json", R"({"model_type":"roberta","tokenizer_class":"GPT2Tokenizer"})");
    EXPECT_EQ(pieces(open_tokenizer(folder.path()), "ab"), "ab");
    said("CLIPTokenizer");
    EXPECT_NE(refusal().find("only vocab.json with merges.txt"), std::string::npos) << refusal();
    const std::string json =
        R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})";
    put("tokenizer.json", json);
    said("BertTokenizer");
    EXPECT_NE(notes(open_tokenizer(folder.path())).find("though tokenizer_class is Bert"),
              std::string::npos);
}

TEST_F(TokenizerFiles, TwoFilesThatContradictEachOtherAreRefused) {
    const test::TemporaryDirectory folder;
    const std::string model =
        R"({"version":"1.0","normalizer":{"type":"BertNormalizer","clean_text":true,)"
        R"("handle_chinese_chars":true,"strip_accents":null,"lowercase":true},)"
        R"("pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":null,)"
        R"("model":{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":)"
        R"("##","max_input_chars_per_word":100,"vocab":{"u":0,"a":1}}})";
    test::write_file(folder.path() / "tokenizer.json", model);
    for (const char* agrees : {R"({"do_lower_case":true})", R"({"strip_accents":true})", "{}"}) {
        test::write_file(folder.path() / "tokenizer_config.json", agrees);
        EXPECT_FALSE(open_tokenizer(folder.path()).encode("a").empty()) << agrees;
    }
    test::write_file(folder.path() / "tokenizer_config.json", R"({"do_lower_case":false})");
    try {
        open_tokenizer(folder.path());
        FAIL();
    } catch (const FormatError& e) {
        EXPECT_NE(
            std::string(e.what()).find("do_lower_case is false, but lowercase of tokenizer.json is "
                                       "true"),
            std::string::npos)
            << e.what();
    }
    EXPECT_FALSE(open_tokenizer(folder.path() / "tokenizer.json").encode("a").empty());
}

/// A tokenizer.json of BERT's kind: <e> is an added token, the next id is 9.
std::string bert_json(const std::string& accents = "null", const std::string& lower = "true") {
    return fmt::format(
        R"({{"version":"1.0","added_tokens":[{{"id":0,"content":"[U]","special":true,"normalized":false}},)"
        R"({{"id":8,"content":"<e>","lstrip":false,"rstrip":true,"single_word":false,"special":true,"normalized":false}}],)"
        R"("normalizer":{{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
        R"("strip_accents":{},"lowercase":{}}},"pre_tokenizer":{{"type":"BertPreTokenizer"}},)"
        R"("model":{{"type":"WordPiece","unk_token":"[U]","continuing_subword_prefix":"##",)"
        R"("max_input_chars_per_word":100,"vocab":{{"[U]":0,"a":1,"b":2,"<":3,">":4,"x":5,"y":6,"he":7}}}}}})",
        accents, lower);
}

/// A folder whose tokenizer_config.json and other files change.
class TokenizerFolder : public WithUnicode {
  protected:
    void put(const std::string& name, const std::string& text) const {
        test::write_file(folder_.path() / name, text);
    }
    Ids ids(const std::string& text) const {
        const Tokenizer tokenizer = open_tokenizer(folder_.path());
        return tokenizer.wrapped(tokenizer.encode(text));
    }
    /// The ids of the text with that tokenizer_config.json.
    Ids with(const std::string& config, const std::string& text) const {
        put("tokenizer_config.json", config);
        return ids(text);
    }
    void refuses(const std::string& config, const std::string& what) const {
        put("tokenizer_config.json", config);
        try {
            ids("a");
            ADD_FAILURE() << config << " is accepted, expected: " << what;
        } catch (const FormatError& e) {
            EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
            EXPECT_NE(std::string(e.what()).find("--tokenizer FILE"), std::string::npos)
                << e.what();
        }
    }
    test::TemporaryDirectory folder_;
};

TEST_F(TokenizerFolder, SpecialTokensAreThoseOfItsFilesAndWhatIsPutAroundAText) {
    put("tokenizer.json", bert_json());
    put("tokenizer_config.json",
        R"({"pad_token":"he","added_tokens_decoder":{"9":{"content":"<x>"},"10":{"content":"<z>","special":true}}})");
    const Tokenizer tokenizer = open_tokenizer(folder_.path());
    for (const std::int64_t id : {0, 7, 8, 10}) EXPECT_TRUE(tokenizer.special(id)) << id;
    for (const std::int64_t id : {1, 2, 9, 11}) EXPECT_FALSE(tokenizer.special(id)) << id;
    std::filesystem::remove(folder_.path() / "tokenizer.json");
    std::filesystem::remove(folder_.path() / "tokenizer_config.json");
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n[unused0]\n");
    const Tokenizer bert = open_tokenizer(folder_.path());
    for (const std::int64_t id : {0, 1, 2, 3, 4}) EXPECT_TRUE(bert.special(id)) << id;
    for (const std::int64_t id : {5, 6}) EXPECT_FALSE(bert.special(id)) << id;
}

TEST_F(TokenizerFolder, TokensThatATokenizerJsonLacksGetTheNextIds) {
    put("tokenizer.json", bert_json());
    EXPECT_EQ(with("{}", "<x> a"), (Ids{3, 5, 4, 1}));
    for (
        const char* config :
        {R"({"added_tokens_decoder":{"8":{"content":"<e>","rstrip":true},"9":{"content":"<x>","special":true}}})",
         R"({"additional_special_tokens":["<x>"]})", R"({"extra_special_tokens":["<x>"]})",
         R"({"extra_special_tokens":{"image_token":"<x>"}})", R"({"pad_token":"<x>"})",
         R"({"mask_token":{"content":"<x>","lstrip":false}})"})
        EXPECT_EQ(with(config, "<x> a <e> b"), (Ids{9, 1, 8, 2})) << config;
    // By their ids, then by their roles, whatever file or order they are in.
    put("special_tokens_map.json", R"({"additional_special_tokens":["<3>"]})");
    EXPECT_EQ(
        with(R"({"pad_token":"<2>","bos_token":"<1>","added_tokens_decoder":{)"
             R"("10":{"content":"<b>","special":true},"9":{"content":"<a>","special":true}}})",
             "<a><b><1><2><3>"),
        (Ids{9, 10, 11, 12, 13}));
    EXPECT_EQ(with("{}", "<3>"), (Ids{9}));
    put("special_tokens_map.json", "{}");
    put("added_tokens.json", R"({"<X>": 9})");
    EXPECT_EQ(ids("<x>"), (Ids{9}));  // no special one: found in what is lower case
    put("added_tokens.json", "{}");
    EXPECT_EQ(with(R"({"pad_token":"he"})", "hey"), (Ids{7, 6}));  // of the vocabulary, its own id
    // The file that is named is taken as it stands.
    put("tokenizer_config.json", R"({"pad_token":"<x>"})");
    EXPECT_EQ(open_tokenizer(folder_.path() / "tokenizer.json").encode("<x>"), (Ids{3, 5, 4}));
}

TEST_F(TokenizerFolder, TokensThatContradictATokenizerJsonAreRefused) {
    put("tokenizer.json", bert_json());
    refuses(R"({"added_tokens_decoder":{"9":{"content":"<e>"}}})",
            "'<e>' has the id 9 in tokenizer_config.json, but 8 in tokenizer.json");
    refuses(R"({"added_tokens_decoder":{"20":{"content":"<x>"}}})",
            "'<x>' has the id 20 in tokenizer_config.json, but the next one is 9");
    refuses(R"({"added_tokens_decoder":{"1":{"content":"b"}}})", "has the id 1");
    refuses(R"({"added_tokens_decoder":{"8":{"content":"<e>","single_word":true}}})",
            "single_word of '<e>' is true in tokenizer_config.json, but false in tokenizer.json");
    refuses(R"({"pad_token":{"content":"<e>","lstrip":true}})", "lstrip of '<e>' is true");
    refuses(R"({"pad_token":{"content":"<e>","rstrip":false}})", "rstrip of '<e>' is false");
    // What does not say how it is, and what the library does not compare.
    EXPECT_EQ(with(R"({"pad_token":"<e>"})", "<e> a"), (Ids{8, 1}));
    EXPECT_EQ(
        with(R"({"added_tokens_decoder":{"8":{"content":"<e>","normalized":true}}})", "<e> a"),
        (Ids{8, 1}));
    put("tokenizer_config.json", "{}");
    put("added_tokens.json", R"({"<e>": 11})");
    refuses("{}", "'<e>' has the id 11 in added_tokens.json, but 8 in tokenizer.json");
}

TEST_F(TokenizerFolder, AKeyThatDividesSpecialTokensIsRefusedEverywhere) {
    const std::string divides = R"({"split_special_tokens":true})";
    put("tokenizer.json", bert_json());
    refuses(divides, "split_special_tokens is true");
    EXPECT_EQ(
        with(R"({"split_special_tokens":false,"unheard_of":true,"chat_template":"x"})", "<e> a"),
        (Ids{8, 1}));
    std::filesystem::remove(folder_.path() / "tokenizer.json");
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
    refuses(divides, "'split_special_tokens'");
    std::filesystem::remove(folder_.path() / "vocab.txt");
    put("config.json", R"({"model_type":"llama"})");
    std::filesystem::copy_file(
        std::filesystem::path(test::test_data()) / "sentencepiece" / "bpe.model",
        folder_.path() / "tokenizer.model");
    refuses(divides, "split_special_tokens is true");
}

TEST_F(TokenizerFolder, AccentsOfTwoFilesAreComparedByTheirEffect) {
    struct Case {
        const char *own, *lower, *said;
        bool agrees;
    };
    for (const Case& c :
         {Case{"null", "true", "true", true}, Case{"null", "true", "null", true},
          Case{"null", "true", "false", false}, Case{"null", "false", "false", true},
          Case{"null", "false", "true", false}, Case{"false", "true", "null", false},
          Case{"true", "true", "null", true}, Case{"true", "true", "false", false}}) {
        put("tokenizer.json", bert_json(c.own, c.lower));
        const std::string config = fmt::format(R"({{"strip_accents":{}}})", c.said);
        if (c.agrees)
            EXPECT_EQ(with(config, "a"), (Ids{1})) << c.own << c.lower << c.said;
        else
            refuses(config, fmt::format("strip_accents is {}, but tokenizer.json", c.said));
    }
    put("tokenizer.json", bert_json("false"));
    EXPECT_EQ(with(R"({"do_lower_case":true})", "a"), (Ids{1}));  // says nothing of accents
}

TEST_F(TokenizerFolder, ASpaceThatATokenizerJsonPutsBeforeATextIsCompared) {
    const auto file = [](const std::string& parts) {
        return fmt::format(R"({{"version":"1.0",{},"model":{}}})", parts,
                           bpe({"a", "\u2581", "\u2581a"}, "\"\u2581 a\""));
    };
    const std::string no_space = R"({"add_prefix_space":false})";
    for (
        const char* part :
        {R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})",
         R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"}]})"}) {
        put("tokenizer.json", file(part));
        refuses(no_space, "add_prefix_space is false, but ");
        EXPECT_EQ(with(R"({"add_prefix_space":true})", "a"), (Ids{2})) << part;
        EXPECT_EQ(with(R"({"add_prefix_space":null})", "a"), (Ids{2})) << part;
    }
    put("tokenizer.json",
        file(R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})"));
    EXPECT_EQ(with(no_space, "a"), (Ids{0}));
}

TEST_F(TokenizerFolder, WhatATokenizerModelDoesNotObeyIsRefused) {
    const std::filesystem::path models = std::filesystem::path(test::test_data()) / "sentencepiece";
    std::filesystem::copy_file(models / "bpe.model", folder_.path() / "tokenizer.model");
    put("config.json", R"({"model_type":"llama"})");
    const Ids plain = with("{}", "the fox");
    for (
        const char* config :
        {R"({"add_prefix_space":true,"sp_model_kwargs":{},"legacy":true,"use_default_system_prompt":false})",
         R"({"add_prefix_space":null,"sp_model_kwargs":null,"spaces_between_special_tokens":false})",
         R"({"sp_model_kwargs":{"enable_sampling":false,"alpha":0.1,"nbest_size":-1}})",
         R"({"bos_token":{"content":"<s>","lstrip":false},"unk_token":"<unk>","pad_token":null})",
         R"({"additional_special_tokens":["</s>"],"extra_special_tokens":{}})"})
        EXPECT_EQ(with(config, "the fox"), plain) << config;
    refuses(R"({"add_prefix_space":false})",
            "add_prefix_space false, but the model puts a space before a text");
    refuses(R"({"sp_model_kwargs":{"enable_sampling":true,"alpha":0.1}})",
            "'enable_sampling' true");
    refuses(R"({"additional_special_tokens":["<x>"]})",
            "tokenizer_config.json has the token '<x>', which is not in tokenizer.model");
    refuses(R"({"extra_special_tokens":{"image_token":"<x>"}})", "the token '<x>'");
    refuses(R"({"pad_token":"<x>"})", "the token '<x>'");
    refuses(R"({"added_tokens_decoder":{"3":{"content":"<s>"}}})",
            "'<s>' has the id 3 in tokenizer_config.json, but 1 in tokenizer.model");
    // A declared token of the model is found as one, and the named one begins a text.
    EXPECT_EQ(with(R"({"bos_token":"</s>"})", "").front(), 2);
    const std::string piece = open_tokenizer(models / "bpe.model").piece(plain.back());
    EXPECT_EQ(with(R"({"additional_special_tokens":[")" + piece + R"("]})", piece).back(),
              plain.back());
    put("tokenizer_config.json", "{}");
    put("added_tokens.json", R"({"<s>": 1})");
    EXPECT_EQ(ids("the fox"), plain);
    put("added_tokens.json", R"({"<x>": 700})");
    refuses("{}", "added_tokens.json has the token '<x>'");
    put("added_tokens.json", "{}");
    put("special_tokens_map.json", R"({"pad_token":"<y>"})");
    refuses("{}", "special_tokens_map.json has the token '<y>'");
}

TEST_F(TokenizerFolder, LegacyFalsePutsNoSpaceBehindATokenInsideAText) {
    const std::filesystem::path models = std::filesystem::path(test::test_data()) / "sentencepiece";
    const std::filesystem::path file = folder_.path() / "tokenizer.model";
    std::filesystem::copy_file(models / "bpe.model", file);
    put("config.json", R"({"model_type":"llama"})");
    const auto between = [&](const std::string& config, const std::string& text) {
        put("tokenizer_config.json", config);
        return pieces(open_tokenizer(folder_.path()), text);
    };
    const std::string modern = R"({"legacy":false})";
    EXPECT_EQ(between("{}", "e</s>e"), "<s>|\u2581|e|</s>|\u2581|e");
    EXPECT_EQ(between(R"({"legacy":true})", "e</s>e"), "<s>|\u2581|e|</s>|\u2581|e");
    EXPECT_EQ(between(modern, "e</s>e"), "<s>|\u2581|e|</s>|e");
    EXPECT_EQ(between(modern, "</s>e"), "<s>|</s>|e");
    EXPECT_EQ(between(modern, "</s> e"), "<s>|</s>|\u2581|e");
    EXPECT_EQ(between(modern, "the fox  is"), between("{}", "the fox  is"));
    // A model that puts no space before a text.
    std::filesystem::remove(file);
    std::filesystem::copy_file(models / "bpe_symbols.model", file);
    EXPECT_EQ(between(R"({"add_prefix_space":false})", "</s>e"), "<s>|</s>|e");
    EXPECT_EQ(between(modern, "</s>e"), "<s>|</s>|e");
    refuses(R"({"add_prefix_space":true})",
            "add_prefix_space true, but the model puts no space before a text");
}

TEST_F(TokenizerFolder, TokensBesideAVocabularyHaveTheirRolesAndFlags) {
    put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
    for (const char* config : {R"({"extra_special_tokens":["<x>"]})",
                               R"({"extra_special_tokens":{"image_token":"<x>"}})",
                               R"({"extra_special_tokens":{"image_token":{"content":"<x>"}}})"})
        EXPECT_EQ(with(config, "<x> a"), (Ids{2, 6, 5, 3})) << config;
    refuses(R"({"added_tokens_decoder":{"5":{"content":"<x>"}}})", "'<x>' and 'a' have the id 5");
    std::filesystem::remove(folder_.path() / "vocab.txt");
    put("config.json", R"({"model_type":"roberta"})");
    put("vocab.json", R"({"<s>":0,"</s>":1,"<pad>":2,"<unk>":3,"<mask>":4,"a":5,"\u0120":6})");
    put("merges.txt", "#version: 0.2\n");
    EXPECT_EQ(with("{}", "a <mask> a"), (Ids{0, 5, 4, 6, 5, 1}));
    EXPECT_EQ(with(R"({"mask_token":"<mask>"})", "a <mask>"), (Ids{0, 5, 4, 1}));
    EXPECT_EQ(
        with(R"({"mask_token":{"content":"<mask>","lstrip":false,"rstrip":true}})", "a <mask> a"),
        (Ids{0, 5, 6, 4, 5, 1}));
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
