#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

/// `trace.npz`: two states of 3 tokens, and one head whose P is not causal.
class TraceCommand : public testing::Test {
  protected:
    Finished probe(const Words& more = {}) {
        const std::vector<NamedArray> arrays = {{"hidden_states.0", {3, 2}, {}, x_},
                                                {"hidden_states.1", {3, 2}, {}, x_},
                                                {"attentions.0", {1, 3, 3}, {}, p_}};
        write_npz(folder / "trace.npz", arrays);
        Words words = {"probe", "trace.npz", "--no-report", "--out", "out"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    /// The error message of `probe` for a trace.
    std::string refused(int code, const Words& more = {}) {
        const Finished found = probe(more);
        EXPECT_EQ(found.code, code) << found.err;
        EXPECT_THAT(found.out, IsEmpty());
        expect_one_sentence(found.err);
        EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("trace.npz"));
        return found.err;
    }

    TemporaryDirectory folder;
    std::vector<double> x_ = {1, 2, 3, 4, 5, 7};
    std::vector<double> p_ = {0.5, 0.25, 0.25, 0.25, 0.5, 0.25, 0.25, 0.25, 0.5};
};

/// Of two statements on a line the second was part of the first, so that a norm was the attention.
TEST(TraceHook, ReadsEachStatementOfALine) {
    const std::string begin =
                          "class Attention(nn.Module):\n"
                          "    def forward(self, x):\n"
                          "        return x\n"
                          "class Block(nn.Module):\n"
                          "    def __init__(self, d):\n"
                          "        super().__init__()\n"
                          "        self.ln_1 = nn.LayerNorm(d)",
                      end =
                          "self.attn = Attention(d)\n"
                          "        self.mlp = nn.Linear(d, d)\n"
                          "    def forward(self, x):\n"
                          "        x = x + self.attn(self.ln_1(x))\n"
                          "        return x + self.mlp(x)\n"
                          "class Model(nn.Module):\n"
                          "    def __init__(self, d):\n"
                          "        super().__init__()\n"
                          "        self.blocks = nn.ModuleList([Block(d) for _ in range(3)])\n"
                          "    def forward(self, x):\n"
                          "        for block in self.blocks:\n"
                          "            x = block(x)\n"
                          "        return x\n";
    const TemporaryDirectory folder;
    std::vector<std::string> hooks;
    for (const char* between : {"\n        ", "; ", ";"}) {
        write_file(folder / "model.py", begin + between + end);
        const Finished done = tsdiag(folder, {"trace-hook", "model.py"});
        EXPECT_EQ(done.code, 0) << done.err;
        hooks.push_back(done.out);
    }
    EXPECT_THAT(hooks.front(), HasSubstr("#   attention  block.attn, an Attention\n"));
    for (const std::string& hook : hooks) EXPECT_EQ(hook, hooks.front());
}

TEST_F(TraceCommand, RunsWhatIsSound) { EXPECT_EQ(probe().code, 0); }

TEST_F(TraceCommand, NamesTheEntryThatIsNoNumber) {
    x_[3] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(refused(1), HasSubstr("'hidden_states.0': element (1, 1) is not finite"));
}

TEST_F(TraceCommand, NamesTheEntryThatIsNotCausal) {
    EXPECT_THAT(refused(1, {"--causal"}),
                HasSubstr("'attentions.0': entry (0, 0, 1) above the diagonal is not 0"));
}

TEST_F(TraceCommand, NamesALayoutThatDoesNotExist) {
    EXPECT_THAT(refused(2, {"--placement", "middle"}), HasSubstr("middle"));
}

TEST_F(TraceCommand, NamesAnAttentionThatDoesNotExist) {
    EXPECT_THAT(refused(2, {"--attention", "nonsense"}), HasSubstr("unknown attention 'nonsense'"));
}

std::vector<MetricRow> rows_in(const TemporaryDirectory& folder) {
    return read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv");
}

/// States times a power of two: only fro changes, by that power.
TEST_F(TraceCommand, AsksNothingOfTheSizeOfStates) {
    const std::vector<double> x = x_;
    ASSERT_EQ(probe({"--dtype", "f64"}).code, 0);
    const std::vector<MetricRow> expected = rows_in(folder);
    for (const int exponent : {-540, -1000, 510, 1000}) {
        for (std::size_t i = 0; i < x.size(); ++i) x_[i] = std::ldexp(x[i], exponent);
        const Finished found = probe();
        ASSERT_EQ(found.code, 0) << found.err;
        const std::vector<MetricRow> rows = rows_in(folder);
        ASSERT_EQ(rows.size(), expected.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            std::optional<double> value = expected[i].value;
            if (rows[i].metric == "fro") *value = std::ldexp(*value, exponent);
            EXPECT_EQ(rows[i].value, value) << rows[i].metric << rows[i].at.stage << exponent;
        }
    }
}

TEST_F(TraceCommand, NamesDtypeWhereFloat32IsTooNarrow) {
    x_ = {1, 2, 3, 4, 1e39, 7};
    EXPECT_THAT(refused(1, {"--dtype", "f32"}),
                testing::AllOf(HasSubstr("element (2, 0) is 1e+39"), HasSubstr("--dtype f64")));
    x_ = {1e-50, 2e-50, 3e-50, 4e-50, 5e-50, 6e-50};
    EXPECT_THAT(refused(1, {"--dtype", "f32"}),
                testing::AllOf(HasSubstr("element (2, 1) is 6e-50"), HasSubstr("--dtype f64")));
    EXPECT_EQ(probe().code, 0);  // float64 by itself
}

/// The bits of 0 <= x < 1 in a 16-bit format, rounded to nearest.
std::uint16_t half(double x, int exponent_bits) {
    const int digits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    if (x == 0) return 0;
    const int exponent = std::max(std::ilogb(x), 1 - bias);
    // 2^digits and more where x is normal; a carry increments the exponent.
    const int steps = int(std::nearbyint(std::ldexp(x, digits - exponent)));
    return std::uint16_t(((exponent + bias - 1) << digits) + steps);
}

/// A softmax of 40 tokens and two heads in half precision.
void write_half(const std::string& file, int exponent_bits, double stretch) {
    constexpr std::size_t n = 40;
    std::string bytes;
    for (std::size_t row = 0; row < 2 * n; ++row) {
        std::vector<double> p(n);
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j)
            sum += p[j] = std::exp(3 * std::sin(double(7 * row + 3 * j * j)));
        for (const double e : p) {
            const std::uint16_t bits = half(stretch * e / sum, exponent_bits);
            bytes += {char(bits & 0xff), char(bits >> 8)};
        }
    }
    std::string header = std::string(R"({"attentions.0":{"dtype":")") +
                         (exponent_bits == 5 ? "F16" : "BF16") +
                         R"(","shape":[2,40,40],"data_offsets":[0,6400]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string size(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) size[i] = char(header.size() >> 8 * i & 0xff);
    write_file(file, size + header + bytes);
}

