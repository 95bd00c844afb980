#include "program.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "support/places.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

namespace tsdiag::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
namespace fs = std::filesystem;

constexpr const char* tiny = "random:gpt2,layers=2,d=24,heads=3,vocab=50";

std::vector<std::string> probe_words(const std::string& model, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"probe", model,   "--no-report", "--tokens",
                                      "8",     "--out", "out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

TEST(Help, OfEveryCommandHasExamples) {
    TemporaryDirectory folder;
    for (const char* command : {"probe", "check", "figure", "inspect", "init", "list", "report"}) {
        const Finished help = tsdiag(folder, {command, "--help"});
        EXPECT_EQ(help.code, 0) << command;
        EXPECT_THAT(help.out, HasSubstr("Example")) << command;
        EXPECT_THAT(help.out, HasSubstr(std::string("Usage: tsdiag ") + command));
        EXPECT_THAT(help.err, IsEmpty());
    }
    EXPECT_EQ(tsdiag(folder, {"--version"}).code, 0);
    EXPECT_THAT(tsdiag(folder, {"--help"}).out, HasSubstr("Exit codes"));
}

TEST(Help, IsTheAnswerToNothingAndToHelp) {
    TemporaryDirectory folder;
    const auto same = [&](std::vector<std::string> asked, std::vector<std::string> known) {
        const Finished answer = tsdiag(folder, std::move(asked));
        EXPECT_EQ(answer.code, 0) << answer.err;
        EXPECT_THAT(answer.err, IsEmpty());
        EXPECT_EQ(answer.out, tsdiag(folder, std::move(known)).out);
    };
    same({}, {"--help"});
    same({"help"}, {"--help"});
    same({"help", "check"}, {"check", "--help"});  // which examined every statement
    same({"-V"}, {"--version"});
}

/// The terminal wraps lines: the words between the first two backticks.
std::string advised(const std::string& text) {
    const std::size_t begin = text.find('`'), end = text.find('`', begin + 1);
    if (end == std::string::npos) return "";
    return std::regex_replace(text.substr(begin + 1, end - begin - 1), std::regex("\\s+"), " ");
}

TEST(Verdict, TellsACollapseFirstAndARemedyThatWorks) {
    TemporaryDirectory folder;
    const std::string sizes = ",layers=16,d=16,heads=2";
    const Finished collapsed = tsdiag(folder, probe_words("random:post-norm" + sizes));
    EXPECT_THAT(collapsed.out, HasSubstr("\n\nTokens collapse: after layer "));
    const std::string command = advised(collapsed.out), begin = "tsdiag probe ";
    ASSERT_TRUE(command.starts_with(begin)) << command;
    EXPECT_THAT(tsdiag(folder, probe_words(command.substr(begin.size()), {"--force"})).out,
                HasSubstr("\n\nTokens stay distinct: t_sim"));
    // A file cannot be drawn with another key.
    EXPECT_EQ(tsdiag(folder, {"init", "random:post-norm" + sizes, "--out", "model"}).code, 0);
    const Finished file = tsdiag(folder, probe_words("model", {"--force"}));
    EXPECT_THAT(file.out, HasSubstr("\n\nTokens collapse: after layer "));
    EXPECT_EQ(advised(file.out), "tsdiag figure tse.fig6");
}

struct Usage {
    const char* what;
    std::vector<std::string> words;
    const char* message;
};
class EveryUsageError : public testing::TestWithParam<Usage> {};

TEST_P(EveryUsageError, IsOneSentenceAndExits2) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, GetParam().words);
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(found.out, IsEmpty());
    expect_one_sentence(found.err);
    EXPECT_THAT(found.err, HasSubstr(GetParam().message));
    EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

