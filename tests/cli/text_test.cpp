#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "program.hpp"
#include "support/files.hpp"
#include "support/places.hpp"
#include "support/ranks.hpp"
#include "tsdiag/json.hpp"

/// Texts in place of ids.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

const std::string char_gpt = (fs::path(test_data()) / "../../examples/char-gpt").string();

Json run_of(const fs::path& result) {
    return Json::parse(read_file(result / "run.json"), "run.json");
}

TEST(TextOfAProgram, CharGptReadsItAndTheReportNamesItsTokens) {
    const TemporaryDirectory folder;
    const Finished done = tsdiag(folder, {"probe", char_gpt, "--text", "Free software!", "--maps",
                                          "0:0", "--probes", "core", "--out", "out"});
    ASSERT_EQ(done.code, 0) << done.err;
    const Json input = run_of(folder.path() / "out")["input"];
    EXPECT_EQ(input["kind"].string(), "text");
    EXPECT_EQ(input["tokens"].integer(), 14);
    const Json& text = input["text"];
    // vocab.json: a character's id is its place in the alphabet
    const Json vocab = Json::parse(read_file(fs::path(char_gpt) / "vocab.json"), "vocab.json");
    std::string letters = "Free software!";
    ASSERT_EQ(text["ids"].array().size(), letters.size());
    for (std::size_t i = 0; i < letters.size(); ++i)
        EXPECT_EQ(text["ids"].array()[i].integer(), vocab[std::string(1, letters[i])].integer());
    EXPECT_EQ(text["pieces"].array()[4].string(), "\u2581");
    // sha256sum of the text
    EXPECT_EQ(text["sha256"].string(),
              "7431f2b8be0d1e174769b4382f51cf6bd7f4bd1dba749edc2af31dcfefcb53ed");
    const std::string page = read_file(folder.path() / "out" / "report.html");
    // On both axes of the map, and where the pointer is.
    EXPECT_NE(page.find("rotate(-90)\" x=\"-5\" dy=\"4\" text-anchor=\"end\">\u2581<"),
              std::string::npos);
    EXPECT_NE(page.find("text-anchor=\"end\">!<"), std::string::npos);
    EXPECT_NE(page.find("\"colLabels\": [\"F\", \"r\", \"e\", \"e\", \"\u2581\""),
              std::string::npos);
}

/// Meta's tokenizer.model of Llama 3 has ranks of tiktoken; named itself it puts nothing around.
TEST(TextOfAProgram, IsDividedByTheRanksOfLlama3) {
    const TemporaryDirectory folder;
    write_file(folder.path() / "tokenizer.model", ranks_of_all_pairs(128000));
    const std::string model = "random:llama-7b,layers=1,d=8,heads=2,ffn=8,vocab=128256";
    const Finished done =
        tsdiag(folder, {"probe", model, "--text", "Hi 1234<|eot_id|>", "--tokenizer",
                        "tokenizer.model", "--no-report", "--out", "out"});
    if (done.err.find("ICU") != std::string::npos) GTEST_SKIP() << "built without ICU";
    ASSERT_EQ(done.code, 0) << done.err;
    const Json text = run_of(folder.path() / "out")["input"]["text"];
    std::vector<std::int64_t> ids;
    for (const Json& id : text["ids"].array()) ids.push_back(id.integer());
    // Pairs of bytes have the ranks behind those of the 256 bytes.
    EXPECT_EQ(ids, (std::vector<std::int64_t>{256 + 256 * 'H' + 'i', ' ', 256 + 256 * '1' + '2',
                                              '3', '4', 128009}));
    write_file(folder.path() / "tokenizer.model", ranks_of_all_pairs(100000));
    const Finished refused = tsdiag(
        folder, {"probe", model, "--text", "Hi", "--tokenizer", "tokenizer.model", "--out", "no"});
    EXPECT_EQ(refused.code, 1);
    EXPECT_NE(refused.err.find("has 100000 ranks of tiktoken"), std::string::npos) << refused.err;
}

