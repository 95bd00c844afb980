#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "program.hpp"
#include "support/packers.hpp"
#include "tsdiag/file.hpp"

/// The law of settings: checkpoints that were measured before are measured again wherever an
/// option, or a file that one names, would change a number of their tables.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// How an option is given a value, and another one.
struct Change {
    Words before, after;
    std::function<void(const TemporaryDirectory&)> between = {};  ///< to files
    bool decides = true;                                          ///< tables must differ
    bool refused = false;  ///< several checkpoints cannot be measured so
};

void write(const TemporaryDirectory& folder, const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
}

void write_mask(const TemporaryDirectory& folder, std::size_t hidden) {
    std::vector<std::int64_t> keep(8, 1);
    keep[hidden] = 0;
    write_npy(folder / "mask.npy", "<i8", {8}, std::span<const std::int64_t>(keep));
}

/// LoRA of rank 1 that adds alpha / 4 to each element of a matrix.
void write_adapter(const TemporaryDirectory& folder, int alpha) {
    fs::create_directories(folder / "adapter");
    const std::string name = "base_model.model.transformer.h.0.attn.c_attn.lora_";
    write(
        folder, "adapter/adapter_model.safetensors",
        safetensors({{name + "A.weight", "F32", {1, 8}, bytes_of(std::vector<float>(8, 0.5f))},
                     {name + "B.weight", "F32", {24, 1}, bytes_of(std::vector<float>(24, 0.5f))}}));
    write(folder, "adapter/adapter_config.json",
          R"({"peft_type": "LORA", "r": 1, "fan_in_fan_out": true, "lora_alpha": )" +
              std::to_string(alpha) + "}");
}

std::multimap<std::string, Change> changes() {
    const Words ids = {"--input", "ids:ids.txt"};
    const Words labels = {"--loss", "classify:3", "--labels", "labels.txt"};
    const auto text = [](const char* name, const char* words) {
        return [=](const TemporaryDirectory& folder) { write(folder, name, words); };
    };
    const auto refused = [&](Words words) {
        Change change{.before = {}, .after = std::move(words)};
        change.refused = true;
        return change;
    };
    const auto same = [&](Words words) {
        Change change{.before = {}, .after = std::move(words)};
        change.decides = false;
        return change;
    };
    return {
        {"--config", {.before = {}, .after = {"--config", "other.json"}}},
        {"--config",
         {.before = {"--config", "other.json"},
          .after = {"--config", "other.json"},
          .between =
              [](const TemporaryDirectory& folder) {
                  std::string config = read_file(folder / "other.json");
                  config.replace(config.find("gelu_new"), 8, "silu");
                  write(folder, "other.json", config);
              }}},
        {"--config",
         {.before = {"--config", "folder"},
          .after = {"--config", "folder"},
          .between =
              [](const TemporaryDirectory& folder) {
                  std::string config = read_file(folder / "folder/config.json");
                  config.replace(config.find("0.2"), 3, "0.3");
                  write(folder, "folder/config.json", config);
              }}},
        {"--n-heads", same({"--n-heads", "2"})},
        {"--width", same({"--width", "8"})},
        {"--memory-tokens", refused({"--memory-tokens", "2"})},
        {"--ignore", {.before = {}, .after = {"--ignore", "layer_norm_epsilon"}}},
        {"--map", refused({"--map", "ids.txt"})},
        {"--adapter", {.before = {}, .after = {"--adapter", "adapter"}}},
        {"--adapter",
         {.before = {"--adapter", "adapter"},
          .after = {"--adapter", "adapter"},
          .between = [](const TemporaryDirectory& folder) { write_adapter(folder, 8); }}},
        {"--base", refused({"--base", "run/checkpoint-1"})},
        {"--steps", {.before = {}, .after = {"--steps", "3,4"}}},
        {"--input", {.before = {}, .after = ids}},
        {"--input", {.before = ids, .after = ids, .between = text("ids.txt", "5 6 7 1 2 0 9 8")}},
        {"--text", refused({"--text", "a"})},
        {"--text-file", refused({"--text-file", "ids.txt"})},
        {"--text-lines", refused({"--text-lines", "ids.txt"})},
        {"--tokenizer", refused({"--tokenizer", "ids.txt", "--text", "a"})},
        {"--images", refused({"--images", "."})},
        {"--preprocessor", refused({"--preprocessor", "other.json"})},
        {"--tokens", {.before = {}, .after = {"--tokens", "7"}}},
        {"--samples", {.before = {}, .after = {"--samples", "2"}}},
        {"--trials", refused({"--trials", "2"})},
        {"--seed", {.before = {}, .after = {"--seed", "1"}}},
        {"--loss", {.before = {}, .after = {"--loss", "lm"}}},
        {"--labels", {.before = {"--loss", "classify:3"}, .after = labels}},
        {"--labels", {.before = labels, .after = labels, .between = text("labels.txt", "2")}},
        {"--mask", {.before = {}, .after = {"--mask", "mask.npy"}}},
        {"--mask",
         {.before = {"--mask", "mask.npy"},
          .after = {"--mask", "mask.npy"},
          .between = [](const TemporaryDirectory& folder) { write_mask(folder, 5); }}},
        {"--layers", {.before = {}, .after = {"--layers", "1:1"}}},
        {"--heads", {.before = {}, .after = {"--heads", "1"}}},
        {"--probes", {.before = {}, .after = {"--probes", "core"}}},
        {"--maps", refused({"--maps", "0:0"})},
        {"--tolerance", same({"--tolerance", "1e-3"})},
        {"--spectra", {.before = {}, .after = {"--spectra", "arnoldi"}}},
        {"--cross-check", same({"--cross-check", "1"})},
        {"--allow-nonfinite", same({"--allow-nonfinite"})},
        {"--attention", refused({"--attention", "softmax"})},
        {"--causal", refused({"--causal"})},
        {"--scale", refused({"--scale", "2"})},
        {"--a2", refused({"--a2", "2"})},
        {"--placement", refused({"--placement", "pre"})},
        {"--dtype", {.before = {}, .after = {"--dtype", "f64"}}},
        {"--device", same({"--device", "cpu"})},
        {"--fast", refused({"--fast", "tf32", "--device", "cpu"})},
        {"--memory", same({"--memory", "1G"})},
        {"--batch", same({"--batch", "2"})},
        {"--threads", same({"--threads", "1"})},
        {"--mixed", same({"--mixed"})},
        {"--style", same({"--style", "style.toml"})},
        {"--figure-width", same({"--figure-width", "82mm"})},
        {"--force", same({"--force"})},
        {"--quiet", same({"--quiet"})},
        {"--verbose", same({"--verbose"})},
        {"--no-report", same({"--no-report"})},
        {"--profile", refused({"--profile"})},
        {"--settings", {.before = {}, .after = {"--settings", "settings.toml"}}},
    };
}

