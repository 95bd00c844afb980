#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "program.hpp"
#include "support/places.hpp"
#include "support/table_differences.hpp"
#include "tsdiag/backend.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// `--device`: error messages without a device, and runs on an emulated one.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

std::string plugin(const std::string& file) { return "TSDIAG_CUDA_PLUGIN=" + file; }

struct Missing {
    const char* what;
    std::string file, message;
};

class EveryMissingDevice : public testing::TestWithParam<Missing> {};

TEST_P(EveryMissingDevice, IsOneSentenceAndExits3) {
    TemporaryDirectory folder;
    const std::vector<std::string> words = {
        "probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--no-report", "-o", "out", "--device",
        "cuda"};
    const Finished found = tsdiag(folder, words, {plugin(GetParam().file)});
    EXPECT_EQ(found.code, 3);
    EXPECT_THAT(found.err, HasSubstr(GetParam().message));
    EXPECT_THAT(found.err, HasSubstr("use --device cpu"));
    EXPECT_EQ(std::count(found.err.begin(), found.err.end(), '\n'), 1) << found.err;
    EXPECT_THAT(names_in(folder.path()), IsEmpty());
    EXPECT_THAT(tsdiag(folder, {"info"}, {plugin(GetParam().file)}).out,
                HasSubstr(GetParam().message));
}

TEST_P(EveryMissingDevice, AutoTakesTheCpu) {
    TemporaryDirectory folder;
    const std::vector<std::string> words = {
        "probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--tokens", "4", "--no-report", "-o",
        "out"};
    ASSERT_EQ(tsdiag(folder, words, {plugin(GetParam().file)}).code, 0);
    EXPECT_THAT(read_file(folder.path() / "out/run.json"), HasSubstr("\"device\": \"cpu\""));
}

std::vector<Missing> missing() {
    std::vector<Missing> all = {
        {"no_file", "/nowhere/lib.so", "no such file"},
        {"no_library", test_data() + "/golden/manifest.json", "invalid ELF header"}};
    if (!other_plugin().empty())
        all.push_back({"another_build", other_plugin(), "install both from the same build"});
    if (!cuda_plugin().empty() && !fs::exists("/dev/nvidiactl"))
        all.push_back({"no_driver", cuda_plugin(), "no NVIDIA driver"});
    return all;
}
INSTANTIATE_TEST_SUITE_P(Reasons, EveryMissingDevice, testing::ValuesIn(missing()),
                         [](const auto& test) { return test.param.what; });

#ifdef TSDIAG_EMULATED_PLUGIN

Finished on(const TemporaryDirectory& folder, const std::string& device,
            std::vector<std::string> environment, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"probe",       "random:gpt2,layers=1,d=8,heads=2,vocab=9",
                                      "--no-report", "--device",
                                      device,        "-o",
                                      "out"};
    if (more.empty()) more = {"--tokens", "4"};
    words.insert(words.end(), more.begin(), more.end());
    environment.push_back(plugin(emulated_plugin()));
    return tsdiag(folder, std::move(words), std::move(environment));
}

/// A machine with devices of some kinds, and the one that is selected.
struct Machine {
    const char *name, *devices, *asked, *taken;
    std::vector<std::string> said;  ///< in the warning, or in the error where none is selected
};
void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.name; }

class EveryMachine : public testing::TestWithParam<Machine> {};

TEST_P(EveryMachine, TakesADeviceThatItHasCodeForOrSaysWhyNot) {
    const Machine& m = GetParam();
    TemporaryDirectory folder;
    const Finished found =
        on(folder, m.asked, {std::string("TSDIAG_EMULATED_DEVICES=") + m.devices});
    if (std::string(m.taken).empty()) {
        EXPECT_EQ(found.code, 3) << found.err;
        EXPECT_EQ(std::count(found.err.begin(), found.err.end(), '\n'), 1) << found.err;
        for (const std::string& word : m.said) EXPECT_THAT(found.err, HasSubstr(word));
        EXPECT_THAT(found.err, HasSubstr("use --device cpu"));
        EXPECT_THAT(names_in(folder.path()), IsEmpty());
        return;
    }
    ASSERT_EQ(found.code, 0) << found.err;
    const Json run = Json::parse(read_file(folder.path() / "out/run.json"), "run.json");
    EXPECT_EQ(run["device"].string(), m.taken);
    const bool on_device = std::string_view(m.taken) != "cpu";
    EXPECT_EQ(run.contains("device_name"), on_device);
    if (on_device) {
        EXPECT_EQ(run["device_name"].string(), "emulated device");
    }
    const Json::Array& warnings = run["warnings"].array();
    ASSERT_EQ(warnings.size(), m.said.empty() ? 0U : 1U);
    for (const std::string& word : m.said) {
        EXPECT_THAT(warnings[0].string(), HasSubstr(word));
        EXPECT_THAT(found.out, HasSubstr("warning"));
    }
}