const Usage usages[] = {
    {"empty", {""}, "'' is not a known command"},
    {"help_of_nothing", {"help", "prob"}, "'prob' is not a known command of tsdiag; did you mean"},
    {"command", {"prob", "x"}, "did you mean probe?"},
    {"option", {"probe", tiny, "--token", "5"}, "did you mean --tokens?"},
    {"argument", {"inspect", tiny, "second"}, "'second' is not a known argument"},
    {"no_model", {"probe"}, "MODEL is required"},
    {"no_value", {"probe", tiny, "--tokens"}, "--tokens"},
    {"count", {"probe", tiny, "--tokens", "many"}, "'many' is not an integer"},
    {"zero", {"probe", tiny, "--samples", "0"}, "from 1 to"},
    {"negative", {"probe", tiny, "--trials", "-3"}, "--trials"},
    {"threads", {"probe", tiny, "--threads", "99999"}, "1 to 1024"},
    {"seed", {"probe", tiny, "--seed", "-1"}, "--seed"},
    {"size", {"probe", tiny, "--memory", "lots"}, "512M"},
    {"size_zero", {"probe", tiny, "--memory", "0M"}, "512M"},
    {"layers", {"probe", tiny, "--layers", "3:1"}, "'3:1' is not"},
    {"layers_beyond", {"probe", tiny, "--layers", "0:7"}, "layers 0 to 1"},
    {"heads", {"probe", tiny, "--heads", "1,x"}, "'1,x' is not"},
    {"maps", {"probe", tiny, "--maps", "1"}, "LAYER:HEAD"},
    {"scale", {"probe", tiny, "--scale", "nan"}, "finite"},
    // before anything is looked for
    {"scale_zero", {"probe", "none.npz", "--scale=0"}, "--scale 0: expected a number above 0"},
    {"scale_negative", {"probe", "none.npz", "--scale", "-1"}, "--scale -1: expected"},
    {"gain", {"probe", "none.npz", "--a2", "-1"}, "--a2 -1: is a squared gain, expected 0 or more"},
    {"gain_nan", {"probe", "none.npz", "--a2", "nan"}, "'nan' is not a finite number"},
    {"tolerance", {"probe", "none.npz", "--tolerance", "0"}, "expected 1e-13 to 0.01"},
    {"tolerance_negative", {"probe", "none.npz", "--tolerance", "-1e-6"}, "1e-13 to 0.01"},
    {"batch", {"probe", "none.npz", "--batch", "0"}, "from 1 to"},
    {"checked_heads", {"probe", "none.npz", "--cross-check", "-2"}, "of at least 1"},
    {"confidence", {"gradients", "none.csv", "--confidence", "2"}, "'2' is not between 0 and 1"},
    {"confidence_one", {"gradients", "none.csv", "--confidence=1"}, "'1' is not between 0 and 1"},
    {"confidence_zero", {"gradients", "none.csv", "--confidence=0"}, "'0' is not between 0 and 1"},
    {"resamples", {"gradients", "none.csv", "--resamples", "-5"}, "from 100 to"},
    {"fdr", {"compare", "none", "nowhere", "--fdr", "1"}, "'1' is not between 0 and 1"},
    {"fdr_negative", {"compare", "none", "nowhere", "--fdr", "-0.1"}, "is not between 0 and 1"},
    {"false_alarms", {"watch", "none", "--false-alarms", "1"}, "1 is not between 0 and 1"},
    {"every", {"watch", "none", "--every", "-1"}, "from 0 to 86400"},
    {"check_confidence", {"check", "tse", "--confidence", "-0.5"}, "is not between 0 and 1"},
    {"check_tokens", {"check", "tse", "--n", "0"}, "of at least 1"},
    {"nodes", {"submit", "--nodes", "0", "check", "--out", "x"}, "from 1 to"},
    {"out_of_probe", {"probe", tiny, "--out", ""}, "--out: is empty, expected a path"},
    {"out_of_watch", {"watch", ".", "--out", ""}, "--out: is empty"},
    {"out_of_gradients", {"gradients", "none.csv", "--out", ""}, "--out: is empty"},
    {"out_of_compare", {"compare", "none", "nowhere", "-o", ""}, "--out: is empty"},
    {"out_of_figure", {"figure", "tse.fig2", "--out", ""}, "--out: is empty"},
    {"out_of_check", {"check", "tse", "--out", ""}, "--out: is empty"},
    {"out_of_init", {"init", tiny, "--out", ""}, "--out: is empty"},
    {"out_of_export", {"export", "none", "--to", "jsonl", "--out", ""}, "--out: is empty"},
    {"out_of_manual", {"manual", "--out", ""}, "--out: is empty"},
    {"absent_loss", {"probe", "none.npz", "--loss=foo"}, "unknown loss 'foo'"},
    {"absent_mask_id", {"probe", "none.npz", "--loss=mlm:x"}, "'mlm:x' is not valid"},
    {"absent_classes", {"probe", "none.npz", "--loss=classify:1"}, "'classify:1' is not valid"},
    {"absent_labels", {"probe", "none.npz", "--loss=lm", "--labels", "x"}, "--loss classify"},
    {"absent_input", {"probe", "none.npz", "--input=foo"}, "unknown input 'foo'"},
    {"absent_file_of_ids", {"probe", "none.npz", "--input=ids:"}, "unknown input 'ids:'"},
    {"absent_attention", {"probe", "none.npz", "--attention=foo"}, "unknown attention 'foo'"},
    {"two_texts",
     {"probe", "none.npz", "--text", "a", "--text-file", "b"},
     "--text and --text-file: expected one of them"},
    {"text_and_lines",
     {"probe", "none.npz", "--text-file", "a", "--text-lines", "b"},
     "--text-file and --text-lines: expected one of them"},
    {"two_inputs",
     {"probe", "none.npz", "--text", "a", "--input", "gaussian"},
     "--text and --input: expected one of them"},
    {"pictures_and_text",
     {"probe", "none.npz", "--images", "b", "--text", "a"},
     "--images and --text: expected one of them"},
    {"absent_text", {"probe", "none.npz", "--tokenizer", "x"}, "no effect without --text"},
    {"watched_loss", {"watch", "none", "--loss=foo"}, "unknown loss 'foo'"},
    {"watched_input", {"watch", "none", "--input=foo"}, "unknown input 'foo'"},
    {"from_to", {"gradients", "none.csv", "--from=5", "--to=3"}, "--from 5: is after --to 3"},
    {"figure_name", {"figure", "tse.fig33"}, "did you mean tse.fig3?"},
    {"figure_scale", {"figure", "tse.fig2", "--scale", "huge"}, "'huge' is not quick or paper"},
    {"figure_reading", {"figure", "tse.fig2", "--reading", "var_w=1/d"}, "did you mean 'var_v'?"},
    {"figure_value", {"figure", "tse.fig2", "--reading", "layers=0"}, "layers=0 is not a whole"},
    {"figure_word", {"figure", "tse.fig2", "--reading", "var_v=big"}, "1/d, h/d, xavier, torch"},
    {"figure_form", {"figure", "tse.fig2", "--reading", "layers"}, "KEY=VALUE"},
    {"figure_trials", {"figure", "tse.fig2", "--trials", "0"}, "from 1 to"},
    {"figure_model", {"figure", "tse.fig2", "--model", "x"}, "devil.fig2a"},
    {"figure_heads",
     {"figure", "tse.fig2", "--reading", "heads=7"},
     "heads=7 is not a divisor of d"},
    {"figure_equation",
     {"figure", "poly.table6", "--reading", "equations=heat"},
     "convection, reaction"},
    {"dtype", {"probe", tiny, "--dtype", "f16"}, "'f16' is not f32 or f64"},
    {"input", {"probe", tiny, "--input", "noise"}, "unknown input 'noise'"},
    {"probes", {"probe", tiny, "--probes", "t_simm"}, "t_sim"},
    {"loss", {"probe", tiny, "--loss", "squared"}, "did you mean square?"},
    {"loss_of_states",
     {"probe", "random:post-norm,layers=1,d=8,heads=2", "--loss", "lm"},
     "gaussian"},
    {"labels", {"probe", tiny, "--labels", "labels.txt"}, "--loss classify"},
    {"probe_of_a_loss", {"probe", tiny, "--probes", "grad_norm"}, "pass --loss"},
    {"model_key", {"probe", "random:gpt2,layer=3"}, "layers"},
    {"model_name", {"probe", "random:gpt3"}, "gpt2"},
    {"channels", {"probe", "random:xcit-nano,attention=linear"}, "supports softmax or polynomial"},
    {"patches", {"probe", "random:xcit-nano,patch=12"}, "2, 4, 8 or 16"},
    {"windows", {"probe", "random:swin-tiny,window=5"}, "windows of 5 x 5 do not divide"},
    {"stages",
     {"probe", "random:swin-tiny,image=36,depths=1-1,window=3"},
     "the 9 x 9 patches of stage 0 do not merge by twos"},
    {"trials_of_a_file",
     {"probe", test_data() + "/golden/bert", "--trials", "2"},
     "use --samples to draw"},
    {"trace_option", {"probe", tiny, "--attention", "softmax"}, "describe a trace"},
    {"list", {"list", "metric"}, "did you mean tsdiag list metrics?"},
    {"list_check", {"list", "check"}, "did you mean tsdiag list claims?"},
    {"figure_of_a_claim",
     {"figure", "tse.thm2.6"},
     "'tse.thm2.6' is a statement of a paper: tsdiag check tse.thm2.6."},
    {"check_of_a_figure",
     {"check", "tse.fig2"},
     "'tse.fig2' is a figure of a paper: tsdiag figure tse.fig2."},
    {"probe_of_a_claim", {"probe", "tse.thm"}, "tsdiag check tse.thm."},
    {"probe_of_a_metric", {"probe", "t_sim"}, "'t_sim' is a metric: tsdiag list metrics."},
    {"check_of_a_model", {"check", tiny}, "is a model: tsdiag probe"},
    {"check_document_in_a_folder", {"check", "--markdown", "--out", "x"}, "drop --json and --out"},
    {"figure_of_a_path", {"figure", test_data()}, "is a path, perhaps of a model: tsdiag probe"},
    {"figure_of_reports", {"figure", "mixing"}, "a figure of reports: tsdiag probe MODEL."},
    {"init", {"init", "gpt2", "-o", "x"}, "random:NAME"},
    {"init_out", {"init", "random:gpt2"}, "--out"},
};
INSTANTIATE_TEST_SUITE_P(Usages, EveryUsageError, testing::ValuesIn(usages),
                         [](const auto& test) { return test.param.what; });

