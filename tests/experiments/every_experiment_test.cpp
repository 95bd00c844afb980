#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <tuple>

#include "support/files.hpp"
#include "support/places.hpp"
#include "support/units.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"

/// Laws for the list of experiments, at tiny scale: a new one is tested without further code.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class EveryExperiment : public testing::TestWithParam<const ExperimentEntry*> {
  protected:
    static const ExperimentEntry& entry() { return *GetParam(); }
    static ExperimentOptions tiny(std::uint64_t seed = 3) {
        ExperimentOptions options;
        options.scale = ExperimentScale::tiny;
        options.seed = seed;
        return options;
    }
    static Findings findings(const RunResult& result, const ExperimentOptions& options) {
        return entry().find(result.table, ExperimentSetting(entry(), options));
    }
};

std::string csv(const Table& table) {
    std::string text = metrics_csv(table.metrics()) + curves_csv(table.curves());
    for (const Map& map : table.maps())
        for (const double v : map.values) text += shortest(v) + ' ';
    return text;
}

bool drawn(const Series& s) {
    return std::ranges::any_of(s.y, [](const auto& y) { return y.has_value(); });
}

void expect_valid(const Figure& f) {
    EXPECT_THAT(f.name, testing::MatchesRegex("[a-z0-9_]+"));
    EXPECT_THAT(f.title, Not(IsEmpty()));
    EXPECT_GT(f.caption.size(), 40u) << f.name;
    EXPECT_THAT(f.alt, testing::ContainsRegex("[0-9]")) << f.name;
    ASSERT_FALSE(f.panels.empty()) << f.name;
    for (const Plot& p : f.panels) {
        EXPECT_THAT(p.title, Not(IsEmpty())) << f.name;
        EXPECT_NE(p.series.empty(), !p.grid.has_value()) << f.name << ": lines or a grid";
        for (const Series& s : p.series) {
            EXPECT_EQ(s.x.size(), s.y.size()) << f.name << ", " << s.name;
            EXPECT_EQ(s.low.size(), s.high.size()) << f.name << ", " << s.name;
            EXPECT_TRUE(s.low.empty() || s.low.size() == s.y.size()) << f.name << ", " << s.name;
            EXPECT_TRUE(drawn(s)) << f.name << ": nothing of '" << s.name << "' in the table";
        }
        if (p.grid) {
            EXPECT_EQ(std::size_t(p.grid->rows * p.grid->cols), p.grid->values.size()) << f.name;
        }
    }
}

void expect_comparisons(const std::vector<Comparison>& comparisons) {
    ASSERT_FALSE(comparisons.empty());
    for (const Comparison& c : comparisons) {
        EXPECT_THAT(c.what, Not(IsEmpty()));
        EXPECT_THAT(c.says, Not(IsEmpty())) << c.what;
        EXPECT_NE(c.unknown, "not in the table") << c.what;
        if (c.measured)
            EXPECT_GT(c.count, 0) << c.what;
        else
            EXPECT_THAT(c.unknown, Not(IsEmpty())) << c.what;
        if (c.measured && c.count > 1) {
            EXPECT_TRUE(c.error || c.probability) << c.what;
        }
        const bool roughly = std::ranges::any_of(
            std::array{"about 1", "around ", "nearly ", "close to "},
            [&](const char* word) { return c.says.find(word) != std::string::npos; });
        if (roughly && c.expected && c.kind == Comparison::Kind::equal) {
            EXPECT_GT(c.resolution, 0) << c.what << ": " << c.says;
        }
    }
}

void expect_page(const Study& page, const RunResult& result) {
    TemporaryDirectory folder;
    write_tables(result, folder.path());
    write_study(page, result.table, result.run, folder.path());
    std::ifstream in(folder / "report.html", std::ios::binary);
    const std::string html{std::istreambuf_iterator<char>(in), {}};
    const auto has = [&](const std::string& text) { return html.find(text) != std::string::npos; };
    EXPECT_TRUE(has("The claim"));
    EXPECT_TRUE(has("standard error"));
    EXPECT_TRUE(has("default-src 'none'")) << "the page needs no network";
    for (const Figure& f : page.figures) EXPECT_TRUE(has("id=\"" + f.name + "\"")) << f.name;
}