const std::string too_old =
    "has compute capability 7.5, for which the library has no code (it was "
    "built for 80-real,90)";
INSTANTIATE_TEST_SUITE_P(
    Listings, EveryMachine,
    testing::Values(
        Machine{"old_auto", "7.5", "auto", "cpu", {"cuda:0", too_old, "using the CPU"}},
        Machine{"old_cuda", "7.5", "cuda", "", {"cuda:0", too_old}},
        Machine{"old_first", "7.5", "cuda:0", "", {"device 'cuda:0'", too_old}},
        Machine{"ampere", "8.0", "auto", "cuda:0", {}},
        Machine{"ampere_later_minor", "8.9", "cuda", "cuda:0", {}},
        Machine{"newer_than_the_code", "12.0", "auto", "cuda:0", {}},
        Machine{"old_before_new", "7.5,8.0", "auto", "cuda:1", {"cuda:0", too_old, "using cuda:1"}},
        Machine{"first_that_works", "7.5,8.0", "cuda", "cuda:1", {"cuda:0", too_old}},
        Machine{"named", "7.5,8.0", "cuda:1", "cuda:1", {}},
        Machine{"named_old", "8.0,7.5", "cuda:1", "", {"device 'cuda:1'", too_old}},
        Machine{"named_missing", "8.0,9.0", "cuda:2", "", {"numbered from 0 to 1"}},
        Machine{"broken_first",
                "broken,9.0",
                "auto",
                "cuda:1",
                {"cuda:0", "does not answer", "using cuda:1"}},
        Machine{"all_broken",
                "broken,7.5",
                "auto",
                "cpu",
                {"does not answer", too_old, "using the CPU"}},
        Machine{"all_broken_cuda", "broken,7.5", "cuda", "", {"does not answer", too_old}},
        Machine{"none_auto", "", "auto", "cpu", {"no NVIDIA device", "using the CPU"}},
        Machine{"none_cuda", "", "cuda", "", {"no NVIDIA device"}}),
    [](const auto& test) { return test.param.name; });

TEST(Device, ListsEachDeviceAndWhyItIsNotTaken) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(
        folder, {"info"}, {plugin(emulated_plugin()), "TSDIAG_EMULATED_DEVICES=7.5,broken,9.0"});
    EXPECT_THAT(found.out, HasSubstr(too_old));
    EXPECT_THAT(found.out, HasSubstr("does not answer"));
    EXPECT_THAT(found.out, HasSubstr("device cuda:2  emulated on the host"));
}

TEST(Device, TrainingSaysWhichItPassedOver) {
    TemporaryDirectory folder;
    const Finished found =
        tsdiag(folder,
               {"train", "random:gpt2,layers=1,d=4,heads=1,vocab=5", "--data", "copy:3", "--tokens",
                "5", "--batch", "1", "--steps", "1", "--eval-samples", "1", "-o", "out"},
               {plugin(emulated_plugin()), "TSDIAG_EMULATED_DEVICES=7.5"});
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("has compute capability 7.5"));  // lines are broken
    const Json run = Json::parse(read_file(folder.path() / "out/run.json"), "run.json");
    EXPECT_EQ(run["device"].string(), "cpu");
    EXPECT_THAT(run["warnings"].array().at(0).string(), HasSubstr(too_old));
}