struct Bad {
    const char* what;
    void (*write)(const TemporaryDirectory& folder);
    std::vector<std::string> words;
    const char* message;
};
class EveryBadInput : public testing::TestWithParam<Bad> {};

TEST_P(EveryBadInput, IsOneSentenceAndLeavesNothing) {
    TemporaryDirectory folder;
    GetParam().write(folder);
    const std::vector<std::string> before = names_in(folder.path());
    const Finished found = tsdiag(folder, GetParam().words);
    EXPECT_EQ(found.code, 1) << found.err;
    EXPECT_THAT(found.out, IsEmpty());
    expect_one_sentence(found.err);
    EXPECT_THAT(found.err, HasSubstr(GetParam().message));
    EXPECT_EQ(names_in(folder.path()), before);
}

void ids(const TemporaryDirectory& folder, const char* text) {
    write_file(folder / "ids.txt", text);
}

void half_a_model(const TemporaryDirectory& folder) {
    const std::string whole = read_file(test_data() + "/golden/bert/model.safetensors");
    write_file(folder / "half.safetensors", whole.substr(0, whole.size() / 2));
}

void mask(const TemporaryDirectory& folder, std::vector<std::int64_t> values) {
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {std::int64_t(values.size())}, values);
}

const Bad bad_inputs[] = {
    {"missing", [](auto&) {}, probe_words("none.pt"), "none.pt"},
    {"empty", [](auto& f) { write_file(f / "empty.pt", ""); }, probe_words("empty.pt"), "empty.pt"},
    {"text", [](auto& f) { write_file(f / "a.txt", "hello\n"); }, probe_words("a.txt"), "a.txt"},
    {"lfs",
     [](auto& f) {
         write_file(f / "m.safetensors",
                    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
     },
     probe_words("m.safetensors"), "lfs"},
    {"truncated", half_a_model, probe_words("half.safetensors"), "half.safetensors"},
    {"id_range", [](auto& f) { ids(f, "1 2 50"); }, probe_words(tiny, {"--input", "ids:ids.txt"}),
     "expected 0 to 49"},
    {"id_words", [](auto& f) { ids(f, "to be or not"); },
     probe_words(tiny, {"--input", "ids:ids.txt"}), "'to'"},
    {"id_few", [](auto& f) { ids(f, "1 2 3"); }, probe_words(tiny, {"--input", "ids:ids.txt"}),
     "contains 3 ids"},
    {"id_booleans",
     [](auto& f) {
         write_npy<std::uint8_t>(f / "ids.npy", "|b1", {8},
                                 std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 0, 0});
     },
     probe_words(tiny, {"--input", "ids:ids.npy"}), "holds booleans"},
    {"mask_all",
     [](auto& f) {
         mask(f, {0, 0, 0, 0, 0, 0, 0, 0});
     },
     probe_words(tiny, {"--mask", "mask.npy"}), "hides all 8"},
    {"mask_length",
     [](auto& f) {
         mask(f, {1, 1});
     },
     probe_words(tiny, {"--mask", "mask.npy"}), "(2), expected (8)"},
    {"config", [](auto& f) { write_file(f / "c.json", "{"); },
     probe_words(test_data() + "/golden/bert/model.safetensors", {"--config", "c.json"}), "c.json"},
};
INSTANTIATE_TEST_SUITE_P(Inputs, EveryBadInput, testing::ValuesIn(bad_inputs),
                         [](const auto& test) { return test.param.what; });

