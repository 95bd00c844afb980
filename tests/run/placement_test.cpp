#include "run/trace/placement.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <map>

#include "support/files.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using State = std::vector<double>;
using States = std::map<std::string, State>;

constexpr Index n = 12, d = 8, layers = 2;

State drawn(int seed) {
    State x(std::size_t(n * d));
    Rng(std::uint64_t(seed)).fill_normal(std::span<double>(x), 0, 1);
    return x;
}

State sum(State a, const State& b, double c = 1) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = c * a[i] + b[i];
    return a;
}

/// LayerNorm with weights and biases of its own.
State norm(State x, int seed) {
    const State weights = drawn(1000 + seed);
    for (std::size_t first = 0; first < x.size(); first += std::size_t(d)) {
        double mean = 0, squares = 0;
        for (std::size_t j = first; j < first + std::size_t(d); ++j) mean += x[j] / double(d);
        for (std::size_t j = first; j < first + std::size_t(d); ++j)
            squares += (x[j] - mean) * (x[j] - mean) / double(d);
        for (std::size_t j = 0; j < std::size_t(d); ++j)
            x[first + j] =
                (x[first + j] - mean) / std::sqrt(squares + 1e-5) * (1 + 0.3 * weights[j]) +
                0.3 * weights[std::size_t(d) + j];
    }
    return x;
}

/// All states of two layers, what the steps compute being noise.
States states_of(NormPlacement placement) {
    States s;
    State x = drawn(1);
    for (int l = 0; l < layers; ++l) {
        const auto at = [l](const char* stage) { return fmt::format("{}.{}", stage, l); };
        s[at("hidden_states")] = x;
        const State first = drawn(10 + l), second = drawn(20 + l);
        s[at("sa")] = first;
        switch (placement) {
            case NormPlacement::post:
                s[at("attn")] = sum(x, first);
                s[at("norm1")] = norm(s[at("attn")], l);
                s[at("ffn")] = sum(s[at("norm1")], second);
                x = s[at("norm2")] = norm(s[at("ffn")], 5 + l);
                break;
            case NormPlacement::pre:
                s[at("norm1")] = norm(x, l);
                s[at("attn")] = sum(x, first);
                s[at("norm2")] = norm(s[at("attn")], 5 + l);
                x = s[at("ffn")] = sum(s[at("attn")], second);
                break;
            case NormPlacement::parallel:
                s[at("norm1")] = norm(x, l);
                s[at("norm2")] = norm(x, 5 + l);
                x = s[at("ffn")] = sum(sum(x, first), second);
                break;
            case NormPlacement::branch:
                s[at("norm1")] = norm(first, l);
                s[at("attn")] = sum(x, s[at("norm1")]);
                s[at("norm2")] = norm(second, 5 + l);
                x = s[at("ffn")] = sum(s[at("attn")], s[at("norm2")]);
                break;
        }
    }
    s[fmt::format("hidden_states.{}", layers)] = x;
    return s;
}

States rounded(States s, int bits) {
    for (auto& [name, x] : s)
        for (double& v : x) {
            int exponent = 0;
            const double fraction = std::frexp(v, &exponent);
            v = std::ldexp(std::round(std::ldexp(fraction, bits)), exponent - bits);
        }
    return s;
}

States without(States s, std::initializer_list<std::string_view> stages) {
    for (const std::string_view stage : stages)
        std::erase_if(s, [&](const auto& one) { return one.first.starts_with(stage); });
    return s;
}

class Placement : public testing::Test {
  protected:
    std::optional<NormPlacement> given = {};
    State mask = {};  ///< one number a token
    bool maps = false;

