#include <gmock/gmock.h>

#include "program.hpp"
#include "tsdiag/json.hpp"

/// Settings files, manual pages, completion.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string small_model = "random:post-norm,layers=1,d=8,heads=2";

TEST(Settings, PrintedAndReadAgainGiveTheSameRun) {
    TemporaryDirectory folder;
    const std::vector<std::string> words = {
        "probe",       small_model, "--tokens=5",   "--probes", "core", "--maps", "0:0,0:1",
        "--no-report", "--ignore",  R"(a"b\c # d)", "--ignore", "0123", "-o",     "a"};
    std::vector<std::string> printing = words;
    printing.push_back("--print-settings");
    const Finished printed = tsdiag(folder, printing);
    ASSERT_EQ(printed.code, 0) << printed.err;
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "a"));
    write_file(folder.path() / "s.toml", printed.out);
    // What is read prints as what was printed: nothing is lost on the way.
    EXPECT_EQ(tsdiag(folder, {"probe", "--settings", "s.toml", "--print-settings"}).out,
              printed.out);
    write_file(folder.path() / "twice.toml",
               "tokens = 4\nmodel = \"" + small_model + "\"\n[probe]\ntokens = 5\n");
    EXPECT_THAT(tsdiag(folder, {"probe", "--settings", "twice.toml", "--print-settings"}).out,
                HasSubstr("tokens = 5\n"));
    const std::string plain = "model = \"" + small_model +
                              "\"\n[probe]\ntokens = 5\nprobes = \"core\"\n"
                              "no-report = true\nquiet = false\n[check]\nn = 3\n";
    write_file(folder.path() / "plain.toml", plain);
    ASSERT_EQ(tsdiag(folder, {"probe", small_model, "--tokens", "5", "--probes", "core",
                              "--no-report", "-o", "b"})
                  .code,
              0);
    ASSERT_EQ(tsdiag(folder, {"probe", "--settings=plain.toml", "-o", "c"}).code, 0);
    EXPECT_EQ(read_file(folder.path() / "b" / "metrics.csv"),
              read_file(folder.path() / "c" / "metrics.csv"));
    // The command line prevails, whichever name it uses.
    EXPECT_THAT(tsdiag(folder, {"probe", "--tokens", "7", "-o", "d", "--settings", "s.toml",
                                "--print-settings"})
                    .out,
                testing::AllOf(HasSubstr("tokens = 7\n"), HasSubstr("out = 'd'\n"),
                               HasSubstr(small_model), Not(HasSubstr("tokens = 5"))));
    EXPECT_THAT(
        tsdiag(folder, {"probe", "random:gpt2", "--settings", "s.toml", "--print-settings"}).out,
        testing::AllOf(HasSubstr("model = 'random:gpt2'"), Not(HasSubstr("post-norm"))));
}

TEST(JsonHelp, HasEveryOptionOfTheHelp) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder, {"--help", "--json"});
    ASSERT_EQ(found.code, 0) << found.err;
    const Json all = Json::parse(found.out, "help");
    ASSERT_GT(all["commands"].array().size(), 10u);
    for (const Json& command : all["commands"].array()) {
        const std::string name = command["name"].string();
        SCOPED_TRACE(name);
        const std::string help = tsdiag(folder, {name, "--help"}).out;
        EXPECT_GE(command["options"].array().size(), 2u);  // --help and --json at least
        for (const Json& option : command["options"].array()) {
            for (const Json& written : option["names"].array())
                EXPECT_THAT(help, HasSubstr(written.string()));
            if (option["help"].string().find("default") != std::string::npos) {
                EXPECT_TRUE(option["default"].is_string()) << option.dump();
            }
        }
        const Json alone = Json::parse(tsdiag(folder, {name, "--help", "--json"}).out, name);
        EXPECT_EQ(alone["commands"].array().at(0).dump(), command.dump());
    }
}