TEST_F(TraceCommand, HalfPrecisionLosesNoNumber) {
    for (const int exponent_bits : {5, 8}) {
        write_half(folder / "half.safetensors", exponent_bits, 1);
        const Words words = {"probe", "half.safetensors", "--no-report", "--out", "out"};
        const Finished found = tsdiag(folder, words);
        ASSERT_EQ(found.code, 0) << found.err;
        EXPECT_THAT(found.out, HasSubstr("rows were divided"));
        std::size_t gaps = 0;
        for (const MetricRow& row : rows_in(folder)) {
            EXPECT_THAT(row.note, testing::Not(HasSubstr("do not sum to 1"))) << row.metric;
            gaps += row.metric == "spectral_gap" && row.value ? 1 : 0;
            if (row.metric == "row_sum_dev") {
                EXPECT_LT(*row.value, 1e-6);
            }
        }
        EXPECT_EQ(gaps, 3u);
        // Rows that are off by more than their format's rounding are not corrected.
        write_half(folder / "half.safetensors", exponent_bits, exponent_bits == 5 ? 1.003 : 1.02);
        ASSERT_EQ(tsdiag(folder, words).code, 0);
        for (const MetricRow& row : rows_in(folder))
            if (row.metric == "spectral_gap") {
                EXPECT_FALSE(row.value);
            }
    }
}

