#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// Traces of models whose tokens merge: each layer has its own number of tokens.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

struct Values {
    std::vector<std::int64_t> shape;
    std::vector<double> values;
};
using Arrays = std::map<std::string, Values>;

/// The tokens of a grid of `n` x `n` in the order of its windows, by the parts of each.
std::vector<Index> window_order(Index n, Index side, Index shift) {
    std::vector<std::pair<std::tuple<Index, Index, Index>, Index>> tokens;
    const auto part = [&](Index at) {
        return shift == 0 ? 0 : at < n - side ? 0 : at < n - shift ? 1 : 2;
    };
    for (Index token = 0; token < n * n; ++token) {
        const Index y = (token / n + n - shift) % n, x = (token % n + n - shift) % n;
        tokens.push_back(
            {{y / side * n + x / side, 3 * part(y) + part(x), y % side * side + x % side}, token});
    }
    std::ranges::sort(tokens);
    std::vector<Index> out;
    for (const auto& [key, token] : tokens) out.push_back(token);
    return out;
}

/// The golden Swin: two layers of 36 tokens in windows of 3 x 3, the second of them shifted by 1,
/// and two of 9 tokens; its states and maps are those of an independent forward pass.
class TraceOfMerges : public testing::Test {
  protected:
    static inline const std::string model = test_data() + std::string("/golden/swin");

    void SetUp() override {
        const std::unique_ptr<Checkpoint> golden = open_checkpoint(model + "/golden.npz");
        const auto read = [&](const std::string& name) {
            const RawTensor raw = golden->tensor(name);
            Values out{raw.shape, std::vector<double>(std::size_t(raw.count()))};
            widen<double>(raw, out.values);
            return out;
        };
        image_ = read("image");
        arrays_["embed.0"] = read("embed");
        arrays_["merge.1"] = read("layer.1.merge");
        arrays_["hidden_states.4"] = read("layer.3.out");
        arrays_["final_norm.3"] = read("final_norm");
        for (int layer = 0; layer < 4; ++layer) {
            const std::string from = fmt::format("layer.{}.", layer);
            arrays_[fmt::format("hidden_states.{}", layer)] = read(from + "in");
            for (const char* stage : {"attentions", "norm1", "sa", "attn", "norm2", "ffn"})
                arrays_[fmt::format("{}.{}", stage, layer)] = read(from + stage);
        }
        // Of the golden file P is in the order of the windows, of a trace in that of its states.
        for (Index layer = 0; layer < 2; ++layer) {
            const std::vector<Index> order = window_order(6, 3, layer);
            const auto n = std::ssize(order);
            Values& map = arrays_[fmt::format("attentions.{}", layer)];
            const std::vector<double> p = map.values;
            for (Index at = 0; at < std::ssize(p); ++at) {
                const Index head = at / (n * n), i = at / n % n, j = at % n;
                map.values[std::size_t((head * n + order[std::size_t(i)]) * n +
                                       order[std::size_t(j)])] = p[std::size_t(at)];
            }
        }
    }
    void write(const Arrays& arrays, const std::string& file = "trace.npz") {
        std::vector<NamedArray> named;
        for (const auto& [name, array] : arrays)
            named.push_back({name, array.shape, {}, array.values});
        write_npz(folder / file, named);
    }
    Finished probe(const Arrays& arrays, const Words& more = {}) {
        write(arrays);
        return tsdiag(folder, with({"probe", "trace.npz", "--attention", "softmax", "--no-report",
                                    "--out", "out", "--force"},
                                   more));
    }
    std::string refused(const Arrays& arrays, const Words& more = {}) {
        const Finished found = probe(arrays, more);
        EXPECT_NE(found.code, 0) << found.out;
        expect_one_sentence(found.err);
        return found.err;
    }
    std::map<std::pair<Place, std::string>, MetricRow> table(const std::string& out) {
        std::map<std::pair<Place, std::string>, MetricRow> rows;
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / (out + "/metrics.csv")), "metrics.csv"))
            rows[{row.at, row.metric}] = row;
        return rows;
    }
    std::string description(const char* key) {
        return Json::parse(read_file(folder / "out/run.json"), "run.json")["model"][key].dump();
    }

    TemporaryDirectory folder;
    Values image_;
    Arrays arrays_;
};