    void write(const States& s) {
        std::vector<NamedArray> arrays;
        for (const auto& [name, x] : s) arrays.push_back({name, {n, d}, {}, x});
        const State p(std::size_t(n * n), 1 / double(n));
        if (maps) arrays.push_back({"attentions.0", {1, n, n}, {}, p});
        if (!mask.empty()) arrays.push_back({"attention_mask", {n}, {}, mask});
        write_npz(folder_ / "t.npz", arrays);
    }
    NormPlacement of(const States& s) {
        write(s);
        return placement_of(SavedTrace(*open_checkpoint(folder_ / "t.npz")), given);
    }
    std::string refusal(const States& s) {
        try {
            return std::string("accepted as ") += name(of(s));
        } catch (const UsageError& error) {
            return error.what();
        }
    }
    /// What `require_placement` says of a layer of the first `tokens` tokens, as of another sample.
    std::string required(const States& s, NormPlacement placement, Index tokens = n) {
        write(s);
        const SavedTrace trace(*open_checkpoint(folder_ / "t.npz"));
        SampleTokens sample = sample_of(trace, {});
        sample.tokens.resize(std::size_t(tokens));
        try {
            for (Index layer = 0; layer < layers; ++layer)
                require_placement(trace, placement, layer, sample, 3);
        } catch (const UsageError& error) {
            return error.what();
        }
        return "holds";
    }
    /// "norm1: sa: attn:in ", each stage with what it is measured from.
    std::string stages(const States& s, NormPlacement placement) {
        of(s);
        const SavedTrace trace(*open_checkpoint(folder_ / "t.npz"));
        std::string out;
        for (const Stage& stage : stages_of(trace, placement, steps_before_ffn({&trace, 1})))
            out += fmt::format("{}:{} ", stage.name, stage.from);
        return out;
    }

    TemporaryDirectory folder_;
};

TEST_F(Placement, IsFoundAndEveryOtherIsRefused) {
    const NormPlacement all[] = {NormPlacement::post, NormPlacement::pre, NormPlacement::parallel,
                                 NormPlacement::branch};
    for (const NormPlacement placement : all) {
        given = {};
        EXPECT_EQ(of(states_of(placement)), placement);
        for (const NormPlacement other : all) {
            given = other;
            if (other == placement)
                EXPECT_EQ(of(states_of(placement)), placement);
            else
                EXPECT_THAT(refusal(states_of(placement)),
                            HasSubstr(fmt::format("in the order of {},", name(placement))));
        }
    }
}

/// bfloat16 in float32, and float16: rounding is no contradiction.
TEST_F(Placement, IsFoundInRoundedStates) {
    for (const int bits : {8, 11})
        for (const NormPlacement placement : {NormPlacement::post, NormPlacement::pre,
                                              NormPlacement::parallel, NormPlacement::branch}) {
            EXPECT_EQ(of(rounded(states_of(placement), bits)), placement) << bits;
        }
}

TEST_F(Placement, IsAskedForWhereSeveralFitAndTheNumbersDiffer) {
    const States few = without(states_of(NormPlacement::parallel), {"norm"});
    EXPECT_THAT(refusal(few),
                HasSubstr("need --placement pre, parallel or branch: the arrays fit each"));
    for (const NormPlacement one : {NormPlacement::pre, NormPlacement::parallel}) {
        given = one;
        EXPECT_EQ(of(few), one);
    }
    given = {};
    // What is measured of norm1 and sa is the same in both.
    EXPECT_EQ(of(without(states_of(NormPlacement::parallel), {"norm2", "ffn"})),
              NormPlacement::pre);
    maps = true;
    EXPECT_EQ(of(without(states_of(NormPlacement::parallel), {"norm2", "ffn"})),
              NormPlacement::pre);
    States olmo = states_of(NormPlacement::branch);
    for (const char* layer : {"0", "1"})
        olmo[std::string("sa.") + layer] = olmo[std::string("norm1.") + layer];
    EXPECT_THAT(refusal(without(olmo, {"norm"})), HasSubstr("need --placement pre or branch"));
}