/// `text` by a tokenizer.json whose model is Unigram.
Finished by_unigram(const TemporaryDirectory& folder, const std::string& pattern,
                    const std::string& vocabulary, const std::string& text) {
    const std::string split = pattern.empty()
                                  ? "null"
                                  : R"({"type":"Split","pattern":{"Regex":")" + pattern +
                                        R"("},"behavior":"Isolated","invert":false})";
    write_file(folder / "t.json", R"({"pre_tokenizer":)" + split +
                                      R"(,"model":{"type":"Unigram","unk_id":0,"vocab":[)" +
                                      vocabulary + "]}}");
    write_file(folder / "text", text);
    return tsdiag(folder, {"probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--tokenizer",
                           "t.json", "--text-file", "text", "--no-report", "--out", "out"});
}

TEST(TextOfAProgram, AWrongRegularExpressionIsToldInWords) {
    const TemporaryDirectory folder;
    for (const auto& [pattern, said] :
         {std::pair{"(?<=a+)b", "has a look-behind of unlimited length"},
          {"a{3,2}", "has a wrong number of repetitions"},
          {"(a", "has a parenthesis without its other half"}}) {
        const Finished found = by_unigram(folder, pattern, R"(["?",0],["a",-1])", "ab");
        if (found.code == 3) GTEST_SKIP() << "built without ICU";
        EXPECT_EQ(found.code, 1) << pattern;
        expect_one_sentence(found.err);
        EXPECT_NE(found.err.find(said), std::string::npos) << found.err;
        EXPECT_EQ(found.err.find("U_"), std::string::npos) << found.err;
    }
}

TEST(TextOfAProgram, ALossWithoutATargetSaysWhatItNeeds) {
    const TemporaryDirectory folder;
    const std::string model = "random:gpt2,layers=1,d=8,heads=2,vocab=9,tokens=8";
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {3}, std::vector<std::int64_t>{0, 1, 0});
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{"--tokens", "1"}, {"--tokens", "3", "--mask", "mask.npy"}}) {
        std::vector<std::string> words = {"probe", model, "--loss", "lm", "--out", "out"};
        words.insert(words.end(), more.begin(), more.end());
        const Finished found = tsdiag(folder, words);
        EXPECT_EQ(found.code, 2);
        expect_one_sentence(found.err);
        EXPECT_NE(found.err.find("lm needs two tokens that its mask keeps; pass longer"),
                  std::string::npos)
            << found.err;
    }
}

TEST(TextOfAProgram, AFileGivesTheNumbersOfItsIds) {
    const TemporaryDirectory folder;
    const std::string sample = read_file(fs::path(char_gpt) / "sample_ids.txt");
    const Json vocab = Json::parse(read_file(fs::path(char_gpt) / "vocab.json"), "vocab.json");
    std::string text;
    std::istringstream ids(sample);
    for (std::int64_t id = 0; ids >> id;)
        for (const auto& [letter, its] : vocab.object())
            if (its.integer() == id) text += letter;
    write_file(folder.path() / "a.txt", text);
    ASSERT_EQ(tsdiag(folder, {"probe", char_gpt, "--text-file", "a.txt", "--samples", "2", "--loss",
                              "lm", "--no-report", "--out", "text"})
                  .code,
              0);
    ASSERT_EQ(tsdiag(folder, {"probe", char_gpt, "--input", "ids:" + char_gpt + "/sample_ids.txt",
                              "--samples", "2", "--loss", "lm", "--no-report", "--out", "ids"})
                  .code,
              0);
    EXPECT_EQ(read_file(folder.path() / "text" / "metrics.csv"),
              read_file(folder.path() / "ids" / "metrics.csv"));
}

