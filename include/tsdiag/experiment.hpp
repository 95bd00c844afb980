#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/report.hpp"
#include "tsdiag/run.hpp"

/// The figures of the papers, and some beyond them, as experiments.
///
///     ExperimentOptions options;
///     options.scale = ExperimentScale::quick;
///     const ExperimentEntry& fig2 = experiment("tse.fig2");
///     RunResult result = perform(fig2, options);
///     write_tables(result, "out");
///     write_study(study(fig2, result, options), result.table, result.run, "out");
namespace tsdiag {

enum class ExperimentScale { tiny, quick, paper };  ///< tiny: for tests, no conclusion holds

/// A size or a reading of an experiment, with its value at each scale.
struct ExperimentKey {
    std::string_view name;  ///< "var_v"
    std::string_view tiny, quick, paper;
    std::string_view description;
    std::string_view words = {};  ///< "1/d h/d xavier torch"; empty: numbers only
    bool numbers = true;          ///< a number may be given
    bool whole = true;            ///< and must be a whole one
    bool list = false;            ///< several values, separated by commas
    double least = 1, most = 1e5;
};

struct ExperimentOptions {
    ExperimentScale scale = ExperimentScale::quick;
    std::map<std::string, std::string> readings;  ///< keys that were given
    std::uint64_t seed = 0;
    std::string model;  ///< a checkpoint, for experiments that take one; empty: drawn models
    std::string device = "auto";
    std::string data;  ///< for those that train, as `TrainOptions::data`; empty: what they draw
    std::function<void(const Progress&)> progress = {};
    Units* units = nullptr;  ///< of its trials, computed by several processes or kept; null: none
};

struct ExperimentEntry;

/// The keys of an experiment, as the scale and the user set them.
class ExperimentSetting {
  public:
    /// Throws `UsageError` for an unknown key (suggests the nearest) or an invalid value.
    ExperimentSetting(const ExperimentEntry& entry, const ExperimentOptions& options);
    const std::string& text(std::string_view key) const;
    Index count(std::string_view key) const;
    double number(std::string_view key) const;
    std::vector<std::string> list(std::string_view key) const;
    std::vector<Index> counts(std::string_view key) const;
    std::vector<double> numbers(std::string_view key) const;
    std::uint64_t seed() const { return options_.seed; }
    const std::string& model() const { return options_.model; }
    const std::string& device() const { return options_.device; }
    const std::string& data() const { return options_.data; }
    const std::function<void(const Progress&)>& progress() const { return options_.progress; }
    Units* units() const { return options_.units; }
    const ExperimentEntry& entry() const { return entry_; }
    RunRecord::Setting described() const;

  private:
    const ExperimentEntry& entry_;
    const ExperimentOptions& options_;
    std::map<std::string, std::string, std::less<>> values_;
};

/// Figures and comparisons with the paper, from the table and the setting alone.
struct Findings {
    std::vector<Figure> figures = {};
    std::vector<Comparison> comparisons = {};
    std::vector<std::string> notes = {};
};

/// An experiment: one line in the list.
struct ExperimentEntry {
    std::string_view name;    ///< "tse.fig2"
    std::string_view title;   ///< one line
    std::string_view source;  ///< "[TSE] Figure 2"
    std::string_view claim;   ///< what the source says of it
    std::string_view method;  ///< what is done here, and how it differs
    std::string_view table;   ///< the metrics and curves that it writes, each with its meaning
    std::span<const ExperimentKey> keys;
    bool takes_model = false;
    bool takes_data = false;
    bool timed = false;    ///< measures this machine: the table is not reproducible
    bool on_host = false;  ///< is computed by the processor, whatever the device
    RunResult (*measure)(const ExperimentSetting& setting);
    Findings (*find)(const Table& table, const ExperimentSetting& setting);
};
std::span<const ExperimentEntry* const> experiments();
/// Throws `UsageError` suggesting the nearest name.
const ExperimentEntry& experiment(std::string_view name);
/// Names, or prefixes ("tse", "poly.fig": `named_by`), each experiment once, in the order in which
/// they are named; empty: all.  Throws as `experiment` does.
std::vector<const ExperimentEntry*> resolve_experiments(std::span<const std::string> words);

/// Measures.  The same options give the same table, bit for bit, on the same machine with any
/// number of threads.  `run` of the result holds `experiment`, `seed`, `threads`, `setting`,
/// `phases` and, where models were run, `runs`.
RunResult perform(const ExperimentEntry& entry, const ExperimentOptions& options);
/// The options recorded in a run.json, to regenerate the page from the tables.
ExperimentOptions recorded_options(const RunRecord& run);
/// Judges each comparison by its trials: Student's t with `freedom` degrees, one-sided for a bound.
/// A likeness is found by two one-sided tests within its margin.  Comparisons with a number are one
/// family, orders and likenesses another; the family-wise error rate of each is at most 5 % (Holm).
/// A claim on several numbers (`chosen_from`) is found where its least certain one is significant,
/// and contradicted where one of them is, by Bonferroni's correction.
/// `seen`: the distance told with a probability of 80 %, as the first of its family in Holm's
/// order. Fewer than three trials decide nothing, and trials of equal value an order or a likeness
/// by their number alone.
void judge(std::span<Comparison> comparisons);
/// How many of the judged claims are contradicted, found, consistent and open, and about how many
/// trials would decide half of the open ones.
std::string outcome_of(std::span<const Comparison> comparisons);
/// The page of a result, judged; the caption of a figure with bands says what they are.
Study study(const ExperimentEntry& entry, const RunResult& result,
            const ExperimentOptions& options);
/// docs/experiments.md: every experiment with its claim, method, keys and columns.
std::string experiments_markdown();

/// A figure or table of a paper, and what makes it.
struct PaperDisplay {
    std::string_view paper, name;      ///< "[TSE]", "Figure 1"
    std::string_view title;            ///< what it shows
    std::string_view experiment = {};  ///< empty: none, and `note` says why
    std::string_view note = {};
};
/// In the order of the papers.
std::span<const PaperDisplay> paper_displays();
/// docs/papers.md.
std::string papers_markdown();

}  // namespace tsdiag
