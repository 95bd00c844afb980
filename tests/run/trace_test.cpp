#include "run/trace/trace.hpp"

#include <gmock/gmock.h>

#include "checkpoint/zip_writer.hpp"
#include "support/files.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {
namespace {

using Shapes = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

/// An .npz of arrays of ones divided by their last extent, so that rows sum to 1.
std::string write_trace(const TemporaryDirectory& folder, const Shapes& shapes) {
    std::vector<std::vector<double>> values;
    std::vector<NamedArray> arrays;
    for (const auto& [name, shape] : shapes) {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        values.emplace_back(std::size_t(count), 1.0 / double(shape.back()));
    }
    for (std::size_t i = 0; i < shapes.size(); ++i)
        arrays.push_back({shapes[i].first, shapes[i].second, {}, values[i]});
    const std::string file = folder / "trace.npz";
    write_npz(file, arrays);
    return file;
}

struct BadTrace {
    const char* what;
    Shapes shapes;
    std::vector<const char*> message;  // parts of it
};

class EveryBadTrace : public testing::TestWithParam<BadTrace> {};

TEST_P(EveryBadTrace, IsRefusedByName) {
    TemporaryDirectory folder;
    const auto file = open_checkpoint(write_trace(folder, GetParam().shapes));
    try {
        summarise_trace(*file);
        FAIL() << "accepted";
    } catch (const Error& error) {
        for (const char* part : GetParam().message)
            EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
}

const BadTrace bad_traces[] = {
    {"tokens",
     {{"hidden_states.0", {6, 4}}, {"hidden_states.1", {5, 4}}},
     {"hidden_states.1", "(5, 4)", "6 tokens"}},
    {"width",
     {{"hidden_states.0", {6, 4}}, {"hidden_states.1", {6, 3}}},
     {"hidden_states.1", "(6, 3)", "width 4"}},
    {"samples",
     {{"hidden_states.0", {2, 6, 4}}, {"attentions.0", {3, 2, 6, 6}}},
     {"attentions.0", "(3, 2, 6, 6)", "2 samples"}},
    {"square", {{"attentions.0", {2, 6, 5}}}, {"attentions.0", "(2, 6, 5)", "square"}},
    {"rank", {{"hidden_states.0", {6}}}, {"hidden_states.0", "(6)", "(tokens, width)"}},
    {"map_rank", {{"attentions.0", {6, 6}}}, {"attentions.0", "(6, 6)", "(heads, tokens, tokens)"}},
    {"no_keys",
     {{"queries.0", {2, 6, 3}}, {"queries.1", {2, 6, 3}}, {"keys.1", {2, 6, 3}}},
     {"queries.0", "keys.0"}},
    {"no_queries",
     {{"queries.0", {2, 6, 3}}, {"keys.0", {2, 6, 3}}, {"keys.1", {2, 6, 3}}},
     {"keys.1", "queries.1"}},
    {"columns", {{"queries.0", {2, 6, 3}}, {"keys.0", {2, 6, 4}}}, {"keys.0", "3 columns"}},
    {"heads", {{"queries.0", {4, 6, 3}}, {"keys.0", {3, 6, 3}}}, {"keys.0", "divide the 4"}},
    {"twice",
     {{"hidden_states.1", {6, 4}}, {"hidden_states_1", {6, 4}}},
     {"hidden_states.1", "hidden_states_1", "of the same layer"}},
    {"layers", {{"hidden_states", {1'000'001, 1, 1}}}, {"1000001 layers", "at most 1000000"}},
    {"stage", {{"hidden_states.0", {6, 4}}, {"ffn.0", {6, 3}}}, {"ffn.0", "width 4"}},
};
INSTANTIATE_TEST_SUITE_P(Traces, EveryBadTrace, testing::ValuesIn(bad_traces),
                         [](const auto& test) { return test.param.what; });

struct ForeignState {
    const char* what;
    std::string value;    ///< pickled
    const char* message;  ///< a part of it
};

class EveryForeignState : public testing::TestWithParam<ForeignState> {};

/// What stands in place of a state must not vanish: neither between others nor as the last one.
TEST_P(EveryForeignState, IsRefusedByName) {
    TemporaryDirectory folder;
    const std::string state = samples::tensor("0", 6, 0, {2, 3}, {3, 1});
    for (const std::string name : {"hidden_states.1", "hidden_states.3"}) {
        std::string items;
        for (const char* other : {"hidden_states.0", "hidden_states.2"})
            items += samples::text(other) + state;
        items += samples::text(name) + GetParam().value;
        const std::string bytes(6 * sizeof(float), '\0');
        write_file(folder / "t.pt", samples::torch_zip_of(samples::dict(items), {bytes}));
        const auto file = open_checkpoint(folder / "t.pt");
        EXPECT_TRUE(is_trace(*file));
        try {
            const SavedTrace trace(*file);
            FAIL() << "accepted";
        } catch (const Error& error) {
            EXPECT_THAT(error.what(), testing::HasSubstr("t.pt: "));
            EXPECT_THAT(error.what(), testing::HasSubstr("'" + name + "'"));
            EXPECT_THAT(error.what(), testing::HasSubstr(GetParam().message));
        }
    }
}

const ForeignState foreign_states[] = {
    {"sparse",
     "ctorch._utils\n_rebuild_sparse_tensor\n(" + samples::text("torch.sparse_coo") + "(" +
         samples::tuple({2, 3}) + "ttR",
     "save x.to_dense()"},
    {"meta",
     "ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n" + samples::tuple({2, 3}) +
         samples::tuple({3, 1}) + "\x89tR",
     "meta device"},
    {"sharded", "ctorch._utils\n_rebuild_wrapper_subclass\n(ctorch.distributed.tensor\nDTensor\ntR",
     "save x.full_tensor()"},
    {"numbers", "](" + samples::integer(1) + samples::integer(2) + "e", "holds a list of numbers"},
    {"lists", "]](" + samples::integer(1) + samples::integer(2) + "ea", "save it as a tensor"},
    {"object", "cjax\nArray\n)R", "holds an object of jax.Array"},
};
INSTANTIATE_TEST_SUITE_P(Traces, EveryForeignState, testing::ValuesIn(foreign_states),
                         [](const auto& test) { return test.param.what; });

double value_of(const Table& table, Index layer, const char* stage, const char* metric,
                Index head = -1) {
    const auto row = table.find({.layer = layer, .stage = stage, .head = head}, metric);
    if (!row || !row->value) {
        ADD_FAILURE() << metric << " of layer " << layer
                      << " has no value: " << (row ? row->note : "no row");
        return 0;
    }
    return *row->value;
}

TEST(Trace, IsKnownByItsNames) {
    TemporaryDirectory folder;
    EXPECT_TRUE(is_trace(*open_checkpoint(write_trace(folder, {{"hidden_states.0", {3, 2}}}))));
    EXPECT_TRUE(is_trace(*open_checkpoint(write_trace(folder, {{"attentions.11", {2, 3, 3}}}))));
    EXPECT_TRUE(is_trace(
        *open_checkpoint(write_trace(folder, {{"queries.0", {2, 3, 2}}, {"keys.0", {1, 3, 2}}}))));
    EXPECT_FALSE(is_trace(*open_checkpoint(write_trace(folder, {{"queries.0", {2, 3, 2}}}))));
    EXPECT_FALSE(
        is_trace(*open_checkpoint(write_trace(folder, {{"hidden_states.0.weight", {3, 2}}}))));
    EXPECT_TRUE(is_trace(*open_checkpoint(write_trace(folder, {{"hidden_states.01", {3, 2}}}))));
    const auto beyond =
        open_checkpoint(write_trace(folder, {{"hidden_states.99999999999", {3, 2}}}));
    EXPECT_TRUE(is_trace(*beyond));
    EXPECT_THROW(summarise_trace(*beyond), FormatError);
}

/// Names as they come out of PyTorch, NumPy and HDF5, and arrays with an axis of layers.
TEST(Trace, NamesArrivedAtOtherwiseAreTheSameTrace) {
    TemporaryDirectory folder;
    std::vector<double> x(3 * 4 * 2);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(double(i * i));
    const std::vector<std::vector<double>> states = {
        {x.begin(), x.begin() + 8}, {x.begin() + 8, x.begin() + 16}, {x.begin() + 16, x.end()}};
    const auto table_of = [&](const std::vector<NamedArray>& arrays) {
        RunOptions options;
        options.subject.model = folder / "t.npz";
        write_npz(options.subject.model, arrays);
        return run(options);
    };
    const auto named = [&](const std::string& prefix) {
        std::vector<NamedArray> out;
        for (std::size_t i = 0; i < 3; ++i)
            out.push_back({prefix + std::to_string(i), {4, 2}, {}, states[i]});
        return out;
    };
    const RunResult expected = table_of(named("hidden_states."));
    EXPECT_TRUE(value_of(expected.table, 1, "out", "t_sim") != 0);
    for (const std::string prefix : {"hidden_states_", "hidden_states/", "arr_", ""}) {
        const RunResult found = table_of(named(prefix));
        EXPECT_EQ(metrics_csv(found.table.metrics()), metrics_csv(expected.table.metrics()))
            << prefix;
        const std::string defaults = found.run["model"]["defaults"].dump();
        EXPECT_EQ(defaults.find("by their order") != std::string::npos,
                  !prefix.starts_with("hidden"));
    }
    const RunResult stacked = table_of({{"hidden_states", {3, 4, 2}, {}, x}});
    EXPECT_EQ(metrics_csv(stacked.table.metrics()), metrics_csv(expected.table.metrics()));
    EXPECT_THAT(stacked.run["model"]["defaults"].array().front().string(),
                testing::HasSubstr("its first axis counts layers"));
}

TEST(Trace, ArraysWithoutNamesAreNoTraceUnlessAllAreAlike) {
    TemporaryDirectory folder;
    const auto is = [&](const Shapes& shapes) {
        return is_trace(*open_checkpoint(write_trace(folder, shapes)));
    };
    EXPECT_TRUE(is({{"arr_0", {2, 3, 3, 3}}, {"arr_1", {2, 3, 3, 3}}}));
    EXPECT_FALSE(is({{"arr_0", {2, 3, 3, 4}}, {"arr_1", {2, 3, 3, 4}}}));
    EXPECT_FALSE(is({{"arr_0", {4, 3}}}));
    EXPECT_FALSE(is({{"arr_0", {4, 3}}, {"arr_1", {4, 2}}}));
    EXPECT_FALSE(is({{"arr_0", {4, 3}}, {"arr_2", {4, 3}}}));
    EXPECT_FALSE(is({{"arr_0", {4, 3}}, {"arr_1", {4, 3}}, {"weight", {4, 3}}}));
    EXPECT_FALSE(is({{"hidden_states", {4, 3}}}));
}

TEST(Trace, WhatItSeemsToLackIsSaid) {
    TemporaryDirectory folder;
    const auto warnings = [&](const Shapes& shapes) {
        RunOptions options;
        options.subject.model = write_trace(folder, shapes);
        std::string text;
        const Json run_json = run(options).run;
        for (const Json* from : {&run_json["model"]["warnings"], &run_json["warnings"]})
            if (from->is_array())
                for (const Json& line : from->array()) text += line.string() + "\n";
        return text;
    };
    const Shapes whole = {{"hidden_states.0", {6, 4}},
                          {"attentions.0", {2, 6, 6}},
                          {"hidden_states.1", {6, 4}},
                          {"attentions.1", {2, 6, 6}},
                          {"hidden_states.2", {6, 4}}};
    EXPECT_EQ(warnings(whole), "");
    Shapes part = whole;
    part.pop_back();
    EXPECT_THAT(warnings(part), testing::HasSubstr("the output of layer 1 is missing: 2 layers "
                                                   "have 3 states"));
    part = whole;
    part.push_back({"hidden_states.3", {6, 4}});
    EXPECT_THAT(warnings(part), testing::HasSubstr("hidden_states go to 3, which 2 layers"));
    part = whole;
    part.erase(part.begin() + 2);
    EXPECT_THAT(warnings(part), testing::HasSubstr("hidden_states.1 is missing between others"));
}

/// Keys that no token attends to are probably padding.
TEST(Trace, PaddingWithoutAMaskIsSaid) {
    TemporaryDirectory folder;
    const std::vector<double> p = {.5, .5, 0, .25, .75, 0, .5, .5, 0};
    const std::vector<NamedArray> arrays = {{"attentions.0", {1, 3, 3}, {}, p}};
    write_npz(folder / "t.npz", arrays);
    RunOptions options;
    options.subject.model = folder / "t.npz";
    EXPECT_THAT(run(options).run["warnings"].dump(),
                testing::HasSubstr("no token attends to 1 of 3 tokens"));
    const std::vector<std::int64_t> keep = {1, 1, 0};
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {3}, keep);
    options.mask = folder / "mask.npy";
    EXPECT_THAT(run(options).run["warnings"].dump(),
                testing::Not(testing::HasSubstr("no token attends")));
}

TEST(Trace, StagesInsideLayersNeedTheirLayout) {
    TemporaryDirectory folder;
    RunOptions options;
    options.subject.model = write_trace(
        folder, {{"hidden_states.0", {3, 2}}, {"attn.0", {3, 2}}, {"hidden_states.1", {3, 2}}});
    try {
        run(options);
        FAIL() << "accepted";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("'attn.0'"));
        EXPECT_THAT(error.what(), testing::HasSubstr("--placement post, pre or branch"));
    }
}

