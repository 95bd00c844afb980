#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "checkpoint/zip_writer.hpp"
#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// Traces that mean something else than their arrays seem to say: nothing is decided silently.
namespace tsdiag::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

/// An array with its values.
struct Array {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<double> values;
};

class TraceDoubts : public testing::Test {
  protected:
    static constexpr Index tokens = 8, width = 6, heads = 2;

    void write(const std::vector<Array>& arrays, const std::string& name = "trace.npz") {
        std::vector<NamedArray> named;
        for (const Array& one : arrays) named.push_back({one.name, one.shape, {}, one.values});
        write_npz(folder / name, named);
    }
    Finished probe(const Words& more = {}) {
        Words words = {"probe", "trace.npz", "--no-report", "--out", "out", "--force"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    std::string refused(const Words& more = {}) {
        const Finished found = probe(more);
        EXPECT_NE(found.code, 0) << found.out;
        expect_one_sentence(found.err);
        return found.err;
    }
    /// The value of a metric without a head; NaN where it is undefined.
    double value(std::string_view metric, std::string_view stage, Index layer) {
        for (const MetricRow& row :
             read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
            if (row.metric == metric && row.at.stage == stage && row.at.layer == layer &&
                row.at.head < 0)
                return row.value.value_or(std::nan(""));
        ADD_FAILURE() << metric << " was not measured";
        return 0;
    }
    /// A text that was broken into lines, in one.
    static std::string one_line(const std::string& text) {
        std::string out;
        for (const char c : text)
            if (!std::isspace(static_cast<unsigned char>(c)))
                out += c;
            else if (!out.empty() && out.back() != ' ')
                out += ' ';
        return out;
    }
    static std::vector<double> state(int seed) {
        std::vector<double> x;
        for (Index i = 0; i < tokens * width; ++i)
            x.push_back(std::sin(double(i * i + 17 * seed)) + 0.5);
        return x;
    }
    static Array hidden(const std::string& name, int seed) {
        return {name, {tokens, width}, state(seed)};
    }
    static std::vector<double> softmax() {
        std::vector<double> p;
        for (Index row = 0; row < heads * tokens; ++row) {
            double sum = 0;
            for (Index j = 0; j < tokens; ++j)
                sum += p.emplace_back(std::exp(std::sin(double(row * row + 3 * j))));
            for (Index j = 0; j < tokens; ++j) p[std::size_t(row * tokens + j)] /= sum;
        }
        return p;
    }
    static Array maps(const std::string& name, std::vector<double> p) {
        return {name, {Index(p.size()) / (tokens * tokens), tokens, tokens}, std::move(p)};
    }
    TemporaryDirectory folder;
};

TEST_F(TraceDoubts, NamesOfOneMeaningAreRead) {
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1)});
    ASSERT_EQ(probe().code, 0);
    const double expected = value("t_sim", "out", 0);
    for (const char* pattern :
         {"hidden_states.{:02}", "hidden_states-{}", "Hidden_States.{}", "hidden_states[{}]",
          "hidden_states.layer{}", "hidden_states/layer_{:03}", "hidden_state_{}",
          "hidden_states{}"}) {
        write({hidden(fmt::format(fmt::runtime(pattern), 0), 0),
               hidden(fmt::format(fmt::runtime(pattern), 1), 1)});
        const Finished found = probe();
        ASSERT_EQ(found.code, 0) << pattern << found.err;
        EXPECT_EQ(value("t_sim", "out", 0), expected) << pattern;
    }
    std::vector<Array> states;  // thirteen, of which 00 to 09 would be lost by their zeros
    for (int l = 0; l < 13; ++l) states.push_back(hidden(fmt::format("hidden_states.{:02}", l), l));
    write(states);
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("hidden_states 0 to 12"));
}

TEST_F(TraceDoubts, NamesThatNobodyCanPlaceAreRefused) {
    for (const auto& [name, words] : std::vector<std::pair<std::string, std::string>>{
             {"hidden_states.0.3", "as what generate() returns"},
             {"attentions.1.2", "as what generate() returns"},
             {"hidden_states.x1", "begins as hidden_states.L does"},
             {"hidden_states.-1", "begins as hidden_states.L does"},
             {"attentions_head3_layer1", "begins as attentions.L does"},
             {"hidden_states.00", "are of the same layer"}}) {
        write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), hidden(name, 2)});
        EXPECT_THAT(refused(), HasSubstr(words)) << name;
        EXPECT_THAT(refused(), HasSubstr(name)) << name;
    }
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), hidden("note", 2)});
    EXPECT_THAT(probe().out, HasSubstr("note"));  // no part of a trace, and said so
}

TEST_F(TraceDoubts, NamesThatAreMeantForOneAreToldIt) {
    for (const auto& [name, usual] : std::vector<std::pair<std::string, std::string>>{
             {"attention_probs.0", "attentions.0"},
             {"attn_weights.0", "attentions.0"},
             {"attention_scores_1", "attentions.1"},
             {"attentions:0", "attentions.0"},
             {"attentions 0", "attentions.0"},
             {"query_states.1", "queries.1"},
             {"hidden_states:3", "hidden_states.3"},
             {"hidden_states 3", "hidden_states.3"},
             {"hidden_states(3)", "hidden_states.3"}}) {
        write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), maps(name, softmax())});
        EXPECT_THAT(refused(), HasSubstr("name it " + usual + ", or leave it out")) << name;
    }
    write({maps("attn_weights.0", softmax()), maps("attn_weights.1", softmax())});
    EXPECT_THAT(refused(), HasSubstr("name it attentions.0"));
    write({hidden("hidden_states:0", 0), hidden("hidden_states:1", 1)});
    EXPECT_THAT(refused(), HasSubstr("name it hidden_states.0"));
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), hidden("attn_output.0", 2)});
    EXPECT_THAT(refused(), Not(HasSubstr("name it attentions.0")));
}

/// What is ignored by its name may be an array of maps by what it holds.
TEST_F(TraceDoubts, MapsUnderAnyOtherNameAreTold) {
    for (const auto& [name, usual] : std::vector<std::pair<std::string, std::string>>{
             {"layers.0.attn_weights", "attentions.0"},
             {"blocks.0.self_attn.probs", "attentions.0"},
             {"P", "attentions.L"},
             {"layers.0.head_1", "attentions.L"}}) {
        write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), maps(name, softmax())});
        EXPECT_THAT(refused(), HasSubstr("'" + name + "': its rows are nonnegative and sum to 1"));
        EXPECT_THAT(refused(), HasSubstr("name it " + usual + ", (heads, tokens, tokens)"));
    }
    std::vector<double> logits = softmax();
    logits.front() = -1;
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
           maps("layers.0.attn_scores", logits)});
    EXPECT_THAT(one_line(probe().out), HasSubstr("ignored layers.0.attn_scores"));
}

/// softmax(q k^T / sqrt(columns)) of each head, in loops.
std::vector<double> softmax_of(const std::vector<double>& q, const std::vector<double>& k, Index n,
                               Index columns, bool causal) {
    std::vector<double> p(q.size() / std::size_t(columns) * std::size_t(n), 0.0);
    for (std::size_t row = 0; row < q.size() / std::size_t(columns); ++row) {
        const std::size_t head = row / std::size_t(n), i = row % std::size_t(n);
        const std::size_t seen = causal ? i + 1 : std::size_t(n);
        double sum = 0;
        for (std::size_t j = 0; j < seen; ++j) {
            double logit = 0;
            for (std::size_t c = 0; c < std::size_t(columns); ++c)
                logit += q[row * std::size_t(columns) + c] *
                         k[(head * std::size_t(n) + j) * std::size_t(columns) + c];
            sum += p[row * std::size_t(n) + j] = std::exp(logit / std::sqrt(double(columns)));
        }
        for (std::size_t j = 0; j < seen; ++j) p[row * std::size_t(n) + j] /= sum;
    }
    return p;
}