TEST(BadFiles, EveryPrefixAndMutationEndsInWords) {
    TemporaryDirectory folder;
    const std::string whole = read_file(test_data() + "/golden/nanogpt/ckpt.pt");
    ASSERT_FALSE(whole.empty());
    for (int i = 0; i < 24; ++i) {
        std::string text = whole;
        if (i < 12)
            text.resize(whole.size() * std::size_t(i) / 12);
        else
            for (std::size_t at = std::size_t(i) * 131; at < text.size(); at += 997)
                text[at] = char(text[at] ^ 0x55);
        write_file(folder / "bad.pt", text);
        const Finished found = tsdiag(folder, probe_words("bad.pt"));
        if (found.code == 0) {  // mutated weights are a valid model
            fs::remove_all(folder / "out");
            continue;
        }
        EXPECT_TRUE(found.code == 1 || found.code == 2) << i << ": " << found.code << found.err;
        expect_one_sentence(found.err);
        EXPECT_THAT(names_in(folder.path()), ElementsAre("bad.pt"));
    }
}

TEST(Probe, WritesTablesAndSaysWhatWasRun) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, probe_words(tiny));
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.err, IsEmpty());  // no progress bar when piped
    EXPECT_THAT(found.out, Not(HasSubstr("\x1b")));
    EXPECT_THAT(found.out, HasSubstr("t_sim"));
    EXPECT_THAT(found.out, HasSubstr("ids:random, 8 tokens, 1 sample"));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("out"));
    EXPECT_THAT(names_in(folder / "out"),
                ElementsAre("curves.csv", "files.sha256", "metrics.csv", "run.json"));
    const Json run = Json::parse(read_file(folder / "out/run.json"), "run.json");
    EXPECT_EQ(run["command"].array()[1].string(), "probe");
    EXPECT_FALSE(run["tsdiag"].string().empty());
    EXPECT_THAT(read_file(folder / "out/metrics.csv"),
                StartsWith("model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,"
                           "note,of,unit\n"));
}

/// The quadratic part of FLASH divides by the length of a group: where it is longer than the
/// sample, P would be next to nothing.
TEST(Probe, AFlashThatIsDrawnHasAttentionAndSaysWhereAGroupIsTooLong) {
    TemporaryDirectory folder;
    const std::string model = "random:bert-base,layers=1,d=16,heads=2,vocab=50,tokens=8,attention=";
    for (const std::string variant : {"flash", "flash_quad"}) {
        const Finished found = tsdiag(folder, probe_words(model + variant, {"--force"}));
        ASSERT_EQ(found.code, 0) << found.err;
        EXPECT_THAT(found.out, Not(HasSubstr("a group of")));
        const std::string table = read_file(folder / "out/metrics.csv");
        const std::regex norm("attn,0,,attn_fro,([^,]*)");
        std::smatch at;
        ASSERT_TRUE(std::regex_search(table, at, norm)) << table;
        EXPECT_GT(std::stod(at[1]), 0.01) << variant;
    }
    const std::string all = tsdiag(folder, probe_words(model + "flash,group=256", {"--force"})).out;
    EXPECT_THAT(std::regex_replace(all, std::regex("\\s+"), " "),
                HasSubstr("attention 'flash' of layer 0: a group of 256 positions is longer than a "
                          "sample of 8 tokens: S/256 in the quadratic part of P is 32 times "
                          "smaller"));
}