/// All tables and run.json of a run on a device of `bytes`, of which other processes use `taken`.
std::pair<std::string, Json> with_taken(const char* bytes, const char* taken,
                                        const std::vector<std::string>& more) {
    TemporaryDirectory folder;
    const Finished found = on(folder, "cuda",
                              {std::string("TSDIAG_EMULATED_MEMORY=") + bytes,
                               std::string("TSDIAG_EMULATED_TAKEN=") + taken},
                              more);
    EXPECT_EQ(found.code, 0) << found.err;
    return {
        read_file(folder.path() / "out/metrics.csv") + read_file(folder.path() / "out/curves.csv"),
        Json::parse(read_file(folder.path() / "out/run.json"), "run.json")};
}

TEST(Device, GivesTheSameBitsWhateverElseIsOnIt) {
    const std::vector<std::string> more = {"--tokens", "128",      "--dtype",
                                           "f64",      "--probes", "core,mu1,mu2"};
    const auto [alone, run] = with_taken("20000000", "0", more);
    EXPECT_FALSE(run.contains("shortages"));
    const auto [with_others, other] = with_taken("20000000", "15000000", more);
    EXPECT_FALSE(other.contains("shortages"));
    EXPECT_EQ(with_others, alone);
    EXPECT_EQ(other["settings"]["memory"].integer(), 10000000);
}

TEST(Device, GivesTheSameBitsInWhateverOrderItWorks) {
    std::string forward;
    for (const char* order : {"forward", "reverse", "7"})
        for (const char* stream : {"lazy", "eager"}) {
            TemporaryDirectory folder;
            const Finished found = on(folder, "cuda",
                                      {std::string("TSDIAG_EMULATED_ORDER=") + order,
                                       std::string("TSDIAG_EMULATED_STREAM=") + stream},
                                      {"--tokens", "9", "--loss", "square"});
            ASSERT_EQ(found.code, 0) << found.err;
            const std::string tables = read_file(folder.path() / "out/metrics.csv") +
                                       read_file(folder.path() / "out/curves.csv");
            if (forward.empty()) forward = tables;
            EXPECT_EQ(tables, forward) << order << " " << stream;
        }
}

TEST(Device, SaysWhereItsMemoryDidNotSuffice) {
    const std::vector<std::string> more = {"--tokens", "1024", "--probes", "fro,entropy"};
    const auto [tables, run] = with_taken("100000000", "97000000", more);
    ASSERT_TRUE(run.contains("shortages"));
    EXPECT_THAT(run["shortages"].array().at(0).string(),
                HasSubstr("blocks of rows of P were halved"));
    EXPECT_EQ(run["warnings"].array().at(0).string(), run["shortages"].array().at(0).string());
}

TEST(Device, IsNamedByTheFiguresThatItComputes) {
    for (const auto& [figure, on_device] : {std::pair("tse.fig4", true), {"tse.fig8", false}}) {
        TemporaryDirectory folder;
        const Finished found = tsdiag(folder,
                                      {"figure", figure, "--trials", "1", "--reading", "d=16", "-q",
                                       "--device", "cuda", "-o", "out"},
                                      {plugin(emulated_plugin())});
        ASSERT_EQ(found.code, 0) << found.err;
        const fs::path file = folder.path() / "out" / figure / "run.json";
        const Json run = Json::parse(read_file(file), "run.json");
        EXPECT_EQ(run.contains("device"), on_device) << figure;
        EXPECT_EQ(run.contains("device_name"), on_device) << figure;
    }
}

/// A P that does not fit after all is applied by blocks.
TEST(Device, MixesTokensWherePIsNotKept) {
    const auto numbers = [](const char* taken) {
        TemporaryDirectory folder;
        const Finished found = tsdiag(
            folder,
            {"probe", "random:post-norm,layers=1,d=16,heads=16", "--tokens", "320", "--probes",
             "mu1,mu2,omega", "--dtype", "f64", "--no-report", "--device", "cuda", "-o", "out"},
            {plugin(emulated_plugin()), "TSDIAG_EMULATED_MEMORY=150000000",
             std::string("TSDIAG_EMULATED_TAKEN=") + taken});
        EXPECT_EQ(found.code, 0) << found.err;
        const std::string description = read_file(folder.path() / "out/run.json");
        EXPECT_EQ(description.find("applied by blocks for the mixing of tokens, 1 time;") !=
                      description.npos,
                  taken != std::string("0"));
        const fs::path file = folder.path() / "out/metrics.csv";
        return read_metrics_csv(read_file(file), file.string());
    };
    TableDifferences all;
    compare_rows(numbers("140000000"), numbers("0"), all);
    EXPECT_THAT(all.faults, IsEmpty());
    EXPECT_GT(all.numbers, 40);
}