TEST(Trace, TheLastStateIsAnOutputOnly) {
    TemporaryDirectory folder;
    const Shapes shapes = {{"hidden_states.0", {3, 6, 4}},
                           {"hidden_states.1", {3, 6, 4}},
                           {"hidden_states.2", {3, 6, 4}}};
    const TraceSummary found = summarise_trace(*open_checkpoint(write_trace(folder, shapes)));
    EXPECT_EQ(found.layers, 2);
    EXPECT_EQ(found.samples, 3);
    EXPECT_EQ(found.tokens, 6);
    EXPECT_EQ(found.width, 4);
    EXPECT_TRUE(found.float64);
}

/// Two heads of 36 tokens are as large as 32 of 9.
TEST(Trace, TheSizesOfMergingTokensAreThoseOfTheFirstLayer) {
    TemporaryDirectory folder;
    const Shapes shapes = {{"hidden_states.0", {36, 8}},
                           {"attentions.0", {2, 36, 36}},
                           {"hidden_states.1", {9, 16}},
                           {"attentions.1", {33, 9, 9}}};
    const TraceSummary found = summarise_trace(*open_checkpoint(write_trace(folder, shapes)));
    EXPECT_EQ(found.layers, 2);
    EXPECT_EQ(found.tokens, 36);
    EXPECT_EQ(found.width, 8);
    EXPECT_EQ(found.heads, 33);
    EXPECT_EQ(found.full_heads, 3);
}