/// Of a checkpoint and one input, the seed of the run decides what its attention draws.
TEST(Probe, TheFileOrTheSeedDecidesWhatAnAttentionDraws) {
    TemporaryDirectory folder;
    std::ofstream(folder / "ids.txt") << "3 1 4 1 5 9 2 6\n";
    const auto table = [&](const char* model, const char* seed) {
        const Finished found =
            tsdiag(folder, probe_words(model, {"--force", "--seed", seed, "--input", "ids:ids.txt",
                                               "--probes", "core"}));
        EXPECT_EQ(found.code, 0) << found.err;
        return read_file(folder / "out/metrics.csv");
    };
    const auto init = [&](const std::string& attention) {
        const std::string model = "random:bert-base,layers=1,d=16,heads=2,vocab=50,tokens=8";
        std::filesystem::remove_all(folder / "model");
        ASSERT_EQ(tsdiag(folder,
                         {"init", model + ",attention=" + attention, "-o", "model", "--seed", "1"})
                      .code,
                  0);
    };
    // As in a file of another tool.
    const auto forget = [&] {
        Json config = Json::parse(read_file(folder / "model/config.json"), "config.json"), own;
        for (const auto& [key, value] : config["tsdiag"].object())
            if (key != "draws") own.set(key, value);
        write_file(folder / "model/config.json", config.set("tsdiag", own).dump());
    };
    for (const char* attention : {"performer,features=3", "reformer,chunk=2,rounds=1",
                                  "bigbird,block=1,random=1,global=0,neighbours=0"}) {
        SCOPED_TRACE(attention);
        init(attention);
        const std::string own = table("model", "1");
        EXPECT_TRUE(own == table("model", "2"));
        forget();
        EXPECT_TRUE(own == table("model", "1"));
        EXPECT_FALSE(own == table("model", "2"));
    }
    init("softmax");
    forget();
    EXPECT_TRUE(table("model", "1") == table("model", "2"));
}

TEST(Probe, TheSameSeedGivesTheSameFiles) {
    TemporaryDirectory folder;
    for (const char* kept : {"first", "second"}) {
        ASSERT_EQ(tsdiag(folder, {"probe", tiny, "--tokens", "8", "--seed", "4", "--maps", "0:1",
                                  "-o", "out"})
                      .code,
                  0);
        fs::rename(folder.path() / "out", folder.path() / kept);
    }
    const fs::path first = folder.path() / "first", second = folder.path() / "second";
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(first)) {
        const fs::path name = fs::relative(entry.path(), first);
        if (entry.is_directory() || name == "run.json" || name == "files.sha256")
            continue;  // run.json has seconds
        EXPECT_EQ(read_file(entry.path()), read_file(second / name)) << name;
    }
}

TEST(Probe, QuietSaysNothing) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, probe_words(tiny, {"-q"}));
    EXPECT_EQ(found.code, 0);
    EXPECT_THAT(found.out + found.err, IsEmpty());
}

TEST(Probe, ColourIsForTerminalsAndThoseWhoForceIt) {
    TemporaryDirectory folder;
    EXPECT_THAT(tsdiag(folder, probe_words(tiny), {"CLICOLOR_FORCE=1", "TERM=xterm"}).out,
                HasSubstr("\x1b["));
    EXPECT_THAT(tsdiag(folder, probe_words(tiny), {"CLICOLOR_FORCE=1", "NO_COLOR=1"}).out,
                Not(HasSubstr("\x1b[")));
}

TEST(Output, ForeignFilesAreNeverReplaced) {
    TemporaryDirectory folder;
    fs::create_directory(folder / "out");
    write_file(folder / "out/mine.txt", "mine");
    const Finished refused = tsdiag(folder, probe_words(tiny));
    EXPECT_EQ(refused.code, 2);
    expect_one_sentence(refused.err);
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("mine.txt"));
    ASSERT_EQ(tsdiag(folder, probe_words(tiny, {"--force"})).code, 0);
    EXPECT_THAT(names_in(folder / "out"),
                ElementsAre("curves.csv", "files.sha256", "metrics.csv", "mine.txt", "run.json"));
    EXPECT_EQ(read_file(folder / "out/mine.txt"), "mine");
}

TEST(Output, ARunReplacesAnEarlierOne) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, probe_words(tiny, {"--maps", "0:0"})).code, 0);
    const std::string before = read_file(folder / "out/metrics.csv");
    ASSERT_EQ(tsdiag(folder, probe_words(tiny, {"--seed", "9"})).code, 0);
    EXPECT_NE(before, read_file(folder / "out/metrics.csv"));
    EXPECT_THAT(names_in(folder / "out"), ElementsAre("curves.csv", "files.sha256", "metrics.csv",
                                                      "run.json"));  // no stale maps
}

TEST(Output, ParentsAreMadeAndUnmade) {
    TemporaryDirectory folder;
    EXPECT_EQ(
        tsdiag(folder, {"probe", tiny, "--no-report", "-q", "--tokens", "8", "-o", "a/b/c"}).code,
        0);
    EXPECT_TRUE(fs::exists(folder / "a/b/c/metrics.csv"));
    EXPECT_EQ(tsdiag(folder, {"probe", "none.pt", "-o", "x/y/z"}).code, 1);
    EXPECT_FALSE(fs::exists(folder / "x"));
}

/// Its lock is neither there nor can it be created.
TEST(Output, AFileSystemWithoutNewFilesIsOneSentence) {
    TemporaryDirectory folder;
    const Finished found =
        tsdiag(folder, {"probe", tiny, "--tokens", "4", "--out", "/proc/result"});
    EXPECT_EQ(found.code, 1);
    expect_one_sentence(found.err);
    EXPECT_THAT(found.err, HasSubstr("/proc/result: cannot be written"));
}