class EveryModelOnADevice : public testing::TestWithParam<std::string> {};

/// A complete probe with states that the host cannot read: the same numbers.
TEST_P(EveryModelOnADevice, GivesTheNumbersOfTheCpu) {
    TemporaryDirectory folder;
    for (const char* device : {"cuda", "cpu"}) {
        const Finished found =
            tsdiag(folder,
                   {"probe", GetParam(), "--tokens", "5", "--dtype", "f64", "--loss", "square",
                    "--no-report", "--device", device, "-o", device},
                   {plugin(emulated_plugin())});
        ASSERT_EQ(found.code, 0) << found.err;
    }
    const auto rows = [&](const char* device) {
        const fs::path file = folder.path() / device / "metrics.csv";
        return read_metrics_csv(read_file(file), file.string());
    };
    TableDifferences all;
    compare_rows(rows("cuda"), rows("cpu"), all);
    EXPECT_THAT(all.faults, IsEmpty());
    EXPECT_GT(all.numbers, 50);
}

/// Columns of a file of numbers.
std::vector<double> column(const fs::path& file, std::size_t which) {
    std::istringstream lines(read_file(file));
    std::string line;
    std::getline(lines, line);
    std::vector<double> out;
    while (std::getline(lines, line)) {
        std::istringstream cells(line);
        std::string cell;
        for (std::size_t i = 0; i <= which; ++i) std::getline(cells, cell, ',');
        out.push_back(std::stod(cell));
    }
    return out;
}

TEST(Device, TrainsAsTheCpuDoes) {
    TemporaryDirectory folder;
    for (const char* device : {"cuda", "cpu"}) {
        const Finished found =
            tsdiag(folder,
                   {"train", "random:gpt2,layers=1,d=4,heads=1,vocab=5", "--data", "copy:3",
                    "--tokens", "5", "--batch", "3", "--steps", "3", "--dropout", "0.1",
                    "--eval-samples", "1", "--device", device, "-o", device},
                   {plugin(emulated_plugin())});
        ASSERT_EQ(found.code, 0) << found.err;
    }
    for (const std::size_t which : {1U, 2U}) {  // loss, norm of the gradient
        const std::vector<double> found = column(folder.path() / "cuda/steps.csv", which),
                                  expected = column(folder.path() / "cpu/steps.csv", which);
        ASSERT_EQ(found.size(), 3U);
        // In float32, after steps with different rounding.
        for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
    }
}

/// The number of device requests of a run: "kernels" and so on.
std::map<std::string, double> asked(const std::vector<std::string>& words) {
    TemporaryDirectory folder;
    const Finished found =
        tsdiag(folder, words,
               {plugin(emulated_plugin()), "TSDIAG_EMULATED_COUNTS=" + (folder / "counts")});
    EXPECT_EQ(found.code, 0) << found.err;
    std::map<std::string, double> counts;
    std::ifstream lines(folder / "counts");
    std::string what;
    for (double count = 0; lines >> what >> count;) counts[what] = count;
    EXPECT_EQ(counts.size(), 7U);
    return counts;
}

/// Larger batches need no more requests: the work per request grows.
TEST(Device, AStepOfTrainingAsksForNoMoreWhereThereAreMoreSamples) {
    const auto steps = [](const char* batch, const char* count) {
        return asked({"train", "random:gpt2,layers=2,d=8,heads=2,vocab=5", "--data", "copy:3",
                      "--tokens", "5", "--batch", batch, "--steps", count, "--eval-samples", "0",
                      "--device", "cuda", "-o", "out", "-q"});
    };
    std::map<std::string, double> two = steps("2", "2"), eight = steps("8", "2");
    for (const auto& [what, count] : steps("2", "1")) two[what] -= count;
    for (const auto& [what, count] : steps("8", "1")) eight[what] -= count;
    EXPECT_EQ(two.extract("solutions").mapped(), 0);  // of eigenvalue problems
    EXPECT_EQ(two.extract("waits").mapped(), 0);      // beside downloads
    for (const auto& [what, count] : two) {
        EXPECT_GT(count, 0) << what;
        // Sums over more samples take a few more blocks.
        EXPECT_LE(eight[what], 1.1 * count) << what;
    }
}