/// Libraries add biases to logits: P counts as it is stored, and the reader is told.
TEST_F(TraceDoubts, MapsThatAreNotThoseOfTheQueriesBesideThemAreToldApart) {
    constexpr Index columns = 3;
    const auto heads_of = [](int seed) {
        std::vector<double> x;
        for (Index i = 0; i < heads * tokens * columns; ++i)
            x.push_back(2 * std::sin(double(i * i + 5 * seed)));
        return x;
    };
    const std::vector<double> q = heads_of(1), k = heads_of(2);
    const auto output = [&](const std::vector<double>& p, const Words& more = {}) {
        write({hidden("hidden_states.0", 0),
               hidden("hidden_states.1", 1),
               {"queries.0", {heads, tokens, columns}, q},
               {"keys.0", {heads, tokens, columns}, k},
               maps("attentions.0", p)});
        const Finished found = probe(more);
        EXPECT_EQ(found.code, 0) << found.err;
        return one_line(found.out);
    };
    const std::string apart = "P of layer 0 is not softmax(q k^T / sqrt(d))",
                      own = "attentions contains their P";
    for (const bool causal : {false, true}) {
        const std::string found = output(softmax_of(q, k, tokens, columns, causal));
        EXPECT_THAT(found, HasSubstr(own));
        EXPECT_THAT(found, Not(HasSubstr(apart)));
    }
    const std::string found = output(softmax_of(heads_of(3), k, tokens, columns, false));
    EXPECT_THAT(found, HasSubstr("! attentions: " + apart));  // among the findings
    EXPECT_THAT(found, HasSubstr("P is taken as stored"));
    EXPECT_THAT(found, Not(HasSubstr(own)));
    // Queries that are scaled already, and a scale that is said.
    std::vector<double> scaled = q;
    for (double& v : scaled) v *= std::sqrt(double(columns));
    EXPECT_THAT(output(softmax_of(scaled, k, tokens, columns, true)), HasSubstr(own));
    EXPECT_THAT(output(softmax_of(q, k, tokens, columns, true), {"--scale", "1"}),
                HasSubstr("P of layer 0 is not softmax(1 q k^T)"));
    EXPECT_THAT(output(softmax(), {"--attention", "softmax"}), HasSubstr(apart));
    EXPECT_THAT(output(softmax(), {"--attention", "linear"}),
                HasSubstr("attentions: --attention linear forms P of queries and keys"));
}

/// The first sample says nothing of the others, nor the first batch.
TEST_F(TraceDoubts, MapsOfEverySampleAreComparedWithTheQueriesBesideThem) {
    constexpr Index columns = 3;
    const auto heads_of = [](int seed) {
        std::vector<double> x;
        for (Index i = 0; i < heads * tokens * columns; ++i)
            x.push_back(2 * std::sin(double(i * i + 5 * seed)));
        return x;
    };
    const auto both = [](std::vector<double> first, const std::vector<double>& second) {
        first.insert(first.end(), second.begin(), second.end());
        return first;
    };
    const std::vector<double> q = heads_of(1), k = heads_of(2),
                              p = softmax_of(q, k, tokens, columns, false),
                              other = softmax_of(heads_of(3), k, tokens, columns, false);
    const auto output = [&](const std::string& trace) {
        const Finished found =
            tsdiag(folder, {"probe", trace, "--no-report", "--out", "out", "--force"});
        EXPECT_EQ(found.code, 0) << found.err;
        return one_line(found.out);
    };
    const std::string apart = "sample 1, is not softmax(q k^T / sqrt(d))",
                      own = "attentions contains their P";
    for (const bool fits : {true, false}) {
        const std::vector<double>& second = fits ? p : other;
        write({{"queries.0", {2, heads, tokens, columns}, both(q, q)},
               {"keys.0", {2, heads, tokens, columns}, both(k, k)},
               {"attentions.0", {2, heads, tokens, tokens}, both(p, second)}});
        EXPECT_THAT(output("trace.npz"), HasSubstr(fits ? own : apart));
        std::filesystem::create_directory(folder / "batches");
        for (const bool last : {false, true})
            write({{"queries.0", {heads, tokens, columns}, q},
                   {"keys.0", {heads, tokens, columns}, k},
                   maps("attentions.0", last ? second : p)},
                  last ? "batches/batch-1.npz" : "batches/batch-0.npz");
        EXPECT_THAT(output("batches"), HasSubstr(fits ? own : apart));
        // A sample that is not measured is not judged.
        EXPECT_THAT(one_line(probe({"--samples", "1"}).out), HasSubstr(own));
    }
    // A batch may have its maps alone.
    write({maps("attentions.0", p)}, "batches/batch-1.npz");
    EXPECT_THAT(output("batches"), HasSubstr(own));
}

TEST_F(TraceDoubts, KeysOfOneHeadBesideStatesOfOneSampleAreRead) {
    constexpr Index columns = 3;
    const auto of = [](const std::string& name, const std::vector<std::int64_t>& shape) {
        std::vector<double> x;
        for (Index i = 0; i < heads * tokens * columns; ++i) x.push_back(std::sin(double(i * i)));
        x.resize(std::size_t(shape.end()[-3] * tokens * columns));
        return Array{name, shape, x};
    };
    Array first = hidden("hidden_states.0", 0), last = hidden("hidden_states.1", 1);
    first.shape = last.shape = {1, tokens, width};
    for (const auto& [queries, keys] :
         std::vector<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>{
             {{heads, tokens, columns}, {1, tokens, columns}},
             {{1, heads, tokens, columns}, {1, 1, tokens, columns}}}) {
        write({first, last, of("queries.0", queries), of("keys.0", keys)});
        const Finished found = probe();
        EXPECT_EQ(found.code, 0) << found.err;
    }
}

/// Letters name projections, too.
TEST_F(TraceDoubts, LettersAreNoQueriesBesideThoseOfThatName) {
    constexpr Index columns = 3;
    std::vector<double> x;
    for (Index i = 0; i < heads * tokens * columns; ++i) x.push_back(std::sin(double(i * i)));
    const std::vector<std::int64_t> of_heads = {heads, tokens, columns}, whole = {tokens, width};
    write({hidden("hidden_states.0", 0),
           hidden("hidden_states.1", 1),
           {"queries.0", of_heads, x},
           {"keys.0", of_heads, x},
           {"q.0", whole, x},
           {"v.0", {6}, {1, 2, 3, 4, 5, 6}}});
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(one_line(found.out), testing::AllOf(HasSubstr("q.0"), HasSubstr("v.0")));
    write({hidden("hidden_states.0", 0),
           hidden("hidden_states.1", 1),
           {"q.0", of_heads, x},
           {"k.0", of_heads, x}});
    ASSERT_EQ(probe().code, 0);
    EXPECT_FALSE(std::isnan(value("entropy", "attn", 0)));
}

TEST_F(TraceDoubts, MapsOfOtherHeadsThanTheQueriesBesideThemAreRefused) {
    std::vector<double> one = softmax();
    one.resize(tokens * tokens);
    const std::vector<double> x(std::size_t(heads * tokens * 3), 0.5);
    write({{"queries.0", {heads, tokens, 3}, x},
           {"keys.0", {heads, tokens, 3}, x},
           maps("attentions.0", one)});
    const std::string found = refused();
    EXPECT_THAT(found, HasSubstr("'attentions.0' is (1, 8, 8), expected the 2 heads of"));
    EXPECT_THAT(found, HasSubstr("queries.0"));
}

TEST_F(TraceDoubts, MapsWithoutAnAxisOfHeadsAreToldSo) {
    std::vector<double> p = softmax();
    p.resize(tokens * tokens);
    const Array flat = {"attentions.0", {tokens, tokens}, p};
    for (const std::vector<Array>& arrays :
         {std::vector{flat}, {hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), flat}}) {
        write(arrays);
        const std::string found = refused();
        EXPECT_THAT(found, HasSubstr("(heads, tokens, tokens)"));
        EXPECT_THAT(found, HasSubstr("P[None] of a single head"));
    }
}

TEST_F(TraceDoubts, AFileThatIsCausalNeedsTheOption) {
    const auto heads_of = [](const std::string& name, int seed) {
        std::vector<double> x;
        for (Index i = 0; i < heads * tokens * 3; ++i)
            x.push_back(std::sin(double(i * i + 5 * seed)));
        return Array{name, {heads, tokens, 3}, x};
    };
    const std::vector<Array> arrays = {hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
                                       heads_of("queries.0", 1), heads_of("keys.0", 2)};
    for (const char* name : {"is_causal", "causal"}) {
        std::vector<Array> all = arrays;
        all.push_back({name, {1}, {1}});
        write(all);
        EXPECT_THAT(refused(), HasSubstr("pass --causal"));
        EXPECT_EQ(probe({"--causal"}).code, 0);
        std::filesystem::create_directory(folder / "batches");
        write(arrays, "batches/batch-0.npz");
        write(all, "batches/batch-1.npz");
        EXPECT_THAT(tsdiag(folder, {"probe", "batches"}).err, HasSubstr("pass --causal"));
        all.back().values = {0};
        write(all);
        EXPECT_EQ(probe().code, 0);
        EXPECT_THAT(refused({"--causal"}), HasSubstr("is false, but --causal"));
        // A given P shows itself what it is.
        write({hidden("hidden_states.0", 0),
               hidden("hidden_states.1", 1),
               maps("attentions.0", softmax()),
               {name, {1}, {1}}});
        EXPECT_EQ(probe().code, 0);
    }
}

