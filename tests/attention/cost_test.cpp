#include <gtest/gtest.h>

#include <map>

#include "attention/settings.hpp"
#include "support/counting_backend.hpp"
#include "tsdiag/error.hpp"

/// What each variant says that its rows cost.
namespace tsdiag::test::costs {
namespace {

std::vector<Setting> settings() {
    std::vector<Setting> all;
    for (const Case& variant : cases())
        for (const bool causal : {false, true})
            for (const Index key_heads : {heads, heads / 2})
                if (!causal || variant.entry->facts.causal())
                    all.push_back({variant, Type::f64, causal, 0, key_heads});
    return all;
}

using Shapes = std::map<std::string, Shape, std::less<>>;

class EveryCost : public testing::TestWithParam<Setting> {
  protected:
    const Setting& setting = GetParam();
    const AttentionEntry& entry = *setting.variant.entry;
    const Index n = setting.variant.n, all = heads * width;
    CountingBackend backend;

    Tensor drawn(Shape shape, std::uint64_t seed) const {
        return Tensor::from_host(backend, shape, gaussian(shape, Type::f64, seed).to_host<double>(),
                                 Type::f64);
    }
    /// What a model with this attention learns for it.
    Shapes learned() const {
        Shapes out;
        if (!entry.learned) return out;
        const LearnedFor model{.tokens = n,
                               .longest = n,
                               .width = all,
                               .heads = heads,
                               .kv_heads = setting.key_heads,
                               .head_dim = width,
                               .causal = setting.causal};
        for (const LearnedParameter& one : entry.learned(setting.variant.options, model))
            out.emplace(one.name, one.shape);
        return out;
    }
    /// Products of a run that sees all rows one by one, but for P V.
    double counted(const Shapes& own, bool second_pair) {
        AttentionInput in;
        in.q = drawn({heads, n, width}, 5);
        in.k = drawn({setting.key_heads, n, width}, 6);
        if (second_pair) in.q2 = drawn({heads, n, width}, 7);
        if (second_pair) in.k2 = drawn({setting.key_heads, n, width}, 8);
        in.x = drawn({1, n, all}, 9);
        in.causal = setting.causal;
        in.options = setting.variant.options;
        in.scale = 1 / std::sqrt(double(width));
        in.parameter = [&](std::string_view name) {
            const auto found = own.find(name);
            return found == own.end() ? Tensor() : drawn(found->second, 10);
        };
        const double before = backend.flops();
        const std::unique_ptr<AttentionOperator> p = entry.make(std::move(in));
        p->apply(drawn({setting.key_heads, n, width}, 11), 1, [](const RowBlock&) {});
        return backend.flops() - before - 2 * double(n * n * all);
    }
    AttentionCost declared(const Shapes& own, bool second_pair) const {
        return cost_of(entry, setting.variant.options,
                       {.tokens = n,
                        .width = all,
                        .heads = heads,
                        .kv_heads = setting.key_heads,
                        .head_dim = width,
                        .causal = setting.causal,
                        .second_pair = second_pair,
                        .type = Type::f64,
                        .parameter = [&](std::string_view name) {
                            const auto found = own.find(name);
                            return found == own.end() ? Shape{} : found->second;
                        }});
    }
    void expect_counted(const Shapes& own, bool second_pair = false) {
        const double found = counted(own, second_pair), said = declared(own, second_pair).flops;
        if (setting.causal) {
            EXPECT_LE(found, said);  // what comes later may be left out
        } else {
            EXPECT_EQ(found, said);
        }
    }
};

TEST_P(EveryCost, IsThatOfTheProductsOfItsCode) {
    expect_counted({});
    expect_counted(learned());
    if (entry.second_pair) expect_counted(learned(), true);
}

std::string title_of(const testing::TestParamInfo<Setting>& info) { return title(info.param); }

INSTANTIATE_TEST_SUITE_P(List, EveryCost, testing::ValuesIn(settings()), title_of);

TEST(CostOfRows, RefusesUnknownOptions) {
    const AttentionOptions options{{"chunks", "3"}};
    EXPECT_THROW(cost_of(attention("softmax"), options, {}), UsageError);
}

}  // namespace
}  // namespace tsdiag::test::costs