/// Shared work is requested once per batch of eight, except for the metrics.
TEST(Device, SamplesGoThroughALayerTogether) {
    const auto products = [](const char* samples, const char* batch) {
        return asked({"probe", "random:gpt2,layers=2,d=8,heads=2,vocab=9", "--tokens", "4",
                      "--samples", samples, "--batch", batch, "--probes", "t_sim", "--no-report",
                      "--device", "cuda", "-o", "out", "-q"})["products"];
    };
    const double one = products("1", "1"), alone = products("8", "1"),
                 together = products("8", "8");
    // A sample alone asks for six products in each of two layers; samples together for no more.
    EXPECT_EQ(alone - one, 7 * 2 * 6);
    EXPECT_EQ(together, one);
}

/// A run with spectra, dense ones unless told otherwise, on the device or on the CPU.
Finished with_spectra(const TemporaryDirectory& folder, const char* device,
                      std::vector<std::string> environment, const char* spectra = "dense") {
    environment.push_back(plugin(emulated_plugin()));
    return tsdiag(folder,
                  {"probe", "random:post-norm,d=8,heads=2,layers=1,ffn=9", "--tokens", "12",
                   "--dtype", "f64", "--probes", "lambda2_abs,delta", "--spectra", spectra,
                   "--no-report", "--device", device, "-o", device},
                  std::move(environment));
}
/// run.json of one with dense spectra.
Json solved(const TemporaryDirectory& folder, const char* device,
            std::vector<std::string> environment) {
    const Finished found = with_spectra(folder, device, std::move(environment));
    EXPECT_EQ(found.code, 0) << found.err;
    return Json::parse(read_file(folder.path() / device / "run.json"), "run.json");
}

TEST(Device, SolvesDenselyWithoutTheHost) {
    TemporaryDirectory folder;
    const Json run = solved(folder, "cuda", {"TSDIAG_EMULATED_COUNTS=" + (folder / "counts")});
    EXPECT_THAT(run["solver"].array(), IsEmpty());  // nothing iterated, nothing left to the host
    EXPECT_FALSE(run.contains("shortages"));
    // A routine for delta; for |lambda_2| one, and for each of two values a factorisation and a
    // solution to either side, which suffices.
    const std::string counts = read_file(folder.path() / "counts");
    EXPECT_THAT(counts, HasSubstr(fmt::format("\nsolutions {}\n", 2 * (1 + 1 + 2 * 3))));
    solved(folder, "cpu", {});
    TableDifferences all;
    const auto rows = [&](const char* device) {
        const fs::path file = folder.path() / device / "metrics.csv";
        return read_metrics_csv(read_file(file), file.string());
    };
    compare_rows(rows("cuda"), rows("cpu"), all);
    EXPECT_THAT(all.faults, IsEmpty());
    EXPECT_GE(all.numbers, 4);
}

TEST(Device, SaysWhatTheHostSolvedInItsPlace) {
    for (const std::string how : {"unsolved", "full"}) {
        TemporaryDirectory folder;
        const Json run = solved(folder, "cuda", {"TSDIAG_EMULATED_SOLVER=" + how});
        ASSERT_EQ(run["solver"].array().size(), 4U);  // two metrics of two heads
        for (const Json& entry : run["solver"].array()) {
            EXPECT_EQ(entry["method"].string(), "dense");
            EXPECT_TRUE(entry["on_host"].boolean());
        }
        ASSERT_EQ(run.contains("shortages"), how == "full");
        if (how == "full") {
            EXPECT_THAT(run["shortages"].array().at(0).string(),
                        HasSubstr("a dense spectrum was found on the host, 4 times"));
        }
    }
}

TEST(Device, NeedsItsSolverOnlyWhereItSolvesDensely) {
    const std::vector<std::string> missing = {"TSDIAG_EMULATED_SOLVER=missing"};
    TemporaryDirectory folder;
    const Finished refused = with_spectra(folder, "cuda", missing);
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, HasSubstr("cuSOLVER, which finds dense eigenvalues on a device"));
    EXPECT_THAT(refused.err, HasSubstr("install it from CUDA"));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_THAT(names_in(folder.path()), IsEmpty());
    const Finished iterated = with_spectra(folder, "cuda", missing, "arnoldi");
    EXPECT_EQ(iterated.code, 0) << iterated.err;
}

