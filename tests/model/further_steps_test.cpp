#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "memory_file.hpp"
#include "recorder.hpp"
#include "support/places.hpp"
#include "tsdiag/error.hpp"

/// Steps that a layer of any family may have.
namespace tsdiag::test::further_steps {
namespace {

using testing::HasSubstr;

constexpr Index tokens = 5, width = 16;
const std::string sizes = ",layers=2,d=16,heads=2,ffn=12";

using Rows = std::vector<std::vector<double>>;
Rows rows_of(const std::vector<double>& state) {
    Rows out;
    for (Index i = 0; i < tokens; ++i)
        out.emplace_back(state.begin() + i * width, state.begin() + (i + 1) * width);
    return out;
}

/// x - scale softmax(u u^T / temperature) x, written as [CONTRANORM] has it, of token i over the
/// first `seen(i)`.
Rows moved(const Rows& x, double scale, double temperature, double kept,
           const std::function<std::size_t(std::size_t)>& seen) {
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
        double sum = 0;
        for (std::size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
        return sum;
    };
    Rows out = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
        std::vector<double> weight;
        double sum = 0;
        for (std::size_t k = 0; k < seen(i); ++k) {
            const double cosine = dot(x[i], x[k]) / std::sqrt(dot(x[i], x[i]) * dot(x[k], x[k]));
            weight.push_back(std::exp(cosine / temperature));
            sum += weight.back();
        }
        for (std::size_t j = 0; j < x[i].size(); ++j) {
            double mean = 0;
            for (std::size_t k = 0; k < weight.size(); ++k) mean += weight[k] / sum * x[k][j];
            out[i][j] = kept * x[i][j] - scale * mean;
        }
    }
    return out;
}

/// LayerNorm with weights 1 and 0.
Rows normed(Rows x) {
    for (std::vector<double>& row : x) {
        double mean = 0, square = 0;
        for (const double v : row) mean += v / double(width);
        for (const double v : row) square += (v - mean) * (v - mean) / double(width);
        for (double& v : row) v = (v - mean) / std::sqrt(square + 1e-6);
    }
    return x;
}

std::vector<double> flat(const Rows& rows) {
    std::vector<double> out;
    for (const std::vector<double>& row : rows) out.insert(out.end(), row.begin(), row.end());
    return out;
}

Recorder seen_with(const std::string& model) {
    Recorder seen;
    const Input input = gaussian(tokens, width);
    random(model + sizes, Type::f64).run(std::span(&input, 1), seen);
    return seen;
}

TEST(ContraNorm, IsTheFormulaOfThePaper) {
    const auto all = [](std::size_t) { return std::size_t(tokens); };
    const Recorder plain = seen_with("post-norm,step=contranorm:scale=0.3");
    const Rows x = rows_of(plain.states.at("layer.0.norm2"));
    EXPECT_EQ(plain.pred.at("layer.0.contranorm"), "norm2");
    EXPECT_ALL_CLOSE(plain.states.at("layer.0.contranorm"), flat(normed(moved(x, 0.3, 1, 1, all))),
                     rounding(64));
    EXPECT_EQ(plain.states.at("layer.0.out"), plain.states.at("layer.0.contranorm"));
    const Recorder kept =
        seen_with("post-norm,step=contranorm:scale=2:identity=1:norm=0:temperature=0.25");
    EXPECT_ALL_CLOSE(kept.states.at("layer.0.contranorm"), flat(moved(x, 2, 0.25, 3, all)),
                     rounding(64));
    const Recorder learned =
        seen_with("post-norm,step=contranorm:scale=2:identity=1:norm=0:temperature=0.25:learned=1");
    EXPECT_ALL_CLOSE(learned.states.at("layer.1.out"), kept.states.at("layer.1.out"),
                     rounding(256));
}

TEST(ContraNorm, ChangesTheInputOfTheFeedForwardStep) {
    for (const std::string placement : {"post-norm", "pre-norm"}) {
        const Recorder seen = seen_with(placement + ",step=contranorm:at=ffn");
        EXPECT_EQ(seen.pred.at("layer.0.contranorm"), placement == "pre-norm" ? "attn" : "norm1");
        EXPECT_EQ(seen.pred.at("layer.0.ffn"), "contranorm");
    }
}

TEST(ContraNorm, OfACausalLayerSeesNoLaterToken) {
    const Recorder seen = seen_with("pre-norm,causal=1,step=contranorm:scale=0.3:norm=0");
    const Rows x = rows_of(seen.states.at("layer.0.ffn"));
    EXPECT_ALL_CLOSE(seen.states.at("layer.0.contranorm"),
                     flat(moved(x, 0.3, 1, 1, [](std::size_t i) { return i + 1; })), rounding(64));
}

TEST(FurtherSteps, FollowDeescalationInTheOrderGiven) {
    const Recorder seen = seen_with("post-norm,deesc=0.5,step=contranorm");
    EXPECT_EQ(seen.pred.at("layer.0.deesc"), "norm2");
    EXPECT_EQ(seen.pred.at("layer.0.contranorm"), "deesc");
}

TEST(FurtherSteps, AreReadAsTheyAreWritten) {
    for (const std::string text : {"contranorm", "contranorm:at=ffn", "contranorm:at=ffn:scale=2",
                                   "contranorm:scale=1e+3"}) {
        BlockSpec block;
        block.steps = steps_named(text);
        EXPECT_EQ(steps_text(block), text);
    }
}

TEST(FurtherSteps, AreRefusedWithWhatIsWrong) {
    const auto refusal = [](const std::string& keys) {
        return thrown<UsageError>([&] { random_model(keys); });
    };
    EXPECT_THAT(refusal("gpt2,step=contra"),
                HasSubstr("unknown step 'contra'; expected contranorm"));
    EXPECT_THAT(refusal("gpt2,step=contranorm:scal=1"), HasSubstr("did you mean 'scale'?"));
    EXPECT_THAT(refusal("gpt2,step=contranorm:scale=-1"),
                HasSubstr("step 'contranorm': scale=-1 is not a number from 0"));
    EXPECT_THAT(refusal("gpt2,step=contranorm:scale"), HasSubstr("'scale' is not OPTION=VALUE"));
    EXPECT_THAT(refusal("gpt2,step=contranorm:scale=1:scale=2"), HasSubstr("given twice"));
    EXPECT_THAT(refusal("gpt2,step=contranorm+contranorm"), HasSubstr("once"));
    EXPECT_THAT(refusal("gpt2,step=contranorm:at=start"), HasSubstr("neither ffn nor end"));
    EXPECT_THAT(refusal("pythia-160m,step=contranorm:at=ffn"),
                HasSubstr("no feed-forward step after its attention"));
}

TEST(FurtherSteps, CountInFlopsAndMemory) {
    const ModelSpec without = random_model("post-norm" + sizes).spec,
                    with = random_model("post-norm,step=contranorm" + sizes).spec;
    const double n = 7;
    EXPECT_EQ(forward_flops(with, Index(n)) - forward_flops(without, Index(n)),
              2 * 4 * n * n * double(width));
    EXPECT_EQ(held_numbers(without.blocks[0], width).of_pair, 0);
    EXPECT_GT(held_numbers(with.blocks[0], width).of_pair, 0);
}

TEST(StepsPage, IsWrittenFromTheList) {
    const std::string file = test_data() + "/../../docs/steps.md";
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << steps_markdown();
    std::ostringstream found;
    found << std::ifstream(file).rdbuf();
    EXPECT_EQ(found.str(), steps_markdown())
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write docs/steps.md";
}

}  // namespace
}  // namespace tsdiag::test::further_steps
