#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"

/// Reproducibility: the same seed gives the same tables, byte for byte, with any number of
/// threads, batch size and memory limit, for every command that writes tables.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct CommandCase {
    std::string name;
    Words words;  ///< without --out
    void (*prepare)(const TemporaryDirectory& folder) = [](const TemporaryDirectory&) {};
    bool memory = false;  ///< it takes --memory
    bool threads = true;  ///< it takes --threads
    bool batch = false;   ///< it takes --batch, of some samples
    const char* option = "--out";
};
std::ostream& operator<<(std::ostream& out, const CommandCase& command) {
    return out << command.name;
}

class EveryCommand : public testing::TestWithParam<CommandCase> {};

/// Every table of `out`, with its path; pages and run.json contain times.
std::map<std::string, std::string> tables(const fs::path& out) {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(out))
        for (const char* ending : {".csv", ".npz", ".safetensors", ".dat"})
            if (entry.path().extension() == ending)
                found[fs::relative(entry.path(), out).string()] = read_file(entry.path());
    return found;
}

TEST_P(EveryCommand, GivesTheSameTablesOnAnyThreadsBatchAndMemory) {
    const CommandCase& command = GetParam();
    TemporaryDirectory folder;
    command.prepare(folder);
    std::vector<Words> ways = {{}};
    if (command.threads) ways.assign({{"--threads", "1"}, {"--threads", "3"}});
    if (command.batch) ways.push_back({"--threads", "2", "--batch", "2"});
    if (memory_is_its_own) {  // a sanitizer has seen each path by now
        if (command.threads) ways.push_back({"--threads", "2"});
        if (command.batch)
            for (const char* samples : {"1", "5"})
                ways.push_back({"--threads", "2", "--batch", samples});
    }
    if (command.memory) {
        Words words = command.words;
        words.insert(words.end(), {"--threads", "3", "--memory", "1M"});
        const std::string least = least_memory(tsdiag(folder, words).err);
        ASSERT_FALSE(least.empty());
        // The overhead of a sanitizer varies by some MiB between runs.
        const int overhead = memory_is_its_own ? 0 : 32;
        ways.push_back(
            {"--threads", "3", "--memory", std::to_string(std::stoi(least) + overhead) + "M"});
    }
    std::map<std::string, std::string> expected;
    for (std::size_t i = 0; i < ways.size(); ++i) {
        const std::string out = "out" + std::to_string(i);
        Words words = command.words;
        words.insert(words.end(), ways[i].begin(), ways[i].end());
        words.insert(words.end(), {command.option, out});
        const Finished done = tsdiag(folder, words);
        ASSERT_EQ(done.code, 0) << done.err;
        std::map<std::string, std::string> found = tables(folder / out);
        if (i == 0) {
            EXPECT_FALSE(found.empty());
            expected = std::move(found);
            continue;
        }
        ASSERT_EQ(found.size(), expected.size());
        for (const auto& [file, text] : expected)
            EXPECT_TRUE(found[file] == text)
                << file << " differs with " << testing::PrintToString(ways[i]);
    }
}

