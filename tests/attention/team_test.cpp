#include "support/team.hpp"

#include <gmock/gmock.h>

#include <map>

#include "heads.hpp"
#include "support/near.hpp"

/// Members of a team that share the rows of one P: each has the numbers of one process, bit for
/// bit.
namespace tsdiag::test {
namespace {

struct Case {
    const char* variant;
    Index heads, n;
    bool causal;
    Type type = Type::f32;
};
constexpr Case cases[] = {{"softmax", 1, 1000, false},
                          {"softmax", 1, 1500, false},  // large: its rows are shared where kept
                          {"softmax", 3, 1000, true},
                          {"softmax", 2, 900, false, Type::f64},
                          {"softmax", 2, 300, false},
                          {"norm_attention", 2, 800, false}};
constexpr int teams[] = {2, 3, 5};

std::unique_ptr<AttentionOperator> made(const Case& c) {
    AttentionInput in = drawn_input(c.heads, c.n, 8, c.type, 7);
    in.causal = c.causal;
    return attention(c.variant).make(in);
}

std::vector<double> numbers(const std::vector<Estimate>& all) {
    std::vector<double> out;
    for (const Estimate& e : all)
        for (const double x : {e.value, e.residual, double(e.iterations), double(e.converged),
                               e.low.value_or(-1), e.high.value_or(-1)})
            out.push_back(x);
    return out;
}

/// What a team must agree on with one process, by name.
std::map<std::string, std::vector<double>> found(const Case& c, const Team* team, double memory,
                                                 bool keep) {
    const std::unique_ptr<AttentionOperator> op = made(c);
    op->share(team);
    op->keep_rows(keep);
    const Tensor v = gaussian({c.heads, c.n, 5}, c.type, 3);
    std::map<std::string, std::vector<double>> out;
    out["P V"] = op->apply(v, 96).to_host<double>();
    out["lambda"] = numbers(second_eigenvalue(*op, memory));
    out["delta"] = numbers(centred_norm(*op, memory));
    if (!c.causal) {
        const Spectra both = second_eigenvalue_and_norm(*op, memory);
        out["lambda, in step"] = numbers(both.second);
        out["delta, in step"] = numbers(both.norm);
    }
    out["column sums"] = sum_over_rows(
        Panels(*op), 96, std::size_t(c.heads * c.n),
        [&](Index first, Index count, std::span<double> sum) {
            const std::vector<double> p = op->entries(first, count).to_host<double>();
            for (Index k = 0; k < c.heads; ++k)
                for (Index i = 0; i < count; ++i)
                    for (Index j = 0; j < c.n; ++j)
                        sum[std::size_t(k * c.n + j)] += p[std::size_t((k * count + i) * c.n + j)];
        });
    return out;
}

class EveryTeam : public testing::TestWithParam<Case> {};

TEST_P(EveryTeam, HasTheBitsOfOneProcess) {
    const Case& c = GetParam();
    const double row = 3 * made(c)->bytes() / double(c.n);
    for (const bool kept : {false, true}) {
        const double memory = kept ? 2e9 : 96 * row;
        const auto expected = found(c, nullptr, memory, kept);
        for (const int members : teams)
            Threads(members).run([&](const Team& team) {
                for (const auto& [name, values] : found(c, &team, memory, kept))
                    EXPECT_EQ(values, expected.at(name)) << name << ", " << members << " members";
            });
    }
}

TEST_P(EveryTeam, SeesEachRowOnce) {
    const Case& c = GetParam();
    const Tensor v = gaussian({c.heads, c.n, 5}, c.type, 3);
    const Index panels = Panels(*made(c)).count();
    EXPECT_EQ(panels > 1, c.n > 400);
    for (const int members : teams) {
        std::vector<std::vector<int>> seen(std::size_t(members),
                                           std::vector<int>(std::size_t(c.n)));
        std::vector<Index> rounds(std::size_t(members), 0);
        Threads(members).run([&](const Team& team) {
            const std::unique_ptr<AttentionOperator> op = made(c);
            op->share(&team);
            op->apply(v, 96, [&](const RowBlock& block) {
                const auto r = std::size_t(team.rank());
                EXPECT_EQ(block.team, panels > 1 ? &team : nullptr);
                rounds[r] += block.members > 0 ? 1 : 0;
                if (block.members > 0 && team.rank() >= block.members) return;
                for (Index i = 0; i < block.p.rows(); ++i) ++seen[r][std::size_t(block.first + i)];
            });
        });
        for (std::size_t i = 0; i < std::size_t(c.n); ++i) {
            int times = 0;
            for (const std::vector<int>& one : seen) times += one[i];
            EXPECT_EQ(times, panels > 1 ? 1 : members) << i;
        }
        for (const Index count : rounds)
            EXPECT_EQ(count, panels > 1 ? (panels + members - 1) / members : 0);
    }
}

INSTANTIATE_TEST_SUITE_P(Attentions, EveryTeam, testing::ValuesIn(cases), [](const auto& test) {
    return std::string(test.param.variant) + "_" + std::to_string(test.param.heads) + "_" +
           std::to_string(test.param.n) + (test.param.causal ? "_causal" : "");
});

TEST(Panels, CoverTheRowsOnceInMultiplesOfOneProduct) {
    for (const Index n : {1, 95, 384, 385, 1000, 131072, 1 << 20}) {
        const Panels panels(n);
        Index next = 0;
        for (Index p = 0; p < panels.count(); ++p) {
            EXPECT_EQ(panels[p].first, next);
            EXPECT_EQ(panels[p].first % 96, 0);
            EXPECT_GT(panels[p].count, 0);
            next += panels[p].count;
        }
        EXPECT_EQ(next, n);
        EXPECT_LE(panels.count(), 128);
        EXPECT_EQ(panels.rounds(), panels.count());
    }
}

/// Sums over panels against all singular values.
TEST(Panels, DoNotChangeANorm) {
    const auto op = made({"softmax", 1, 500, false, Type::f64});
    ASSERT_GT(Panels(*op).count(), 1);
    EXPECT_CLOSE(centred_norm(*op).front().value,
                 centred_norm(*op, 2e9, usual_accuracy, "dense").front().value, stopped_at(1e-7));
}

}  // namespace
}  // namespace tsdiag::test