/// Maps as they are stored show what they are, and contradict what is said of them.
TEST_F(TraceDoubts, MapsThatAreNotCausalAsTheFileSaysAreTold) {
    std::vector<double> causal;
    for (Index row = 0; row < heads * tokens; ++row)
        for (Index j = 0; j < tokens; ++j)
            causal.push_back(j <= row % tokens ? 1 / double(row % tokens + 1) : 0);
    for (const bool is : {true, false}) {
        write({hidden("hidden_states.0", 0),
               hidden("hidden_states.1", 1),
               maps("attentions.0", is ? causal : softmax()),
               {"is_causal", {1}, {1}}});
        const std::string found = one_line(probe().out);
        const std::string told =
            "'is_causal' is true, but trace.npz: array 'attentions.0' has "
            "entries above its diagonal";
        EXPECT_EQ(found.find(told) == found.npos, is) << found;
    }
    // Of two batches each says what it is.
    std::filesystem::create_directory(folder / "batches");
    for (const bool is : {true, false})
        write({hidden("hidden_states.0", 0),
               hidden("hidden_states.1", 1),
               maps("attentions.0", is ? causal : softmax()),
               {"is_causal", {1}, {double(is)}}},
              is ? "batches/batch-0.npz" : "batches/batch-1.npz");
    const Finished both = tsdiag(folder, {"probe", "batches"});
    EXPECT_EQ(both.code, 0) << both.err;
    EXPECT_THAT(one_line(both.out), Not(HasSubstr("is_causal")));
}

TEST_F(TraceDoubts, AScaleInTheFileIsThatOfTheLogits) {
    std::vector<double> x;
    for (Index i = 0; i < heads * tokens * 4; ++i) x.push_back(std::sin(double(i * i)));
    const auto with_scale = [&](const std::string& name, double scale) {
        write({hidden("hidden_states.0", 0),
               hidden("hidden_states.1", 1),
               {"queries.0", {heads, tokens, 4}, x},
               {"keys.0", {heads, tokens, 4}, x},
               {name, {1}, {scale}}});
    };
    for (const char* name : {"scale", "softmax_scale"}) {
        with_scale(name, 0.5);  // 1/sqrt(4)
        EXPECT_EQ(probe().code, 0);
        with_scale(name, 0.25);
        EXPECT_THAT(refused(), HasSubstr(std::string("'") + name +
                                         "' is 0.25, but logits of layer "
                                         "0 are multiplied by 0.5"));
        EXPECT_EQ(probe({"--scale", "0.25"}).code, 0);
    }
    with_scale("scale", 0.501);  // as bfloat16 rounds others
    EXPECT_EQ(probe().code, 0);
    // In a later batch.
    std::filesystem::create_directory(folder / "batches");
    for (const char* name : {"batches/batch-0.npz", "batches/batch-1.npz"})
        write({hidden("hidden_states.0", 0),
               hidden("hidden_states.1", 1),
               {"queries.0", {heads, tokens, 4}, x},
               {"keys.0", {heads, tokens, 4}, x},
               {"scale", {1}, {std::string_view(name).ends_with("0.npz") ? 0.5 : 0.25}}},
              name);
    EXPECT_THAT(tsdiag(folder, {"probe", "batches"}).err, HasSubstr("'scale' is 0.25, but logits"));
}

/// Numbers of tokens say what is padding, as a mask would.
TEST_F(TraceDoubts, NumbersOfTokensWithoutAMaskAreRefused) {
    const auto with_number = [&](const std::string& name, double count) {
        write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), {name, {1}, {count}}});
    };
    for (const char* name : {"lengths", "seq_len", "input_length"}) {
        with_number(name, 5);
        EXPECT_THAT(refused(), HasSubstr("how many of the 8 tokens of a sample are no padding"));
        with_number(name, 8);
        EXPECT_EQ(probe().code, 0) << name;
    }
    for (const char* name : {"max_length", "target_lengths"}) {
        with_number(name, 5);
        EXPECT_EQ(probe().code, 0) << name;
    }
    with_number("lengths", 5);
    const std::vector<std::int64_t> mask = {1, 1, 1, 1, 1, 0, 0, 0};
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {tokens}, mask);
    const Finished masked = probe({"--mask", "mask.npy"});
    EXPECT_EQ(masked.code, 0) << masked.err;
}

/// A mask is that of each P; where some are causal and others not, one sentence says so.
TEST_F(TraceDoubts, MapsOfTwoMasksAreTold) {
    const auto causal_in = [&](std::vector<Index> causal) {
        std::vector<double> p = softmax();
        for (const Index head : causal)
            for (Index i = 0; i < tokens; ++i) {
                double* row = p.data() + (head * tokens + i) * tokens;
                double sum = 0;
                for (Index j = 0; j < tokens; ++j) sum += row[j] *= j <= i ? 1 : 0;
                for (Index j = 0; j < tokens; ++j) row[j] /= sum;
            }
        return p;
    };
    const auto said = [&](const std::vector<double>& first, const std::vector<double>& second) {
        write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
               hidden("hidden_states.2", 2), maps("attentions.0", first),
               maps("attentions.1", second)});
        return one_line(probe().out);
    };
    const char* mixed = "have no entry above the diagonal";
    EXPECT_THAT(said(causal_in({}), causal_in({})), Not(HasSubstr(mixed)));
    EXPECT_THAT(said(causal_in({0, 1}), causal_in({0, 1})), Not(HasSubstr(mixed)));
    EXPECT_THAT(said(causal_in({0, 1}), causal_in({0})),
                HasSubstr("3 of 4 P have no entry above the diagonal, as by a causal mask (first "
                          "layer 0, head 0), the others have (first layer 1, head 1)"));
    EXPECT_THAT(said(causal_in({}), causal_in({0, 1})),
                HasSubstr("2 of 4 P have no entry above the diagonal, as by a causal mask (first "
                          "layer 1, head 0), the others have (first layer 0, head 0)"));
    // A head that attends to the first, the previous or the same token alone needs no mask for
    // that.
    for (const Index to : {0, 1, 2}) {
        std::vector<double> p = softmax();
        for (Index i = 0; i < tokens; ++i)
            for (Index j = 0; j < tokens; ++j)
                p[std::size_t(i * tokens + j)] = j == (to == 0   ? 0
                                                       : to == 1 ? std::max<Index>(i - 1, 0)
                                                                 : i)
                                                     ? 1
                                                     : 0;
        EXPECT_THAT(said(p, softmax()), Not(HasSubstr(mixed))) << to;
    }
}

TEST_F(TraceDoubts, MapsThatAreSavedTwiceAreTold) {
    const auto said = [&](const std::vector<double>& first, const std::vector<double>& second) {
        write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
               hidden("hidden_states.2", 2), maps("attentions.0", first),
               maps("attentions.1", second)});
        const Finished found = probe();
        EXPECT_EQ(found.code, 0) << found.err;
        return one_line(found.out);
    };
    const char *layers = "attentions.1 has the numbers of attentions.0, as where one module",
               *in_heads = "has the same numbers in all heads, as where their mean was repeated";
    const std::vector<double> p = softmax();
    std::vector<double> mean = p, other = p;
    for (std::size_t i = 0; i < mean.size() / 2; ++i) {
        mean[i] = (p[i] + p[i + mean.size() / 2]) / 2;
        mean[i + mean.size() / 2] = mean[i];
    }
    std::swap_ranges(other.begin(), other.begin() + tokens * tokens, other.end() - tokens * tokens);
    EXPECT_THAT(said(p, p), AllOf(HasSubstr(layers), Not(HasSubstr(in_heads))));
    EXPECT_THAT(said(p, other), AllOf(Not(HasSubstr(layers)), Not(HasSubstr(in_heads))));
    EXPECT_THAT(said(p, mean),
                AllOf(Not(HasSubstr(layers)), HasSubstr(std::string("attentions.1 ") + in_heads)));
    // Uniform maps may be equal by themselves.
    const std::vector<double> uniform(p.size(), 1.0 / double(tokens));
    EXPECT_THAT(said(uniform, uniform), AllOf(Not(HasSubstr(layers)), Not(HasSubstr(in_heads))));
}