TEST_F(Placement, InputsOfAttentionTellIt) {
    const auto renamed = [](States s, const char* from) {
        for (const char* layer : {"0", "1"}) {
            s[std::string("attention_inputs.") + layer] = s[std::string(from) + layer];
            s.erase(std::string("norm1.") + layer);
        }
        return s;
    };
    EXPECT_EQ(of(renamed(states_of(NormPlacement::pre), "norm1.")), NormPlacement::pre);
    EXPECT_EQ(of(renamed(states_of(NormPlacement::post), "hidden_states.")), NormPlacement::post);
    const States parallel = renamed(states_of(NormPlacement::parallel), "norm1.");
    EXPECT_EQ(of(parallel), NormPlacement::parallel);
    EXPECT_THAT(refusal(without(parallel, {"norm2"})), HasSubstr("pre or parallel"));
    // Nothing but that attention reads the input of its layer: post-norm, or OLMo 2's.
    const States plain = without(renamed(states_of(NormPlacement::post), "hidden_states."),
                                 {"sa", "attn.", "ffn", "norm2"});
    EXPECT_EQ(of(plain), NormPlacement::post);
    maps = true;
    EXPECT_THAT(refusal(plain), HasSubstr("need --placement post or branch"));
}

/// [XCIT]: the feed-forward step reads the sum of the local one.
TEST_F(Placement, OfALocalStepIsFound) {
    States s = states_of(NormPlacement::pre);
    State x = s["hidden_states.0"];
    for (int l = 0; l < layers; ++l) {
        const auto at = [l](const char* stage) { return fmt::format("{}.{}", stage, l); };
        s[at("hidden_states")] = x;
        s[at("norm1")] = norm(x, l);
        s[at("attn")] = sum(x, s[at("sa")]);
        s[at("norm3")] = norm(s[at("attn")], 8 + l);
        s[at("local")] = sum(s[at("attn")], drawn(30 + l));
        s[at("norm2")] = norm(s[at("local")], 5 + l);
        x = s[at("ffn")] = sum(s[at("local")], drawn(20 + l));
    }
    s[fmt::format("hidden_states.{}", layers)] = x;
    EXPECT_EQ(of(s), NormPlacement::pre);
    EXPECT_EQ(of(without(s, {"sa", "norm3"})), NormPlacement::pre);
    EXPECT_EQ(of(without(s, {"local"})), NormPlacement::pre);
    EXPECT_THAT(refusal(without(s, {"local", "norm3"})), HasSubstr("norm2.0"));
    s["norm3.1"] = norm(s["hidden_states.1"], 9);
    EXPECT_THAT(refusal(s), HasSubstr("norm3.1"));
}

/// A further step may stand before the feed-forward step or at the end of the layer.
TEST_F(Placement, OfAFurtherStepIsFound) {
    for (const bool before : {false, true}) {
        States s = states_of(NormPlacement::pre);
        State x = s["hidden_states.0"];
        for (int l = 0; l < layers; ++l) {
            const auto at = [l](const char* stage) { return fmt::format("{}.{}", stage, l); };
            s[at("hidden_states")] = x;
            s[at("norm1")] = norm(x, l);
            State y = s[at("attn")] = sum(x, s[at("sa")]);
            if (before) y = s[at("contranorm")] = sum(y, drawn(40 + l));
            s[at("norm2")] = norm(y, 5 + l);
            x = s[at("ffn")] = sum(y, drawn(20 + l));
            if (!before) x = s[at("contranorm")] = sum(x, drawn(40 + l));
        }
        s[fmt::format("hidden_states.{}", layers)] = x;
        EXPECT_EQ(of(s), NormPlacement::pre);
        EXPECT_EQ(stages(s, NormPlacement::pre),
                  before ? "norm1: sa: attn:in contranorm:attn norm2: ffn:contranorm "
                         : "norm1: sa: attn:in norm2: ffn:attn contranorm:ffn ");
        EXPECT_EQ(of(without(s, {"ffn"})), NormPlacement::pre);
        EXPECT_THAT(refusal(without(s, {"contranorm"})), HasSubstr(before ? "norm2.0" : "ffn.0"));
    }
}