/// Of the model and of its trace: `sizes` of `tsdiag inspect --json`.
TEST_F(TraceOfMerges, HasTheSizesOfEachLayer) {
    write(arrays_);
    const auto sizes = [&](const std::string& argument) {
        const Finished found = tsdiag(folder, {"inspect", argument, "--json"});
        EXPECT_EQ(found.code, 0) << found.err;
        return Json::parse(found.out, "inspect")["model"]["sizes"];
    };
    const Json of_model = sizes(model), of_trace = sizes("trace.npz");
    ASSERT_EQ(of_model.is_array() ? of_model.array().size() : 0, 4u);
    ASSERT_EQ(of_trace.is_array() ? of_trace.array().size() : 0, 4u);
    for (std::size_t layer = 0; layer < 4; ++layer) {
        const bool merged = layer >= 2;
        for (const Json* all : {&of_model, &of_trace}) {
            const Json& one = all->array()[layer];
            EXPECT_EQ(one["layer"].integer(), Index(layer));
            EXPECT_EQ(one["tokens"].integer(), merged ? 9 : 36);
            EXPECT_EQ(one["width"].integer(), merged ? 16 : 8);
            EXPECT_EQ(one["heads"].integer(), merged ? 4 : 2);
        }
        EXPECT_EQ(of_model.array()[layer]["kv_heads"].integer(), merged ? 4 : 2);
        EXPECT_TRUE(of_trace.array()[layer]["kv_heads"].is_null());  // a trace of maps
    }
    EXPECT_TRUE(sizes("random:gpt2,layers=2,d=8,heads=2").is_null());  // its layers are alike
}

/// What the program finds in its own run of the checkpoint, it finds in the saved states.
TEST_F(TraceOfMerges, HasTheNumbersOfItsModel) {
    write_npy<double>(folder / "image.npy", "<f8", image_.shape, image_.values);
    const Finished run = tsdiag(folder, {"probe", model, "--input", "image:image.npy", "--dtype",
                                         "f64", "--no-report", "--out", "model"});
    ASSERT_EQ(run.code, 0) << run.err;
    const Finished found = probe(arrays_);
    ASSERT_EQ(found.code, 0) << found.err;
    const auto rows = table("out");
    std::map<std::string, int> compared;
    for (const auto& [at, expected] : table("model")) {
        // Without projections; with a2 measured instead of by the weights; by distances, which a
        // model counts in the order of the windows.
        const std::string& metric = at.second;
        if (metric.starts_with("jac_q") || metric.starts_with("jac_k") || metric == "est_mu" ||
            (metric == "local_auc" && at.first.layer < 2))
            continue;
        const std::string what = fmt::format("{} of layer {}, {}, head {}", metric, at.first.layer,
                                             at.first.stage, at.first.head);
        const auto row = rows.find(at);
        ASSERT_TRUE(row != rows.end()) << what;
        ASSERT_EQ(row->second.value.has_value(), expected.value.has_value())
            << what << ": " << row->second.note;
        if (!expected.value) continue;
        // Two forward passes in float64, and two orders of the sums over P.
        EXPECT_NEAR(*row->second.value, *expected.value,
                    1e-9 * std::max(1.0, std::abs(*expected.value)))
            << what;
        ++compared[at.first.stage];
    }
    for (const char* stage :
         {"embed", "in", "norm1", "sa", "attn", "norm2", "ffn", "out", "merge", "final_norm"})
        EXPECT_GT(compared[stage], 0) << stage;
    EXPECT_THAT(description("recognised"),
                HasSubstr("behind layer 1 the 36 tokens of width 8 merge to 9 of width 16"));
    EXPECT_THAT(description("defaults"), Not(HasSubstr("a quarter of the tokens")));
    EXPECT_THAT(tsdiag(folder, {"inspect", "trace.npz"}).out,
                HasSubstr("1 sample of 36 to 9 tokens, width 8 to 16"));
}

