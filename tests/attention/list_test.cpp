#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/near.hpp"
#include "support/places.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

TEST(Attentions, AreFoundByNameOrSuggested) {
    EXPECT_EQ(attention("softmax").name, "softmax");
    try {
        attention("sofmax");
        FAIL();
    } catch (const UsageError& e) {
        EXPECT_STREQ(e.what(), "unknown attention 'sofmax'. Did you mean 'softmax'?");
    }
    EXPECT_THROW(attention(""), UsageError);
}

template <class F>
std::string message(F f) {
    try {
        f();
    } catch (const UsageError& e) {
        return e.what();
    }
    return "";
}

TEST(AttentionOptions, AreCheckedByNameAndValue) {
    for (const AttentionEntry* entry : attentions())
        for (const AttentionOption& option : entry->options) {
            const std::string name(option.name);
            EXPECT_NO_THROW(check_options(*entry, {{name, std::string(option.fallback)}}));
            EXPECT_THROW(check_options(*entry, {{name, "none-such"}}), UsageError);
            EXPECT_THROW(check_options(*entry, {{name, ""}}), UsageError);
            EXPECT_THROW(check_options(*entry, {{name, "nan"}}), UsageError);
            const std::string said = message([&] { check_options(*entry, {{name + "x", "1"}}); });
            EXPECT_NE(said.find("'" + name + "'"), std::string::npos) << said;
        }
    EXPECT_EQ(message([] {
                  check_options(attention("polynomial"), {{"p", "7"}});
              }),
              "attention 'polynomial': p=7 is not a whole number from 1 to 6");
    EXPECT_THROW(check_options(attention("polynomial"), {{"p", "2.5"}}), UsageError);
    EXPECT_THROW(check_options(attention("polynomial"), {{"scale", "1/0"}}), UsageError);
    EXPECT_NO_THROW(check_options(attention("polynomial"), {{"scale", "1/14"}}));
    EXPECT_THROW(check_options(attention("softmax"), {{"p", "3"}}), UsageError);
}

TEST(LearnedParameters, BeginWhereTheOptionsSay) {
    const auto starts = [](const char* name, const AttentionOptions& options, Index tokens) {
        std::vector<std::pair<std::string, double>> out;
        for (const LearnedParameter& n : attention(name).learned(options, {.tokens = tokens}))
            out.emplace_back(n.name, n.start);
        return out;
    };
    using Starts = std::vector<std::pair<std::string, double>>;
    EXPECT_EQ(starts("polynomial", {}, 16), Starts());
    EXPECT_EQ(starts("polynomial", {{"scale", "1/14"}}, 0), Starts());
    EXPECT_EQ(starts("polynomial", {{"scale", "learned"}}, 16), (Starts{{"scale", 0.25}}));
    const AttentionOptions options{{"scale", "learned"}, {"start", "1/8"}};
    EXPECT_EQ(starts("polynomial", options, 0), (Starts{{"scale", 0.125}}));
    EXPECT_EQ(message([&] {
                  starts("polynomial", {{"scale", "learned"}}, 0);
              }),
              "attention 'polynomial': a learned scale starts at 1/sqrt(N), but the model accepts "
              "any number of tokens N; pass start=NUMBER");
    EXPECT_EQ(starts("nystrom", {}, 16), Starts());
    EXPECT_EQ(starts("nystrom", {{"activation", "polynomial"}}, 16), Starts());
    EXPECT_EQ(starts("nystrom", {{"activation", "polynomial"}, {"scale", "learned"}}, 4),
              (Starts{{"scale", 0.5}}));
}

/// Channels have no order: P of queries and keys in another one is P in that order.
TEST(AttentionFacts, OverChannelsRowsAndColumnsMoveTogether) {
    constexpr Index n = 11, width = 5;
    const std::vector<Index> order{3, 7, 0, 10, 2, 9, 1, 5, 8, 4, 6};
    Index tested = 0;
    for (const AttentionEntry* entry : attentions()) {
        if (!entry->facts.channels) continue;
        const auto drawn = [&](std::uint64_t seed) {
            std::vector<double> values(std::size_t(n * width));
            Rng(seed).fill_normal(std::span<double>(values), 0, 1);
            return Tensor::from_host(cpu(), {1, n, width}, std::span<const double>(values),
                                     Type::f64);
        };
        const auto made = [&](const Tensor& q, const Tensor& k) {
            AttentionInput in;
            in.q = q;
            in.k = k;
            return entry->make(std::move(in))->rows(0, n).p;
        };
        const Tensor q = drawn(1), k = drawn(2);
        const Tensor p = made(gather_rows(q, order), gather_rows(k, order));
        const Tensor rows = gather_rows(made(q, k), order);
        EXPECT_TENSOR_NEAR(p, transpose(gather_rows(transpose(rows), order)), test::rounding(100))
            << entry->name;
        ++tested;
    }
    EXPECT_GE(tested, 2);
}

TEST(AttentionPlans, AreMadeOfKnownAttentions) {
    for (const AttentionPlan& plan : attention_plans()) {
        EXPECT_EQ(attention_plan(plan.name), &plan);
        for (const auto* half : {&plan.early, &plan.late})
            EXPECT_NO_THROW(check_options(attention(half->attention), half->options));
    }
    EXPECT_EQ(attention_plan("softmax"), nullptr);
}

TEST(AttentionList, IsWhatItsDocumentSays) {
    const std::filesystem::path file =
        std::filesystem::path(test::test_data()) / "../../docs/attention.md";
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << attention_markdown();
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(text, attention_markdown())
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write docs/attention.md anew";
}

}  // namespace
}  // namespace tsdiag
