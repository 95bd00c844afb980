#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/devil/arena.hpp"
#include "experiments/devil/recipe.hpp"
#include "experiments/poly/moments.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"

/// Exact results, or independent measurements, for the experiments.
namespace tsdiag::test {
namespace {

ExperimentOptions with(std::map<std::string, std::string> readings,
                       ExperimentScale scale = ExperimentScale::tiny) {
    ExperimentOptions options;
    options.scale = scale;
    options.readings = std::move(readings);
    options.seed = 1;
    return options;
}

MetricRow row(const Table& table, std::string_view model, std::string_view metric,
              std::string_view stage, Index layer) {
    for (const MetricRow& r : table.metrics())
        if (r.metric == metric && r.at.stage == stage && r.at.layer == layer && r.at.head < 0 &&
            r.model.find(model) != std::string::npos)
            return r;
    ADD_FAILURE() << "no " << metric << " at " << stage << " of layer " << layer;
    return {};
}

CurveRow point(const Table& table, std::string_view curve, double x) {
    for (const CurveRow& r : table.curves())
        if (r.curve == curve && r.x == x) return r;
    ADD_FAILURE() << "no " << curve << " at " << x;
    return {};
}

/// The paper's encoder, with as many layers as the test needs.
std::map<std::string, std::string> paper_sizes(std::string layers, std::string trials) {
    return {{"layers", std::move(layers)},
            {"tokens", "64"},
            {"d", "512"},
            {"heads", "8"},
            {"ffn", "2048"},
            {"trials", std::move(trials)}};
}

TEST(TseFig2, TheFirstStepEscalatesByTwoWithVarianceOneOverD) {
    const RunResult result = perform(experiment("tse.fig2"), with(paper_sizes("1", "40")));
    const MetricRow ratio = row(result.table, "", "xi_ratio", "attn", 0);
    // three standard errors, and what mu1 and mu2 move the expectation by: (1 + 1.0024)/(1 + .0020)
    EXPECT_NEAR(*ratio.value, 2, 3 * *ratio.standard_error + 0.002);
    EXPECT_LT(*ratio.standard_error, 0.05);
}

TEST(TseFig2, OtherReadingsOfTheVarianceGiveTheirOwnRates) {
    // E[xi1]/E[xi2] = 1 + a2 up to mu2^2 a2, a2 = d Var(W_V)
    for (const auto& [reading, gain, slack] :
         {std::tuple{"h/d", 8.0, 0.2}, std::tuple{"torch", 1.0 / 3, 0.01}}) {
        auto sizes = paper_sizes("1", "20");
        sizes["var_v"] = reading;
        const RunResult result = perform(experiment("tse.fig2"), with(sizes));
        const MetricRow ratio = row(result.table, "", "xi_ratio", "attn", 0);
        EXPECT_NEAR(*ratio.value, 1 + gain, 3 * *ratio.standard_error + slack) << reading;
    }
}

TEST(TseFig2, SimilarityPassesPointNineNineInTheTwelfthBlock) {
    const RunResult result = perform(experiment("tse.fig2"), with(paper_sizes("12", "6")));
    EXPECT_LT(*row(result.table, "", "t_sim", "out", 10).value, 0.99);
    EXPECT_GT(*row(result.table, "", "t_sim", "out", 11).value, 0.99);
}

TEST(TseFig3, ManyTrialsStartFromOneState) {
    const RunResult result = perform(experiment("tse.fig3"), with({{"trials", "3"}}));
    EXPECT_EQ(*row(result.table, "", "t_sim", "in", 0).standard_error, 0);
    EXPECT_GT(*row(result.table, "", "r", "attn", 0).standard_error, 0);
    EXPECT_GT(*row(result.table, "", "t_sim", "in", 1).standard_error, 0);
}

TEST(TseFig5, TheStepMultipliesTheOddsByOneMinusTauSquared) {
    const RunResult result =
        perform(experiment("tse.fig5"), with({{"tau", "0.1,0.5"}, {"trials", "2"}}));
    for (const auto& [model, factor] : {std::pair{"deesc=0.1", 0.81}, std::pair{"deesc=0.5", 0.25}})
        for (const Index layer : {0, 1, 2})
            // float32 states: the ratio of two sums of 128 rounded squares
            EXPECT_NEAR(*row(result.table, model, "xi_ratio", "deesc", layer).value, factor,
                        1e-4 * factor);
}

TEST(LawPhase, ThresholdIsWhereTheStepUndoesItsBlock) {
    const RunResult result =
        perform(experiment("law.phase"), with({{"tau", "0.5"}, {"trials", "1"}}));
    const double product = *row(result.table, "", "xi_block", "out", 0).value;
    double steps = 1;
    for (const char* stage : {"attn", "norm1", "ffn", "norm2"})
        steps *= *row(result.table, "", "xi_ratio", stage, 0).value;
    EXPECT_CLOSE(product, steps, rounding(8));
    EXPECT_CLOSE(*row(result.table, "", "tau_star", "out", 0).value, 1 - 1 / std::sqrt(product),
                 rounding(8));
}

TEST(TseFig8, EtaHasTheSizeOfTheLawNearRankOne) {
    const RunResult result =
        perform(experiment("tse.fig8"),
                with({{"tokens", "100"}, {"d", "40"}, {"t", "0.01"}, {"trials", "2000"}}));
    const CurveRow square = point(result.table, "eta_square", 0.01);
    // 6/d to first order; terms of 1/d^2 are within a tenth of it at d = 40
    EXPECT_NEAR(*square.y, 6.0 / 40, 4 * *square.standard_error + 0.1 * 6 / 40);
}

TEST(TseFig8, SmallTIsNearRankOne) {
    // |Pi1 X|_F^2 = |v + t e^T Q|^2, about d (1 + t^2), of |X|_F^2, about d (1 + n t^2)
    const RunResult result =
        perform(experiment("tse.fig8"), with({{"tokens", "100"}, {"d", "40"}, {"t", "0.001,1"}}));
    EXPECT_GT(*point(result.table, "t_sim", 0.001).y, 0.999);
    EXPECT_NEAR(*point(result.table, "t_sim", 1).y, 2.0 / 101, 0.02);
}

/// A table in which eta varies more as t grows, and less as d does; or the reverse of both.
Table eta_table(bool as_the_paper_says) {
    Table all;
    for (const int d : {10, 40}) {
        Table one(fmt::format("d = {}", d));
        for (int trial = 0; trial < 20; ++trial)
            for (const double t : {0.1, 1.0}) {
                const double scatter = 0.001 * (trial % 5);
                const double size =
                    (as_the_paper_says ? t : 1 / t) * (as_the_paper_says ? 1.0 / d : d) + scatter;
                one.point({}, "eta", t, trial % 2 == 0 ? size : -size);
                one.point({}, "eta_square", t, size);
                one.point({}, "eta_square_growth", t,
                          t < 1 ? 0 : (as_the_paper_says ? 1 : -1) * (0.5 + scatter));
                one.point({}, "xi_expected", t, 2.0);
                one.point({}, "t_sim", t, 1 - t / 2);
            }
        all.append(one);
    }
    return all;
}

TEST(TseFig8, ComparisonsTurnWithTheirTable) {
    const ExperimentEntry& entry = experiment("tse.fig8");
    const ExperimentOptions options = with({{"d", "10,40"}, {"t", "0.1,1"}});
    for (const bool right : {true, false}) {
        const Study page = study(entry, RunResult{eta_table(right), {}}, options);
        int orders = 0;
        for (const Comparison& c : page.comparisons) {
            if (c.kind != Comparison::Kind::order) continue;
            ++orders;
            EXPECT_THAT(c.judgement, testing::StartsWith(right ? "found" : "the opposite order"))
                << c.what;
        }
        EXPECT_EQ(orders, 3);
    }
}

TEST(DevilTable2, OneRunNearAUnitRootDoesNotMakeThePage) {
    Table vanilla("vanilla");
    for (int trial = 0; trial < 6; ++trial) {  // 2^(11/6) = 3.56, the mean of ends is 12.3
        vanilla.scalar({}, "grad_rsd", 0.25 + 0.01 * trial);
        vanilla.scalar({}, "grad_rsd_reach", std::log10(trial == 0 ? 64.0 : 2.0));
    }
    const Study page =
        study(experiment("devil.table2"), RunResult{vanilla, {}}, with({{"trials", "6"}}));
    EXPECT_THAT(page.notes, testing::Contains(testing::HasSubstr("reaches up to 3.6 times")));
}

/// Checks that all orders are found in a table of these values of a metric, and their reverses in
/// one with opposite signs; there are `count`.
void expect_orders(std::string_view name, std::map<std::string, std::string> readings,
                   const std::vector<std::pair<std::string, double>>& values, std::size_t count,
                   std::string_view metric = "final_test_loss", const Place& at = {}) {
    const ExperimentOptions options = with(std::move(readings));
    for (const double sign : {1.0, -1.0}) {
        Table all;
        for (const auto& [model, value] : values) {
            Table one(model);
            for (int trial = 0; trial < 6; ++trial)  // seeds differ by far more than models
                experiment_list::KeepByTrial(one, trial)
                    .scalar(at, metric, 100.0 * trial + value * (sign + 1e-3 * trial));
            all.append(one);
        }
        const Study page = study(experiment(name), RunResult{all, {}}, options);
        std::size_t orders = 0;
        for (const Comparison& c : page.comparisons) {
            if (c.kind != Comparison::Kind::order) continue;
            ++orders;
            EXPECT_THAT(c.judgement, testing::StartsWith(sign > 0 ? "found" : "the opposite order"))
                << c.what;
        }
        EXPECT_EQ(orders, count);
    }
}

TEST(DevilTable1, ComparisonsTurnWithTheirTable) {
    expect_orders("devil.table1", {},
                  {{"1+elu", 0}, {"1+elu without its denominator", 1}, {"NormAttention", -1}}, 3);
}

TEST(DevilFigure2, JudgesTrainedModels) {
    expect_orders("devil.fig2a", {},
                  {{"linear, trained", 0}, {"softmax, trained", 1}, {"transnormer2, trained", 0.5}},
                  2, "local_auc_mean");
    expect_orders("devil.fig2b", {{"trained", "softmax,linear"}},
                  {{"linear, trained", 0}, {"softmax, trained", 1}}, 1, "row_max",
                  {.layer = 1, .stage = "attn"});
}

/// Nearer to vanilla's on either side.
TEST(DevilFigure2, ReadsSimilarPatternsAsEquallyLocal) {
    for (const double own : {0.5, 1.5, 2.5}) {
        Table all;
        for (const auto& [model, area] :
             {std::pair{"linear, trained", 0.0}, std::pair{"softmax, trained", 1.0},
              std::pair{"transnormer2, trained", own}}) {
            Table one(model);
            for (int trial = 0; trial < 6; ++trial)
                experiment_list::KeepByTrial(one, trial)
                    .scalar({.layer = 1, .stage = "attn"}, "local_auc", area * (1 + 1e-3 * trial));
            all.append(one);
        }
        std::size_t judged = 0;
        for (const Comparison& c :
             study(experiment("devil.fig2b"), RunResult{all, {}}, with({})).comparisons)
            if (c.what.starts_with("distance")) {
                ++judged;
                EXPECT_THAT(c.judgement,
                            testing::StartsWith(own < 2 ? "found" : "the opposite order"))
                    << own;
            }
        EXPECT_EQ(judged, 1U);
    }
}

TEST(DevilTable4, WindowsOfTransformerLsAreAQuarterOfTheText) {
    const ExperimentOptions options = with({}, ExperimentScale::paper);
    const ExperimentSetting setting(experiment("devil.table4"), options);
    EXPECT_EQ(setting.count("tokens"), 512);
    EXPECT_EQ(experiment_list::language_model(setting, "LS", true),
              "gpt2,attention=transformer_ls,segment=128");
}

TEST(DevilTable7, HasTheConfigurationThatThePaperNames) {
    const ExperimentOptions options = with({}, ExperimentScale::paper);
    const ExperimentSetting setting(experiment("devil.table7"), options);
    const auto of = [&](const char* label) {
        return experiment_list::arena_model_text(experiment_list::arena_sizes(setting, 64),
                                                 experiment_list::arena_model(label), 5120);
    };
    using testing::HasSubstr;
    EXPECT_THAT(of("Linformer"), HasSubstr("attention=linformer,length=128,shared=1,per_head=1"));
    EXPECT_THAT(of("Nystromformer"), HasSubstr("attention=nystrom,landmarks=128"));
    EXPECT_THAT(of("Performer"), HasSubstr("attention=performer,features=128"));
    EXPECT_THAT(of("FLASH"), HasSubstr("group=64"));
    EXPECT_THAT(of("Reformer"), HasSubstr("reformer,rounds=2,chunk=64,keys=rms,across=1,wrap=1,"
                                          "duplicates=1,buckets=power"));
}

/// At a scale where Table 7 and the trainings have smaller ones.
TEST(DevilFig1, TimesStepsOfThePapersSizes) {
    const RunResult figure =
        perform(experiment("devil.fig1"), with({{"steps", "10"}, {"trials", "1"}}));
    const RunResult table = perform(
        experiment("devil.table7"),
        with(
            {{"tokens", "128"}, {"features", "128"}, {"d", "64"}, {"glu", "85"}, {"trials", "1"}}));
    std::map<std::string, double> bytes;
    for (const CurveRow& row : table.table.curves())
        if (row.curve == "step_bytes") bytes[row.model] = row.y.value_or(0);
    std::size_t compared = 0;
    for (const CurveRow& row : figure.table.curves()) {
        if (row.curve != "step_bytes") continue;
        ++compared;
        EXPECT_EQ(row.x, 128);
        EXPECT_EQ(row.y.value_or(-1), bytes[row.model]) << row.model;
    }
    EXPECT_EQ(compared, 11U);
}

/// Of twice the tokens a step takes twice the bytes, but for the transformer and FLASH-quad.
TEST(DevilTable7, BytesGrowAsTheLength) {
    const RunResult result =
        perform(experiment("devil.table7"), with({{"tokens", "512,1024"}, {"trials", "1"}}));
    std::map<std::string, std::map<double, double>> bytes;
    for (const CurveRow& row : result.table.curves())
        if (row.curve == "step_bytes") bytes[row.model][row.x] = row.y.value_or(0);
    EXPECT_EQ(bytes.size(), 11U);
    for (const auto& [model, of] : bytes) {
        const double growth = of.at(1024) / of.at(512);
        if (model == "Transformer" || model == "FLASH-quad")
            EXPECT_GT(growth, 3) << model;
        else
            EXPECT_LT(growth, 2.5) << model;
    }
}

TEST(DevilTable7, ObeysTheDeviceAndNamesIt) {
    ExperimentOptions options = with({{"tokens", "64"}, {"trials", "1"}});
    options.device = "cpu";
    EXPECT_EQ(perform(experiment("devil.table7"), options).run["device"].string(), "cpu");
    options.device = "none";
    EXPECT_THROW(perform(experiment("devil.table7"), options), UsageError);
}

/// [DEVIL] 5.3 names 300 % in training; its Table 7 has 29.41 and 19.84, 10.16 and 2.92.
TEST(DevilTable7, JudgesTheSentenceByItsOwnTable) {
    const ExperimentOptions options = with({{"tokens", "64,128"}, {"trials", "1"}});
    const ExperimentEntry& entry = experiment("devil.table7");
    const Study page = study(entry, perform(entry, options), options);
    std::vector<Comparison> own;
    for (const Comparison& c : page.comparisons)
        if (c.what.ends_with("5K of [DEVIL] Table 7 itself")) own.push_back(c);
    ASSERT_EQ(own.size(), 2U);
    const auto expect = [](const Comparison& c, double first, double last, const char* judged) {
        EXPECT_NEAR(*c.measured, 100 * (last - 1), 1e-9) << c.what;  // terms of order 1000
        EXPECT_THAT(c.says, testing::EndsWith(fmt::format("{:.0f} %", 100 * (first - 1))));
        EXPECT_THAT(c.judgement, testing::StartsWith(judged)) << c.what;
    };
    expect(own[0], 119.05 / 44.64, 36.23 / 5.39, "above 150");
    expect(own[1], 29.41 / 19.84, 10.16 / 2.92, "below the bound");
}

/// Reformer has as many buckets as chunks, and Nystromformer's inverse does not follow n.
TEST(DevilTable7, SaysWhatGrowsAsTheSquareOfTheLength) {
    const ExperimentOptions options = with({{"tokens", "64,128"}, {"trials", "1"}});
    const ExperimentEntry& entry = experiment("devil.table7");
    EXPECT_THAT(study(entry, perform(entry, options), options).notes,
                testing::Contains(
                    testing::AllOf(testing::HasSubstr("hashes"), testing::HasSubstr("landmarks"))));
}

/// The values of the first trial are known from a run of its own.
TEST(DevilMixes, ComparesSeedBySeed) {
    const ExperimentEntry& entry = experiment("devil.mixes");
    const RunResult one =
        perform(entry, with({{"tables", "3,9,11"}, {"rate", "1e-2"}, {"trials", "1"}}));
    const RunResult two =
        perform(entry, with({{"tables", "3,9,11"}, {"rate", "1e-2"}, {"trials", "2"}}));
    using experiment_list::ByTrial, experiment_list::difference, experiment_list::mean_of;
    const experiment_list::Numbers of_one(one.table), of_two(two.table);
    for (const auto& [model, base] : {std::pair{"1+elu", "1+elu before vanilla"},
                                      std::pair{"T1, N before D", "T1, TransNormer"},
                                      std::pair{"T1, blocks of 4", "T1, TransNormer"}}) {
        const double first = *of_one.at(model, "final_test_loss", "", -1).value -
                             *of_one.at(base, "final_test_loss", "", -1).value;
        const ByTrial apart = difference(of_two.trials(model, "final_test_loss"),
                                         of_two.trials(base, "final_test_loss"));
        ASSERT_EQ(apart.size(), 2U);
        EXPECT_EQ(apart.at(0), first) << model;
        const experiment_list::Number mean = mean_of(apart);
        EXPECT_NEAR(*mean.value, (apart.at(0) + apart.at(1)) / 2, 1e-12);
        EXPECT_NEAR(*mean.error, std::abs(apart.at(0) - apart.at(1)) / 2, 1e-12);
        EXPECT_NE(apart.at(0), apart.at(1)) << model;
    }
}

TEST(DevilMixes, ComparisonsTurnWithTheirTable) {
    expect_orders("devil.mixes", {{"tables", "3,8,9,10,11,12"}},
                  {{"1+elu before vanilla", 0},
                   {"T1, TransNormer", 0},
                   {"1+elu", 1},
                   {"vanilla before 1+elu", -1},
                   {"T1, 0 D then 4 N", 1},
                   {"T1, 1 D then 3 N", 1},
                   {"T1, 3 D then 1 N", 1},
                   {"T1, 4 D then 0 N", 1},
                   {"T1, N before D", 1},
                   {"T1, plain FFN", 1},
                   {"T1, blocks of 1", 1},
                   {"T1, blocks of 4", -1},
                   {"T1, D and N in turns", 1},
                   {"T1, N and D in turns", 1},
                   {"T1, D beside N", -1}},
                  9);  // one is the order of all mixes of T1
}

TEST(DevilMixes, RefusesSizesThatQuartersDoNotDivide) {
    for (const auto& [key, value] :
         {std::pair{"layers", "6"}, std::pair{"tokens", "24"}, std::pair{"tables", "3,7"}})
        EXPECT_THROW(perform(experiment("devil.mixes"), with({{key, value}})), UsageError) << key;
}

/// [DEVIL] Tables 4 and 5 count 155.99 and 124.67 million; the head of masked training has 0.64.
TEST(DevilGlu, WidthsAreThoseThatThePapersCountsDecideFor) {
    using testing::HasSubstr;
    EXPECT_THAT(experiment_list::note_on_glu(true), HasSubstr("155.99 here with 1365 and 162.29"));
    EXPECT_THAT(experiment_list::note_on_glu(false), HasSubstr("with 1365 and 124.03 with 2048"));
}

TEST(DevilGlu, PagesWithATransNormerSayIt) {
    Table own("transnormer2, trained");
    own.scalar({.layer = 1, .stage = "attn"}, "local_auc", 1);
    const RunResult result{own, {}};
    for (const char* name : {"devil.fig2a", "devil.fig2b"})
        for (const char* trained : {"softmax,linear,transnormer2", "softmax,linear"}) {
            const auto says = testing::Contains(testing::HasSubstr("Table 13 gives GLUs"));
            const Study page = study(experiment(name), result, with({{"trained", trained}}));
            if (std::string_view(trained).ends_with("2"))
                EXPECT_THAT(page.notes, says) << name;
            else
                EXPECT_THAT(page.notes, testing::Not(says)) << name;
        }
}

TEST(DevilTable5, SaysWhichModelsHaveLearnedWhereTrialsCanTell) {
    const auto notes = [](const std::vector<double>& scores) {
        Table table("Vanilla");
        for (const double score : scores) table.scalar({}, "score", score);
        return study(experiment("devil.table5"), {table, {}}, with({})).notes;
    };
    using testing::Contains, testing::HasSubstr, testing::Not;
    EXPECT_THAT(notes({49, 50, 52}), Contains(HasSubstr("Of 1 model 0 are significantly above")));
    EXPECT_THAT(notes({49, 50, 52}), Contains(HasSubstr("none is seen to have learned")));
    EXPECT_THAT(notes({80, 81, 82}), Contains(HasSubstr("Of 1 model 1 is significantly above")));
    EXPECT_THAT(notes({80, 81, 82}), Not(Contains(HasSubstr("none is seen"))));
    EXPECT_THAT(notes({90}), Not(Contains(HasSubstr("significantly above")))) << "of one trial";
}

TEST(PolyTable4, ScalesBeginAtTheNThatThePaperStates) {
    const ExperimentEntry& entry = experiment("poly.table4");
    const ExperimentOptions paper = with({}, ExperimentScale::paper);
    EXPECT_EQ(ExperimentSetting(entry, paper).text("scale_n"), "512,1024,2048,4096,8192,1024");
    const auto loss_of = [&](const char* n) {
        const RunResult result = perform(
            entry, with({{"tasks", "gratings"}, {"scale_n", n}, {"trials", "1"}, {"d", "32"}}));
        EXPECT_NEAR(*row(result.table, "x^3 + dynamic scale", "learned_scale", "", -1).value, 0,
                    0.2);
        return *row(result.table, "x^3 + fixed scale", "final_loss", "", -1).value;
    };
    EXPECT_EQ(loss_of("1,1,1,1,1,16"), loss_of("tokens"));
    EXPECT_GT(std::abs(loss_of("1,1,1,1,1,2") - loss_of("tokens")), 1e-5);  // float32: 2e-7
    EXPECT_THROW(loss_of("1,2"), UsageError);
}

TEST(PolyFig2, DrawsEveryLayerAsFigures6And7Do) {
    const ExperimentOptions options = with({{"layers", "3"}, {"trials", "1"}});
    const ExperimentEntry& entry = experiment("poly.fig2");
    const Study page = study(entry, perform(entry, options), options);
    std::size_t all = 0;
    for (const Figure& f : page.figures)
        if (f.name.ends_with("_norm_all")) {
            ++all;
            EXPECT_EQ(f.panels.size(), 3U) << f.name;
        }
    EXPECT_EQ(all, 2U);
}

TEST(PolyMoments, AgreeWithTheirClosedFormsAtPowerOne) {
    // p = 1: E |S|_F^2 = v^2 N D (N D + 2), E |dS/dQ|_F^2 = v N D (N D + 2)
    using experiment_list::mean_squared_derivative;
    using experiment_list::mean_squared_norm;
    for (const double v : {0.3, 1.0})
        for (const double n : {1.0, 4.0, 7.0}) {
            const experiment_list::PowerLaw law{.N = n, .D = 3, .d = 2, .variance = v, .p = 1};
            const double pairs = n * 3 * (n * 3 + 2);
            EXPECT_CLOSE(mean_squared_norm(law), v * v * pairs, rounding(8));
            EXPECT_CLOSE(mean_squared_derivative(law), v * pairs, rounding(8));
        }
}

TEST(PolyMoments, OfScalarsArePowersOfNormals) {
    // N = D = d = 1: S = x^2 q k, E S^2p = (4p-1)!! (2p-1)!!^2
    const experiment_list::PowerLaw law{.p = 2};
    EXPECT_CLOSE(experiment_list::mean_squared_norm(law), 105.0 * 9, rounding(8));
    // dS^2/dq = 2 S x^2 k: 4 E x^8 q^2 k^4 = 4 * 105 * 1 * 3
    EXPECT_CLOSE(experiment_list::mean_squared_derivative(law), 4 * 105.0 * 3, rounding(8));
}

TEST(PolyFrobenius, MeasuredSquaresMeetTheExactMoments) {
    const RunResult result =
        perform(experiment("poly.frobenius"),
                with({{"tokens", "4"}, {"D", "3"}, {"d", "2"}, {"p", "1"}, {"trials", "20000"}}));
    const experiment_list::PowerLaw law{.N = 4, .D = 3, .d = 2, .variance = 1, .p = 1};
    const CurveRow norm = point(result.table, "fro2_p1", 4),
                   by_q = point(result.table, "dq2_p1", 4);
    EXPECT_NEAR(*norm.y, mean_squared_norm(law), 4 * *norm.standard_error);
    EXPECT_NEAR(*by_q.y, mean_squared_derivative(law), 4 * *by_q.standard_error);
    EXPECT_LT(*norm.standard_error, 0.03 * mean_squared_norm(law));
}

TEST(DevilSec3, LinearGradientsGrowAsTheScoresShrinkAndTheOthersAreBounded) {
    const RunResult result =
        perform(experiment("devil.sec3"), with({{"scales", "1,1e-2,1e-8"}, {"eps", "1e-4"}}));
    const auto y = [&](const char* curve, double x) { return *point(result.table, curve, x).y; };
    EXPECT_CLOSE(y("dl_linear", 1e-2), 100 * y("dl_linear", 1), rounding(64));
    for (const double c : {1.0, 1e-2, 1e-8}) {
        EXPECT_LE(y("dp_softmax", c), 0.25 * (1 + 1e-12));
        EXPECT_LE(y("dl_softmax", c), 0.5 * (1 + 1e-12));
        EXPECT_LE(y("dl_norm", c), 100 * (1 + 1e-12));  // 1/sqrt(eps)
        EXPECT_LE(y("dp_linear", c), y("dp_linear_bound", c));
    }
}

TEST(LawLambda2, FollowsItsLawWithinTenPerCent) {
    const RunResult result =
        perform(experiment("law.lambda2"),
                with({{"tokens", "64"}, {"d", "128"}, {"heads", "4"}, {"trials", "10"}}));
    const double law = std::sqrt(1.0 / 64 + 1.0 / 128) / 3;
    EXPECT_NEAR(*point(result.table, "lambda2_abs", 64).y, law, 0.1 * law);
}

}  // namespace
}  // namespace tsdiag::test
