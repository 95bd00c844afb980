#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tsdiag/train.hpp"

/// Findings of the page of a training on its whole course.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using Level = Finding::Level;

/// 200 steps of the given loss, with small noise.
TrainResult trained(
    double (*loss)(double share), double (*norm)(Index) = [](Index) { return 1.0; }) {
    TrainResult out;
    for (Index i = 1; i <= 200; ++i) {
        TrainStep step{
            .step = i, .loss = loss(double(i) / 200), .grad_norm = norm(i), .rate = 1e-3};
        step.loss += 0.02 * std::sin(double(17 * i));
        step.layer_norms = {step.grad_norm, 0};
        out.steps.push_back(step);
    }
    out.finished = true;
    return out;
}

/// t_sim of two layers at the steps 0, 100, 200.
void add_similarity(TrainResult& result, std::array<double, 3> first,
                    std::array<double, 3> second) {
    for (std::size_t s = 0; s < 3; ++s)
        for (const auto& [layer, all] : {std::pair(0, first), {1, second}}) {
            const Place at = {.step = Index(100 * s), .layer = layer, .stage = "out"};
            result.table.scalar(at, "t_sim", all[s]);
            result.table.scalar(at, "t_div", 1 - all[s]);
        }
}

/// The finding that holds `words`.
Finding finding(const TrainResult& result, const std::string& words) {
    for (const Finding& f : training_page(result).findings)
        if (f.text.find(words) != std::string::npos) return f;
    ADD_FAILURE() << "nothing says '" << words << "'";
    return {};
}

/// Each finding links to the figure that it is about.
TEST(TrainingFindings, LinkToTheirFigures) {
    TrainResult result = trained([](double share) { return 4 * std::exp(-3 * share); });
    add_similarity(result, {0.1, 0.2, 0.3}, {0.1, 0.995, 0.999});
    for (const Index layer : {0, 1})
        result.table.scalar({.step = 200, .layer = layer}, "grad_norm", layer == 0 ? 1e-9 : 1.0);
    result.run.set("model", "random:post-norm").set("warnings", Json::Array{Json("odd")});
    EXPECT_EQ(finding(result, "The training loss").figure, "learning");
    EXPECT_EQ(finding(result, "Tokens collapse").figure, "similarity");
    EXPECT_EQ(finding(result, "The gradient vanishes").figure, "gradients");
    EXPECT_EQ(finding(result, "odd.").figure, "");
}

double falls(double share) { return 4 * std::exp(-3 * share); }

TEST(TrainingFindings, ALossThatFallsIsGood) {
    const Finding f = finding(trained(falls), "The training loss");
    EXPECT_EQ(f.level, Level::good);
    EXPECT_THAT(f.text, HasSubstr("(steps 1 to 10)"));
    EXPECT_THAT(f.text, HasSubstr("(steps 191 to 200)"));
}

TEST(TrainingFindings, ALossThatRisesAgainIsNot) {
    const auto again = [](double share) { return share < 0.601 ? falls(share) : 3.0; };
    const Finding f = finding(trained(again), "The training loss");
    EXPECT_EQ(f.level, Level::warning);
    EXPECT_THAT(f.text, HasSubstr("The training loss rises again"));
    EXPECT_THAT(f.text, HasSubstr("(steps 111 to 120)"));
}

TEST(TrainingFindings, ALossThatStaysIsNot) {
    const auto stays = [](double) { return 4.0; };
    EXPECT_EQ(finding(trained(stays), "does not fall").level, Level::warning);
}

TEST(TrainingFindings, ALossAtThatOfAGuessIsNotGood) {
    const auto to_chance = [](double share) { return 0.7 + std::exp(-30 * share); };
    TrainResult result = trained(to_chance);
    EXPECT_EQ(finding(result, "The training loss").level, Level::good);  // of unknown targets
    const std::string of_a_guess = "that of guessing by frequency, ";
    result.run.set("guess", std::log(2.0));
    EXPECT_EQ(finding(result, "The training loss ends above " + of_a_guess + "0.6931").level,
              Level::warning);
    result.run.set("guess", 0.71);  // 0.7 is within 3 %
    EXPECT_EQ(finding(result, "The training loss ends hardly below " + of_a_guess + "0.71").level,
              Level::warning);
    result.run.set("guess", std::log(3.0));
    EXPECT_EQ(finding(result, "The training loss falls").level, Level::good);
}