/// What was saved by reference holds the last numbers; ids are no states.
TEST_F(TraceDoubts, StatesThatAreSomethingElseAreTold) {
    const auto said = [&](const std::vector<double>& first, const std::vector<double>& second) {
        write({{"hidden_states.0", {tokens, width}, first},
               {"hidden_states.1", {tokens, width}, second},
               {"hidden_states.2", {tokens, width}, second}});
        return one_line(probe().out);
    };
    const char *equal = "has the numbers of the state before it",
               *ids = "holds whole numbers alone";
    EXPECT_THAT(said(state(0), state(1)), HasSubstr(std::string("hidden_states.2 ") + equal));
    EXPECT_THAT(said(state(1), state(1)),
                HasSubstr(std::string("hidden_states.1 (and 1 more) ") + equal));
    std::vector<double> whole;
    for (Index i = 0; i < tokens * width; ++i) whole.push_back(double(i * i % 101));
    EXPECT_THAT(said(state(0), whole), HasSubstr(std::string("hidden_states.1 ") + ids));
    EXPECT_THAT(said(state(0), state(1)), Not(HasSubstr(ids)));
    // Numbers of bfloat16 from 128 on are whole.
    std::vector<double> large;
    for (Index i = 0; i < tokens * width; ++i)
        large.push_back((i % 2 == 0 ? 512 : -512) + (i % 2 == 0 ? 4 : -4) * double(i * 37 % 120));
    EXPECT_THAT(said(state(0), large), Not(HasSubstr(ids)));
}

/// Rows of padding may stay as they are, however many they are.
TEST_F(TraceDoubts, PaddingThatStaysIsNoStateBefore) {
    constexpr Index n = 40, padded = 35;
    const auto padding_and = [&](const std::string& name, int seed) {
        Array out{name, {n, width}, {}};
        for (Index i = 0; i < n * width; ++i)
            out.values.push_back(i < padded * width ? std::cos(double(i % width))
                                                    : std::sin(double(i * i + 17 * seed)) + 0.5);
        return out;
    };
    const char* equal = "has the numbers of the state before it";
    write({padding_and("hidden_states.0", 0), padding_and("hidden_states.1", 1)});
    EXPECT_THAT(one_line(probe().out), Not(HasSubstr(equal)));
    write({padding_and("hidden_states.0", 0), padding_and("hidden_states.1", 0)});
    EXPECT_THAT(one_line(probe().out), HasSubstr(equal));
    // What is hidden does not tell states apart.
    Array other = padding_and("hidden_states.1", 0);
    other.values[0] = 7;
    std::vector<double> mask(std::size_t(n), 1);
    std::fill_n(mask.begin(), padded, 0.0);
    write({padding_and("hidden_states.0", 0), other, {"attention_mask", {n}, mask}});
    EXPECT_THAT(one_line(probe().out), HasSubstr(equal));
}

TEST_F(TraceDoubts, ATraceThatIsCountedFromOneIsTold) {
    const char* told = "hidden_states.1 is taken for what layer 0 returns";
    const auto said = [&](const std::vector<Array>& all) {
        write(all);
        const Finished found = probe();
        EXPECT_EQ(found.code, 0) << found.err;
        return one_line(found.out);
    };
    const Array first = hidden("hidden_states.1", 0), second = hidden("hidden_states.2", 1);
    EXPECT_THAT(said({first, second}), HasSubstr(told));
    EXPECT_THAT(said({first, second, maps("attentions.1", softmax())}), HasSubstr(told));
    EXPECT_THAT(said({first, second, maps("attentions.0", softmax())}), Not(HasSubstr(told)));
    EXPECT_THAT(said({hidden("hidden_states.0", 2), first, second}), Not(HasSubstr(told)));
}

/// Of a batch without a mask, where nothing else says that rows are no tokens.
TEST_F(TraceDoubts, RowsThatLookLikePaddingAreTold) {
    const char* padding = "looks like padding and is measured as tokens; --mask FILE, or";
    const auto states = [&](Index layer, Index first, Index last, double factor) {
        std::vector<Array> all;
        for (Index l = 0; l < 2; ++l) {
            std::vector<double> x = state(0), y = state(1);
            for (Index i = first * width; l == layer && i < last * width; ++i)
                y[std::size_t(i)] = factor * double(1 + i % width);
            x.insert(x.end(), y.begin(), y.end());
            all.push_back({fmt::format("hidden_states.{}", l), {2, tokens, width}, x});
        }
        return all;
    };
    const auto said = [&](const std::vector<Array>& all) {
        write(all);
        const Finished found = probe();
        EXPECT_EQ(found.code, 0) << found.err;
        return one_line(found.out);
    };
    EXPECT_THAT(said(states(0, 5, tokens, 0)),
                HasSubstr(std::string("hidden_states.0: the last 3 rows of sample 1 hold zeros "
                                      "alone, which ") +
                          padding));
    EXPECT_THAT(said(states(1, 0, 2, 0)),
                HasSubstr("hidden_states.1: the first 2 rows of sample 1 hold zeros alone"));
    EXPECT_THAT(said(states(0, 4, tokens, 1)),
                HasSubstr("hidden_states.0: the last 4 rows of sample 1 are equal, which looks"));
    // Two equal words, tokens that became alike, and rows that a mask hides.
    EXPECT_THAT(said(states(0, 6, tokens, 1)), Not(HasSubstr(padding)));
    EXPECT_THAT(said(states(1, 4, tokens, 1)), Not(HasSubstr(padding)));
    std::vector<Array> hidden = states(0, 5, tokens, 1);
    EXPECT_THAT(said(hidden), HasSubstr(padding));
    for (Index i = 0; i < width; ++i)  // a word that is also in the text
        hidden[0].values[std::size_t((tokens + 1) * width + i)] = double(1 + i);
    EXPECT_THAT(said(hidden), Not(HasSubstr(padding)));
    hidden = states(0, 5, tokens, 0);
    std::vector<double> mask(2 * std::size_t(tokens), 1);
    std::fill(mask.end() - 3, mask.end(), 0.0);
    hidden.push_back({"attention_mask", {2, tokens}, mask});
    EXPECT_THAT(said(hidden), Not(HasSubstr(padding)));
}

/// PyTorch's layers put tokens before samples unless they are told otherwise.
TEST_F(TraceDoubts, WhichAxisCountsSamplesIsSaidWhereNothingTells) {
    const auto said = [&](Index samples, Index n) {
        std::vector<Array> all;
        for (int l = 0; l < 2; ++l) {
            std::vector<double> x;
            for (Index i = 0; i < samples * n * width; ++i)
                x.push_back(std::sin(double(i * i + 17 * l)) + 0.5);
            all.push_back({fmt::format("hidden_states.{}", l), {samples, n, width}, x});
        }
        write(all);
        const Finished found = probe();
        EXPECT_EQ(found.code, 0) << found.err;
        return one_line(found.out);
    };
    const char* axes =
        "hidden_states: their axes are samples, tokens, width: 8 samples of 2 tokens";
    EXPECT_THAT(said(8, 2), HasSubstr(axes));
    EXPECT_THAT(said(2, 8), Not(HasSubstr("their axes")));
}

TEST_F(TraceDoubts, SquareArraysWithoutNamesAreStatesOrMaps) {
    const std::vector<double> p = softmax();
    write({maps("arr_0", p), maps("arr_1", p)});
    EXPECT_THAT(refused(), HasSubstr("states of 2 samples, or maps of 2 heads?"));
}

/// What modules and libraries return in another order of axes, or with axes joined.
TEST_F(TraceDoubts, OtherOrdersOfAxesAreToldWhatToSave) {
    const auto of = [](const std::string& name, const std::vector<std::int64_t>& shape) {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        Array out{name, shape, {}};
        for (std::int64_t i = 0; i < count; ++i) out.values.push_back(std::sin(double(i * i)));
        return out;
    };
    const auto expect = [&](const std::vector<Array>& arrays, const std::string& words) {
        write(arrays);
        EXPECT_THAT(refused(), HasSubstr(words));
    };
    expect({of("hidden_states.0", {1, width, 2, 4})}, "save x.flatten(2).transpose(1, 2)");
    expect({of("reshaped_hidden_states.0", {1, width, 2, 4}),
            of("reshaped_hidden_states.1", {1, width, 2, 4})},
           "holds states on a grid");
    // Maps of the mean over heads, or with samples and heads in one axis; states of sequences
    // first.
    expect({of("hidden_states.0", {2, tokens, width}), maps("attentions.0", softmax())},
           "in an axis before that of heads; save x.unflatten(0, (2, -1))");
    expect({of("hidden_states.0", {tokens, 2, width}),
            {"attentions.0", {2, 1, tokens, tokens}, softmax()}},
           "where that one is (tokens, samples, width), save its x.transpose(0, 1)");
    // Queries as a projection returns them, and with tokens before heads.
    expect({of("hidden_states.0", {1, tokens, width}), of("queries.0", {1, tokens, width}),
            of("keys.0", {1, tokens, width})},
           "save x.unflatten(-1, (heads, -1)).transpose(1, 2)");
    expect({of("hidden_states.0", {tokens, width}), of("queries.0", {tokens, heads, 3}),
            of("keys.0", {tokens, heads, 3})},
           "expected heads before tokens");
    write({of("hidden_states.0", {tokens, width}), of("q.0", {heads, tokens, 3}),
           of("k.0", {heads, tokens, 3})});
    EXPECT_THAT(probe().out, HasSubstr("queries, keys 0"));
    // Maps in place of a stage, and beside outputs of modules.
    const std::string rows = "its rows are nonnegative and sum to 1, as those of maps";
    expect({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), maps("attn.0", softmax())},
           "'attn.0': " + rows);
    expect({hidden("blocks.0", 0), hidden("blocks.1", 1), maps("blocks.0.attn.softmax", softmax())},
           "name it attentions.0, and states hidden_states.L");
}

