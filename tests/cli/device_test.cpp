#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "program.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// `--device`: what is said where there is none, and the program on an emulated one.
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
        {"no_file", "/nowhere/lib.so", "there is no such file"},
        {"no_library", TSDIAG_TEST_DATA "/golden/manifest.json", "invalid ELF header"}};
#ifdef TSDIAG_OTHER_PLUGIN
    all.push_back({"another_build", TSDIAG_OTHER_PLUGIN, "install both from one build"});
#endif
#ifdef TSDIAG_CUDA_PLUGIN_FILE
    if (!fs::exists("/dev/nvidiactl"))
        all.push_back({"no_driver", TSDIAG_CUDA_PLUGIN_FILE, "no driver"});
#endif
    return all;
}
INSTANTIATE_TEST_SUITE_P(Reasons, EveryMissingDevice, testing::ValuesIn(missing()),
                         [](const auto& test) { return test.param.what; });

#ifdef TSDIAG_EMULATED_PLUGIN

class EveryModelOnADevice : public testing::TestWithParam<std::string> {};

/// The whole of probe with states that the host cannot read: the same numbers.
TEST_P(EveryModelOnADevice, GivesTheNumbersOfTheCpu) {
    TemporaryDirectory folder;
    for (const char* device : {"cuda", "cpu"}) {
        const Finished found =
            tsdiag(folder,
                   {"probe", GetParam(), "--tokens", "5", "--dtype", "f64", "--loss", "square",
                    "--no-report", "--device", device, "-o", device},
                   {plugin(TSDIAG_EMULATED_PLUGIN)});
        ASSERT_EQ(found.code, 0) << found.err;
    }
    const auto rows = [&](const char* device) {
        const fs::path file = folder.path() / device / "metrics.csv";
        return read_metrics_csv(read_file(file), file.string());
    };
    const std::vector<MetricRow> found = rows("cuda"), expected = rows("cpu");
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].at, expected[i].at);
        EXPECT_EQ(found[i].metric, expected[i].metric);
        ASSERT_EQ(found[i].value.has_value(), expected[i].value.has_value()) << found[i].metric;
        // Sums in another order, in double; the spectra are found to 1e-8.
        if (found[i].value) {
            EXPECT_NEAR(*found[i].value, *expected[i].value,
                        1e-8 * std::max(1e-3, std::abs(*expected[i].value)))
                << found[i].metric;
        }
    }
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
                   {plugin(TSDIAG_EMULATED_PLUGIN)});
        ASSERT_EQ(found.code, 0) << found.err;
    }
    for (const std::size_t which : {1U, 2U}) {  // loss, norm of the gradient
        const std::vector<double> found = column(folder.path() / "cuda/steps.csv", which),
                                  expected = column(folder.path() / "cpu/steps.csv", which);
        ASSERT_EQ(found.size(), 3U);
        // Float32, in which the steps before have been rounded otherwise.
        for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << i;
    }
}

TEST(Device, SaysHowFarRoundedProductsAreOff) {
    TemporaryDirectory folder;
    const std::vector<std::string> words = {
        "probe",       "random:gpt2,layers=1,d=8,heads=2,vocab=9",
        "--tokens",    "5",
        "--probes",    "t_sim",
        "--fast",      "bf16",
        "--no-report", "-o",
        "out"};
    const Finished found = tsdiag(folder, words, {plugin(TSDIAG_EMULATED_PLUGIN)});
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("--fast bf16"));
    const Json run = Json::parse(read_file(folder.path() / "out/run.json"), "run.json");
    // Factors are rounded to 2^-9 of themselves, and sums of them to less of the whole.
    EXPECT_GT(run["fast"]["first_layer_error"].number(), 1e-6);
    EXPECT_LT(run["fast"]["first_layer_error"].number(), std::ldexp(1.0, -8));
    const Finished refused = tsdiag(folder, words, {plugin("/nowhere/lib.so")});
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err, HasSubstr("--fast"));
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
                                  {plugin(TSDIAG_EMULATED_PLUGIN)});
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(found.err, HasSubstr("--fast: does not apply to a trace"));
}

TEST(Device, ThatIsFullIsOneSentence) {
    TemporaryDirectory folder;
    const Finished found = tsdiag(folder,
                                  {"probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9", "--tokens",
                                   "5", "--no-report", "--device", "cuda", "-o", "out"},
                                  {plugin(TSDIAG_EMULATED_PLUGIN), "TSDIAG_EMULATED_MEMORY=9000"});
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("cuda:0 is out of memory"));
    EXPECT_EQ(std::count(found.err.begin(), found.err.end(), '\n'), 1) << found.err;
    EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Models, EveryModelOnADevice,
    testing::Values("random:post-norm,d=8,heads=2,layers=1,ffn=9",
                    "random:llama-7b,d=16,heads=4,kv_heads=2,layers=1,vocab=9,ffn=9",
                    "random:gpt2,d=8,heads=2,layers=2,vocab=9",
                    "random:post-norm,attention=performer,d=8,heads=2,layers=1,ffn=9"),
    [](const auto& test) { return "model_" + std::to_string(test.index); });

#endif

}  // namespace
}  // namespace tsdiag::test