TEST_F(Placement, LeadsToTheStagesOfTheSteps) {
    States s = states_of(NormPlacement::pre);
    EXPECT_EQ(stages(s, NormPlacement::pre), "norm1: sa: attn:in norm2: ffn:attn ");
    EXPECT_EQ(stages(s, NormPlacement::branch), "sa: norm1: attn:in norm2: ffn:attn ");
    EXPECT_EQ(stages(s, NormPlacement::parallel), "norm1: sa: norm2: ffn:in ");
    EXPECT_EQ(stages(s, NormPlacement::post), "sa: attn:in norm1:attn ffn:norm1 norm2:ffn ");
    given = NormPlacement::pre;
    s["local.0"] = s["attn.0"];
    s["deesc.1"] = s["ffn.1"];
    EXPECT_EQ(stages(s, NormPlacement::pre),
              "norm1: sa: attn:in norm3: local:attn norm2: ffn:local deesc:ffn ");
    s["contranorm.1"] = s["ffn.1"];
    EXPECT_EQ(stages(s, NormPlacement::pre),
              "norm1: sa: attn:in norm3: local:attn norm2: ffn:local deesc:ffn contranorm:deesc ");
}

/// What is added is a norm of `sa` with weights of its own, which was not saved.
TEST_F(Placement, OfANormBehindAttentionIsFoundWithoutIt) {
    EXPECT_EQ(of(without(states_of(NormPlacement::branch), {"norm1"})), NormPlacement::branch);
}

struct Fault {
    const char* what;
    std::function<void(States&)> change;
    std::vector<const char*> message;  // parts of it
};
class EveryFault : public Placement, public testing::WithParamInterface<Fault> {};

TEST_P(EveryFault, OfAPreNormTraceIsNamed) {
    States s = states_of(NormPlacement::pre);
    GetParam().change(s);
    for (const bool is_given : {false, true}) {
        if (is_given) given = NormPlacement::pre;
        for (const char* part : GetParam().message) EXPECT_THAT(refusal(s), HasSubstr(part));
        EXPECT_THAT(refusal(s), HasSubstr(is_given ? "nor do the arrays fit another placement"
                                                   : "the arrays fit no placement, pre the most"));
    }
}

const Fault faults[] = {
    {"BranchAsSum",
     [](States& s) { s["attn.0"] = s["sa.0"], s["attn.1"] = s["sa.1"]; },
     {"'attn.0' is not hidden_states.0 + sa.0 (the branch alone?", "save it as sa.0"}},
    {"Swapped",
     [](States& s) { std::swap(s["sa.0"], s["sa.1"]); },
     {"'attn.0' is not hidden_states.0 + sa.0"}},
    {"FeedForwardBranch",
     [](States& s) {
         for (const char* layer : {"0", "1"})
             s[std::string("ffn.") + layer] =
                 sum(s[std::string("attn.") + layer], s[std::string("ffn.") + layer], -1);
     },
     {"'ffn.0' is not the output of its layer, hidden_states.1", "the branch alone?"}},
    {"OneLayer",
     [](States& s) { s["norm1.1"] = drawn(99); },
     {"'norm1.1' is not a norm of hidden_states.1"}},
    {"NormInside",
     [](States& s) { s["hidden_states.1"] = norm(s["hidden_states.1"], 9); },
     {"'ffn.0' is not the output of its layer"}},
};
INSTANTIATE_TEST_SUITE_P(Faults, EveryFault, testing::ValuesIn(faults),
                         [](const auto& test) { return std::string(test.param.what); });

TEST_F(Placement, AllowsWhatLayersDo) {
    States s = states_of(NormPlacement::pre);
    s["hidden_states.2"] = norm(s["hidden_states.2"], 9);  // a final norm
    EXPECT_EQ(of(s), NormPlacement::pre);
    for (const char* sa : {"sa.0", "sa.1"})  // saved before LayerScale
        for (std::size_t i = 0; i < s[sa].size(); ++i) s[sa][i] *= 1 + double(i % std::size_t(d));
    EXPECT_EQ(of(s), NormPlacement::pre);
    s = states_of(NormPlacement::post);
    for (const char* layer : {"0", "1"}) {  // DeepNorm
        const std::string at = layer;
        s["attn." + at] = sum(s["hidden_states." + at], s["sa." + at], 3);
        s["norm1." + at] = norm(s["attn." + at], 3);
    }
    EXPECT_EQ(of(s), NormPlacement::post);
}