/// Traces of several files in a folder.
class TraceFolder : public testing::Test {
  protected:
    /// States of `samples` samples of 3 tokens, width 2, in two layers; all of `tokens` tokens.
    void save(const std::string& name, std::int64_t samples, double seed, std::int64_t tokens = 3) {
        fs::create_directories((folder.path() / name).parent_path());
        std::vector<NamedArray> arrays;
        std::vector<std::vector<double>> values;
        for (int layer = 0; layer < 3; ++layer) {
            std::vector<double> x(std::size_t(2 * samples * tokens));
            for (std::size_t i = 0; i < x.size(); ++i)
                x[i] = std::sin(seed + 3.7 * double(i) + layer);
            all_[layer].insert(all_[layer].end(), x.begin(), x.end());
            values.push_back(std::move(x));
        }
        for (std::size_t layer = 0; layer < 3; ++layer)
            arrays.push_back({"hidden_states." + std::to_string(layer),
                              {samples, tokens, 2},
                              {},
                              values[layer]});
        write_npz(folder / name, arrays);
    }
    Finished probe(const std::string& what, const std::string& out, const Words& more = {}) {
        Words words = {"probe", what, "--no-report", "--out", out};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    std::string table(const std::string& out) { return read_file(folder / (out + "/metrics.csv")); }
    std::string without_model(std::string text, const std::string& model) {
        for (std::size_t at; (at = text.find(model)) != text.npos;) text.erase(at, model.size());
        return text;
    }

    TemporaryDirectory folder;
    std::vector<double> all_[3];  ///< what was saved
};

TEST_F(TraceFolder, OfBatchesIsOneTraceInTheOrderOfTheirNumbers) {
    save("batches/batch-2.npz", 2, 1);
    save("batches/batch-9.npz", 3, 2);
    save("batches/batch-10.npz", 1, 3);
    ASSERT_EQ(probe("batches", "several").code, 0);
    std::vector<NamedArray> arrays;
    for (int layer = 0; layer < 3; ++layer)
        arrays.push_back({"hidden_states." + std::to_string(layer), {6, 3, 2}, {}, all_[layer]});
    write_npz(folder / "whole.npz", arrays);
    ASSERT_EQ(probe("whole.npz", "one").code, 0);
    EXPECT_EQ(without_model(table("several"), "batches"), without_model(table("one"), "whole.npz"));
    EXPECT_GT(table("one").size(), 500u);
    const Json run = Json::parse(read_file(folder / "several/run.json"), "run.json");
    EXPECT_EQ(run["input"]["samples"].integer(), 6);
    EXPECT_THAT(run["model"]["recognised"].dump(), HasSubstr("3 batches"));
    EXPECT_EQ(probe("batches", "first", {"--samples", "4"}).code, 0);
    EXPECT_NE(table("first"), table("several"));
    EXPECT_THAT(probe("batches", "more", {"--samples", "7"}).err, HasSubstr("contains 6"));
    EXPECT_EQ(tsdiag(folder, {"inspect", "batches"}).code, 0);
}

TEST_F(TraceFolder, OfBatchesThatDifferIsRefused) {
    save("batches/batch-0.npz", 2, 1);
    save("batches/batch-1.npz", 2, 1, 4);
    const Finished done = probe("batches", "out");
    EXPECT_EQ(done.code, 1);
    expect_one_sentence(done.err);
    EXPECT_THAT(done.err, testing::AllOf(HasSubstr("batch-1.npz: has 2 layers of 4 tokens"),
                                         HasSubstr("expected 2 layers of 3 tokens")));
    const std::vector<double> weight(4, 1.0);
    write_npz(folder / "batches/batch-1.npz",
              std::vector<NamedArray>{{"weight", {2, 2}, {}, weight}});
    EXPECT_THAT(probe("batches", "out").err, HasSubstr("batch-1.npz: is no trace"));
}

TEST_F(TraceFolder, OfStepsIsATraining) {
    save("steps/step-100.npz", 2, 1);
    save("steps/step-20.npz", 2, 2);
    ASSERT_EQ(probe("steps", "series").code, 0);
    const auto rows = read_metrics_csv(table("series"), "metrics.csv");
    EXPECT_EQ(rows.front().at.step, 20);
    EXPECT_EQ(rows.back().at.step, 100);
    ASSERT_EQ(probe("steps/step-100.npz", "late").code, 0);
    std::size_t compared = 0;
    for (const MetricRow& one : read_metrics_csv(table("late"), "metrics.csv"))
        for (const MetricRow& row : rows)
            if (row.at.step == 100 && row.metric == one.metric && row.at.layer == one.at.layer &&
                row.at.stage == one.at.stage) {
                EXPECT_EQ(row.value, one.value) << row.metric;
                ++compared;
            }
    EXPECT_GT(compared, 5u);
    // Finished steps are kept; a trace that is read otherwise is not.
    EXPECT_THAT(probe("steps", "series").out, HasSubstr("2 reused from an earlier run"));
    EXPECT_THAT(probe("steps", "series", {"--a2", "2"}).out,
                testing::Not(HasSubstr("reused from an earlier run")));
    save("steps/step-300.npz", 2, 1, 4);
    const Finished other = probe("steps", "out");
    EXPECT_EQ(other.code, 1);
    EXPECT_THAT(other.err, HasSubstr("tokens is"));
}

/// P of n tokens and two heads: a generic one, and one whose second eigenvalue, 0.45, has a Jordan
/// block of n - 1, so that no method can certify it.
std::vector<double> two_heads(std::size_t n) {
    std::vector<double> p(2 * n * n);
    for (std::size_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < n; ++j)
            sum += p[i * n + j] = 1 + std::sin(double(7 * i + j * j));
        for (std::size_t j = 0; j < n; ++j) {
            p[i * n + j] /= sum;
            const bool in_chain = i == 0 ? j == 0 : j == i || j + 1 == i;
            p[n * n + i * n + j] = 0.1 / double(n) + (in_chain ? (i == 0 ? 0.9 : 0.45) : 0);
        }
    }
    return p;
}