/// Two checkpoints of a training, and the files that options name.
void write_all(const TemporaryDirectory& folder) {
    for (const char* seed : {"1", "2"})
        ASSERT_EQ(tsdiag(folder, {"init", "random:gpt2,layers=2,d=8,heads=2,vocab=11,tokens=8",
                                  "--seed", seed, "-o", std::string("run/checkpoint-") + seed})
                      .code,
                  0);
    std::string config = read_file(folder / "run/checkpoint-1/config.json");
    const std::size_t at = config.find("\"layer_norm_epsilon\"");
    ASSERT_NE(at, std::string::npos);
    config.replace(config.find(':', at) + 1,
                   config.find_first_of(",}", at) - config.find(':', at) - 1, " 0.1");
    for (const char* place :
         {"run/checkpoint-1/config.json", "run/checkpoint-2/config.json", "other.json"})
        write(folder, place, config);
    config.replace(config.find("0.1"), 3, "0.2");
    write(folder, "other.json", config);
    fs::create_directory(folder / "folder");
    write(folder, "folder/config.json", config);
    write(folder, "ids.txt", "1 2 3 4 5 6 7 8");
    write(folder, "labels.txt", "1");
    write(folder, "style.toml", "width = \"3.25in\"\n");
    write(folder, "settings.toml", "seed = 3\n");
    write_mask(folder, 2);
    write_adapter(folder, 4);
}

std::string tables(const TemporaryDirectory& folder, const std::string& out) {
    return read_file(fs::path(folder / out) / "metrics.csv") +
           read_file(fs::path(folder / out) / "curves.csv");
}

/// The long options of `probe --help`, but for those that print or say where.
std::set<std::string> options() {
    const TemporaryDirectory folder;
    std::istringstream help(tsdiag(folder, {"probe", "--help"}).out);
    std::set<std::string> found;
    for (std::string line; std::getline(help, line);) {
        if (!line.starts_with("  -")) continue;
        const std::size_t begin = line.find("--");
        found.insert(line.substr(begin, line.find_first_of(" ,", begin) - begin));
    }
    for (const char* other : {"--help", "--json", "--print-settings", "--out", "--part"})
        found.erase(other);
    return found;
}

TEST(Settings, WhatChangesANumberIsToldByTheHelp) {
    const TemporaryDirectory folder;
    const Json help = Json::parse(tsdiag(folder, {"probe", "--help", "--json"}).out, "help");
    std::set<std::string> changing;
    for (const Json& option : help["commands"].array().at(0)["options"].array())
        if (option["changes_numbers"].boolean()) changing.insert(option["name"].string());
    for (const auto& [option, change] : changes())
        if (change.decides && !change.refused) {
            EXPECT_TRUE(changing.contains(option)) << option;
        }
}

TEST(Settings, OfEveryOptionAreMeasuredAnewWhereTheyChangeANumber) {
    const std::multimap<std::string, Change> all = changes();
    const auto probe = [](const TemporaryDirectory& folder, const Words& words, const char* out) {
        return tsdiag(folder, with({"probe", "run", "--no-report", "-o", out}, words));
    };
    // Measured once for all the changes that begin without an option; a copy of it is as good.
    const TemporaryDirectory plain, copied;
    write_all(plain);
    ASSERT_EQ(probe(plain, {}, "kept").code, 0);
    fs::copy(plain.path(), copied.path(), fs::copy_options::recursive);
    EXPECT_THAT(probe(copied, {}, "kept").out, testing::HasSubstr("2 reused from an earlier run"));
    for (const std::string& option : options()) {
        EXPECT_TRUE(all.contains(option)) << option << " has no line in this test";
        const auto [first, last] = all.equal_range(option);
        for (auto one = first; one != last; ++one) {
            const Change& change = one->second;
            SCOPED_TRACE(option);
            const TemporaryDirectory folder;
            fs::copy(plain.path(), folder.path(), fs::copy_options::recursive);
            if (!change.before.empty()) {
                fs::remove_all(folder / "kept");
                ASSERT_EQ(probe(folder, change.before, "kept").code, 0);
            }
            const std::string before = tables(folder, "kept");
            if (change.between) change.between(folder);
            const int code = probe(folder, change.after, "fresh").code;
            EXPECT_EQ(probe(folder, change.after, "kept").code, code);
            EXPECT_EQ(code != 0, change.refused);
            if (code != 0) continue;
            const std::string fresh = tables(folder, "fresh");
            EXPECT_EQ(tables(folder, "kept"), fresh);
            if (change.decides) {
                EXPECT_NE(fresh, before);
            }
        }
    }
}

}  // namespace
}  // namespace tsdiag::test
