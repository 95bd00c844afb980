#include "tsdiag/json.hpp"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <sstream>

#include "program.hpp"
#include "support/places.hpp"
#include "tsdiag/file.hpp"

/// The law of --json: every command has it, prints nothing but JSON, and has the keys and types
/// that docs/json.md tells.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string post_norm = "random:post-norm,layers=1,d=8,heads=2";

/// The commands that `tsdiag --help` lists.
std::vector<std::string> commands(const TemporaryDirectory& folder) {
    std::istringstream help(tsdiag(folder, {"--help"}).out);
    std::vector<std::string> names;
    bool inside = false;
    for (std::string line; std::getline(help, line);) {
        if (line.starts_with("Commands:"))
            inside = true;
        else if (line.empty())
            inside = false;
        else if (inside && line.starts_with("  ") && line[2] != ' ')
            names.push_back(line.substr(2, line.find(' ', 2) - 2));
    }
    return names;
}

struct Key {
    std::string type;
    bool always = true;
};
/// The table of docs/json.md: command, key.
std::map<std::string, std::map<std::string, Key>> documented() {
    std::istringstream text(
        read_file(fs::path(test_data()).parent_path().parent_path() / "docs/json.md"));
    std::map<std::string, std::map<std::string, Key>> out;
    std::string command;
    for (std::string line; std::getline(text, line);) {
        if (!line.starts_with("| ")) continue;
        std::vector<std::string> cells;
        std::istringstream row(line.substr(2));
        for (std::string cell; std::getline(row, cell, '|');) {
            const std::size_t begin = cell.find_first_not_of(" `"),
                              end = cell.find_last_not_of(" `");
            cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
        }
        if (cells.size() < 4 || cells[0] == "Command") continue;
        if (!cells[0].empty()) out[command = cells[0]];
        if (!cells[1].empty()) out[command][cells[1]] = {cells[2], !cells[3].starts_with("*")};
    }
    return out;
}

std::string type_of(const Json& value) {
    return value.is_null()      ? "null"
           : value.is_string()  ? "text"
           : value.is_integer() ? "integer"
           : value.is_number()  ? "number"
           : value.is_bool()    ? "boolean"
           : value.is_array()   ? "list"
                                : "object";
}

bool fits(const std::string& found, const std::string& described) {
    return described == found || described == found + " or null" ||
           (found == "null" && described.ends_with(" or null")) ||
           (found == "integer" && described.starts_with("number"));
}

void expect_documented(const Json& object, const std::map<std::string, Key>& keys, bool head) {
    const std::vector<std::string> before = {"tsdiag", "command", "output", "version"};
    for (const auto& [key, value] : object.object()) {
        if (head && std::ranges::find(before, key) != before.end()) continue;
        ASSERT_TRUE(keys.contains(key)) << key;
        EXPECT_TRUE(fits(type_of(value), keys.at(key).type)) << key << " is " << type_of(value);
    }
    for (const auto& [key, about] : keys)
        if (about.always) {
            EXPECT_TRUE(object.contains(key)) << key;
        }
    if (!head) return;
    for (const std::string& key : before) EXPECT_TRUE(object.contains(key)) << key;
    EXPECT_EQ(object["version"].integer(), 1);
}

TEST(JsonOutput, OfEveryCommandIsAsDocumented) {
    const TemporaryDirectory folder;
    write_file(folder / "log.csv",
               "step,grad_norm\n1,1\n2,2\n3,1.5\n4,1.2\n5,2.1\n6,1.7\n7,1.1\n8,1.9\n9,1.4\n");
    const auto run = [&](std::vector<std::string> words) {
        const Finished done = tsdiag(folder, std::move(words));
        ASSERT_EQ(done.code, 0) << done.err;
    };
    run({"probe", post_norm, "--tokens", "4", "--no-report", "-o", "result", "-q"});
    for (const char* step : {"100", "200"})
        run({"init", "random:gpt2,layers=1,d=8,heads=2,vocab=16,tokens=8", "-o",
             std::string("series/checkpoint-") + step});
    run({"figure", "tse.fig3", "--trials", "2", "--part", "1/2", "-o", "parts", "-q"});
    // What to run of each command; a new command needs a line.
    const std::map<std::string, std::vector<std::vector<std::string>>> samples = {
        {"probe",
         {{post_norm, "--tokens", "4", "--no-report", "-o", "a"},
          {"series", "--tokens", "4", "--no-report", "-o", "b", "-q"}}},
        {"watch",
         {{"series", "--tokens", "4", "--no-report", "-o", "c", "--once", "--settle", "0"}}},
        {"figure", {{"--list"}, {"law.lambda2", "--trials", "2", "-o", "d"}}},
        {"train",
         {{"random:gpt2,layers=1,d=8,heads=2", "--data", "copy", "--tokens", "5", "--steps", "2",
           "-o", "e"}}},
        {"gradients", {{"log.csv", "--no-report", "-o", "f"}}},
        {"inspect", {{post_norm}, {"series/checkpoint-100"}}},
        {"init", {{"random:gpt2,layers=1,d=8,heads=2", "-o", "g"}}},
        {"list", {{}, {"metrics"}, {"formats"}, {"figures"}, {"random"}}},
        {"info", {{}}},
        {"report", {{"result"}}},
        {"plot", {{"result"}}},
        {"export",
         {{"result", "--to", "jsonl", "-o", "h"}, {"result", "--to", "parquet", "-o", "i"}}},
        {"compare", {{"result", "result"}, {"result", "--assert", "t_sim@out:last < 2"}}},
        {"check", {{"--list", "devil.eq59"}, {"devil.eq59", "--trials", "20", "-o", "j"}}},
        {"status", {{"parts/tse.fig3"}}},
        {"submit", {{"--dry-run", "check", "-o", "k"}}},
        {"trace-hook", {{}}},
        {"completion", {{"bash"}}},
        {"manual", {{"probe"}}},
        {"merge", {}},  // prints what the command that it merges prints
    };
    const auto described = documented();
    for (const std::string& command : commands(folder)) {
        SCOPED_TRACE(command);
        EXPECT_THAT(tsdiag(folder, {command, "--help"}).out, HasSubstr("--json"));
        ASSERT_TRUE(samples.contains(command)) << "has no sample here";
        ASSERT_TRUE(described.contains(command)) << "is not in docs/json.md";
        for (const std::vector<std::string>& sample : samples.at(command)) {
            std::vector<std::string> words = {command};
            if (command == "submit") words.emplace_back("--json");
            words.insert(words.end(), sample.begin(), sample.end());
            if (command != "submit") words.emplace_back("--json");
            SCOPED_TRACE(testing::PrintToString(words));
            const Finished done = tsdiag(folder, words);
            ASSERT_EQ(done.code, 0) << done.err;
            const Json printed = Json::parse(done.out, command);  // the whole of it, once
            if (printed.is_array()) {
                EXPECT_FALSE(printed.array().empty());
                for (const Json& one : printed.array())
                    expect_documented(one, described.at(command), false);
            } else {
                expect_documented(printed, described.at(command), true);
                EXPECT_EQ(printed["output"].string(), command);
            }
        }
    }
}