TEST(JsonHelp, TellsTypesDefaultsAndWhatChangesNumbers) {
    TemporaryDirectory folder;
    const Json help = Json::parse(tsdiag(folder, {"help", "probe", "--json"}).out, "help");
    const auto option = [&](const std::string& name) {
        for (const Json& one : help["commands"].array().at(0)["options"].array())
            if (one["name"].string() == name) return one;
        return Json();
    };
    for (const auto& [name, fallback] : {std::pair("--seed", "0"),
                                         {"--spectra", "auto"},
                                         {"--tolerance", "1e-6"},
                                         {"--tokens", "the model's maximum, up to 512"},
                                         {"--dtype", "f32"},
                                         {"--scale", "1/sqrt(head dimension)"},
                                         {"--out", "NAME.tsdiag"}})
        EXPECT_EQ(option(name)["default"].string(), fallback) << name;
    EXPECT_TRUE(option("--mask")["default"].is_null());
    EXPECT_EQ(option("--mask")["type"].string(), "FILE.npy");
    EXPECT_EQ(option("--quiet")["type"].string(), "flag");
    EXPECT_TRUE(option("MODEL")["required"].boolean());
    EXPECT_TRUE(option("MODEL")["repeatable"].boolean());
    EXPECT_TRUE(option("--ignore")["repeatable"].boolean());
    for (const char* name : {"MODEL", "--seed", "--fast", "--cross-check", "--settings", "--steps"})
        EXPECT_TRUE(option(name)["changes_numbers"].boolean()) << name;
    for (const char* name : {"--memory", "--threads", "--out", "--json", "--quiet"})
        EXPECT_FALSE(option(name)["changes_numbers"].boolean()) << name;
}

/// The parser would take the next option for the value.
TEST(Options, WithoutTheirValueAreRefused) {
    TemporaryDirectory folder;
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"probe", "random:gpt2", "--out=", "--seed=7"},
             {"probe", "random:gpt2", "--text=", "--samples=1"},
             {"gradients", "log.csv", "--out=", "--seed=5"},
             {"compare", "a", "b", "--out=", "--fdr=0.5"},
             {"export", "a", "--to=", "--force"},
             {"train", "random:gpt2", "--data", "copy:3", "--out=", "--rate=0.5"}}) {
        const Finished found = tsdiag(folder, words);
        EXPECT_EQ(found.code, 2) << words.front();
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr("expected a value behind '='"));
        EXPECT_TRUE(names_in(folder.path()).empty());
    }
}

/// A name in a file may have a byte 0.
TEST(Sentences, GoOnBehindAByteOfZero) {
    TemporaryDirectory folder;
    write_file(folder / "ids.txt", std::string("1\0002 3", 6));
    const Finished found = tsdiag(
        folder, {"probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--input", "ids:ids.txt"});
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("1\\0"));
    expect_one_sentence(found.err);
}

TEST(Settings, WhatIsWrongIsNamed) {
    TemporaryDirectory folder;
    const auto refused = [&](const std::string& text, const std::string& words) {
        write_file(folder.path() / "s.toml", text);
        const Finished found = tsdiag(folder, {"probe", "--settings", "s.toml"});
        EXPECT_EQ(found.code, 2) << text;
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr(words)) << text;
    };
    refused("tokns = 4\n", "did you mean tokens?");
    refused("quiet = 4\n", "expected true or false");
    refused("out = ''\nseed = 7\n", "out: is empty");
    refused("tokens = {a = 1}\n", "tokens: expected text, a number");
    refused("[section]\ntokens = 8\n", "section is not an option");
    refused("[probe]\n[probe.tokens]\na = 8\n", "tokens: expected text, a number");
    refused("out = \"a\\u0000b\"\nmodel = \"none\"\ntokens = \"many\"\n", "tokens");
    refused("settings = \"s.toml\"\n", "is not an option");
    refused("tokens = \"many\"\n", "--tokens");
    refused("tokens = 4\n", "MODEL is required");
    refused(std::string("\0\0[[[", 5), "tsdiag");
    EXPECT_EQ(tsdiag(folder, {"probe", "--settings", "absent.toml"}).code, 1);
    EXPECT_EQ(tsdiag(folder, {"probe", "--settings", "/dev/zero"}).code, 1);
}