/// BERT of 12 positions with a tokenizer of two letters.
void write_letters_bert(const fs::path& model) {
    fs::create_directories(model);
    for (const char* name : {"config.json", "model.safetensors"})
        fs::copy_file(fs::path(test_data()) / "golden/bert" / name, model / name);
    write_file(model / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n");
}

/// The values of metrics.csv by the words before them, but for the model's name.
std::map<std::string, double> values_of(const fs::path& result) {
    std::istringstream rows(read_file(result / "metrics.csv"));
    std::map<std::string, double> out;
    std::string row;
    std::getline(rows, row);
    while (std::getline(rows, row)) {
        std::size_t end = row.find(',');
        const std::size_t begin = end;
        for (int column = 0; column < 6; ++column) end = row.find(',', end + 1);
        const std::string value = row.substr(end + 1, row.find(',', end + 1) - end - 1);
        if (!value.empty()) out[row.substr(begin, end - begin)] = std::stod(value);
    }
    return out;
}

/// Lines of unequal length: the mean over them is that of the lines one by one, for an encoder,
/// whose tokens would see padding, and a decoder.
TEST(TextOfAProgram, LinesOfAFileAreSamplesOfTheirOwnLength) {
    const TemporaryDirectory folder;
    write_letters_bert(folder.path() / "bert");
    for (const auto& [model, lines] :
         {std::pair<std::string, std::vector<std::string>>("bert", {"a b a", "b", "a a b b a"}),
          {char_gpt, {"Free software", "Be", "It is"}}}) {
        const auto probe = [&](const std::string& text, const std::string& out) {
            write_file(folder.path() / "lines.txt", text);
            const Finished done =
                tsdiag(folder, {"probe", model, "--text-lines", "lines.txt", "--probes", "core",
                                "--no-report", "--force", "--out", out});
            EXPECT_EQ(done.code, 0) << done.err;
            return values_of(folder.path() / out);
        };
        std::map<std::string, double> sums;
        std::map<std::string, int> counts;
        std::string all;
        for (const std::string& line : lines) {
            all += line + "\r\n\n";
            for (const auto& [place, value] : probe(line, "alone"))
                sums[place] += value, counts[place] += 1;
        }
        const std::map<std::string, double> together = probe(all, "together");
        ASSERT_GT(together.size(), 20u);
        ASSERT_EQ(together.size(), sums.size());
        // Samples are the same bit for bit; their mean is rounded a few times, the sum above, too.
        for (const auto& [place, value] : together)
            EXPECT_NEAR(value, sums[place] / counts[place], 1e-14 * (1 + std::abs(sums[place])))
                << model << place;
        const Json input = run_of(folder.path() / "together")["input"];
        EXPECT_EQ(input["samples"].integer(), 3);
        const auto least = input["least_tokens"].integer(), most = input["tokens"].integer();
        EXPECT_LT(least, most);
        const Finished plotted = tsdiag(folder, {"plot", "together", "similarity", "--force"});
        EXPECT_THAT(plotted.out,
                    testing::HasSubstr(fmt::format("3 samples of {} to {} tokens", least, most)));
    }
    EXPECT_TRUE(run_of(folder.path() / "alone")["input"]["least_tokens"].is_null());
}

/// C(L) of layer 0, mean over its heads, by L/n.
std::map<double, double> accumulated(const fs::path& result) {
    std::istringstream rows(read_file(result / "curves.csv"));
    std::map<double, double> out;
    for (std::string row; std::getline(rows, row);) {
        std::vector<std::string> cells;
        std::istringstream line(row);
        for (std::string cell; std::getline(line, cell, ',');) cells.push_back(cell);
        if (cells.size() > 7 && cells[2] == "0" && cells[4].empty() && cells[5] == "local_acc")
            out[std::stod(cells[6])] = std::stod(cells[7]);
    }
    return out;
}

/// A curve over L/n is one curve, though the samples have others of n: at each point all of them
/// count.
TEST(TextOfAProgram, LinesOfUnequalLengthHaveOneCurve) {
    const TemporaryDirectory folder;
    write_letters_bert(folder.path() / "bert");
    const auto curve = [&](const std::string& text) {
        write_file(folder.path() / "lines.txt", text);
        const Finished done = tsdiag(folder, {"probe", "bert", "--text-lines", "lines.txt",
                                              "--probes", "local_acc", "--no-report", "--force"});
        EXPECT_EQ(done.code, 0) << done.err;
        return accumulated(folder.path() / "bert.tsdiag");
    };
    const std::map<double, double> longer = curve("a a b b a"), shorter = curve("a b a"),
                                   both = curve("a a b b a\na b a");
    ASSERT_EQ(longer.size(), 7u);
    ASSERT_EQ(shorter.size(), 5u);
    ASSERT_EQ(both.size(), 7u);
    for (int l = 1; l <= 7; ++l) {
        const double x = l / 7.0;
        const auto above = shorter.lower_bound(x);
        double low_x = 0, low_y = 0;
        if (above != shorter.begin())
            low_x = std::prev(above)->first, low_y = std::prev(above)->second;
        const double between =
            low_y + (above->second - low_y) * (x - low_x) / (above->first - low_x);
        ASSERT_TRUE(both.contains(x)) << l;
        // Sums of at most 7 shares, of numbers that are written in full.
        EXPECT_NEAR(both.at(x), (longer.at(x) + between) / 2, 1e-14) << l;
    }
}

TEST(TextOfAProgram, WhatBecomesOfLinesIsTold) {
    const TemporaryDirectory folder;
    write_letters_bert(folder.path() / "bert");
    write_file(folder.path() / "lines.txt", "a b a\n \nb\na a b b a\n");
    const auto probe = [&](const std::vector<std::string>& more) {
        return tsdiag(folder, with({"probe", "bert", "--text-lines", "lines.txt", "--probes",
                                    "t_sim", "--no-report", "--force", "--out", "out"},
                                   more));
    };
    const auto defaults = [&] { return run_of(folder.path() / "out")["input"]["defaults"].dump(); };
    ASSERT_EQ(probe({}).code, 0);
    EXPECT_EQ(run_of(folder.path() / "out")["input"]["tokens"].integer(), 7);
    EXPECT_NE(defaults().find("samples: without 1 blank line"), std::string::npos) << defaults();
    EXPECT_NE(defaults().find("tokens: 3 to 7, each sample its own number, none padded"),
              std::string::npos)
        << defaults();
    ASSERT_EQ(probe({"--tokens", "4"}).code, 0);
    EXPECT_NE(defaults().find("tokens: the first 2 of 2 longer lines"), std::string::npos)
        << defaults();
    ASSERT_EQ(probe({"--samples", "1"}).code, 0);
    EXPECT_EQ(run_of(folder.path() / "out")["input"]["tokens"].integer(), 5);
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {7},
                            std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 0});
    for (const auto& [more, said] : {std::pair<std::vector<std::string>, std::string>(
                                         {"--samples", "4"}, "lines.txt contains 3"),
                                     {{"--mask", "mask.npy"}, "none is padded; omit --mask"},
                                     {{"--tokens", "2"}, "2 are put around each text"}}) {
        const Finished refused = probe(more);
        EXPECT_EQ(refused.code, 2);
        expect_one_sentence(refused.err);
        EXPECT_NE(refused.err.find(said), std::string::npos) << refused.err;
    }
    // Of an em space and of a control character the tokenizer makes nothing.
    write_file(folder.path() / "lines.txt", "a b a\n\xe2\x80\x83\n\x01\nb\n");
    ASSERT_EQ(probe({}).code, 0);
    EXPECT_EQ(run_of(folder.path() / "out")["input"]["samples"].integer(), 2);
    EXPECT_NE(defaults().find("samples: without 2 blank lines"), std::string::npos) << defaults();
    // Before the states are measured, which may take hours.
    write_file(folder.path() / "lines.txt", "It is\nB\n");
    const Finished one = tsdiag(folder, {"probe", char_gpt, "--text-lines", "lines.txt", "--loss",
                                         "lm", "--no-report", "--out", "one"});
    EXPECT_EQ(one.code, 2);
    EXPECT_NE(one.err.find("a sample has one token alone"), std::string::npos) << one.err;
    write_file(folder.path() / "lines.txt", "a\n\xff\n");
    EXPECT_NE(probe({}).err.find("lines.txt: line 2"), std::string::npos);
}