/// One run, for it is most of the time: its table has what its figures need, every comparison is a
/// number with its trials or says why not, its page sets the claim beside the numbers, and is made
/// again from what run.json tells.
TEST_P(EveryExperiment, RunsAndItsPageHasWhatItsTableTells) {
    ExperimentOptions options = tiny();
    options.readings["trials"] = "3";  // another number than at this scale
    if (entry().name == "devil.fig2b") options.readings = {{"layer", "0"}};
    const RunResult result = perform(entry(), options);
    EXPECT_FALSE(result.table.metrics().empty() && result.table.curves().empty());
    for (const char* key : {"experiment", "seed", "threads", "setting", "phases"})
        EXPECT_TRUE(result.run.contains(key)) << key;

    const Findings found = findings(result, options);
    ASSERT_FALSE(found.figures.empty());
    std::set<std::string> names;
    for (const Figure& f : found.figures) {
        EXPECT_TRUE(names.insert(f.name).second) << f.name;
        expect_valid(f);
    }
    expect_comparisons(found.comparisons);
    std::vector<std::string> texts = found.notes;
    for (const std::string_view text : {entry().claim, entry().method, entry().table})
        texts.emplace_back(text);
    EXPECT_THAT(texts, testing::Each(Not(HasSubstr("  ")))) << "two spaces";

    const Study page = study(entry(), result, options);
    expect_page(page, result);
    for (const Figure& f : page.figures)
        EXPECT_EQ(f.caption.find("Bands: 95 % intervals") != std::string::npos, shows_bands(f))
            << f.name;

    const ExperimentOptions recorded = recorded_options(Json::parse(result.run.dump(), "run.json"));
    EXPECT_EQ(recorded.seed, options.seed);
    const Study again = study(entry(), result, recorded);
    ASSERT_EQ(page.figures.size(), again.figures.size());
    for (std::size_t i = 0; i < page.figures.size(); ++i)
        EXPECT_EQ(page.figures[i].alt, again.figures[i].alt);
    EXPECT_EQ(page.comparisons.size(), again.comparisons.size());
}

TEST_P(EveryExperiment, TheSameSeedGivesTheSameTableOnAnyNumberOfThreads) {
    if (entry().timed) GTEST_SKIP() << "measures the machine";
    const int before = omp_get_max_threads();
    std::set<std::string> tables;
    for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        tables.insert(csv(perform(entry(), tiny()).table));
    }
    omp_set_num_threads(before);
    EXPECT_EQ(tables.size(), 1u);
    EXPECT_EQ(tables.count(csv(perform(entry(), tiny(4)).table)), 0u) << "the seed does nothing";
}

TEST_P(EveryExperiment, IsTheSameFromTheUnitsOfSeveralProcesses) {
    if (entry().timed) GTEST_SKIP() << "measures the machine";
    ExperimentOptions options = tiny();
    const std::string alone = csv(perform(entry(), options).table);
    KeptUnits kept;
    constexpr Index parts = 3;
    for (Index part = parts; part >= 1; --part) {
        OnePart units(kept, part, parts);
        options.units = &units;
        const std::size_t before = kept.size();
        perform(entry(), options);
        EXPECT_EQ(Index(kept.size() - before), units.computed) << "a unit was computed twice";
    }
    OnePart all(kept);
    options.units = &all;
    EXPECT_TRUE(csv(perform(entry(), options).table) == alone);
    EXPECT_EQ(all.computed, 0) << "units of no part";
    EXPECT_GT(kept.size(), 1u) << "it is not split";
}

TEST_P(EveryExperiment, KeysAreValidAtEveryScaleAndDescribed) {
    for (const ExperimentScale scale :
         {ExperimentScale::tiny, ExperimentScale::quick, ExperimentScale::paper}) {
        ExperimentOptions options;
        options.scale = scale;
        for (const ExperimentKey& key : entry().keys)  // only given values are checked
            options.readings[std::string(key.name)] = scale == ExperimentScale::tiny    ? key.tiny
                                                      : scale == ExperimentScale::quick ? key.quick
                                                                                        : key.paper;
        EXPECT_NO_THROW(ExperimentSetting(entry(), options));
    }
    for (const ExperimentKey& key : entry().keys) {
        EXPECT_THAT(std::string(key.description), Not(IsEmpty())) << key.name;
        EXPECT_TRUE(key.numbers || !key.words.empty()) << key.name;
    }
    EXPECT_GT(entry().claim.size(), 40u);
    EXPECT_GT(entry().method.size(), 40u);
    EXPECT_GT(entry().table.size(), 20u);
}

TEST_P(EveryExperiment, RefusesWhatItDoesNotKnowInOneSentence) {
    ExperimentOptions unknown = tiny();
    unknown.readings["trial"] = "3";
    try {
        perform(entry(), unknown);
        FAIL() << "an unknown reading was taken";
    } catch (const UsageError& e) {
        EXPECT_THAT(e.what(), HasSubstr("there is no reading 'trial'"));
        EXPECT_THAT(e.what(), HasSubstr(entry().name));
    }
    for (const ExperimentKey& key : entry().keys)
        for (const char* wrong : {"", "-1", "nan", "many", "1e9"}) {
            ExperimentOptions options = tiny();
            options.readings[std::string(key.name)] = wrong;
            EXPECT_THROW(ExperimentSetting(entry(), options), UsageError)
                << key.name << "=" << wrong;
        }
}

std::string test_name(const testing::TestParamInfo<const ExperimentEntry*>& info) {
    std::string name(info.param->name);
    std::ranges::replace(name, '.', '_');
    return name;
}
INSTANTIATE_TEST_SUITE_P(Experiments, EveryExperiment,
                         testing::ValuesIn(experiments().begin(), experiments().end()), test_name);