/// What a norm centres was rounded with its mean.
TEST_F(Placement, IsFoundInRoundedStatesOfLargeMeans) {
    States s = states_of(NormPlacement::pre);
    for (const char* layer : {"0", "1"}) {
        const std::string at = layer;
        for (const char* state : {"hidden_states.", "attn.", "ffn."})
            for (double& v : s[state + at]) v += 100;
    }
    for (double& v : s["hidden_states.2"]) v += 100;
    EXPECT_EQ(of(rounded(s, 11)), NormPlacement::pre);
    s["norm2.1"] = drawn(60);
    EXPECT_THAT(refusal(rounded(s, 11)), HasSubstr("'norm2.1' is not a norm of attn.1"));
}

/// The norm of a branch is what a sum is more than a state of which it is a small part.
TEST_F(Placement, IsFoundInRoundedStatesOfSmallNormedBranches) {
    States s = states_of(NormPlacement::branch);
    State x = s["hidden_states.0"];
    for (double& v : x) v *= 100;
    for (const char* layer : {"0", "1"}) {
        const std::string at = layer;
        s["hidden_states." + at] = x;
        s["attn." + at] = sum(x, s["norm1." + at]);
        x = s["ffn." + at] = sum(s["attn." + at], s["norm2." + at]);
    }
    s["hidden_states.2"] = x;
    EXPECT_EQ(of(rounded(without(s, {"norm1"}), 11)), NormPlacement::branch);
    s["attn.1"] = sum(s["hidden_states.1"], drawn(60));
    EXPECT_THAT(required(without(rounded(s, 11), {"norm1", "ffn"}), NormPlacement::branch),
                HasSubstr("'attn.1' is not hidden_states.1 + sa.1"));
}

/// As where padding leaves few of the tokens of a sample.
TEST_F(Placement, OfFewTokensHoldsWhereSumsHaveFactors) {
    States scaled = states_of(NormPlacement::pre), deep = states_of(NormPlacement::post);
    for (const char* layer : {"0", "1"}) {
        const std::string at = layer;
        State& sa = scaled["sa." + at];
        for (std::size_t i = 0; i < sa.size(); ++i) sa[i] *= 1 + double(i % std::size_t(d));
        deep["attn." + at] = sum(deep["hidden_states." + at], deep["sa." + at], 3);
        deep["norm1." + at] = norm(deep["attn." + at], 3);
    }
    for (const Index tokens : {1, 2, 3, 4}) {
        EXPECT_EQ(required(scaled, NormPlacement::pre, tokens), "holds") << tokens;
        EXPECT_EQ(required(deep, NormPlacement::post, tokens), "holds") << tokens;
    }
    scaled["attn.1"] = drawn(50);
    for (const Index tokens : {2, 3})
        EXPECT_THAT(required(scaled, NormPlacement::pre, tokens),
                    HasSubstr("'attn.1' is not hidden_states.1 + sa.1, in sample 3, layer 1"));
}

/// Two kinds of tokens: each state is an affine function of each other, column by column.
TEST_F(Placement, OfTwoTokensIsNotContradictedByNormsThatAllFit) {
    for (const NormPlacement placement : {NormPlacement::post, NormPlacement::pre,
                                          NormPlacement::parallel, NormPlacement::branch}) {
        States s = states_of(placement);
        for (auto& [name, x] : s)
            for (std::size_t i = 2 * std::size_t(d); i < x.size(); ++i)
                x[i] = x[i % (2 * std::size_t(d))];
        EXPECT_EQ(required(s, placement), "holds") << name(placement);
        EXPECT_EQ(required(without(s, {"attn", "sa"}), placement), "holds") << name(placement);
    }
    States s = states_of(NormPlacement::branch);
    s["norm2.0"] = norm(s["attn.0"], 1);
    EXPECT_THAT(required(without(s, {"ffn"}), NormPlacement::branch),
                HasSubstr("'norm2.0' is a norm of attn.0, before a step"));
}

