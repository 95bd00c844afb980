#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/norm.hpp"
#include "recorder.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/gradient.hpp"
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

/// Parameter gradients by a sweep with recomputed layers.
class GradientNorms final : public Observer {
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
    if (model.spec().embedding.vocabulary > 0) {
        input.ids = {3, 1, 4, 1, 5, 9};
        if (model.spec().embedding.width == model.spec().width)  // ALBERT here has no head
            loss = {.kind = Loss::Kind::tokens, .rows = {0, 2, 4}, .targets = {1, 1, 9}};
    } else {
        const std::vector<double> pixels(3 * 64, 0.25);
        input.image =
            Tensor::from_host(cpu(), {3, 8, 8}, std::span<const double>(pixels), Type::f64);
    }
    GradientNorms expected;
    model.differentiate(std::span(&input, 1), std::span(&loss, 1), expected);
    const StepResult found = model.step(input, loss);
    EXPECT_TRUE(close(found.loss, expected.loss, rounding(64)));
    std::map<std::string, double> norms;
    for (const auto& [name, g] : found.gradients) norms[name] = squared_norm(g);
    ASSERT_EQ(norms.size(), expected.norms.size());
    for (const auto& [name, norm] : expected.norms)
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

TEST(Step, ARowOfZerosHasADerivativeThroughItsRootMeanSquare) {
    const std::vector<double> values = {0, 0, 3, -4};
    for (const Type type : {Type::f32, Type::f64}) {
        const Tensor x =
            variable(Tensor::from_host(cpu(), {1, 2, 2}, std::span<const double>(values), type));
        const Tensor y = model::normed(NormKind::simple_rms, x, {}, 0);
        const Tensor ones = affine(y.detached(), 0, 1);
        const std::vector<double> g = grad(y, ones, std::vector{x}).front().to_host<double>();
        // x / (rms + 1e-8) at 0, and (I - x x^T / |x|^2) 1 / rms
        EXPECT_NEAR(g[0], 1e8, 10) << "one part in a float";
        const double rms = std::sqrt(12.5);
        EXPECT_NEAR(g[2], (1 + 3.0 / 25) / rms, 1e-6);
        EXPECT_NEAR(g[3], (1 - 4.0 / 25) / rms, 1e-6);
    }
}

/// A classifier (1, C, 4 d) that is zero but for one of its four parts.
Tensor one_part(Index part, Index classes, Index d) {
    const Tensor w = random_tensor(cpu(), {1, classes, d}, Type::f64, Law::normal, Rng(8), 0, 1);
    return place(w, {1, classes, 4 * d}, 0, 0, part * d);
}
double loss_of_pair(const Model& model, const Input& a, const Input& b, const Tensor& classifier,
                    Index label) {
    const Input inputs[] = {a, b};
    const Loss loss{.kind = Loss::Kind::pairs, .classifier = classifier, .label = label};
    const Loss losses[] = {loss, loss};
    return model.step(inputs, losses, {.gradients = false}).loss;
}

TEST(Step, PairsAreClassifiedByBothMeansTheirProductAndDifference) {
    const Model model = model_of("bert-base,layers=1,d=8,heads=2,vocab=12,tokens=8");
    const Input a = of_ids({3, 1, 4}), b = of_ids({1, 5, 9, 2, 6});
    const Tensor w = random_tensor(cpu(), {1, 3, 8}, Type::f64, Law::normal, Rng(8), 0, 1);
    const auto alone = [&](const Input& input) {
        const Loss loss{.kind = Loss::Kind::classes, .classifier = w, .label = 2};
        return model.step(input, loss, {.gradients = false}).loss;
    };
    const auto pair = [&](Index part, const Input& x, const Input& y) {
        return loss_of_pair(model, x, y, one_part(part, 3, 8), 2);
    };
    EXPECT_TRUE(close(pair(0, a, b), alone(a), rounding(64)));
    EXPECT_TRUE(close(pair(1, a, b), alone(b), rounding(64)));
    EXPECT_TRUE(close(pair(2, a, b), pair(2, b, a), rounding(64)));
    EXPECT_NE(pair(2, a, b), pair(2, a, a));
    EXPECT_TRUE(close(pair(3, a, a), std::log(3.0), rounding(64)));
    EXPECT_NE(pair(3, a, b), pair(3, b, a));
}

TEST(Step, PairsOfDifferentLengthsAddUpWithTheirDerivatives) {
    const Model model = model_of("bert-base,layers=1,d=8,heads=2,vocab=12,tokens=8");
    const Tensor w = random_tensor(cpu(), {1, 3, 32}, Type::f64, Law::normal, Rng(8), 0, 1);
    const std::vector<Input> inputs = {of_ids({3, 1, 4}), of_ids({1, 5, 9, 2, 6}), of_ids({7, 7}),
                                       of_ids({2})};
    const auto loss = [&](const Tensor& classifier, Index label) {
        return Loss{.kind = Loss::Kind::pairs, .classifier = classifier, .label = label};
    };
    const auto losses = [&](const Tensor& c) {
        return std::vector<Loss>{loss(c, 1), loss(c, 1), loss(c, 0), loss(c, 0)};
    };
    const StepResult found = model.step(inputs, losses(w), {.hits = true});
    EXPECT_EQ(found.predictions, 2);
    EXPECT_TRUE(close(found.loss,
                      loss_of_pair(model, inputs[0], inputs[1], w, 1) +
                          loss_of_pair(model, inputs[2], inputs[3], w, 0),
                      rounding(64)));
    constexpr double step = 1e-5;
    const Tensor u = random_tensor(cpu(), w.shape(), Type::f64, Law::normal, Rng(9), 0, 1);
    const auto at = [&](double t) {
        return model.step(inputs, losses(add(w, scale(u, t))), {.gradients = false}).loss;
    };
    const auto own =
        std::ranges::find(found.gradients, "classifier", &std::pair<std::string, Tensor>::first);
    ASSERT_NE(own, found.gradients.end());
    // central differences: the third derivative times step^2, and rounding over step
    EXPECT_NEAR(row_sum(column_sum(multiply(own->second, u))).item(),
                (at(step) - at(-step)) / (2 * step), 1e-8);
    GradientNorms expected;
    EXPECT_THROW(
        model.differentiate(std::span(inputs).first(1), std::vector<Loss>{loss(w, 1)}, expected),
        UsageError);
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