TEST(ExperimentList, NamesAreUniqueAndANearMissIsSuggested) {
    std::set<std::string_view> names;
    for (const ExperimentEntry* entry : experiments())
        EXPECT_TRUE(names.insert(entry->name).second);
    EXPECT_THROW(
        {
            try {
                experiment("tse.fig33");
            } catch (const UsageError& e) {
                EXPECT_THAT(e.what(), HasSubstr("did you mean tse.fig3?"));
                throw;
            }
        },
        UsageError);
}

TEST(ExperimentList, PrefixesStandForAllThatBeginSo) {
    const auto names = [](const std::vector<std::string>& words) {
        std::vector<std::string_view> out;
        for (const ExperimentEntry* entry : resolve_experiments(words)) out.push_back(entry->name);
        return out;
    };
    EXPECT_EQ(names({}).size(), experiments().size());
    EXPECT_THAT(names({"tse.fig2", "devil.fig2", "devil.fig2b"}),
                testing::ElementsAre("tse.fig2", "devil.fig2a", "devil.fig2b"));
    EXPECT_EQ(names({"poly"}), names({"poly."}));
    EXPECT_THROW(names({"pol"}), UsageError);
    EXPECT_THROW(names({"tse.fig33"}), UsageError);
}

TEST(ExperimentList, TheDocumentIsWrittenFromIt) {
    const std::string file = test_data() + "/../../docs/experiments.md";
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << experiments_markdown();
    std::ifstream in(file);
    const std::string document{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(document, experiments_markdown())
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write docs/experiments.md anew";
}

TEST(Papers, TheDocumentIsWrittenFromTheList) {
    const std::string file = test_data() + "/../../docs/papers.md";
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << papers_markdown();
    std::ifstream in(file);
    const std::string document{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(document, papers_markdown())
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write docs/papers.md anew";
}

TEST(Papers, EveryDisplayHasAnExperimentThatNamesItOrAReason) {
    std::set<std::string> used;
    for (const PaperDisplay& d : paper_displays()) {
        EXPECT_FALSE(d.experiment.empty() && d.note.empty()) << d.paper << " " << d.name;
        if (d.experiment.empty()) continue;
        const ExperimentEntry& entry = experiment(d.experiment);
        used.emplace(entry.name);
        EXPECT_THAT(std::string(entry.source), HasSubstr(std::string(d.paper))) << d.name;
    }
    for (const ExperimentEntry* entry : experiments()) {
        const bool display = entry->source.find("Figure") != std::string_view::npos ||
                             entry->source.find("Table") != std::string_view::npos;
        EXPECT_EQ(used.contains(std::string(entry->name)), display) << entry->name;
    }
}

TEST(Papers, EveryNumberedFigureAndTableIsListed) {
    for (const auto& [paper, figures, tables] :
         {std::tuple{"[TSE]", 8, 1}, std::tuple{"[DEVIL]", 3, 13}, std::tuple{"[POLY]", 7, 6}})
        for (const auto& [kind, count] :
             {std::pair{"Figure", figures}, std::pair{"Table", tables}}) {
            int last = 0;  // in order, without gaps
            for (const PaperDisplay& d : paper_displays()) {
                if (d.paper != paper || !d.name.starts_with(kind)) continue;
                const int number = std::stoi(std::string(d.name.substr(d.name.find(' '))));
                EXPECT_TRUE(number == last || number == last + 1) << paper << " " << d.name;
                last = number;
            }
            EXPECT_EQ(last, count) << paper << " " << kind;
        }
}

/// The captions of the papers themselves, if they are present beside the tree.
TEST(Papers, HaveNoOtherCaptions) {
    for (const auto& [paper, file] :
         {std::pair{"[TSE]", "tse.txt"}, std::pair{"[DEVIL]", "devil.txt"},
          std::pair{"[POLY]", "poly.txt"}}) {
        std::ifstream text(shared_data() + "/../papers/" + file);
        if (!text) GTEST_SKIP() << "no papers";
        for (std::string line; std::getline(text, line);) {
            std::smatch found;
            if (!std::regex_search(line, found, std::regex("^(Figure|Table) ([0-9]+)[.:]")))
                continue;
            const std::string name = found[1].str() + " " + found[2].str();
            EXPECT_TRUE(std::ranges::any_of(
                paper_displays(),
                [&](const PaperDisplay& d) {
                    return d.paper == paper && (d.name == name || d.name.starts_with(name + " "));
                }))
                << paper << " " << name;
        }
    }
}

TEST(ExperimentModel, IsRefusedWhereNoneIsTaken) {
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    options.model = "examples/char-gpt";
    EXPECT_THROW(perform(experiment("tse.fig2"), options), UsageError);
}

}  // namespace
}  // namespace tsdiag::test