TEST_F(TraceDoubts, StatesAndMapsAreNotTakenForEachOther) {
    write({maps("hidden_states.0", softmax()), maps("hidden_states.1", softmax())});
    EXPECT_THAT(refused(), HasSubstr("its rows are nonnegative and sum to 1, as those of maps"));
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
           maps("attentions.1", softmax())});
    EXPECT_THAT(refused(), HasSubstr("is of a layer behind the last state, hidden_states.1"));
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
           hidden("hidden_states.last", 2)});
    EXPECT_THAT(refused(), HasSubstr("its layer cannot be told"));
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
           maps("encoder.attentions.0", softmax())});
    EXPECT_THAT(refused(), HasSubstr("is one of 'attentions' inside 'encoder'"));
}

/// bfloat16 that was saved by x.float() is told by its bits.
TEST_F(TraceDoubts, HalfPrecisionIsRecognisedInFloat32) {
    std::vector<double> p(std::size_t(heads * tokens * tokens));
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = 1 + std::sin(double(i * i) / 3);
    for (Index row = 0; row < heads * tokens; ++row) {
        double sum = 0;
        for (Index j = 0; j < tokens; ++j) sum += p[std::size_t(row * tokens + j)];
        for (Index j = 0; j < tokens; ++j) {
            double& entry = p[std::size_t(row * tokens + j)];
            int exponent = 0;
            const double mantissa = std::frexp(entry / sum, &exponent);  // of 8 bits
            entry = std::ldexp(std::round(std::ldexp(mantissa, 8)), exponent - 8);
        }
    }
    write({maps("attentions.0", p)});
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(one_line(found.out), HasSubstr("rows were divided by their sums"));
    EXPECT_FALSE(std::isnan(value("entropy", "attn", 0)));
}

TEST_F(TraceDoubts, OtherDumpsAreSaidToBeWhatTheyAre) {
    const std::vector<double> x = state(0);
    const auto one = [&](const std::string& name) { return Array{name, {tokens, width}, x}; };
    for (const auto& [name, words] : std::vector<std::pair<std::string, std::string>>{
             {"encoder_hidden_states.0", "is what an encoder-decoder returned"},
             {"blocks.0.hook_resid_pre", "is a cache of TransformerLens"},
             {"base_model.model.layers.0.q_proj.lora_A.weight",
              "is a LoRA adapter without its model"},
             {"_fsdp_wrapped_module._flat_param", "holds the flat parameters of FSDP"},
             {"state.0.exp_avg", "is the state of an optimiser"}}) {
        write({one(name), one(name + "x")});
        EXPECT_THAT(refused(), HasSubstr(words)) << name;
    }
    write_npy<double>(folder / "x.npy", "<f8", {tokens, width}, x);
    EXPECT_THAT(tsdiag(folder, {"probe", "x.npy"}).err,
                HasSubstr("is one array (8, 6) without a name"));
    write_npy<std::uint8_t>(folder / "rng.npy", "|u1", {5056}, std::vector<std::uint8_t>(5056, 1));
    EXPECT_THAT(tsdiag(folder, {"probe", "rng.npy"}).err,
                HasSubstr("holds states of generators of random numbers"));
    EXPECT_THAT(tsdiag(folder, {"probe", std::string(test_data()) + "/formats/torchscript.pt"}).err,
                HasSubstr("is a TorchScript archive"));
    write_file(folder / "optimizer.pt",
               samples::torch_zip_of(samples::dict(samples::text("state") + "}" +
                                                   samples::text("param_groups") + "]")));
    EXPECT_THAT(tsdiag(folder, {"probe", "optimizer.pt"}).err,
                HasSubstr("is the state of an optimiser"));
}

TEST_F(TraceDoubts, IntegersAreNoStates) {
    const std::vector<std::int16_t> bits(std::size_t(tokens * width), 16256);
    write_npy<std::int16_t>(folder / "x.npy", "<i2", {tokens, width}, bits);
    const Finished found = tsdiag(
        folder, {"probe", "random:post-norm,d=6,heads=2,layers=1", "--input", "hidden:x.npy"});
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err,
                HasSubstr("holds i16, expected floating-point numbers; if these are the bits "
                          "of bfloat16, save x.view(torch.bfloat16).float()"));
    const std::vector<std::uint8_t> bytes(std::size_t(tokens * width), 7);
    write_npy<std::uint8_t>(folder / "x.npy", "|u1", {tokens, width}, bytes);
    EXPECT_THAT(tsdiag(folder, {"probe", "random:post-norm,d=6,heads=2,layers=1", "--input",
                                "hidden:x.npy"})
                    .err,
                HasSubstr("holds u8, expected floating-point numbers"));
    const std::vector<std::uint8_t> picture(3 * 8 * 8, 7);
    write_npy<std::uint8_t>(folder / "photo.npy", "|u1", {3, 8, 8}, picture);
    EXPECT_THAT(tsdiag(folder, {"probe", "random:deit-tiny,layers=1,d=8,heads=2,image=8,patch=4",
                                "--input", "image:photo.npy"})
                    .err,
                HasSubstr("pass the pictures by --images"));
}

/// Of every sample, and in both ranges that libraries read pictures to.
TEST_F(TraceDoubts, ImagesThatWereNotPreprocessedAreToldSo) {
    constexpr std::size_t pixels = 3 * 8 * 8;
    const auto output = [&](double first, double second) {
        std::vector<float> x(2 * pixels);
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = float((i < pixels ? first : second) * double(i % 7) / 6);
        write_npy<float>(folder / "x.npy", "<f4", {2, 3, 8, 8}, x);
        const Finished found =
            tsdiag(folder, {"probe", "random:deit-tiny,layers=1,d=8,heads=2,image=8,patch=4",
                            "--input", "image:x.npy", "--no-report", "--out", "out", "--force"});
        EXPECT_EQ(found.code, 0) << found.err;
        return one_line(found.out + found.err);
    };
    EXPECT_THAT(output(255, 255), HasSubstr("x.npy has numbers up to 255"));
    EXPECT_THAT(output(0, 255), HasSubstr("x.npy has numbers up to 255"));
    EXPECT_THAT(output(1, 0.5), HasSubstr("x.npy has numbers from 0 to 1 alone"));
    EXPECT_THAT(output(1, -1), Not(HasSubstr("x.npy has numbers")));
}