TEST(Manual, HasAPageForEveryCommand) {
    TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, {"manual", "--out", "man1"}).code, 0);
    const std::string whole = read_file(folder.path() / "man1" / "tsdiag.1");
    std::size_t pages = 0;
    for (const std::string& name : names_in(folder.path() / "man1")) {
        if (name == "tsdiag.1") continue;
        ++pages;
        const std::string command = name.substr(7, name.size() - 9);
        EXPECT_THAT(whole, HasSubstr("\\fBtsdiag " + command + "\\fR"));
        const Finished help = tsdiag(folder, {command, "--help"});
        const std::string page = read_file(folder.path() / "man1" / name);
        EXPECT_EQ(tsdiag(folder, {"manual", command}).out, page);
        // Every long option of the help, with its hyphens escaped.
        for (std::size_t at = 0; (at = help.out.find("  --", at)) != std::string::npos; ++at) {
            const std::size_t end = help.out.find_first_of(" ,\n", at + 4);
            std::string option = help.out.substr(at + 2, end - at - 2);
            for (std::size_t i = option.size(); i-- > 0;)
                if (option[i] == '-') option.insert(i, "\\");
            EXPECT_THAT(page, HasSubstr(option)) << command;
        }
    }
    EXPECT_GE(pages, 12U);
    EXPECT_EQ(tsdiag(folder, {"manual", "nonsense"}).code, 2);
}

/// What bash offers after `line`.
std::string completed(const TemporaryDirectory& folder, const std::string& line) {
    write_file(folder.path() / "try.bash",
               "source <(\"$TSDIAG\" completion bash)\nCOMP_LINE='" + line + "' COMP_POINT=" +
                   std::to_string(line.size()) + "\n_tsdiag\necho \"${COMPREPLY[*]}\"\n");
    const Finished found = Running::shell(folder.path(), "bash try.bash").wait();
    EXPECT_EQ(found.code, 0);
    EXPECT_THAT(found.err, IsEmpty());
    return found.out;
}

TEST(Completion, OffersCommandsOptionsAndNames) {
    TemporaryDirectory folder;
    EXPECT_EQ(completed(folder, "tsdiag insp"), "inspect\n");
    EXPECT_EQ(completed(folder, "tsdiag probe --token"), "--tokenizer --tokens\n");
    EXPECT_EQ(completed(folder, "tsdiag figure tse.fig3"), "tse.fig3\n");
    EXPECT_EQ(completed(folder, "tsdiag check tse.eq21"), "tse.eq21\n");
    // bash replaces only what follows the colon.
    EXPECT_EQ(completed(folder, "tsdiag probe random:gpt2-x"), "gpt2-xl\n");
    EXPECT_EQ(completed(folder, "tsdiag probe --out "), "\n");  // files
    for (const char* shell : {"bash", "zsh", "fish"}) {
        const std::string script = tsdiag(folder, {"completion", shell}).out;
        EXPECT_THAT(script, HasSubstr("probe")) << shell;
        write_file(folder.path() / "script", script);
        const std::string check =
            std::string("if command -v ") + shell + " >/dev/null; then " + shell + " -n script; fi";
        EXPECT_EQ(Running::shell(folder.path(), check).wait().code, 0) << shell;
    }
    EXPECT_EQ(tsdiag(folder, {"completion", "tcsh"}).code, 2);
}

TEST(Version, NamesCommitBuildAndCompiler) {
    TemporaryDirectory folder;
    EXPECT_THAT(tsdiag(folder, {"--version"}).out,
                testing::MatchesRegex("tsdiag [0-9.]+ \\(commit [0-9a-z-]+, [A-Za-z]+, .+\\)\n"));
}