TEST_F(Placement, IsFoundInTheTokensThatAreKept) {
    States s = states_of(NormPlacement::pre);
    mask.assign(std::size_t(n), 1);
    mask[3] = mask[4] = 0;
    for (auto& [name, x] : s)
        for (Index j = 3 * d; j < 5 * d; ++j) x[std::size_t(j)] = j % 2 ? std::nan("") : 7;
    EXPECT_EQ(of(s), NormPlacement::pre);
    mask.clear();  // rows that are not finite tell nothing
    EXPECT_EQ(of(s), NormPlacement::pre);
}

TEST_F(Placement, OfTokensTooEqualForTheirRoundingIsNoContradiction) {
    States s = states_of(NormPlacement::post);
    for (const char* name : {"hidden_states.0", "attn.0", "norm1.0", "sa.0"})
        for (std::size_t i = 0; i < s[name].size(); ++i) {
            const double common = 1 + double(i % std::size_t(d));
            s[name][i] =
                float(common + 2e-6 * s[name][i]) * (std::string_view(name) == "attn.0" ? 2 : 1);
        }
    EXPECT_EQ(of(s), NormPlacement::post);
}

/// a2 of a layer whose attention adds `sa` to `in`, P being a softmax; nothing where it is not
/// known.
std::optional<double> measured_gain(const State& in, const State& p, const State& sa,
                                    std::optional<NormPlacement> placement) {
    TemporaryDirectory folder;
    RunOptions options;
    options.subject.model = folder / "t.npz";
    options.trace.placement = placement;
    const State attn = sum(in, sa);
    const std::vector<NamedArray> arrays = {{"hidden_states.0", {n, d}, {}, in},
                                            {"sa.0", {n, d}, {}, sa},
                                            {"attn.0", {n, d}, {}, attn},
                                            {"attentions.0", {1, n, n}, {}, p}};
    write_npz(options.subject.model, arrays);
    const Json a2 = run(options).run["model"]["a2"];
    if (!a2.is_array() || !a2.array().at(0).is_number()) return std::nullopt;
    return a2.array().at(0).number();
}

TEST(MeasuredGain, IsThatOfTheWeightsWithoutBiasAndNoneBehindANorm) {
    // Arrange: SA = 3 P X, whose gain is 9.
    const State in = drawn(1), logits = drawn(2), more = drawn(3);
    State p(std::size_t(n * n)), sa(std::size_t(n * d));
    for (std::size_t i = 0; i < std::size_t(n); ++i) {
        double whole = 0;
        for (std::size_t j = 0; j < std::size_t(n); ++j) {
            const std::size_t at = i * std::size_t(n) + j;
            p[at] = std::exp(at < logits.size() ? logits[at] : more[at - logits.size()]);
            whole += p[at];
        }
        for (std::size_t j = 0; j < std::size_t(n); ++j) p[i * std::size_t(n) + j] /= whole;
        for (std::size_t j = 0; j < std::size_t(n); ++j)
            for (std::size_t k = 0; k < std::size_t(d); ++k)
                sa[i * std::size_t(d) + k] +=
                    3 * p[i * std::size_t(n) + j] * in[j * std::size_t(d) + k];
    }
    State biased = sa, unit = sa;
    for (std::size_t i = 0; i < sa.size(); ++i) biased[i] += 5 - double(i % std::size_t(d));
    for (std::size_t i = 0; i < sa.size(); i += std::size_t(d)) {
        double squares = 0;
        for (std::size_t j = i; j < i + std::size_t(d); ++j) squares += sa[j] * sa[j];
        for (std::size_t j = i; j < i + std::size_t(d); ++j) unit[j] /= std::sqrt(squares);
    }
    // Act and assert.
    for (const State* one : {&sa, &biased}) {
        const std::optional<double> gain = measured_gain(in, p, *one, NormPlacement::post);
        ASSERT_TRUE(gain);
        EXPECT_NEAR(*gain, 9, 1e-12 * 9 * double(n * d));  // sums of n d squares
    }
    EXPECT_FALSE(measured_gain(in, p, unit, NormPlacement::post));
    EXPECT_FALSE(measured_gain(in, p, sa, NormPlacement::branch));
}

}  // namespace
}  // namespace tsdiag::test