TEST_F(TraceDoubts, WhatIsNoAttentionIsTheFirstLineAndHasNoVerdictOnHeads) {
    const std::vector<double> p = softmax();
    const auto changed = [&](auto f) {
        std::vector<double> out = p;
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(p[i], i);
        return out;
    };
    std::vector<double> transposed(p.size()), summed(std::size_t(tokens * tokens));
    for (Index h = 0; h < heads; ++h)
        for (Index i = 0; i < tokens; ++i)
            for (Index j = 0; j < tokens; ++j) {
                const double one = p[std::size_t((h * tokens + i) * tokens + j)];
                transposed[std::size_t((h * tokens + j) * tokens + i)] = one;
                summed[std::size_t(i * tokens + j)] += one;
            }
    const std::vector<std::pair<std::vector<double>, const char*>> cases = {
        {changed([](double x, std::size_t) { return std::log(x) + 1; }),
         "negative entries, as logits"},
        {changed([](double x, std::size_t) { return 100 * x; }), "these are percent"},
        {changed([](double x, std::size_t i) { return i % 7 == 0 ? 0 : x / 0.9; }), "dropout"},
        {changed([](double x, std::size_t) { return x / 2; }), "a column was cut off"},
        {transposed, "it is transposed"},
        {summed, "as a sum of 2 heads does"}};
    for (const auto& [values, words] : cases) {
        write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
               maps("attentions.0", values)});
        const Finished found = probe({"--attention", "softmax"});
        ASSERT_EQ(found.code, 0) << words << found.err;
        const std::string flat = one_line(found.out);
        EXPECT_THAT(flat, HasSubstr(words));
        // It precedes what is said of the tokens.
        EXPECT_LT(flat.find("is not what a softmax gives"), flat.find("Tokens stay distinct"));
        for (const char* kind : {"identity-like", "sink-like", "nearly rank one"})
            EXPECT_THAT(flat, Not(HasSubstr(kind)));
        EXPECT_TRUE(std::isnan(value("jac_fro", "attn", 0))) << words;
    }
    // The range is that of all arrays.
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), hidden("hidden_states.2", 2),
           maps("attentions.0", changed([](double x, std::size_t) { return x / 2; })),
           maps("attentions.1", changed([](double x, std::size_t) { return 3 * x; }))});
    EXPECT_THAT(one_line(probe({"--attention", "softmax"}).out),
                HasSubstr("(and 1 more) is not what a softmax gives: its rows sum to 0.5 to 3"));
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1), maps("attentions.0", p)});
    ASSERT_EQ(probe({"--attention", "softmax"}).code, 0);
    EXPECT_GT(value("jac_fro", "attn", 0), 0);
}

TEST_F(TraceDoubts, TheMaskInTheFileIsObeyedAndMustNotContradictAnother) {
    std::vector<double> x = state(0), y = state(1), p = softmax();
    const auto hide = [](std::vector<double> all, Index from, Index columns) {
        for (std::size_t i = std::size_t(from * columns); i < std::size_t(tokens * columns); ++i)
            all[i] = std::nan("");
        return all;
    };
    // The last two tokens are padding, whose rows are NaN; the others do not attend to them.
    for (Index row = 0; row < heads * tokens; ++row) {
        double sum = 0;
        for (Index j = 0; j < tokens - 2; ++j) sum += p[std::size_t(row * tokens + j)];
        for (Index j = 0; j < tokens; ++j)
            p[std::size_t(row * tokens + j)] =
                j < tokens - 2 ? p[std::size_t(row * tokens + j)] / sum : 0;
    }
    const std::vector<double> mask = {1, 1, 1, 1, 1, 1, 0, 0};
    write({{"hidden_states.0", {tokens, width}, hide(x, tokens - 2, width)},
           {"hidden_states.1", {tokens, width}, hide(y, tokens - 2, width)},
           maps("attentions.0", p),
           {"attention_mask", {tokens}, mask}});
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(one_line(found.out),
                HasSubstr("attention_mask: tokens that it hides are left out"));
    const double masked = value("t_sim", "out", 0);
    x.resize(std::size_t((tokens - 2) * width)), y.resize(x.size());
    write(
        {{"hidden_states.0", {tokens - 2, width}, x}, {"hidden_states.1", {tokens - 2, width}, y}});
    ASSERT_EQ(probe().code, 0);
    EXPECT_NEAR(value("t_sim", "out", 0), masked, 1e-14);

    write({hidden("hidden_states.0", 0),
           hidden("hidden_states.1", 1),
           {"attention_mask", {tokens}, mask}});
    const std::vector<std::int64_t> same = {1, 1, 1, 1, 1, 1, 0, 0},
                                    other = {0, 0, 1, 1, 1, 1, 1, 1};
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {tokens}, same);
    EXPECT_EQ(probe({"--mask", "mask.npy"}).code, 0);
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {tokens}, other);
    EXPECT_THAT(refused({"--mask", "mask.npy"}),
                HasSubstr("hides other tokens than attention_mask in trace.npz"));
    write({hidden("hidden_states.0", 0),
           hidden("hidden_states.1", 1),
           maps("attentions.0", softmax()),
           {"attention_mask", {tokens}, mask}});
    EXPECT_THAT(one_line(probe().out), HasSubstr("is on tokens that the mask hides"));
}

/// A post-norm or pre-norm layer with all its stages.
std::vector<Array> layer_of(bool post, Index n, Index d) {
    const auto drawn = [&](int seed) {
        std::vector<double> x;
        for (Index i = 0; i < n * d; ++i)
            x.push_back(std::sin(double(i * i + 31 * seed)) + 0.3 * seed);
        return x;
    };
    const auto sum = [](std::vector<double> a, const std::vector<double>& b) {
        for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
    };
    const auto norm = [&](std::vector<double> x, int seed) {  // with weights of its own
        for (Index i = 0; i < n; ++i) {
            double mean = 0, squares = 0;
            for (Index j = 0; j < d; ++j) mean += x[std::size_t(i * d + j)] / double(d);
            for (Index j = 0; j < d; ++j)
                squares += std::pow(x[std::size_t(i * d + j)] - mean, 2) / double(d);
            for (Index j = 0; j < d; ++j) {
                double& v = x[std::size_t(i * d + j)];
                v = (v - mean) / std::sqrt(squares) * (1 + 0.1 * double(j)) + 0.2 * seed;
            }
        }
        return x;
    };
    const std::vector<double> in = drawn(1), sa = drawn(2), branch = drawn(3), attn = sum(in, sa);
    const std::vector<double> norm1 = norm(post ? attn : in, 1),
                              ffn = sum(post ? norm1 : attn, branch),
                              norm2 = norm(post ? ffn : attn, 2), out = post ? norm2 : ffn;
    std::vector<Array> all;
    for (const auto& [name, x] : {std::pair("hidden_states.0", in),
                                  {"sa.0", sa},
                                  {"attn.0", attn},
                                  {"norm1.0", norm1},
                                  {"ffn.0", ffn},
                                  {"norm2.0", norm2},
                                  {"hidden_states.1", out}})
        all.push_back({name, {n, d}, x});
    return all;
}

TEST_F(TraceDoubts, ThePlacementIsFoundByWhatIsTheNormOfWhat) {
    for (const bool post : {true, false}) {
        const std::vector<Array> arrays = layer_of(post, tokens, width);
        write(arrays);
        const Finished found = probe();
        ASSERT_EQ(found.code, 0) << found.err;
        EXPECT_THAT(found.out, HasSubstr(post ? "placement post" : "placement pre"));
        EXPECT_EQ(probe({"--placement", post ? "post" : "pre"}).code, 0);
        EXPECT_THAT(refused({"--placement", post ? "pre" : "post"}),
                    HasSubstr(post ? "in the order of post" : "in the order of pre"));
        std::vector<Array> few = {arrays.front(), arrays[1], arrays[2]};
        write(few);  // nothing tells the order
        EXPECT_THAT(refused(), HasSubstr("need --placement post, pre or branch"));
    }
}

/// The placement is found in one sample and holds in all that are measured.
TEST_F(TraceDoubts, ASampleInAnotherOrderThanTheOthersIsRefused) {
    const auto with_second = [](std::vector<Array> arrays, const std::vector<Array>& second) {
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            arrays[i].shape.insert(arrays[i].shape.begin(), 2);
            const std::vector<double>& more = second[i].values;
            arrays[i].values.insert(arrays[i].values.end(), more.begin(), more.end());
        }
        return arrays;
    };
    std::filesystem::create_directory(folder / "batches");
    for (const bool post : {true, false}) {
        const std::vector<Array> sound = layer_of(post, tokens, width);
        write(with_second(sound, sound));
        EXPECT_EQ(probe().code, 0);
        write(sound, "batches/batch-0.npz");
        struct Fault {
            std::string array, other, says;
        };
        const std::string norm = post ? "ffn.0" : "attn.0";
        for (const Fault& fault :
             {Fault{"attn.0", "sa.0", "'attn.0' is not hidden_states.0 + sa.0"},
              {"norm2.0", "sa.0", "'norm2.0' is not a norm of " + norm}}) {
            std::vector<Array> faulty = sound;
            std::ranges::find(faulty, fault.array, &Array::name)->values =
                std::ranges::find(sound, fault.other, &Array::name)->values;
            const auto expect = [&](const std::string& said) {
                EXPECT_THAT(said, HasSubstr(fault.says));
                EXPECT_THAT(said, HasSubstr("in sample 1, layer 0 (relative error "));
                EXPECT_THAT(said, HasSubstr(post ? "placement post holds" : "placement pre holds"));
            };
            write(with_second(sound, faulty));
            expect(refused());
            expect(refused({"--placement", post ? "post" : "pre"}));
            EXPECT_EQ(probe({"--samples", "1"}).code, 0);  // what is not measured is not judged
            write(faulty, "batches/batch-1.npz");
            const Finished batches =
                tsdiag(folder, {"probe", "batches", "--no-report", "--out", "out", "--force"});
            EXPECT_NE(batches.code, 0);
            expect_one_sentence(batches.err);
            expect(batches.err);
            EXPECT_THAT(batches.err, HasSubstr("batch-1.npz"));
        }
        // A sample whose tokens are equal says nothing of norms.
        std::vector<Array> equal = sound;
        for (Array& one : equal) one.values.assign(one.values.size(), 1);
        std::ranges::find(equal, "attn.0", &Array::name)->values.assign(tokens * width, 2);
        if (!post) {
            for (const char* sum : {"ffn.0", "hidden_states.1"})
                std::ranges::find(equal, sum, &Array::name)->values.assign(tokens * width, 3);
        }
        write(with_second(sound, equal));
        EXPECT_EQ(probe().code, 0);
    }
}

