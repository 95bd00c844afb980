#include "tsdiag/spec.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

#include "recorder.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;

TEST(Rotary, FrequenciesAreAGeometricSeries) {
    Rotary r;
    r.columns = 8;
    const std::vector<double> expected{1, 0.1, 0.01, 0.001};  // 10000^(-2i/8)
    EXPECT_ALL_CLOSE(r.frequencies(5), expected, rounding(8));
}

TEST(Rotary, LinearScalingDividesAllFrequencies) {
    Rotary r;
    r.columns = 4;
    r.scaling = "linear";
    r.factor = 4;
    EXPECT_ALL_CLOSE(r.frequencies(5), std::vector<double>({0.25, 0.0025}), rounding(8));
}

TEST(Rotary, DynamicScalingRaisesTheBaseOfLongInputsOnly) {
    Rotary r;
    r.columns = 4;
    r.scaling = "dynamic";
    r.factor = 2;
    r.original_length = 8;
    EXPECT_ALL_CLOSE(r.frequencies(8), std::vector<double>({1, 0.01}), rounding(8));
    const double base = 10000 * std::pow(2.0 * 16 / 8 - 1, 4.0 / 2);  // base' = base 3^(w/(w-2))
    EXPECT_ALL_CLOSE(r.frequencies(16), std::vector<double>({1, 1 / std::sqrt(base)}), rounding(8));
}

TEST(Rotary, Llama3ScalingKeepsShortWavesAndStretchesLongOnes) {
    Rotary r;
    r.columns = 4;
    r.scaling = "llama3";
    r.factor = 8;
    r.low_freq_factor = 1;
    r.high_freq_factor = 4;
    r.original_length = 100;
    EXPECT_ALL_CLOSE(r.frequencies(9), std::vector<double>({1, 0.01 / 8}), rounding(8));
    r.theta = std::pow(50 / (2 * std::numbers::pi), 2);  // second wavelength: 50 tokens
    const double f = 2 * std::numbers::pi / 50, s = (100.0 / 50 - 1) / 3;
    EXPECT_ALL_CLOSE(r.frequencies(9), std::vector<double>({1, (1 - s) * f / 8 + s * f}),
                     rounding(16));
}

TEST(ModelSpec, ParametersOfBertBaseAreThoseOfTheRelease) {
    const ModelSpec spec = random_model("bert-base").spec;
    Index count = 0;
    for (const Parameter& p : parameters(spec)) count += p.shape.count();
    EXPECT_EQ(count, 108'891'648);  // 109 482 240 with the pooler's 768 x 768 + 768
}

TEST(ModelSpec, ParametersOfLlama7bAreThoseOfTheRelease) {
    Index count = 0;
    for (const Parameter& p : parameters(random_model("llama-7b").spec)) count += p.shape.count();
    EXPECT_EQ(count, 6'738'415'616 - 32000 * 4096);  // without the output head
}

TEST(ModelSpec, FlopsOfBertBaseAreThoseOfItsProducts) {
    const double n = 512, d = 768;
    const double layer = 2 * n * d * (4 * d + 2 * 4 * d) + 4 * n * n * d;
    EXPECT_CLOSE(forward_flops(random_model("bert-base").spec, 512), 12 * layer, rounding(64));
}

TEST(ModelSpec, JsonHoldsEveryBlock) {
    const Json json = random_model("llama-3.2-1b").spec.json();
    EXPECT_EQ(json["blocks"].array().size(), 16U);
    EXPECT_EQ(json["blocks"].array()[0]["rotary"]["scaling"].string(), "llama3");
    EXPECT_EQ(json["blocks"].array()[3]["kv_heads"].integer(), 8);
    EXPECT_FALSE(json["trained"].boolean());
    EXPECT_THAT(json.dump(), HasSubstr("\"placement\": \"pre\""));
}

}  // namespace
}  // namespace tsdiag::test