TEST(Trace, UniformAttentionHasItsClosedForms) {
    TemporaryDirectory folder;
    RunOptions options;
    options.subject.model = write_trace(folder, {{"attentions.0", {2, 8, 8}}});
    options.trace.attention = "softmax";
    const RunResult result = run(options);
    EXPECT_CLOSE(value_of(result.table, 0, "attn", "attn_fro"), 1.0, rounding(64));
    EXPECT_NEAR(value_of(result.table, 0, "attn", "lambda2_abs"), 0.0, 1e-7);
    EXPECT_NEAR(value_of(result.table, 0, "attn", "delta"), 0.0, 1e-12);
    EXPECT_CLOSE(value_of(result.table, 0, "attn", "entropy", 1), std::log(8.0), rounding(16));
    // |dP/dS|^2 = n sum_k p_k^2 (1 - 2 p_k + sum p^2) = n n (1/n^2) (1 - 1/n)
    EXPECT_CLOSE(value_of(result.table, 0, "attn", "jac_fro"), std::sqrt(7.0 / 8), rounding(64));
    EXPECT_EQ(result.run["dtype"].string(), "float64");
    EXPECT_EQ(result.run["model"]["kind"].string(), "trace");
}

TEST(Trace, BareAttentionHasNoJacobianAndSaysWhy) {
    TemporaryDirectory folder;
    RunOptions options;
    options.subject.model = write_trace(folder, {{"attentions.0", {2, 8, 8}}});
    const RunResult result = run(options);
    for (const char* metric : {"jac_fro", "omega", "mu1", "mu2", "est_mu", "est1", "jac_q_fro"}) {
        const auto row = result.table.find({.layer = 0, .stage = "attn"}, metric);
        ASSERT_TRUE(row) << metric;
        EXPECT_FALSE(row->value) << metric;
        EXPECT_FALSE(row->note.empty()) << metric;
    }
}