TEST(JsonOutput, TheDocumentIsGenerated) {
    const TemporaryDirectory folder;
    const fs::path file = fs::path(test_data()).parent_path().parent_path() / "docs/json.md";
    const std::string table = tsdiag(folder, {"list", "outputs"}).out;
    std::string text = read_file(file);
    const std::size_t begin = text.find("| Command |"), end = text.find("\n\n", begin);
    ASSERT_NE(begin, std::string::npos);
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) {
        text.replace(begin, std::min(end, text.size()) - begin, table.substr(0, table.size() - 1));
        write_file(file, text);
    }
    EXPECT_EQ(text.substr(begin, end - begin) + "\n", table)
        << "regenerate it: TSDIAG_WRITE_DOCUMENTS=1 build/release/tests/cli_tests";
}

TEST(JsonOutput, HasTheNumbersOfTheText) {
    const TemporaryDirectory folder;
    const Finished done = tsdiag(folder, {"figure", "law.lambda2", "--trials", "2", "--json"});
    ASSERT_EQ(done.code, 0) << done.err;
    const Json printed = Json::parse(done.out, "figure");
    const Json& one = printed["figures"].array().front();
    EXPECT_TRUE(fs::exists(folder / (one["out"].string() + "/report.html")));
    EXPECT_FALSE(one["comparisons"].array().empty());
}

/// What is printed, and what run.json keeps, is what the terminal shows.
TEST(JsonOutput, HasTheVerdictNumbersAndFilesOfAResult) {
    const TemporaryDirectory folder;
    const Finished done =
        tsdiag(folder, {"probe", post_norm, "--tokens", "4", "--json", "-o", "a"});
    ASSERT_EQ(done.code, 0) << done.err;
    const Json printed = Json::parse(done.out, "probe");
    const auto kept = [&](const std::string& result) {
        return Json::parse(read_file(folder / (result + "/run.json")), "run.json")["findings"];
    };
    EXPECT_FALSE(printed["findings"].array().empty());
    EXPECT_EQ(kept("a").dump(), printed["findings"].dump());
    ASSERT_EQ(printed["layers"].array().size(), 1u);
    EXPECT_TRUE(printed["layers"].array().front()["t_sim"].is_number());
    std::set<std::string> files;
    for (const Json& one : printed["files"].array()) {
        EXPECT_TRUE(fs::exists(folder / ("a/" + one.string()))) << one.string();
        files.insert(one.string());
    }
    for (const char* file : {"metrics.csv", "report.html", "run.json"})
        EXPECT_TRUE(files.contains(file)) << file;
    const Finished figure =
        tsdiag(folder, {"figure", "law.lambda2", "--trials", "2", "--json", "-o", "b"});
    ASSERT_EQ(figure.code, 0) << figure.err;
    EXPECT_EQ(kept("b/law.lambda2").array().front()["text"].string(),
              Json::parse(figure.out, "figure")["figures"].array().front()["outcome"].string());
}

TEST(JsonOutput, OfAFailureHasItsSentence) {
    const TemporaryDirectory folder;
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"inspect", "absent.pt", "--json"},
                                               {"probe", post_norm, "--json", "--tokens", "many"},
                                               {"prob", "--json"},
                                               {"check", "--markdown", "--json"},
                                               {"compare", "absent", "nowhere", "--json"}}) {
        SCOPED_TRACE(words.front());
        const Finished failed = tsdiag(folder, words);
        expect_one_sentence(failed.err);
        const Json printed = Json::parse(failed.out, "stdout");
        EXPECT_EQ("tsdiag: " + printed["error"].string() + "\n", failed.err);
        EXPECT_EQ(printed["exit_code"].integer(), failed.code);
        EXPECT_NE(failed.code, 0);
        for (const char* key : {"tsdiag", "command", "version"}) EXPECT_TRUE(printed.contains(key));
    }
}

}  // namespace
}  // namespace tsdiag::test