/// In two blocks nothing can be kept; in 8 the layers can, where the machine is so slow that they
/// are worth it.
TEST(Output, AFullDiskIsOneSentence) {
    for (const int blocks : {2, 8}) {
        TemporaryDirectory folder;
        const std::string command = fmt::format(
            "trap '' XFSZ; ulimit -f {}; exec \"$TSDIAG\" probe '{}' --no-report "
            "--tokens 8 --out out",
            blocks, tiny);
        const Finished found = Running::shell(folder.path(), command).wait();
        EXPECT_EQ(found.code, 1) << found.err;
        expect_one_sentence(found.err);
        EXPECT_FALSE(fs::exists(folder / "out"));
        if (blocks == 2) {
            EXPECT_THAT(names_in(folder.path()), IsEmpty());
        }
    }
}

TEST(Output, AClosedPipeIsNoError) {
    TemporaryDirectory folder;
    const Finished found =
        Running::shell(folder.path(), std::string("\"$TSDIAG\" inspect '") + tiny +
                                          "' | head -n 1; \"$TSDIAG\" list metrics > /dev/full")
            .wait();
    EXPECT_EQ(found.code, 1);  // the exit code for a full disk
    expect_one_sentence(found.err);
}

/// Before a trial is kept, and afterwards.
TEST(Interruption, LeavesNothingAndExits130) {
    for (const int signal : {SIGINT, SIGTERM}) {
        TemporaryDirectory folder;
        Running running(folder.path(),
                        {"probe", "random:post-norm,d=128,heads=4,layers=12", "--tokens", "256",
                         "--trials", "100000", "--out", "deep/out"});
        ASSERT_TRUE(running.wait_until([&] {
            return signal == SIGINT ? has_begun(folder / "deep/out")
                                    : fs::exists(folder / "deep/.out.tsdiag-units");
        }));
        running.signal(signal);
        const Finished found = running.wait();
        EXPECT_EQ(found.code, 130);
        EXPECT_THAT(found.err, HasSubstr("interrupted"));
        EXPECT_THAT(names_but_units(folder.path()), IsEmpty());
    }
}

/// Of files that a signal has taken away while they were written nothing is said.
TEST(Interruption, IsOneSentenceWhateverIsWritten) {
    if (fault_shim().empty()) GTEST_SKIP() << "nothing is preloaded under sanitizers";
    TemporaryDirectory folder;
    for (const std::string seed : {"1", "2"})
        ASSERT_EQ(tsdiag(folder, {"probe", "random:post-norm,d=16,heads=2,layers=2", "--tokens",
                                  "8", "--no-report", "--seed", seed, "--out", "of" + seed})
                      .code,
                  0);
    for (int change = 2; change <= 16; change += 2) {  // those of figures begin before the tenth
        const Finished found =
            Running(folder.path(), {"compare", "of1", "of2", "--out", "out"},
                    {"LD_PRELOAD=" + fault_shim(), "TSDIAG_FAULT=term",
                     "TSDIAG_FAULT_AT=" + std::to_string(change), "OMP_NUM_THREADS=1"})
                .wait();
        EXPECT_EQ(found.code, 130) << change;
        EXPECT_EQ(found.err, "tsdiag: interrupted; no partial output was left.\n") << change;
        EXPECT_FALSE(fs::exists(folder / "out")) << change;
    }
}

std::vector<std::string> tiny_figure(const char* layers = "2") {
    std::vector<std::string> words = {"figure", "tse.fig2", "--trials", "2", "--out", "figures"};
    for (const std::string reading : {"d=16", "heads=2", "ffn=8", "tokens=8"}) {
        words.emplace_back("--reading");
        words.push_back(reading);
    }
    words.emplace_back("--reading");
    words.push_back(std::string("layers=") + layers);
    return words;
}

TEST(FigureCommand, WritesTheFilesOfARunAndAPageForEach) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, tiny_figure());
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("xi1/xi2 of the attention step"));
    const fs::path made = fs::path(folder / "figures") / "tse.fig2";
    for (const char* name : {"metrics.csv", "curves.csv", "run.json", "report.html"})
        EXPECT_TRUE(fs::exists(made / name)) << name;
    // the page recreated from the tables: equal, and not the page of a run
    std::ifstream before(made / "report.html", std::ios::binary);
    const std::string page{std::istreambuf_iterator<char>(before), {}};
    ASSERT_EQ(tsdiag(folder, {"report", "figures/tse.fig2"}).code, 0);
    std::ifstream after(made / "report.html", std::ios::binary);
    const std::string again{std::istreambuf_iterator<char>(after), {}};
    EXPECT_TRUE(page == again);
    EXPECT_TRUE(again.find("The claim") != std::string::npos);
}

TEST(FigureCommand, SolvesAnEquation) {
    TemporaryDirectory folder;
    std::vector<std::string> words = {"figure", "poly.table6", "--trials", "2", "--out", "figures"};
    for (const std::string reading : {"equations=reaction", "points=3", "test=4", "sequence=2",
                                      "d=4", "ffn=4", "hidden=4", "iterations=2"}) {
        words.emplace_back("--reading");
        words.push_back(reading);
    }
    const Finished found = tsdiag(folder, words);
    if (found.code == 3) GTEST_SKIP() << found.err;  // built without libLBFGS
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("rMSE, 1D-Reaction, x^3 + fixed scale"));
    std::ifstream in(fs::path(folder / "figures") / "poly.table6" / "report.html",
                     std::ios::binary);
    const std::string page{std::istreambuf_iterator<char>(in), {}};
    EXPECT_TRUE(page.find("[POLY] Table 6, rho = 5: 0.056") != std::string::npos);
    EXPECT_TRUE(page.find("Convection, softmax") == std::string::npos) << "was not asked for";
}