TEST(Trace, AGivenAttentionCanBeNothingButASoftmax) {
    TemporaryDirectory folder;
    RunOptions options;
    options.subject.model = write_trace(folder, {{"attentions.0", {2, 4, 4}}});
    options.trace.attention = "sofmax";
    EXPECT_THROW(run(options), UsageError);
}

TEST(Trace, CausalPromiseIsChecked) {
    TemporaryDirectory folder;
    RunOptions options;
    options.subject.model = write_trace(folder, {{"attentions.0", {2, 4, 4}}});
    options.trace.causal = true;
    EXPECT_THROW(run(options), FormatError);
}

TEST(Trace, AMaskRestrictsStatesAndAttention) {
    TemporaryDirectory folder;
    const std::vector<double> x = {1, 0, 0, 1, 5, -7}, P = {.5, .5, 0, .5, .5, 0, 0, 0, 1};
    const std::vector<NamedArray> arrays = {{"hidden_states.0", {3, 2}, {}, x},
                                            {"attentions.0", {1, 3, 3}, {}, P}};
    write_npz(folder / "t.npz", arrays);
    const std::vector<std::int64_t> keep = {1, 1, 0};
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {3}, keep);
    RunOptions options;
    options.subject.model = folder / "t.npz";
    options.mask = folder / "mask.npy";
    const RunResult result = run(options);
    EXPECT_CLOSE(value_of(result.table, 0, "in", "t_sim"), 0.5, rounding(4));  // (1,0), (0,1)
    EXPECT_CLOSE(value_of(result.table, 0, "attn", "attn_fro"), 1.0,
                 rounding(4));  // of the kept block
    EXPECT_NEAR(value_of(result.table, 0, "attn", "lambda2_abs"), 0.0, 1e-7);
}

TEST(Trace, NonFiniteEntriesAreNamedByIndex) {
    TemporaryDirectory folder;
    std::vector<double> x(2 * 3 * 2, 1.0);
    x[9] = std::nan("");  // (1, 1, 1)
    const std::vector<NamedArray> arrays = {{"hidden_states.0", {2, 3, 2}, {}, x}};
    write_npz(folder / "t.npz", arrays);
    RunOptions options;
    options.subject.model = folder / "t.npz";
    try {
        run(options);
        FAIL() << "accepted";
    } catch (const NonFiniteError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("hidden_states.0"));
        EXPECT_THAT(error.what(), testing::HasSubstr("(1, 1)"));
    }
    options.allow_nonfinite = true;
    const RunResult result = run(options);
    const auto row = result.table.find({.layer = 0, .stage = "in"}, "t_sim");
    ASSERT_TRUE(row && row->value);
    EXPECT_EQ(row->count, 1);  // the other sample
    EXPECT_FALSE(row->note.empty());
}

}  // namespace
}  // namespace tsdiag::test
