#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// Traces whose entries are extreme: a number that cannot be computed takes no other with it.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Index layers = 2, heads = 2, tokens = 6, width = 4;

template <class T>
std::vector<double> extremes() {
    using Limits = std::numeric_limits<T>;
    const double most = Limits::max(), least = Limits::min();
    return {most,
            0.5 * most,
            std::sqrt(most),
            1,
            std::sqrt(least),
            least,
            least / 8,
            double(Limits::denorm_min())};
}

template <class T>
std::vector<T> entries(const std::string& kind, Index rows, Index cols, int seed) {
    const std::vector<double> all = extremes<T>();
    std::vector<double> x(std::size_t(rows * cols));
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t any = (i * i * 7 + i * 3 + std::size_t(seed) * 5) % 31;
        x[i] = kind == "large"   ? all[0]
               : kind == "small" ? all[7]
               : kind == "rows"  ? all[3 + any % 5]
                                 : all[any % 8];
        if (kind == "signed" && any % 3 == 0) x[i] = -x[i];
    }
    for (Index i = 0; kind == "rows" && i < rows; ++i) {
        double sum = 0;
        for (Index j = 0; j < cols; ++j) sum += x[std::size_t(i * cols + j)];
        for (Index j = 0; j < cols; ++j) x[std::size_t(i * cols + j)] /= sum;
    }
    return {x.begin(), x.end()};
}

template <class T>
void write_trace(const std::string& file, const std::string& kind, const std::string& what) {
    struct Array {
        std::string name;
        std::vector<std::int64_t> shape;
        std::vector<T> values;
    };
    std::vector<Array> arrays;
    const auto add = [&](const char* name, int layer, const std::vector<std::int64_t>& shape) {
        const Index cols = shape.back();
        Index rows = 1;
        for (const std::int64_t size : shape) rows *= size;
        arrays.push_back({std::string(name) + "." + std::to_string(layer), shape,
                          entries<T>(kind, rows / cols, cols, layer)});
    };
    for (int layer = 0; layer < layers; ++layer) {
        if (what.find('P') != std::string::npos) add("attentions", layer, {heads, tokens, tokens});
        if (what.find('Q') != std::string::npos) add("queries", layer, {heads, tokens, width});
        if (what.find('Q') != std::string::npos) add("keys", layer, {heads, tokens, width});
    }
    for (int layer = 0; layer <= layers && what.find('X') != std::string::npos; ++layer)
        add("hidden_states", layer, {tokens, width});
    std::vector<NamedArray> named;
    for (const Array& one : arrays) {
        NamedArray array{one.name, one.shape, {}, {}};
        if constexpr (std::is_same_v<T, float>)
            array.f32 = one.values;
        else
            array.f64 = one.values;
        named.push_back(array);
    }
    write_npz(file, named);
}

class EveryExtreme : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(EveryExtreme, LeavesAResultOrIsRefusedInOneSentence) {
    const auto& [kind, what] = GetParam();
    for (const bool single : {false, true}) {
        const TemporaryDirectory folder;
        single ? write_trace<float>(folder / "t.npz", kind, what)
               : write_trace<double>(folder / "t.npz", kind, what);
        std::vector<std::string> words = {"probe",  "t.npz", "--probes", "all",
                                          "--maps", "all",   "--out",    "o"};
        if (single || *what != 'P') words.emplace_back("--no-report");  // drawing takes long
        const Finished done = tsdiag(folder, words);
        if (done.code != 0) {
            EXPECT_EQ(done.code, 1) << done.err;
            expect_one_sentence(done.err);
            EXPECT_THAT(done.err, Not(HasSubstr("expected a finite number")));
            continue;
        }
        Json::parse(read_file(folder / "o/run.json"), "run.json");
        const auto rows = read_metrics_csv(read_file(folder / "o/metrics.csv"), "metrics.csv");
        EXPECT_FALSE(rows.empty());
        for (const MetricRow& row : rows)
            EXPECT_TRUE(row.value || !row.note.empty()) << row.metric << " has no reason";
        const Finished exported =
            tsdiag(folder, {"export", "o", "--to", "jsonl", "--out", "tables"});
        EXPECT_EQ(exported.code, 0) << exported.err;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Traces, EveryExtreme,
    testing::Combine(testing::Values("mixed", "signed", "rows", "large", "small"),
                     testing::Values("P", "X", "XP", "Q")),
    [](const auto& one) { return std::string(std::get<0>(one.param)) + std::get<1>(one.param); });

TEST(HostileNumbers, OfAMapAreKeptAndTold) {
    // The logits of the last token are infinite.
    constexpr double most = std::numeric_limits<double>::max();
    std::vector<double> q(2 * tokens * width, 0.1), k = q;
    std::fill_n(q.begin() + (tokens - 1) * width, width, most);
    k[0] = k[1] = most;
    const TemporaryDirectory folder;
    write_npz(folder / "t.npz", std::vector<NamedArray>{{"queries.0", {2, tokens, width}, {}, q},
                                                        {"keys.0", {2, tokens, width}, {}, k}});
    const Finished done = tsdiag(folder, {"probe", "t.npz", "--maps", "all", "--out", "o"});
    EXPECT_EQ(done.code, 0) << done.err;
    const std::string sentence = "Layer 0, head 0: 6 of 36 entries are NaN or infinite";
    EXPECT_THAT(read_file(folder / "o/report.html"), HasSubstr(sentence));
    EXPECT_THAT(read_file(folder / "o/report.html"), Not(HasSubstr("Layer 0, head 1: ")));
    EXPECT_EQ(open_checkpoint(folder / "o/maps.npz")->names().size(), 2u);
    ASSERT_EQ(tsdiag(folder, {"report", "o"}).code, 0);
    EXPECT_THAT(read_file(folder / "o/report.html"), HasSubstr(sentence));
}

TEST(HostileNumbers, OfADescriptionTakeNoResultWithThem) {
    // A band whose stationary distribution spans 2.5 decades a token: the norm by it is beyond
    // doubles, and so was the residual that run.json tells.
    constexpr Index n = 128;
    std::vector<double> p(n * n);
    for (Index i = 0; i < n; ++i) {
        const double up = i + 1 < n ? 0.3 : 0, down = i > 0 ? 1e-3 : 0;
        if (i + 1 < n) p[std::size_t(i * n + i + 1)] = up;
        if (i > 0) p[std::size_t(i * n + i - 1)] = down;
        p[std::size_t(i * n + i)] = 1 - up - down;
    }
    const TemporaryDirectory folder;
    write_npz(folder / "band.npz", std::vector<NamedArray>{{"attentions.0", {1, n, n}, {}, p}});
    const Finished done = tsdiag(folder, {"probe", "band.npz", "--no-report", "--out", "o"});
    EXPECT_EQ(done.code, 0) << done.err;
    const Json run = Json::parse(read_file(folder / "o/run.json"), "run.json");
    EXPECT_FALSE(run["solver"].array().empty());
    EXPECT_THAT(read_file(folder / "o/metrics.csv"), HasSubstr("entropy"));
}

}  // namespace
}  // namespace tsdiag::test