TEST(FigureCommand, InterruptedLeavesNothing) {
    TemporaryDirectory folder;
    std::vector<std::string> words = tiny_figure("2000");
    words[3] = "100000";
    Running running(folder.path(), words);
    ASSERT_TRUE(running.wait_until([&] { return has_begun(folder / "figures/tse.fig2"); }));
    running.signal(SIGINT);
    EXPECT_EQ(running.wait().code, 130);
    EXPECT_THAT(names_but_units(folder.path()), IsEmpty());
}

TEST(List, EveryListHasMembers) {
    TemporaryDirectory folder;
    for (const char* what : {"formats", "architectures", "attentions", "probes", "metrics",
                             "figures", "claims", "backends", "random"}) {
        const Finished found = tsdiag(folder, {"list", what});
        EXPECT_EQ(found.code, 0) << what;
        EXPECT_GE(std::count(found.out.begin(), found.out.end(), '\n'), 1) << what;
        EXPECT_THAT(found.out, testing::Not(HasSubstr("bytes left out"))) << what;
    }
    EXPECT_THAT(tsdiag(folder, {"list", "metrics"}).out, HasSubstr("t_sim"));
    EXPECT_THAT(tsdiag(folder, {"list", "figures"}).out, HasSubstr("tse.fig6"));
    EXPECT_THAT(tsdiag(folder, {"info"}).out, HasSubstr("device cpu"));
}

/// Names of metrics and curves in the tables of a result.
std::set<std::string> names_of(const fs::path& result) {
    std::set<std::string> names;
    for (const MetricRow& row : read_metrics_csv(read_file(result / "metrics.csv"), "metrics.csv"))
        names.insert(row.metric);
    for (const CurveRow& row : read_curves_csv(read_file(result / "curves.csv"), "curves.csv"))
        names.insert(row.curve);
    return names;
}

TEST(List, OfMetricsHasWhatTablesOfEveryCommandHold) {
    TemporaryDirectory folder;
    write_file(folder / "a.csv", "step,grad_norm\n1,1\n2,2\n3,1.5\n4,1.2\n5,2.1\n6,1.7\n7,1.1\n");
    write_file(folder / "b.csv", "step,grad_norm\n1,1\n2,3\n3,1.4\n4,1.9\n5,2.2\n6,1.6\n7,1.2\n");
    const std::string moe = "random:mixtral-8x7b,layers=1,d=8,heads=2,vocab=9";
    const std::vector<std::vector<std::string>> commands = {
        {"probe", tiny, "--loss", "lm", "--tokens", "8", "--cross-check", "1", "--no-report"},
        {"probe", moe, "--tokens", "8", "--no-report"},
        {"train", "random:gpt2,layers=1,d=8,heads=2", "--data", "copy", "--tokens", "5", "--steps",
         "2", "--probe-every", "1"},
        {"probe", "1", "2", "--steps", "1,2", "--tokens", "8", "--no-report"},
        {"gradients", "a.csv", "b.csv", "--no-report"}};
    for (const char* step : {"1", "2"})
        ASSERT_EQ(tsdiag(folder, {"init", tiny, "--seed", step, "-o", step}).code, 0);
    std::istringstream lines(tsdiag(folder, {"list", "metrics"}).out);
    std::set<std::string> listed;
    for (std::string line; std::getline(lines, line);)
        listed.insert(line.substr(0, line.find(' ')));
    std::set<std::string> as_json = {"name"};  // as the head of the columns
    const Json printed = Json::parse(tsdiag(folder, {"list", "metrics", "--json"}).out, "list");
    for (const Json& one : printed.array()) as_json.insert(one["name"].string());
    EXPECT_EQ(as_json, listed);
    for (const std::vector<std::string>& words : commands) {
        SCOPED_TRACE(testing::PrintToString(words));
        const Finished done = tsdiag(folder, with(words, {"-o", "out", "--force"}));
        ASSERT_EQ(done.code, 0) << done.err;
        const std::set<std::string> names = names_of(folder / "out");
        EXPECT_FALSE(names.empty());
        for (const std::string& name : names) EXPECT_TRUE(listed.contains(name)) << name;
        fs::remove_all(folder / "out");
    }
    // Tables of experiments have names of their own, which stand where the experiment does.
    ASSERT_EQ(tsdiag(folder, {"figure", "tse.fig3", "--trials", "2", "-q"}).code, 0);
    for (const std::string& name : names_of(folder / "figures/tse.fig3"))
        EXPECT_THAT(lines.str(), HasSubstr(name));
}

TEST(List, AloneNamesTheLists) {
    TemporaryDirectory folder;
    const Finished bare = tsdiag(folder, {"list"});
    EXPECT_EQ(bare.code, 0) << bare.err;
    const Json lists = Json::parse(tsdiag(folder, {"list", "--json"}).out, "list");
    EXPECT_GE(lists.array().size(), 10U);
    for (const Json& one : lists.array()) {
        EXPECT_THAT(bare.out, HasSubstr("tsdiag list " + one["name"].string() + " "));
        EXPECT_FALSE(one["description"].string().empty());
        EXPECT_EQ(tsdiag(folder, {"list", one["name"].string()}).code, 0);
    }
}