/// Of "[CLS] a [SEP]" only "a" can be hidden, whatever is drawn.
TEST(TextOfAProgram, SpecialTokensAreNotPredicted) {
    const TemporaryDirectory folder;
    write_letters_bert(folder.path() / "bert");
    const auto probe = [&](const std::string& text, const std::string& seed) {
        return tsdiag(folder, {"probe", "bert", "--text", text, "--loss", "mlm:5", "--seed", seed,
                               "--probes", "gradients", "--no-report", "--force", "--out", "out"});
    };
    std::vector<double> values;
    for (const char* seed : {"0", "1", "5"}) {
        const Finished done = probe("a", seed);
        ASSERT_EQ(done.code, 0) << done.err;
        values.push_back(run_of(folder.path() / "out")["loss"]["value"].number());
    }
    EXPECT_EQ(values[0], values[1]);
    EXPECT_EQ(values[0], values[2]);
    const Finished refused = probe("[SEP]", "0");
    EXPECT_EQ(refused.code, 2);
    expect_one_sentence(refused.err);
    EXPECT_NE(refused.err.find("has special tokens alone ([CLS], [SEP]), which are not predicted"),
              std::string::npos)
        << refused.err;
    write_file(folder.path() / "lines.txt", "a b\n[SEP]\n");
    const Finished line = tsdiag(folder, {"probe", "bert", "--text-lines", "lines.txt", "--loss",
                                          "mlm:5", "--probes", "gradients", "--no-report"});
    EXPECT_EQ(line.code, 2);
    EXPECT_NE(line.err.find("--loss mlm: sample 1 has special tokens alone"), std::string::npos)
        << line.err;
}

