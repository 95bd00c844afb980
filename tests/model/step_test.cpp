#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/near.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::test {
namespace {

Model model_of(const std::string& text, std::shared_ptr<const Weights>* weights = nullptr) {
    const RandomModel drawn = random_model(text);
    std::shared_ptr<const Weights> all = random_weights(drawn, Rng(3), cpu(), Type::f64);
    if (weights) *weights = all;
    return Model(drawn.spec, all, cpu(), Type::f64);
}

Input of_ids(std::vector<Index> ids) {
    Input input;
    input.ids = std::move(ids);
    return input;
}

/// Parameter gradients by a sweep with recomputed layers.
class Told final : public Observer {
  public:
    void on_gradient(const Gradient& e) override {
        if (!e.stage.empty()) return;
        const std::string name =
            e.layer < 0 ? std::string(e.tensor)
                        : "layer." + std::to_string(e.layer) + "." + std::string(e.tensor);
        norms[name] += squared_norm(e.g);
    }
    void on_loss(double value) override { loss = value; }
    std::map<std::string, double> norms;
    double loss = 0;
};

class EveryStep : public testing::TestWithParam<const char*> {};

TEST_P(EveryStep, GivesTheDerivativesOfTheSweep) {
    const Model model = model_of(GetParam());
    Input input;
    Loss loss{.kind = Loss::Kind::square};
    if (model.spec().vocabulary > 0) {
        input.ids = {3, 1, 4, 1, 5, 9};
        if (model.spec().embedding_width == model.spec().width)  // ALBERT here has no head
            loss = {.kind = Loss::Kind::tokens, .rows = {0, 2, 4}, .targets = {1, 1, 9}};
    } else {
        const std::vector<double> pixels(3 * 64, 0.25);
        input.image =
            Tensor::from_host(cpu(), {3, 8, 8}, std::span<const double>(pixels), Type::f64);
    }
    Told told;
    model.differentiate(std::span(&input, 1), std::span(&loss, 1), told);
    const StepResult found = model.step(input, loss);
    EXPECT_TRUE(close(found.loss, told.loss, rounding(64)));
    std::map<std::string, double> norms;
    for (const auto& [name, g] : found.gradients) norms[name] = squared_norm(g);
    ASSERT_EQ(norms.size(), told.norms.size());
    for (const auto& [name, norm] : told.norms)
        // The same products in another order; sums over a few thousand terms.
        EXPECT_TRUE(close(norms[name], norm, {.relative = 1e-10, .absolute = 1e-20})) << name;
}
INSTANTIATE_TEST_SUITE_P(Families, EveryStep,
                         testing::Values("gpt2,layers=2,d=8,heads=2,vocab=12,tokens=8",
                                         "bert-base,layers=2,d=8,heads=2,vocab=12,tokens=8",
                                         "albert-base-v2,layers=3,d=8,heads=2,vocab=12,tokens=8",
                                         "llama-7b,layers=2,d=8,heads=2,vocab=12,ffn=16",
                                         "transformer-xl,layers=2,d=8,heads=2,vocab=12,memory=2",
                                         "deit-tiny,layers=2,d=8,heads=2,image=8,patch=4",
                                         "deit-small,layers=2,d=8,heads=2,image=8,patch=4,"
                                         "attention=polynomial,scale=learned"),
                         [](const auto& info) {
                             std::string name(info.param);
                             name = name.substr(0, name.find(','));
                             std::erase(name, '-');
                             return name;
                         });

TEST(Step, CountsHits) {
    const Model model = model_of("gpt2,layers=1,d=8,heads=2,vocab=12,tokens=8");
    const Input input = of_ids({3, 1, 4});
    Index hits = 0;
    for (Index target = 0; target < 12; ++target) {
        const Loss loss{.kind = Loss::Kind::tokens, .rows = {1}, .targets = {target}};
        const StepResult found = model.step(input, loss, {.gradients = false, .hits = true});
        EXPECT_EQ(found.predictions, 1);
        EXPECT_TRUE(found.gradients.empty());
        hits += found.correct;
    }
    EXPECT_EQ(hits, 1);  // one id has the greatest logit
}

TEST(Step, DropoutKeepsTheMeanAndRepeats) {
    const Model model = model_of("gpt2,layers=2,d=8,heads=2,vocab=12,tokens=8");
    const Input input = of_ids({3, 1, 4, 1, 5, 9});
    const Loss loss{.kind = Loss::Kind::tokens, .rows = {0, 2, 4}, .targets = {1, 1, 9}};
    const StepSettings first{.dropout = 0.3, .rngs = {Rng(1)}},
        other{.dropout = 0.3, .rngs = {Rng(2)}};
    const StepResult a = model.step(input, loss, first), again = model.step(input, loss, first);
    EXPECT_EQ(a.loss, again.loss);
    for (std::size_t i = 0; i < a.gradients.size(); ++i)
        EXPECT_TRUE(tensor_near(a.gradients[i].second, again.gradients[i].second, exactly));
    EXPECT_NE(a.loss, model.step(input, loss, other).loss);
    EXPECT_NE(a.loss, model.step(input, loss).loss);
}

TEST(Step, DropoutIsDifferentiatedAsItWasDrawn) {
    // One branch alone: everything is dropped but a scale, so L = |c x|^2 / 2 has the gradient c^2
    // x.
    std::shared_ptr<const Weights> weights;
    const Model model = model_of("deit-tiny,layers=1,d=4,heads=1,image=4,patch=4", &weights);
    const std::vector<double> pixels(48, 0.5);
    Input input;
    input.image = Tensor::from_host(cpu(), {3, 4, 4}, std::span<const double>(pixels), Type::f64);
    const Loss loss{.kind = Loss::Kind::square};
    const StepSettings settings{.dropout = 0.4, .rngs = {Rng(7)}};
    const StepResult found = model.step(input, loss, settings);
    // Central differences of the bias that every token gets, with a fixed mask.
    const std::string name = "layer.0.ffn.down.bias";
    const Tensor b = weights->get(name);
    constexpr double h = 1e-5;
    class Moved final : public Weights {
      public:
        Moved(const Weights& all, std::string which, Tensor value)
            : all_(all), which_(std::move(which)), value_(std::move(value)) {}
        bool has(std::string_view n) const override { return all_.has(n); }
        Tensor get(std::string_view n) const override { return n == which_ ? value_ : all_.get(n); }
        std::vector<std::string> names() const override { return all_.names(); }

      private:
        const Weights& all_;
        std::string which_;
        Tensor value_;
    };
    for (std::size_t k = 0; k < 4; ++k) {
        double difference = 0;
        for (const double side : {1.0, -1.0}) {
            std::vector<double> values = b.to_host<double>();
            values[k] += side * h;
            const auto moved = std::make_shared<Moved>(
                *weights, name,
                Tensor::from_host(cpu(), b.shape(), std::span<const double>(values), Type::f64));
            difference +=
                side *
                Model(model.spec(), moved, cpu(), Type::f64).step(input, loss, settings).loss;
        }
        const auto g =
            std::ranges::find(found.gradients, name, &std::pair<std::string, Tensor>::first);
        ASSERT_NE(g, found.gradients.end());
        EXPECT_TRUE(
            close(g->second.to_host<double>()[k], difference / (2 * h),
                  {.relative = 1e-6, .absolute = 1e-8, .reason = "h^2 of third derivatives"}));
    }
}

}  // namespace
}  // namespace tsdiag::test