/// What was merged is known by either of its names, and what was there before by either of two.
TEST_F(TraceOfMerges, IsTheSameWithoutANameThatFollows) {
    ASSERT_EQ(probe(arrays_).code, 0);
    const auto expected = table("out");
    const auto expect_same = [&](const Arrays& arrays) {
        const Finished found = probe(arrays);
        ASSERT_EQ(found.code, 0) << found.err;
        for (const auto& [at, row] : table("out"))
            if (row.value) {
                EXPECT_EQ(row.value, expected.at(at).value) << at.second << at.first.stage;
            }
        EXPECT_THAT(found.out, Not(HasSubstr("not saved")));
    };
    Arrays arrays = arrays_;
    arrays.erase("hidden_states.2");
    expect_same(arrays);
    EXPECT_EQ(table("out").size(), expected.size());
    arrays = arrays_;
    arrays.erase("merge.1");
    expect_same(arrays);
    EXPECT_EQ(table("out").size(), expected.size());
    EXPECT_THAT(description("defaults"),
                HasSubstr("'hidden_states.2': a quarter of the tokens, merged behind layer 1"));
    arrays["out.1"] = arrays["ffn.1"];
    arrays.erase("ffn.1");
    expect_same(arrays);
    EXPECT_TRUE(table("out").contains({{.layer = 1, .stage = "out"}, "r_layer"}));
    arrays.erase("out.1");
    ASSERT_EQ(probe(arrays).code, 0);
    EXPECT_FALSE(table("out").contains({{.layer = 1, .stage = "out"}, "t_sim"}));
    EXPECT_THAT(description("warnings"), HasSubstr("not measured; save it as out.1"));
    // Names of maps alone, of which nothing else tells the tokens.
    std::erase_if(arrays, [](const auto& a) { return !a.first.starts_with("attentions"); });
    expect_same(arrays);
    EXPECT_TRUE(table("out").contains({{.layer = 3, .stage = "attn", .head = 3}, "attn_fro"}));
}

/// Samples are an axis, or files.
TEST_F(TraceOfMerges, HasSamplesAndBatches) {
    Arrays twice;
    for (const auto& [name, array] : arrays_) {
        Values& both = twice[name] = {{2}, array.values};
        both.shape.insert(both.shape.end(), array.shape.begin(), array.shape.end());
        for (const double x : array.values) both.values.push_back(-x);
        if (name.starts_with("attentions"))
            std::ranges::copy(array.values, both.values.begin() + std::ssize(array.values));
    }
    ASSERT_EQ(probe(twice).code, 0);
    const auto expected = table("out");
    EXPECT_EQ(expected.at({{.layer = 1, .stage = "merge"}, "t_sim"}).count, 2);
    Arrays second;
    for (const auto& [name, array] : twice)
        second[name] = {arrays_[name].shape,
                        {array.values.begin() + std::ssize(array.values) / 2, array.values.end()}};
    std::filesystem::create_directory(folder / "batches");
    write(arrays_, "batches/batch-0.npz");
    write(second, "batches/batch-1.npz");
    const Words words = {"probe",       "batches", "--attention", "softmax",
                         "--no-report", "--out",   "several"};
    ASSERT_EQ(tsdiag(folder, words).code, 0);
    for (const auto& [at, row] : table("several"))
        EXPECT_EQ(row.value, expected.at(at).value) << at.second << at.first.stage;
    // Tokens that merge elsewhere are another shape.
    std::erase_if(second,
                  [](const auto& a) { return a.first.ends_with(".0") || a.first.ends_with(".1"); });
    write(second, "batches/batch-1.npz");
    const Finished other = tsdiag(folder, with(words, {"--force"}));
    EXPECT_EQ(other.code, 1);
    expect_one_sentence(other.err);
    EXPECT_THAT(other.err, HasSubstr("from layer 2 9 of width 16"));
}