TEST(TextOfAProgram, WhatCannotBeIsRefused) {
    const TemporaryDirectory folder;
    write_file(folder.path() / "bad.txt", "a\xff");
    write_file(folder.path() / "t.json",
               R"({"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":999},"merges":[]}})");
    write_file(folder.path() / "odd.json",
               R"({"version":"1.0","model":{"type":"Neural","vocab":{}}})");
    const auto refused = [&](std::vector<std::string> words, int code, const std::string& what) {
        words.insert(words.begin(), {"probe"});
        const Finished done = tsdiag(folder, words);
        EXPECT_EQ(done.code, code) << done.err;
        EXPECT_NE(done.err.find(what), std::string::npos) << done.err;
    };
    refused({char_gpt, "--text-file", "bad.txt"}, 1, "byte 1 is 0xff");
    refused({char_gpt, "--text", "Gr\u00fcn"}, 1, "has no token for '\u00fc'");
    refused({char_gpt, "--text", "a", "--text-file", "bad.txt"}, 2, "expected one of them");
    refused({char_gpt, "--text", "a", "--input", "ids:random"}, 2, "expected one of them");
    refused({char_gpt, "--text", "b", "--tokenizer", "t.json"}, 1, "has the id 999");
    refused({char_gpt, "--text", "b", "--tokenizer", "odd.json"}, 1, "'Neural' is not supported");
    refused({char_gpt, "--text", "abc", "--tokens", "4"}, 1, "is 3 tokens");
    refused({char_gpt, "--tokenizer", "t.json"}, 2, "has no effect");
    refused({"random:gpt2,layers=1,d=16,heads=2", "--text", "a"}, 2, "--tokenizer FILE");
    refused({"random:deit-tiny", "--text", "a"}, 2, "takes no text");
}