class Spectra : public testing::Test {
  protected:
    static constexpr std::size_t n = 60;
    void SetUp() override {
        write_npz(folder / "trace.npz",
                  std::vector<NamedArray>{{"attentions.0", {2, n, n}, {}, two_heads(n)}});
    }
    Finished probe(const Words& more) {
        Words words = {"probe", "trace.npz", "--dtype", "f64", "--out", "out", "--force"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    std::map<Index, MetricRow> heads(const std::string& metric) {
        std::map<Index, MetricRow> found;
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
            if (row.metric == metric) found[row.at.head] = row;
        return found;
    }
    Json run() { return Json::parse(read_file(folder / "out/run.json"), "run.json"); }

    TemporaryDirectory folder;
};

TEST_F(Spectra, ThatAreNotCertifiedAreIntervalsAndReportedAgain) {
    EXPECT_EQ(probe({}).code, 0);
    const std::map<Index, MetricRow> found = heads("lambda2_abs");
    EXPECT_TRUE(found.at(0).value.has_value());
    EXPECT_FALSE(found.at(1).value.has_value());
    EXPECT_TRUE(found.at(1).low && found.at(1).high);
    const std::string page = read_file(folder / "out/report.html");
    const Finished again = tsdiag(folder, {"report", "out"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(read_file(folder / "out/report.html"), page);
}

TEST_F(Spectra, AreFoundByTheRouteAskedFor) {
    std::map<std::string, double> values;
    for (const std::string route : {"arnoldi", "dense", "spectra"}) {
        EXPECT_EQ(probe({"--spectra", route, "--heads", "0", "--no-report"}).code, 0);
        values[route] = heads("lambda2_abs").at(0).value.value_or(-1);
        const Json solved = run();
        EXPECT_EQ(solved["settings"]["spectra"].string(), route);
        for (const Json& entry : solved["solver"].array()) {
            if (entry["metric"].string() != "lambda2_abs") continue;
            EXPECT_EQ(entry["method"].string(), route);
        }
    }
    EXPECT_NEAR(values["arnoldi"], values["dense"], 1e-6 * values["dense"]);
    EXPECT_NEAR(values["spectra"], values["dense"], 1e-6 * values["dense"]);
    const Finished refused = probe({"--spectra", "lanczos"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, HasSubstr("'lanczos' is not one of auto, arnoldi, dense, spectra"));
}

TEST_F(Spectra, GetASecondOpinionOfTheHeadsAskedFor) {
    EXPECT_EQ(probe({"--no-report"}).code, 0);
    EXPECT_THAT(heads("lambda2_check"), IsEmpty());
    EXPECT_EQ(probe({"--cross-check", "2", "--no-report", "--probes", "fro"}).code, 0);
    const std::map<Index, MetricRow> found = heads("lambda2_check");
    EXPECT_LE(found.at(0).value.value_or(1), 1e-6);
    EXPECT_THAT(found.at(1).note, HasSubstr("not certified"));
}

}  // namespace
}  // namespace tsdiag::test