TEST(TrainingFindings, AGradientThatVanishesOnItsWayBackIsSaid) {
    TrainResult result = trained(falls);
    for (TrainStep& step : result.steps) step.layer_norms = {1e-20, 1e-10, 1, 0};
    const Finding f = finding(result, "The gradient vanishes");
    EXPECT_EQ(f.level, Level::warning);
    EXPECT_THAT(f.text, HasSubstr("1e-20 in layer 0, 1 in layer 2 (means of steps 181 to 200)."));
    for (const Finding& other : training_page(result).findings)
        EXPECT_EQ(other.text.find("No gradient spikes"), std::string::npos);
    for (TrainStep& step : result.steps) step.layer_norms = {0.01, 0.5, 1, 0};
    finding(result, "No gradient spikes");
}

TEST(TrainingFindings, HeldOutLossesAreASeries) {
    TrainResult result = trained(falls);
    result.evaluations = {{0, 4, 0, 8}, {100, 1, 0.5, 8}, {200, 2, 0.5, 8}};
    EXPECT_EQ(finding(result, "held-out loss").level, Level::warning);
    EXPECT_THAT(finding(result, "held-out loss").text,
                HasSubstr("was 1 at step 100 and has risen since"));
    result.evaluations[2].loss = 0.9;
    EXPECT_EQ(finding(result, "held-out loss").level, Level::note);
}

TEST(TrainingFindings, ACollapseInTheTableIsTheHeadline) {
    TrainResult result = trained(falls);
    add_similarity(result, {0.5, 0.6, 0.7}, {0.8, 0.995, 0.999});
    const Finding f = finding(result, "Tokens collapse");
    EXPECT_EQ(f.level, Level::warning);
    EXPECT_TRUE(f.headline);
    EXPECT_EQ(
        f.text,
        "Tokens collapse in this training: t_sim passes 0.99 at step 100 and is 0.9990 at step 200 "
        "(layer 1), the last.");
    EXPECT_FALSE(finding(result, "The training loss").headline);
}

TEST(TrainingFindings, ACollapseFromTheStartPassesNothing) {
    TrainResult result = trained(falls);
    add_similarity(result, {0.5, 0.6, 0.7}, {0.992, 0.995, 0.999});
    EXPECT_EQ(finding(result, "Tokens are collapsed").text,
              "Tokens are collapsed at every step: t_sim is 0.9920 at step 0 (layer 1) and 0.9990 "
              "at step 200 (layer 1), the last.");
    result = trained(falls);
    add_similarity(result, {0.5, 0.6, 0.7}, {0.992, 0.8, 0.999});
    EXPECT_THAT(finding(result, "Tokens are collapsed").text,
                HasSubstr("at the first step and at the last: t_sim is 0.9920"));
}

/// A remedy is advised where it can be drawn.
TEST(TrainingFindings, ACollapseHasARemedyThatCanBeTrained) {
    TrainResult result = trained(falls);
    add_similarity(result, {0.5, 0.6, 0.7}, {0.8, 0.995, 0.999});
    const auto advised = [&] {
        const std::vector<Finding> all = training_page(result).findings;
        return std::ranges::any_of(
            all, [](const Finding& f) { return f.text.starts_with("A remedy is de-escalation"); });
    };
    EXPECT_FALSE(advised());
    result.run.set("deescalated", "random:post-norm,deesc=0.5");
    EXPECT_TRUE(advised());
    EXPECT_THAT(finding(result, "A remedy").text,
                HasSubstr("`tsdiag train random:post-norm,deesc=0.5` with the other options"));
}

TEST(TrainingFindings, ACollapseThatWentAwayIsANote) {
    TrainResult result = trained(falls);
    add_similarity(result, {0.999, 0.6, 0.5}, {0.9999, 0.7, 0.3});
    Finding f = finding(result, "Tokens are collapsed");
    EXPECT_EQ(f.level, Level::note);
    EXPECT_EQ(f.text,
              "Tokens are collapsed at the first step and not at the last: t_sim is 0.9999 at step "
              "0 (layer 1) and 0.5000 at step 200 (layer 0), the last.");
    result = trained(falls);
    add_similarity(result, {0.5, 0.6, 0.5}, {0.2, 0.999, 0.3});
    f = finding(result, "Tokens collapse for a time");
    EXPECT_EQ(f.level, Level::note);
    EXPECT_THAT(f.text, HasSubstr("and is 0.5000 at step 200 (layer 0), the last"));
}