TEST(TextOfAProgram, AConfigurationThatContradictsTheTokenizerIsRefused) {
    const TemporaryDirectory folder;
    const fs::path model = folder.path() / "model";
    fs::create_directory(model);
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
        fs::copy_file(fs::path(char_gpt) / file, model / file);
    const auto probe = [&](const std::string& config, const std::string& tokenizer) {
        write_file(model / "tokenizer_config.json", config);
        std::vector<std::string> words = {"probe",    "model", "--text",      "a",
                                          "--probes", "t_sim", "--no-report", "--force"};
        if (!tokenizer.empty()) words.insert(words.end(), {"--tokenizer", tokenizer});
        return tsdiag(folder, words);
    };
    for (const std::string token : {R"("e")", R"({"content": "e"})"}) {
        const std::string asks = R"({"add_bos_token": true, "bos_token": )" + token + "}";
        const Finished refused = probe(asks, "");
        EXPECT_EQ(refused.code, 1);
        EXPECT_NE(refused.err.find("add_bos_token is true"), std::string::npos) << refused.err;
        EXPECT_EQ(probe(asks, "model/tokenizer.json").code, 0);
    }
    EXPECT_EQ(probe(R"({"add_bos_token": false, "bos_token": "e"})", "").code, 0);
    EXPECT_EQ(probe(R"({"add_eos_token": true, "eos_token": "e"})", "").code, 1);
}