/// `out.L` and `merge.L` are compared with the next state in every sample that is measured.
TEST_F(TraceDoubts, AStateThatIsSavedTwiceIsOneInEverySample) {
    const auto two = [](const std::string& name, Index n, Index d, int first, int second) {
        Array out{name, {2, n, d}, {}};
        for (const int seed : {first, second})
            for (Index i = 0; i < n * d; ++i)
                out.values.push_back(std::sin(double(i * i + 17 * seed)) + 0.5);
        return out;
    };
    const std::vector<Array> sound = {
        two("hidden_states.0", tokens, width, 0, 1), two("hidden_states.1", tokens, width, 2, 3),
        two("hidden_states.2", tokens / 4, width, 4, 5), two("hidden_states.3", 2, width, 6, 7)};
    const auto with_more = [&](const Array& more) {
        std::vector<Array> all = sound;
        all.push_back(more);
        write(all);
    };
    for (const Array& same :
         {two("out.0", tokens, width, 2, 3), two("merge.1", tokens / 4, width, 4, 5)}) {
        with_more(same);
        EXPECT_EQ(probe().code, 0) << same.name;
    }
    const auto expect = [&](const std::string& says, const char* layer, const char* allowed) {
        const std::string found = refused();
        EXPECT_THAT(found, HasSubstr(says));
        EXPECT_THAT(found, HasSubstr(std::string(", in sample 1, layer ") + layer));
        EXPECT_THAT(found, HasSubstr(std::string("expected at most ") + allowed +
                                     "); correct one of both"));
        EXPECT_EQ(probe({"--samples", "1"}).code, 0);  // what is not measured is not judged
    };
    with_more(two("out.0", tokens, width, 2, 9));
    expect("'out.0' has other numbers than hidden_states.1, which", "0", "0.001");
    with_more(two("merge.1", tokens / 4, width, 4, 9));
    expect("'merge.1' has other numbers than hidden_states.2, which", "1", "0.001");
    // The last one may be a norm of it, which rows of two tokens would not show.
    write({sound[0], sound[1], two("out.0", tokens, width, 2, 9)});
    expect(
        "'out.0' has other numbers than hidden_states.1, which is the same state or a norm of it",
        "0", "0.003");
}

/// `final_norm.L` is a norm of what the last layer leaves, or that state where it went through it.
TEST_F(TraceDoubts, ALastNormOfAnotherStateIsRefused) {
    std::vector<double> last = state(2), normed = last;
    for (Index i = 0; i < tokens; ++i) {
        double mean = 0, square = 0;
        for (Index j = 0; j < width; ++j) mean += last[std::size_t(i * width + j)] / width;
        for (Index j = 0; j < width; ++j) {
            double& one = normed[std::size_t(i * width + j)];
            one -= mean;
            square += one * one / width;
        }
        for (Index j = 0; j < width; ++j) normed[std::size_t(i * width + j)] /= std::sqrt(square);
    }
    const Array first = hidden("hidden_states.0", 0), middle = hidden("hidden_states.1", 1);
    const auto array = [](const std::string& name, const std::vector<double>& x) {
        return Array{name, {tokens, width}, x};
    };
    std::vector<double> by_columns = last;  // as BatchNorm
    for (std::size_t i = 0; i < last.size(); ++i)
        by_columns[i] = (last[i] - double(i % width)) / double(1 + i % width);
    for (const auto& all : std::vector<std::vector<Array>>{
             {first, middle, array("hidden_states.2", last), array("final_norm.1", normed)},
             {first, middle, array("hidden_states.2", last), array("final_norm.1", by_columns)},
             {first, middle, array("hidden_states.2", normed), array("final_norm.1", normed)},
             {first, middle, array("hidden_states.2", normed), array("out.1", last),
              array("final_norm.1", normed)}}) {
        write(all);
        EXPECT_EQ(probe().code, 0) << all.back().name;
    }
    write({first, middle, array("hidden_states.2", last), hidden("final_norm.1", 7)});
    EXPECT_THAT(refused(), HasSubstr("array 'final_norm.1' is no norm of hidden_states.2, nor the "
                                     "last state itself, in sample 0, layer 1 (relative error"));
    write({first, middle, array("out.1", last), array("hidden_states.2", normed),
           hidden("final_norm.1", 7)});
    EXPECT_THAT(refused(),
                HasSubstr("is no norm of out.1, nor of hidden_states.2, nor the last state"));
    // Padding that a model fills with zeros, in a file that does not say what is padding.
    std::vector<double> padded = normed;
    std::fill(padded.begin() + (tokens - 3) * width, padded.end(), 0.0);
    std::vector<Array> all = {first, middle, array("hidden_states.2", last),
                              array("final_norm.1", padded)};
    write(all);
    EXPECT_THAT(refused(), HasSubstr("; rows of zeros in final_norm.1 look like padding, which "
                                     "--mask FILE, or attention_mask in the file, leaves out; "));
    all.push_back({"attention_mask", {tokens}, {1, 1, 1, 1, 1, 0, 0, 0}});
    write(all);
    EXPECT_EQ(probe().code, 0);
}

/// Where a step stands is found in one sample and holds in all.
TEST_F(TraceDoubts, AStepThatMovesBetweenSamplesIsRefused) {
    const auto write_steps = [&](bool first_before, bool second_before) {
        std::vector<Array> all;
        for (const char* name : {"hidden_states.0", "attn.0", "contranorm.0", "ffn.0",
                                 "hidden_states.1", "hidden_states.2"})
            all.push_back({name, {2, tokens, width}, {}});
        for (const bool before : {first_before, second_before}) {
            const int seed = int(all[0].values.size());
            const std::vector<double> x = state(seed), attn = state(seed + 1),
                                      branch = state(seed + 2);
            const auto sum = [](std::vector<double> a, const std::vector<double>& b) {
                for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
                return a;
            };
            const std::vector<double> step = before ? sum(attn, state(seed + 3))
                                                    : sum(sum(attn, branch), state(seed + 3)),
                                      ffn = sum(before ? step : attn, branch);
            const std::vector<double>* values[] = {&x,   &attn, &step, &ffn, before ? &ffn : &step,
                                                   &attn};
            for (std::size_t i = 0; i < all.size(); ++i)
                all[i].values.insert(all[i].values.end(), values[i]->begin(), values[i]->end());
        }
        write(all);
    };
    for (const bool before : {true, false}) {
        write_steps(before, before);
        EXPECT_EQ(probe({"--placement", "pre"}).code, 0);
        write_steps(before, !before);
        const std::string found = refused({"--placement", "pre"});
        EXPECT_THAT(found, HasSubstr(before ? "'contranorm.0' is the output of its layer, in "
                                              "sample 1, layer 0; in other samples"
                                            : "'contranorm.0' is not the output of its layer, in "
                                              "sample 1, layer 0 (relative error "));
        EXPECT_EQ(probe({"--placement", "pre", "--samples", "1"}).code, 0);
    }
}

/// Where the feed-forward step of a layer adds nothing, what stands before it is the output, too.
TEST_F(TraceDoubts, ALayerWhoseFeedForwardStepAddsNothingDoesNotMoveAStep) {
    const auto sum = [](std::vector<double> a, const std::vector<double>& b) {
        for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
    };
    const auto with_empty_layer = [&](int empty, bool has_ffn) {
        std::vector<Array> all = {{"hidden_states.0", {tokens, width}, state(0)}};
        for (int layer = 0; layer < 3; ++layer) {
            const std::string at = "." + std::to_string(layer);
            const std::vector<double> attn = sum(all.back().values, state(4 * layer + 1)),
                                      step = sum(attn, state(4 * layer + 2)),
                                      ffn = layer == empty ? step : sum(step, state(4 * layer + 3));
            all.push_back({"attn" + at, {tokens, width}, attn});
            all.push_back({"contranorm" + at, {tokens, width}, step});
            if (has_ffn) all.push_back({"ffn" + at, {tokens, width}, ffn});
            all.push_back({"hidden_states." + std::to_string(layer + 1), {tokens, width}, ffn});
        }
        write(all);
        const Finished found = probe({"--placement", "pre"});
        EXPECT_EQ(found.code, 0) << found.err;
    };
    for (const bool has_ffn : {true, false})
        for (const int empty : {-1, 0, 1}) with_empty_layer(empty, has_ffn);
}