Words probe_of_70_tokens(const std::string& model, Words more = {}) {
    Words words = {"probe", model, "--tokens", "70", "--samples", "3", "--no-report", "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

void write_trace(const TemporaryDirectory& folder) {
    constexpr std::int64_t n = 40, d = 6;
    const auto wave = [](std::size_t count, double phase) {
        std::vector<double> values(count);
        for (std::size_t i = 0; i < count; ++i)
            values[i] = std::sin(0.37 * double(i * i % 1009) + phase);
        return values;
    };
    const std::vector<double> x = wave(n * d, 0), y = wave(n * d, 1), q = wave(n * d, 2),
                              k = wave(n * d, 3), v = wave(n * d, 4);
    const std::vector<std::int64_t> heads = {2, n, d / 2};
    const std::vector<NamedArray> arrays = {{"hidden_states.0", {n, d}, {}, x},
                                            {"hidden_states.1", {n, d}, {}, y},
                                            {"queries.0", heads, {}, q},
                                            {"keys.0", heads, {}, k},
                                            {"values.0", heads, {}, v}};
    write_npz(folder / "trace.npz", arrays);
}

void write_series(const TemporaryDirectory& folder) {
    for (const char* step : {"1", "2"})
        tsdiag(folder, {"init", "random:gpt2,layers=1,d=16,heads=2,vocab=32,tokens=80", "--seed",
                        step, "-o", std::string("run/checkpoint-") + step});
}

void write_log(const TemporaryDirectory& folder) {
    std::ofstream out(folder / "log.csv");
    out << "step,grad_norm\n";
    for (int t = 0; t < 120; ++t) out << t << ',' << 1 + 0.3 * std::sin(0.9 * t * t) << '\n';
}

std::vector<CommandCase> every_command() {
    std::vector<CommandCase> all;
    for (const char* attention :
         {"softmax", "polynomial", "relu", "linear", "performer", "cosformer", "norm_attention",
          "diag_attention", "linformer", "nystrom,landmarks=10", "flash,group=16", "flash_quad",
          "reformer,chunk=4,rounds=2", "transformer_ls,rank=4", "bigbird,block=4",
          "informer,factor=2", "kernelized", "skyformer"})
        all.push_back(
            {.name = "probe_" + std::string(attention).substr(0, std::string(attention).find(',')),
             .words = probe_of_70_tokens("random:post-norm,layers=2,d=24,heads=3,attention=" +
                                         std::string(attention)),
             .memory = true,
             .batch = true});
    for (const char* family : {"gpt2", "llama-7b", "pythia-70m", "albert-base-v2"})
        all.push_back({.name = std::string("probe_") + std::string(family, 4),
                       .words = probe_of_70_tokens("random:" + std::string(family) +
                                                   ",layers=2,d=32,heads=2,vocab=40"),
                       .memory = true,
                       .batch = true});
    all.push_back(
        {.name = "probe_trials",
         .words = probe_of_70_tokens("random:pre-norm,layers=2,d=24,heads=3", {"--trials", "5"}),
         .memory = true});
    // long enough for a library to share sums among threads
    all.push_back({.name = "probe_long",
                   .words = {"probe", "random:post-norm,d=192,heads=3,layers=2,attention=linear",
                             "--tokens", "700", "--no-report", "-q"}});
    // wide enough for a library to share products among threads along the inner dimension
    all.push_back({.name = "probe_wide",
                   .words = {"probe", "random:post-norm,d=1024,heads=16,layers=1", "--tokens", "40",
                             "--samples", "3", "--probes", "core", "--no-report", "-q"},
                   .batch = true});
    // long enough for several parts of P, whose first layer is not observed
    all.push_back(
        {.name = "probe_second_layer",
         .words = {"probe", "random:gpt2,d=128,heads=16,layers=2,vocab=40", "--tokens", "500",
                   "--samples", "3", "--layers", "1:1", "--probes", "t_sim", "--no-report", "-q"},
         .batch = true});
    all.push_back({.name = "probe_f64",
                   .words = {"probe", "random:post-norm,d=200,heads=5,layers=2", "--tokens", "333",
                             "--dtype", "f64", "--no-report", "-q"}});
    // long enough for P to be computed in blocks at the least memory; then delta_pi is undefined
    for (const std::string model : {"post-norm", "gpt2", "llama-7b"})
        for (const std::string type : {"f32", "f64"})
            all.push_back(
                {.name = "probe_blocks_" + model.substr(0, 4) + "_" + type,
                 .words = {"probe", "random:" + model + ",layers=2,d=48,heads=3", "--tokens", "900",
                           "--probes", "core", "--dtype", type, "--no-report", "-q"},
                 .memory = true});
    all.push_back({.name = "probe_loss",
                   .words = probe_of_70_tokens("random:gpt2,layers=2,d=24,heads=3,vocab=40",
                                               {"--loss", "lm"}),
                   .memory = true});
    all.push_back({.name = "probe_maps",
                   .words = probe_of_70_tokens("random:gpt2,layers=2,d=24,heads=3,vocab=40",
                                               {"--maps", "0:0,1:2"}),
                   .memory = true});
    all.push_back({.name = "probe_trace",
                   .words = {"probe", "trace.npz", "--attention", "softmax", "--no-report", "-q"},
                   .prepare = write_trace,
                   .memory = true});
    all.push_back({.name = "probe_series",
                   .words = {"probe", "run", "--tokens", "70", "--no-report", "-q"},
                   .prepare = write_series,
                   .memory = true});
    all.push_back(
        {.name = "check",
         .words = {"check", "devil.propD6", "tse.prop2.3", "tse.lemmaA5", "--trials", "50", "-q"}});
    all.push_back(
        {.name = "figure",
         .words = {"figure", "tse.fig2", "--trials", "5", "--reading", "layers=2", "--reading",
                   "tokens=16", "--reading", "d=16", "--reading", "heads=2", "-q"}});
    all.push_back({.name = "train",
                   .words = {"train", "random:gpt2,layers=2,d=16,heads=2", "--data", "copy:3",
                             "--tokens", "9", "--steps", "6", "--batch", "5", "--dropout", "0.1",
                             "--probe-every", "3", "-q"},
                   .option = "-o"});
    all.push_back({.name = "gradients",
                   .words = {"gradients", "log.csv", "--no-report", "-q"},
                   .prepare = write_log,
                   .threads = false});
    return all;
}
INSTANTIATE_TEST_SUITE_P(Commands, EveryCommand, testing::ValuesIn(every_command()),
                         [](const auto& test) {
                             std::string name = test.param.name;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace tsdiag::test