TEST(TextOfAProgram, AVocabularyBesideTheTokenizerThatContradictsItIsTold) {
    using testing::HasSubstr;
    using testing::Not;
    const TemporaryDirectory folder;
    const fs::path model = folder.path() / "model";
    fs::create_directory(model);
    for (const char* file : {"config.json", "model.safetensors"})
        fs::copy_file(fs::path(char_gpt) / file, model / file);
    const auto said = [&](const std::string& where) {
        const Finished done =
            tsdiag(folder, {"probe", "model", "--tokenizer", where, "--text", "ab", "--probes",
                            "t_sim", "--no-report", "--out", "out", "--force"});
        EXPECT_EQ(done.code, 0) << done.err;
        return Json::parse(read_file(folder / "out/run.json"), "run.json")["warnings"].dump();
    };
    const auto put = [&](const char* name, const std::string& text) {
        write_file(model / name, text);
    };
    const std::string followed =
        "tokenizer.json is followed, as by the fast tokenizers of Transformers, though ";
    put("tokenizer.json", R"({"version":"1.0","model":{"type":"BPE","merges":["a b"],"vocab":)"
                          R"({"a":1,"b":2,"ab":3}}})");
    put("vocab.json", R"({"b":1,"a":2,"ab":3,"c":4})");
    EXPECT_THAT(said("model"), Not(HasSubstr(followed)));  // which needs merges
    put("merges.txt", "#version: 0.2\na b\n");
    EXPECT_THAT(
        said("model"),
        HasSubstr(followed + "vocab.json gives 'a' the id 2, which has 1 in it (and 1 more); "
                             "remove the file that is wrong"));
    EXPECT_THAT(said("model/tokenizer.json"), Not(HasSubstr(followed)));
    put("vocab.json", R"({"a":1,"b":2,"ab":3,"c":4})");
    EXPECT_THAT(said("model"), Not(HasSubstr(followed)));
    put("merges.txt", "#version: 0.2\nb a\n");
    EXPECT_THAT(said("model"),
                HasSubstr(followed + "merge 0 of merges.txt is 'b a', and 'a b' in it; remove"));
    put("merges.txt", "#version: 0.2\na b\nab a\n");
    EXPECT_THAT(said("model"), HasSubstr(followed + "merges.txt has 2 merges, and it has 1;"));
    put("vocab.json", "version https://git-lfs.github.com/spec/v1\n");  // in place of the file
    EXPECT_THAT(said("model"), HasSubstr(followed + "vocab.json cannot be read; remove"));

    put("tokenizer.json",
        R"({"version":"1.0","model":{"type":"WordPiece","unk_token":"u","max_input_chars_per_word")"
        R"(:100,"continuing_subword_prefix":"##","vocab":{"u":0,"ab":1,"c":2}}})");
    put("vocab.txt", "u\nc\nab\n");
    EXPECT_THAT(said("model"), HasSubstr(followed + "vocab.txt gives 'ab' the id 2, which has 1"));
    put("vocab.txt", "u\nab\nc\nd\n");
    EXPECT_THAT(said("model"), Not(HasSubstr(followed)));

    // Names of what is put around a text, and an added token with the id of another.
    const std::string wrapped =
        R"({"version":"1.0","model":{"type":"BPE","merges":["a b"],"vocab":{"a":1,"b":2,"ab":3,)"
        R"("[C]":4,"[S]":5}},"post_processor":{"type":"BertProcessing","sep":["[S]",5],"cls":["[C]",4]})";
    put("tokenizer.json", wrapped + "}");
    fs::remove(model / "vocab.json");
    put("tokenizer_config.json", R"({"cls_token":"[C]","bos_token":"a","eos_token":"[S]"})");
    EXPECT_THAT(said("model"), Not(HasSubstr("around a text")));
    put("tokenizer_config.json", R"({"bos_token":"a"})");
    EXPECT_THAT(said("model"),
                HasSubstr("tokenizer.json is followed, which puts '[C]' around a text, though "
                          "bos_token of tokenizer_config.json is 'a'; classes"));
    put("tokenizer_config.json", R"({"sep_token":{"content":"b"}})");
    EXPECT_THAT(said("model"), HasSubstr("which puts '[S]' around a text, though sep_token of"));
    // Embeddings of Qwen end with their padding.
    put("tokenizer_config.json", R"({"eos_token":"b","pad_token":"[S]"})");
    EXPECT_THAT(said("model"), Not(HasSubstr("around a text")));
    put("tokenizer_config.json", "{}");
    put("tokenizer.json", wrapped + R"(,"added_tokens":[{"id":2,"content":"<x>"}]})");
    const Finished refused = tsdiag(folder, {"probe", "model", "--text", "ab", "--no-report"});
    EXPECT_EQ(refused.code, 1);
    expect_one_sentence(refused.err);
    EXPECT_THAT(refused.err, HasSubstr("'b' and '<x>' have the id 2."));
}

TEST(TextOfAProgram, UnitsOfAnotherTokenizerAreNotUsed) {
    const auto tokenizer = [](int a, int b) {
        return R"({"version":"1.0","model":{"type":"BPE","merges":[],"vocab":{"a":)" +
               std::to_string(a) + R"(,"b":)" + std::to_string(b) + "}}}";
    };
    for (const auto& [model, place] : {std::pair<std::string, std::string>("model", "model"),
                                       {"model/model.safetensors", "model"},
                                       {char_gpt, "elsewhere"}}) {
        const TemporaryDirectory folder;
        for (const char* name : {"model", "elsewhere"}) fs::create_directory(folder.path() / name);
        for (const char* file : {"config.json", "model.safetensors"})
            fs::copy_file(fs::path(char_gpt) / file, folder.path() / "model" / file);
        const auto probe = [&](const std::vector<std::string>& more) {
            std::vector<std::string> words = {"probe",    model,       "--text",
                                              "abbb",     "--samples", "2",
                                              "--probes", "t_sim",     "--no-report"};
            if (place == "elsewhere") words.insert(words.end(), {"--tokenizer", place});
            words.insert(words.end(), more.begin(), more.end());
            const Finished done = tsdiag(folder, words);
            EXPECT_EQ(done.code, 0) << done.err;
            return done.out;
        };
        const fs::path file = folder.path() / place / "tokenizer.json";
        write_file(file, tokenizer(1, 2));
        probe({"--part", "1/2", "--out", "out"});
        write_file(file, tokenizer(3, 4));
        EXPECT_EQ(probe({"--out", "out"}).find("reused"), std::string::npos) << model;
        probe({"--out", "alone"});
        EXPECT_EQ(read_file(folder.path() / "out" / "metrics.csv"),
                  read_file(folder.path() / "alone" / "metrics.csv"))
            << model;
    }
}

}  // namespace
}  // namespace tsdiag::test