TEST(List, SaysAsJsonWhatItsMembersAre) {
    TemporaryDirectory folder;
    const Json metrics =
        Json::parse(tsdiag(folder, {"list", "metrics", "--json"}).out, "list metrics");
    EXPECT_EQ(metrics.array().at(0)["name"].string(), "t_sim");
    EXPECT_EQ(metrics.array().at(0)["of"].string(), "state");
    for (const Json& metric : metrics.array())
        EXPECT_FALSE(metric["definition"].string().empty()) << metric["name"].string();
    const Json figures =
        Json::parse(tsdiag(folder, {"list", "figures", "--json"}).out, "list figures");
    EXPECT_EQ(figures.array().at(0)["name"].string(), "similarity");
    EXPECT_THAT(figures.array().at(0)["description"].string(), HasSubstr("over depth"));
}

TEST(Init, TheDirectoryIsTheModelThatProbeDraws) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, {"init", tiny, "-o", "model", "--seed", "3"}).code, 0);
    const auto files = ElementsAre("config.json", "files.sha256", "model.safetensors");
    EXPECT_THAT(names_in(folder / "model"), files);
    for (const auto& [model, out] : {std::pair{tiny, "drawn"}, {"model", "read"}}) {
        const Finished found = tsdiag(
            folder, {"probe", model, "--no-report", "--tokens", "8", "--seed", "3", "-o", out});
        ASSERT_EQ(found.code, 0) << found.err;
    }
    // The same numbers, except for the name of the model.
    const auto rows = [&](const char* out) {
        std::string text = read_file(folder.path() / out / "metrics.csv");
        return std::regex_replace(text, std::regex("(^|\n)(\"[^\"]*\"|[^,\n]*),"), "$1");
    };
    EXPECT_EQ(rows("drawn"), rows("read"));
    EXPECT_EQ(tsdiag(folder, {"init", tiny, "-o", "model"}).code, 2);
    ASSERT_EQ(tsdiag(folder, {"init", tiny, "-o", "model", "--force"}).code, 0);
    EXPECT_THAT(names_in(folder / "model"), files);
    std::ofstream(folder.path() / "model/pytorch_model.bin") << "another model";
    const Finished refused = tsdiag(folder, {"init", tiny, "-o", "model", "--force"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("pytorch_model.bin: was not written by tsdiag"));
    EXPECT_EQ(read_file(folder / "model/pytorch_model.bin"), "another model");
}

TEST(Report, IsMadeAgainFromTheTables) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, {"probe", tiny, "--tokens", "8", "--maps", "1:0", "-o", "out"}).code,
              0);
    const std::vector<std::string> figures = names_in(folder / "out/figures");
    const std::string metrics = read_file(folder / "out/metrics.csv");
    fs::remove(folder / "out/report.html");
    fs::remove_all(folder / "out/figures");
    const Finished found = tsdiag(folder, {"report", "out"});
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_TRUE(fs::exists(folder / "out/report.html"));
    EXPECT_EQ(names_in(folder / "out/figures"), figures);
    EXPECT_EQ(read_file(folder / "out/metrics.csv"), metrics);
    const Finished nowhere = tsdiag(folder, {"report", "nowhere"});
    EXPECT_EQ(nowhere.code, 1);
    expect_one_sentence(nowhere.err);
}

TEST(Inspect, ListsTensorsWithTheirSums) {
    const fs::path data = shared_data();
    if (!fs::exists(data)) GTEST_SKIP() << "the shared files are not here";
    TemporaryDirectory folder;
    struct Sum {
        const char *file, *tensor;
        double sum;
        std::size_t tensors;
    };
    const Sum sums[] = {
        {"torch/lightning-legacy-ReverseTask.ckpt",
         "state_dict.transformer.layers.0.self_attn.o_proj.weight", 9.26358695, 20},
        {"torch/nanogpt-style-ckpt.pt", "model.transformer.h.1.mlp.c_fc.weight", 2.02724636, 62},
        {"torch/complex_nested.pt", "conv_blocks.0.conv.weight", -0.570750415, 23},
        {"torch/legacy_with_offsets.pt", "tensor3", 16, 3},
        {"torch/bfloat16.pt", "tensor", 2.5, 1},
        {"torch/fortran_tensor_3d.pth", "tensor_fortran", 300, 1},
        {"safetensors/overall.safetensors", "I", 1.28849019e+10, 9},
        {"safetensors/multi_layer.safetensors", "fc1.weight", -3.81826055, 9},
    };
    for (const Sum& expected : sums) {
        const Finished found =
            tsdiag(folder, {"inspect", (data / expected.file).string(), "--json"});
        ASSERT_EQ(found.code, 0) << expected.file << found.err;
        const Json json = Json::parse(found.out, "inspect");
        EXPECT_EQ(json["tensors"].array().size(), expected.tensors) << expected.file;
        bool seen = false;
        for (const Json& tensor : json["tensors"].array())
            if (tensor["name"].string() == expected.tensor) {
                EXPECT_NEAR(tensor["sum"].number(), expected.sum, 1e-8 * std::abs(expected.sum))
                    << expected.tensor;
                seen = true;
            }
        EXPECT_TRUE(seen) << expected.tensor;
        EXPECT_EQ(tsdiag(folder, {"inspect", (data / expected.file).string()}).code, 0);
    }
    const Finished gguf =
        tsdiag(folder, {"inspect", (data / "gguf/ggml-vocab-bert-bge.gguf").string(), "--json"});
    EXPECT_EQ(gguf.code, 0) << gguf.err;
    EXPECT_THAT(Json::parse(gguf.out, "inspect")["unknown"].string(),
                HasSubstr("it has no weights"));
}

}  // namespace
}  // namespace tsdiag::test