/// Tokens that are alike at the first step did not become so.
TEST(TrainingFindings, TokensThatBeginAlikeDoNotBecomeAlike) {
    const auto said = [](std::array<double, 3> first, std::array<double, 3> second) {
        TrainResult result = trained(falls);
        add_similarity(result, first, second);
        const Finding f = finding(result, "Tokens are");
        EXPECT_EQ(f.level, Level::note);
        return f.text;
    };
    EXPECT_EQ(
        said({0.5, 0.6, 0.5}, {0.95, 0.7, 0.3}),
        "Tokens are 90 % alike at the first step and not at the last: t_sim is 0.9500 at step "
        "0 (layer 1) and 0.5000 at step 200 (layer 0), the last.");
    EXPECT_EQ(said({0.5, 0.6, 0.5}, {0.95, 0.96, 0.97}),
              "Tokens are 90 % alike at every step: t_sim is 0.9500 at step 0 (layer 1) and 0.9700 "
              "at step 200 (layer 1), the last.");
}

/// The greatest similarity is told once where it is the last, and what went away is told as gone.
TEST(TrainingFindings, TokensThatBecomeAlikeAreToldByTheirCourse) {
    TrainResult result = trained(falls);
    add_similarity(result, {0.2, 0.91, 0.95}, {0.1, 0.7, 0.8});
    EXPECT_EQ(finding(result, "Tokens become alike").text,
              "Tokens become alike in this training: t_sim passes 0.9 at step 100 and is 0.9500 at "
              "step 200 (layer 0), the last.");
    result = trained(falls);
    add_similarity(result, {0.2, 0.95, 0.3}, {0.1, 0.7, 0.4});
    EXPECT_EQ(finding(result, "Tokens become alike").text,
              "Tokens become alike for a time in this training: t_sim reaches 0.9500 at step 100 "
              "(layer 0) and is 0.4000 at step 200 (layer 1), the last.");
}

/// Where tokens stay distinct, the loss is what a reader wants to know first.
TEST(TrainingFindings, NoCollapseIsSaidOfAllStepsBehindTheLoss) {
    TrainResult result = trained(falls);
    add_similarity(result, {0.2, 0.8, 0.3}, {0.1, 0.7, 0.4});
    const Finding f = finding(result, "Tokens stay distinct");
    EXPECT_EQ(f.level, Level::good);
    EXPECT_THAT(f.text,
                HasSubstr("at every step: t_sim is at most 0.8000 at step 100 (layer 0) and "
                          "0.4000 at step 200 (layer 1), the last."));
    EXPECT_TRUE(training_page(result).findings.front().headline);
    EXPECT_THAT(training_page(result).findings.front().text, HasSubstr("The training loss falls"));
}

/// A loss that does not fall outranks tokens that only become alike.
TEST(TrainingFindings, TheWorseOfLossAndTokensIsTheHeadline) {
    TrainResult result = trained([](double) { return 4.0; });
    add_similarity(result, {0.2, 0.95, 0.3}, {0.1, 0.7, 0.4});
    EXPECT_TRUE(finding(result, "does not fall").headline);
    EXPECT_FALSE(finding(result, "Tokens become alike").headline);
}

TEST(TrainingFindings, GradientsThatDieAreSaid) {
    EXPECT_EQ(
        finding(trained(falls, [](Index i) { return i == 150 ? 0.0 : 1.0; }), "is 0 at step 150")
            .level,
        Level::warning);
    EXPECT_EQ(finding(trained(falls, [](Index i) { return i == 150 ? 90.0 : 1.0; }), "spikes to 90")
                  .level,
              Level::warning);
}

TEST(TrainingPage, SettingsWithoutAValueAreNoFacts) {
    TrainResult result = trained(falls);
    Json settings;
    settings.set("config", Json()).set("milestones", Json::Array{}).set("steps", Index(7));
    settings.set("probes", Json::Array{Json("core"), Json("t_sim")}).set("contents", "");
    result.run.set("train", settings);
    const auto facts = training_page(result).facts;
    const auto value = [&](const std::string& name) {
        for (const auto& [key, text] : facts)
            if (key == name) return text;
        return std::string("none");
    };
    EXPECT_EQ(value("config"), "none");
    EXPECT_EQ(value("milestones"), "none");
    EXPECT_EQ(value("contents"), "none");
    EXPECT_EQ(value("steps"), "7");
    EXPECT_EQ(value("probes"), "core, t_sim");
}

/// A few steps have no trend, and jumps are not reported.
TEST(TrainingFindings, OfFewStepsLittleIsSaid) {
    TrainResult few = trained(falls);
    few.steps.resize(6);
    EXPECT_EQ(finding(few, "too few steps for a trend").level, Level::note);
    for (const Finding& f : training_page(few).findings)
        EXPECT_EQ(f.text.find("gradient"), std::string::npos) << f.text;
}

}  // namespace
}  // namespace tsdiag::test