/// Orders that lead to the same numbers are one, whichever a sample shows.
TEST_F(TraceDoubts, ASampleMayShowAnotherOrderWhereTheNumbersAreTheSame) {
    const std::vector<Array> pre = layer_of(false, tokens, width);
    std::vector<Array> both = {pre[0], pre[1], pre[3], pre[5], pre[6]};  // without sums
    Array& norm2 = both[3];
    norm2.values.assign(tokens * width, 1);  // tells nothing in the first sample
    for (Array& one : both) {
        one.shape.insert(one.shape.begin(), 2);
        const std::vector<double> second = (&one == &norm2 ? pre[3] : one).values;
        one.values.insert(one.values.end(), second.begin(), second.end());
    }
    write(both);  // and is a norm of hidden_states.0 in the second: of a parallel layer
    const Finished found = probe();
    EXPECT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("placement pre"));
}

TEST_F(TraceDoubts, AShareOfARowIsToldAsPeopleReadIt) {
    std::vector<double> p(heads * tokens * tokens, 0.0), mask(tokens, 1.0);
    for (Index row = 0; row < heads * tokens; ++row) p[std::size_t((row + 1) * tokens - 1)] = 1;
    mask.back() = 0;  // of the token that all attend to
    write({hidden("hidden_states.0", 0),
           hidden("hidden_states.1", 1),
           maps("attentions.0", p),
           {"attention_mask", {tokens}, mask}});
    EXPECT_THAT(one_line(probe().out),
                HasSubstr("up to 100 % of a row is on tokens that the mask"));
}

TEST_F(TraceDoubts, AMaskUnderAnotherNameIsRefusedWhateverItsNumbers) {
    const double lowest = std::numeric_limits<float>::lowest(), inf = HUGE_VAL;
    const auto with_mask = [&](const std::string& name, std::vector<std::int64_t> shape,
                               const std::vector<double>& mask) {
        write({hidden("hidden_states.0", 0),
               hidden("hidden_states.1", 1),
               {name, std::move(shape), mask}});
    };
    for (const char* name : {"mask", "attn_mask", "padding_mask", "decoder_attention_mask"})
        for (const auto& [kept, hides] :
             {std::pair(1.0, 0.0), {0.0, 1.0}, {0.0, -1e4}, {0.0, lowest}, {0.0, -inf}})
            for (const std::vector<std::int64_t>& shape :
                 {std::vector<std::int64_t>{tokens}, {1, tokens}, {1, 1, 1, tokens}}) {
                std::vector<double> mask(tokens, kept);
                mask.back() = hides;
                with_mask(name, shape, mask);
                EXPECT_THAT(refused(), HasSubstr("may say which tokens are hidden")) << name;
            }
    // What hides none, or is no mask, is ignored.
    with_mask("attn_mask", {tokens}, std::vector<double>(tokens, 1.0));
    EXPECT_THAT(probe().out, HasSubstr("attn_mask"));
    with_mask("mask_scores", {tokens}, {0, 0.25, 0.5, 1, 0, 1, 1, 1});
    EXPECT_THAT(probe().out, HasSubstr("mask_scores"));
}

/// As many samples as tokens: a causal mask is no mask of padding.
TEST_F(TraceDoubts, ASquareMaskOfSamplesOrOfPairsIsRefusedUnlessATokenHidesItself) {
    const auto states = [](int seed) {
        std::vector<double> x;
        for (int sample = 0; sample < tokens; ++sample)
            for (const double v : state(seed + sample)) x.push_back(v);
        return Array{seed == 0 ? "hidden_states.0" : "hidden_states.1",
                     {tokens, tokens, width},
                     std::move(x)};
    };
    std::vector<double> causal, padding;
    for (Index i = 0; i < tokens; ++i)
        for (Index j = 0; j < tokens; ++j) {
            causal.push_back(j <= i);
            padding.push_back(j < 6 - i % 2);
        }
    const auto with_mask = [&](std::vector<std::int64_t> shape, const std::vector<double>& mask) {
        write({states(0), states(100), {"attention_mask", std::move(shape), mask}});
    };
    with_mask({tokens, tokens}, causal);
    EXPECT_THAT(refused(), HasSubstr("which of 8 tokens each token sees"));
    EXPECT_THAT(refused(), HasSubstr("save the former as (8, 1, 1, 8)"));
    with_mask({tokens, 1, 1, tokens}, causal);
    EXPECT_EQ(probe().code, 0);
    for (const std::vector<double>& mask : {padding, std::vector<double>(causal.size(), 1.0)}) {
        with_mask({tokens, tokens}, mask);
        const Finished found = probe();
        EXPECT_EQ(found.code, 0) << found.err;
        EXPECT_THAT(one_line(found.out), HasSubstr("attention_mask: its axes are samples, tokens"));
    }
    write({states(0), states(100)});
    std::vector<std::int64_t> ids(causal.begin(), causal.end());
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {tokens, tokens}, ids);
    EXPECT_THAT(refused({"--mask", "mask.npy"}), HasSubstr("which of 8 tokens each token sees"));
}

TEST_F(TraceDoubts, AMaskHidesTokensFromThePlacementAndMayHaveAxesOfOne) {
    std::vector<Array> arrays = layer_of(true, tokens, width);
    for (Array& one : arrays)  // rows of padding, which keep to nothing
        for (std::size_t i = std::size_t((tokens - 2) * width); i < one.values.size(); ++i)
            one.values[i] = std::sin(double(i) * double(one.name.size() + one.name[0]));
    write(arrays);
    refused();
    write_npy<std::int64_t>(folder / "mask.npy", "<i8", {1, 1, 1, tokens},
                            std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 0, 0});
    const Finished found = probe({"--mask", "mask.npy"});
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(found.out, HasSubstr("placement post"));
}

TEST_F(TraceDoubts, AGainThatNobodyKnowsIsNotOne) {
    write({hidden("hidden_states.0", 0), hidden("hidden_states.1", 1),
           maps("attentions.0", softmax())});
    const Finished found = probe();
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_THAT(one_line(found.out), HasSubstr("a2: not known"));
    for (const char* estimate : {"est1", "est2", "est_mu"})
        EXPECT_TRUE(std::isnan(value(estimate, "attn", 0))) << estimate;
    ASSERT_EQ(probe({"--a2", "1"}).code, 0);
    EXPECT_GT(value("est2", "attn", 0), 0);
    // With SA: |Pi2 SA|^2 over the mean of |Pi2 P_k X|^2.
    std::vector<Array> arrays = layer_of(true, tokens, width);
    const std::vector<double> p = softmax(), x = arrays[0].values, sa = arrays[1].values;
    const auto centred = [&](const std::vector<double>& y) {  // |Pi2 Y|^2
        double sum = 0;
        for (Index j = 0; j < width; ++j) {
            double mean = 0;
            for (Index i = 0; i < tokens; ++i)
                mean += y[std::size_t(i * width + j)] / double(tokens);
            for (Index i = 0; i < tokens; ++i)
                sum +=
                    (y[std::size_t(i * width + j)] - mean) * (y[std::size_t(i * width + j)] - mean);
        }
        return sum;
    };
    double mixed = 0;
    for (Index k = 0; k < heads; ++k) {
        std::vector<double> y(std::size_t(tokens * width), 0.0);
        for (Index i = 0; i < tokens; ++i)
            for (Index t = 0; t < tokens; ++t)
                for (Index j = 0; j < width; ++j)
                    y[std::size_t(i * width + j)] += p[std::size_t((k * tokens + i) * tokens + t)] *
                                                     x[std::size_t(t * width + j)];
        mixed += centred(y) / double(heads);
    }
    const double whole = centred(sa);
    arrays.push_back(maps("attentions.0", p));
    write(arrays);
    ASSERT_EQ(probe().code, 0);
    const Json run = Json::parse(read_file(folder / "out/run.json"), "run.json");
    EXPECT_NEAR(run["model"]["a2"].array().at(0).number(), whole / mixed, 1e-12 * whole / mixed);
}

}  // namespace
}  // namespace tsdiag::test
