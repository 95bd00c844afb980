#include <gmock/gmock.h>

#include <cmath>

#include "program.hpp"
#include "tsdiag/table.hpp"

/// The inputs of users that lie beside the checkout, if present, with the right values that are
/// documented with them.  Their scripts need NumPy.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FieldInputs : public testing::Test {
  protected:
    void SetUp() override {
        if (!fs::exists(scripts_)) GTEST_SKIP() << "no inputs of users beside the checkout";
        if (shell("/usr/bin/python3 -c 'import numpy'").code != 0) GTEST_SKIP() << "no NumPy";
    }
    Finished shell(const std::string& command) {
        return Running::shell(folder.path(), command).wait();
    }
    void make(const std::string& script, const std::string& argument = {}) {
        const Finished done =
            shell("/usr/bin/python3 '" + (scripts_ / script).string() + "' " + argument);
        ASSERT_EQ(done.code, 0) << done.err;
    }
    Finished probe(const std::string& model, const std::vector<std::string>& more = {}) {
        return tsdiag(folder, with({"probe", model, "--no-report", "--force", "-o", "out"}, more));
    }
    Finished gradients(const std::string& log) {
        return tsdiag(folder, {"gradients", log, "--no-report", "--force", "-o", "out"});
    }
    std::vector<double> values(const std::string& metric, const std::string& stage) {
        std::vector<double> out;
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
            if (row.metric == metric && row.at.stage == stage)
                out.push_back(row.value.value_or(std::nan("")));
        return out;
    }
    TemporaryDirectory folder;

  private:
    fs::path scripts_ = fs::path(shared_data()) / "field";
};

TEST_F(FieldInputs, NamesAndKindsOfArrays) {
    make("names.py");
    const Finished padded = probe("zeropad13.npz");
    ASSERT_EQ(padded.code, 0) << padded.err;
    const std::vector<double> right = {0.0735, 0.1994, 0.2198, 0.2289, 0.3319, 0.5547,
                                       0.4308, 0.3841, 0.3981, 0.5315, 0.6041, 0.6284};
    const std::vector<double> found = values("t_sim", "out");
    ASSERT_EQ(found.size(), right.size());
    for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 6e-5);
    make("rows.py");
    for (const auto& [name, words] : {std::pair("r_logits.npz", "as logits"),
                                      {"r_percent.npz", "percent"},
                                      {"r_headsum.npz", "sum of 3 heads"},
                                      {"r_transposed.npz", "transposed"},
                                      {"r_dropout.npz", "dropout"}}) {
        const Finished doubted = probe(name);
        EXPECT_EQ(doubted.code, 0) << doubted.err;
        std::string flat = doubted.out;
        std::ranges::replace(flat, '\n', ' ');
        EXPECT_THAT(flat, HasSubstr("is not what a softmax gives")) << name;
        EXPECT_THAT(flat, HasSubstr(words)) << name;
        EXPECT_EQ(flat.find("identity-like"), std::string::npos) << name;
    }
}

TEST_F(FieldInputs, LogsOfTrainings) {
    make("logs.py");
    make("jsonlogs.py");
    for (const char* log : {"mmdet.log.json", "hfwandb_resume.csv", "trainer_state.json",
                            "desc.csv", "j_multi_rank.jsonl", "bom.csv"}) {
        const Finished done = gradients(log);
        EXPECT_EQ(done.code, 0) << log << done.err;
        ASSERT_FALSE(values("grad_rsd", "").empty()) << log;
        EXPECT_NEAR(values("grad_rsd", "").front(), 0.3051, 5e-5) << log;
    }
}

TEST_F(FieldInputs, FoldersOfModels) {
    make("adapter.py", "adapted");
    const std::vector<std::string> input = {"--input", "ids:adapted.ids", "--dtype", "f64"};
    for (const auto& [model, right] : {std::pair("adapted", std::vector<double>{0.2581, 0.2439}),
                                       {"adapted/model.safetensors", {0.2695, 0.2682}}}) {
        const Finished done = probe(model, input);
        ASSERT_EQ(done.code, 0) << done.err;
        const std::vector<double> found = values("t_sim", "out");
        ASSERT_EQ(found.size(), right.size());
        for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 6e-5);
    }
    make("vocab_files.py", "vocabularies");
    const Finished text = probe("vocabularies/bert_decoder", {"--text", "<e1> hello </e1> world"});
    EXPECT_EQ(text.code, 0) << text.err;
}

}  // namespace
}  // namespace tsdiag::test