TEST_F(TraceOfMerges, ThatDoNotFitEachOtherAreRefused) {
    const auto of = [](std::vector<std::int64_t> shape) {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        Values out{std::move(shape), {}};
        for (std::int64_t i = 0; i < count; ++i) out.values.push_back(std::sin(double(i * i)));
        return out;
    };
    const auto with_array = [&](const std::string& name, const Values& array) {
        Arrays arrays = arrays_;
        arrays[name] = array;
        return refused(arrays);
    };
    // A layer behind the merging has its own tokens, width and maps.
    EXPECT_THAT(with_array("sa.2", of({36, 16})),
                HasSubstr("'sa.2' is (36, 16), expected 9 tokens"));
    EXPECT_THAT(with_array("sa.2", of({9, 8})), HasSubstr("expected width 16 as in"));
    EXPECT_THAT(with_array("attentions.3", of({4, 36, 36})), HasSubstr("expected 9 tokens"));
    EXPECT_THAT(with_array("merge.1", of({12, 16})), HasSubstr("expected 9 tokens as in"));
    EXPECT_THAT(with_array("merge.1", of({9, 16})), HasSubstr("has other numbers than"));
    EXPECT_THAT(with_array("out.2", of({9, 16})), HasSubstr("has other numbers than"));
    EXPECT_THAT(with_array("merge.0", of({36, 8})), HasSubstr("fewer than the 36 tokens of"));
    EXPECT_THAT(with_array("merge.3", of({9, 16})), HasSubstr("fewer than the 9 tokens of"));
    EXPECT_THAT(with_array("embed.1", of({36, 8})), HasSubstr("expected layer 0, the first"));
    EXPECT_THAT(with_array("final_norm.2", of({9, 16})), HasSubstr("expected layer 3, the last"));
    EXPECT_THAT(with_array("class.3", of({9, 16})), HasSubstr("one row more than the 9 tokens"));
    // Maps of windows, as libraries return them, and states on their grid.
    EXPECT_THAT(with_array("attentions.0", of({4, 2, 9, 9})),
                HasSubstr("is (4, 2, 9, 9), expected one matrix of the 36 tokens"));
    EXPECT_THAT(with_array("hidden_states.0", of({1, 8, 6, 6})),
                HasSubstr("save x.flatten(2).transpose(1, 2)"));
    // Any number but a quarter is a merging only where it is said to be one.
    Arrays fewer = {{"hidden_states.0", of({36, 8})}, {"hidden_states.1", of({30, 8})}};
    EXPECT_THAT(refused(fewer), HasSubstr("save what comes out as merge.0"));
    fewer["merge.0"] = fewer["hidden_states.1"];
    EXPECT_EQ(probe(fewer).code, 0);
    EXPECT_EQ(table("out").count({{.layer = 0, .stage = "merge"}, "t_sim"}), 1U);
    // A mask has one number for each token.
    Arrays masked = arrays_;
    masked["attention_mask"] = {{36}, std::vector<double>(36, 1.0)};
    EXPECT_EQ(probe(masked).code, 0);
    write_npy<double>(folder / "mask.npy", "<f8", {36}, std::vector<double>(36, 1.0));
    EXPECT_EQ(probe(arrays_, {"--mask", "mask.npy"}).code, 0);
    masked["attention_mask"].values.back() = 0;
    EXPECT_THAT(refused(masked), HasSubstr("hides tokens, but these merge behind layer 1"));
}

}  // namespace
}  // namespace tsdiag::test