TEST(Figure, TakesAPrefix) {
    TemporaryDirectory folder;
    const Finished refused = tsdiag(folder, {"figure", "tse.", "--reading", "no_such_key=1"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("tse.fig1"));
    EXPECT_EQ(tsdiag(folder, {"figure", "tsee."}).code, 2);
    const Finished done = tsdiag(folder, {"figure", "law.lam", "--trials", "2", "-o", "a"});
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(names_in(folder / "a"), testing::ElementsAre("law.lambda2"));
}

TEST(Figure, ListsWhatIsNamed) {
    TemporaryDirectory folder;
    const std::string list = tsdiag(folder, {"figure", "law.", "--list"}).out;
    EXPECT_THAT(list, HasSubstr("law.lambda2"));
    EXPECT_THAT(list, Not(HasSubstr("tse.")));
}

TEST(Probe, OfALogOrATableNamesTheCommand) {
    TemporaryDirectory folder;
    write_file(folder / "log.csv", "step,grad_norm\n1,1\n");
    std::filesystem::create_directory(folder / "result");
    write_file(folder / "result/run.json", "{}");
    write_file(folder / "result/metrics.csv", "model\n");
    for (const char* command : {"probe", "inspect"})
        for (const auto& [file, call] :
             {std::pair{"log.csv", "is the log of a training: tsdiag gradients log.csv."},
              {"result/metrics.csv", "is a table of a result: tsdiag report result."}}) {
            const Finished found = tsdiag(folder, {command, file});
            EXPECT_EQ(found.code, 2);
            expect_one_sentence(found.err);
            EXPECT_THAT(found.err, HasSubstr(call));
        }
}

TEST(Probe, FindsAModelOfTheHubInItsCache) {
    TemporaryDirectory folder;
    const std::filesystem::path cache =
        std::filesystem::path(folder.path()) / "home/hub/models--someone--tiny-1.5";
    std::filesystem::create_directories(cache / "refs");
    write_file(cache / "refs/main", "0123abc");
    ASSERT_EQ(tsdiag(folder, {"init", "random:gpt2,layers=1,d=8,heads=2,vocab=9,tokens=8", "-o",
                              (cache / "snapshots/0123abc").string()})
                  .code,
              0);
    const auto run = [&](std::vector<std::string> words) {
        return tsdiag(folder, std::move(words),
                      {"HF_HOME=" + (folder / "home"), "HF_HUB_CACHE=", "HUGGINGFACE_HUB_CACHE="});
    };
    const Finished found = run({"probe", "someone/tiny-1.5", "--tokens", "4", "--no-report"});
    ASSERT_EQ(found.code, 0) << found.err;
    const std::string run_json = read_file(folder / "tiny-1.5.tsdiag/run.json");
    EXPECT_THAT(run_json, HasSubstr("model in the cache of the Hub: " + cache.string()));
    EXPECT_THAT(run({"inspect", "someone/tiny-1.5"}).out, HasSubstr("h.0.attn.c_attn.weight"));
    for (const char* command : {"probe", "inspect"}) {
        const Finished absent = run({command, "someone/other"});
        EXPECT_EQ(absent.code, 1);
        expect_one_sentence(absent.err);
        EXPECT_THAT(absent.err, HasSubstr("`hf download someone/other`"));
        EXPECT_THAT(run({command, "none.pt"}).err, Not(HasSubstr("Hub")));  // a file's name
    }
}

TEST(Probe, OfAResultSaysWhatItIs) {
    TemporaryDirectory folder;
    ASSERT_EQ(
        tsdiag(folder, {"probe", small_model, "--tokens", "4", "--no-report", "-o", "a"}).code, 0);
    ASSERT_EQ(tsdiag(folder, {"probe", small_model, "--tokens", "4", "--no-report", "--maps", "0:0",
                              "-o", "with_maps"})
                  .code,
              0);
    for (const char* result : {"a", "with_maps"}) {
        const Finished found = tsdiag(folder, {"probe", result});
        EXPECT_EQ(found.code, 1);
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr("is a result of tsdiag"));
    }
}

}  // namespace
}  // namespace tsdiag::test