TEST(Device, SaysHowFarRoundedProductsAreOff) {
    TemporaryDirectory folder;
    const auto probe = [&](const std::string& device, const std::string& products,
                           const std::string& library) {
        return tsdiag(folder,
                      {"probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--tokens", "5",
                       "--probes", "t_sim", "--device", device, "--fast", products, "--no-report",
                       "--force", "-o", "out"},
                      {plugin(library)});
    };
    const auto expect_error_of_rounding = [&](const Finished& found) {
        ASSERT_EQ(found.code, 0) << found.err;
        EXPECT_THAT(found.out, HasSubstr("--fast bf16"));
        const Json run = Json::parse(read_file(folder.path() / "out/run.json"), "run.json");
        // Relative rounding of the factors is 2^-9, that of their sums is smaller.
        EXPECT_GT(run["fast"]["first_layer_error"].number(), 1e-6);
        EXPECT_LT(run["fast"]["first_layer_error"].number(), std::ldexp(1.0, -8));
    };
    expect_error_of_rounding(probe("auto", "bf16", emulated_plugin()));

    const Finished refused = probe("auto", "tf32", "/nowhere/lib.so");
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, HasSubstr("--fast tf32: needs a CUDA device"));

    const bool rounds =
        tsdiag(folder, {"list", "backends"}).out.find("--fast bf16") != std::string::npos;
    EXPECT_EQ(rounds, rounding_cpu() != nullptr);
    const Finished here = probe("cpu", "bf16", "/nowhere/lib.so");
    if (rounds) return expect_error_of_rounding(here);
    EXPECT_EQ(here.code, 3);
    EXPECT_THAT(here.err, HasSubstr("--fast bf16: needs a CUDA device, or a processor"));
}

TEST(Device, RoundsNoProductsOfFloat64) {
    TemporaryDirectory folder;
    const Finished found =
        tsdiag(folder,
               {"probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--tokens", "5", "--device",
                "cuda", "--fast", "bf16", "--dtype", "f64", "--no-report", "-o", "out"},
               {plugin(emulated_plugin())});
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(found.err, HasSubstr("--fast: rounds the factors of float32 products"));
}

TEST(Device, RoundsNoProductsOfATrace) {
    TemporaryDirectory folder;
    const std::string header =
        R"({"attentions.0":{"dtype":"F32","shape":[1,2,2],"data_offsets":[0,16]}})";
    write_file(folder.path() / "trace.safetensors", std::string(1, char(header.size())) +
                                                        std::string(7, '\0') + header +
                                                        std::string(16, '\0'));
    const Finished found = tsdiag(folder,
                                  {"probe", "trace.safetensors", "--device", "cuda", "--fast",
                                   "tf32", "--no-report", "-o", "out"},
                                  {plugin(emulated_plugin())});
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(found.err, HasSubstr("--fast: does not apply to a trace"));
}

TEST(Device, ThatIsFullIsOneSentence) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder,
                                  {"probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--tokens",
                                   "5", "--no-report", "--device", "cuda", "-o", "out"},
                                  {plugin(emulated_plugin()), "TSDIAG_EMULATED_MEMORY=100000000",
                                   "TSDIAG_EMULATED_TAKEN=99999000"});
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("cuda:0 is out of memory"));
    EXPECT_EQ(std::count(found.err.begin(), found.err.end(), '\n'), 1) << found.err;
    EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Models, EveryModelOnADevice,
    testing::Values("random:post-norm,d=8,heads=2,layers=2,ffn=9",
                    "random:llama-7b,d=16,heads=4,kv_heads=2,layers=3,vocab=9,ffn=9",
                    "random:gpt2,d=8,heads=2,layers=2,vocab=9",
                    "random:post-norm,attention=performer,d=8,heads=2,layers=1,ffn=9"),
    [](const auto& test) { return "model_" + std::to_string(test.index); });

#endif

}  // namespace
}  // namespace tsdiag::test
