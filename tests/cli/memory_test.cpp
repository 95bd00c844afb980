#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"

/// --memory is respected, or refused with a sufficient size; excessive sizes are refused.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

struct Measured {
    int code = -1;
    double mib = 0;  ///< the largest resident size
    std::string err;
};

/// The largest resident size so far, in MiB; 0 when the process has ended.  `rusage` would count
/// what the parent held when it began the process.
double largest_size(pid_t process) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
    return 0;
}

Measured measured(const TemporaryDirectory& folder, Words words) {
    const Running running(folder.path(), std::move(words), {"OMP_WAIT_POLICY=passive"});
    int status = 0;
    double mib = 0;
    while (waitpid(running.pid(), &status, WNOHANG) == 0) {
        mib = std::max(mib, largest_size(running.pid()));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .mib = mib,
            .err = running.said_so_far()};
}

struct Case {
    const char* name;
    std::string model;
    Words more = {};
    void (*prepare)(const TemporaryDirectory& folder) = [](const TemporaryDirectory&) {};
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class Memory : public testing::TestWithParam<Case> {};

TEST_P(Memory, IsKeptWithTheLeastThatARefusalNames) {
    if (!memory_is_its_own) GTEST_SKIP() << "the sanitizer's own memory would be counted";
    TemporaryDirectory folder;
    GetParam().prepare(folder);
    Words words = {"probe", GetParam().model, "--no-report", "-q", "--out", "r"};
    words.insert(words.end(), GetParam().more.begin(), GetParam().more.end());
    const auto with_memory = [&](const std::string& size) {
        Words all = words;
        all.insert(all.end(), {"--memory", size});
        return measured(folder, all);
    };
    const Measured refused = with_memory("1M");
    ASSERT_EQ(refused.code, 2) << refused.err;
    expect_one_sentence(refused.err);
    EXPECT_FALSE(std::filesystem::exists(folder / "r"));
    const std::string least = least_memory(refused.err);
    ASSERT_FALSE(least.empty()) << refused.err;
    const Measured kept = with_memory(least);
    ASSERT_EQ(kept.code, 0) << kept.err;
    EXPECT_LT(kept.mib, std::stod(least));
    // The limit is not far too large.
    EXPECT_GT(kept.mib, std::stod(least) / 3);
}

/// Two states of 512 tokens and 128 columns, and what one layer of 4 heads made between them.
void write_trace(const TemporaryDirectory& folder, const std::vector<NamedArray>& of_layer) {
    std::vector<double> x(512 * 128);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(double(i * i % 1009));
    std::vector<NamedArray> arrays = {{"hidden_states.0", {512, 128}, {}, x},
                                      {"hidden_states.1", {512, 128}, {}, x}};
    arrays.insert(arrays.end(), of_layer.begin(), of_layer.end());
    write_npz(folder / "trace.npz", arrays);
}
void write_projections(const TemporaryDirectory& folder) {
    std::vector<double> q(4 * 512 * 32);
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::cos(double(i * i % 997));
    write_trace(folder, {{"queries.0", {4, 512, 32}, {}, q}, {"keys.0", {4, 512, 32}, {}, q}});
}
void write_attentions(const TemporaryDirectory& folder) {
    const std::vector<double> p(4 * 512 * 512, 1.0 / 512);
    write_trace(folder, {{"attentions.0", {4, 512, 512}, {}, p}});
}

std::vector<Case> cases() {
    const std::string small = "random:post-norm,layers=2,d=64,heads=4";
    return {{"Small", small, {"--tokens", "64"}},
            {"File",
             "model",
             {"--tokens", "300", "--probes", "core"},
             [](const TemporaryDirectory& folder) {
                 tsdiag(folder, {"init", "random:gpt2,layers=2,d=512,heads=8", "-o", "model"});
             }},
            {"Projections", "trace.npz", {"--attention", "softmax"}, write_projections},
            {"SavedAttention", "trace.npz", {}, write_attentions},
            {"LongerThanWide", small, {"--tokens", "512"}},
            {"Float64", small, {"--tokens", "300", "--dtype", "f64"}},
            {"WideLayer",
             "random:post-norm,layers=2,d=1024,heads=16",
             {"--tokens", "32", "--probes", "core"}},
            {"Jacobians", small, {"--tokens", "512", "--probes", "jac_q_fro,jac_k_fro"}},
            {"RotatedJacobians",
             "random:llama-7b,layers=1,d=64,heads=4,ffn=128,vocab=50",
             {"--tokens", "300", "--probes", "jac_q_fro,jac_k_fro"}},
            {"Maps", small, {"--tokens", "512", "--probes", "fro", "--maps", "0:0,0:1,1:2,1:3"}},
            {"Samples", small, {"--tokens", "128", "--samples", "64", "--probes", "core"}},
            {"Linear", small + ",attention=linear", {"--tokens", "512"}},
            {"Gradients",
             "random:gpt2,layers=2,d=64,heads=4,vocab=500",
             {"--tokens", "256", "--loss", "lm", "--probes", "grad_norm,ds_max"}}};
}
INSTANTIATE_TEST_SUITE_P(Runs, Memory, testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

struct Absurd {
    const char* name;
    Words words;
};
std::ostream& operator<<(std::ostream& out, const Absurd& a) { return out << a.name; }

class AnyAbsurdSize : public testing::TestWithParam<Absurd> {};

TEST_P(AnyAbsurdSize, IsRefusedBeforehand) {
    TemporaryDirectory folder;
    const Measured done = measured(folder, GetParam().words);
    EXPECT_EQ(done.code, 2) << done.err;
    expect_one_sentence(done.err);
    EXPECT_EQ(done.err.find("out of memory"), std::string::npos) << done.err;
    EXPECT_LT(done.mib, memory_is_its_own ? 300 : 3000);
}

std::vector<Absurd> absurd() {
    const std::string gpt = "random:gpt2,layers=2,d=16,heads=2,vocab=40";
    return {{"ProbeSamples", {"probe", gpt, "--samples", "10000000"}},
            {"ProbeTokens", {"probe", gpt + ",tokens=1000000000000", "--tokens", "1000000000000"}},
            {"ProbeGaussianTokens",
             {"probe", "random:post-norm,d=16,heads=2", "--tokens", "9000000000000000000"}},
            {"ProbeLayers", {"probe", "random:gpt2,layers=1000000"}},
            {"ProbeWidth", {"probe", "random:gpt2,layers=1,d=100000000,heads=2"}},
            {"CheckN", {"check", "tse.prop2.3", "--n", "1000000000"}},
            {"CheckD", {"check", "tse.prop2.3", "--d", "1000000000000000000", "--heads", "1"}},
            {"CheckTrials", {"check", "tse.prop2.3", "--trials", "100000000000"}},
            {"TrainTokens",
             {"train", gpt + ",tokens=10000000", "--data", "copy:3", "--tokens", "10000000",
              "--out", "t"}},
            {"TrainBatch",
             {"train", gpt, "--data", "copy:3", "--batch", "1000000000000", "--out", "t"}},
            {"TrainEvalSamples",
             {"train", gpt, "--data", "copy:3", "--eval-samples", "1000000000000", "--out", "t"}},
            {"InitWidth", {"init", "random:gpt2,layers=1,d=100000000,heads=2", "--out", "m"}},
            {"InitLayers", {"init", "random:gpt2,layers=1000000", "--out", "m"}},
            {"FigureTrials", {"figure", "tse.fig2", "--trials", "100000000000"}}};
}
INSTANTIATE_TEST_SUITE_P(Sizes, AnyAbsurdSize, testing::ValuesIn(absurd()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tsdiag::test
