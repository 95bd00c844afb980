#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tsdiag/run_record.hpp"

/// Comparison of results.
///
///     const Changes found = compare(results);
///     found.significant, found.tested, found.differences.front()
namespace tsdiag {

/// Rows of one model at one step, with the description of their run.
struct MeasuredResult {
    std::string name;                  ///< as the user wrote it
    std::vector<MetricRow> rows = {};  ///< `at.step` is -1
    RunRecord run = {};
    Index step = -1;      ///< which step the rows are of; -1: there are no steps
    bool chosen = false;  ///< the user chose the step; else it is the last
    Index layers = 0;     ///< one more than the greatest layer, before a part was taken

    /// What was measured: of a series of checkpoints that of the step.
    std::string model() const;
};

/// The part of a result that is compared.
struct ResultPart {
    std::optional<Index> step = {};              ///< none: the last
    std::optional<Index> layer = {}, head = {};  ///< their rows lose that index
    bool last_layer = false;                     ///< the layer is the last one
    bool whole() const { return !layer && !last_layer && !head; }
};
/// "@STEP", ":LAYER", ":LAYER.HEAD" or "@STEP:LAYER.HEAD"; LAYER is a number or `last`.  Throws
/// `UsageError` that quotes `argument`.
ResultPart parse_part(const std::string& suffix, const std::string& argument);
/// The rows of `part`.  Throws `FormatError` naming `name` where there is none, where rows are of
/// several models, where two rows have one place, or where a number is no statistic (a negative
/// standard error or count, bounds out of order).
MeasuredResult select(std::string name, std::vector<MetricRow> rows, RunRecord run,
                      const ResultPart& part);

/// Which rows are compared; empty: all, of heads only where they are asked for.
struct RowChoice {
    Index first_layer = 0, last_layer = -1;  ///< inclusive; -1: to the end
    bool layers = false;                     ///< only rows of these layers
    std::vector<Index> heads = {};           ///< these heads' rows instead of those without a head
    bool all_heads = false;
    std::vector<std::string> metrics = {};
};

/// Whether the samples of two results are independent.  They are where both inputs were drawn, from
/// different seeds; otherwise they may be the same.
enum class Samples { shared, independent };
Samples samples_of(const RunRecord& a, const RunRecord& b);

/// b - a of one metric at one place.
struct Difference {
    enum class Outcome {
        significant,  ///< beyond scatter, with the false-discovery rate controlled
        scatter,      ///< not told apart from scatter
        untested,     ///< no scatter is known: the difference is that of these samples
        equal,        ///< not more than rounding: untested, or of the same samples with p = 1
        undefined     ///< one of the numbers is none; `note` says why
    };
    std::size_t result = 1;  ///< b is results[result], a is results[0]
    Place at = {};
    std::string metric = {};
    std::optional<double> a = {}, b = {}, difference = {};
    Index count_a = 0, count_b = 0;  ///< samples
    Index pairs = 0, rises = 0;      ///< of samples, or trials; 0: none; those where b > a
    std::optional<double> error = {}, freedom = {};  ///< standard error of b - a
    std::optional<double> low = {}, high = {};       ///< see `Changes::interval_confidence`
    std::optional<double> probability = {};          ///< p-value of a difference of 0
    Outcome outcome = Outcome::undefined;
    std::string note = {};

    /// "t_sim@out:5", "delta@attn:3.2", "grad_norm:1 attn.q.weight", as assertions name numbers.
    std::string where() const;
    /// |b - a| / max(|a|, |b|), in [0, 2]; 0 where both are 0.
    double relative() const;
};
std::string_view name(Difference::Outcome outcome);

struct ComparisonOptions {
    double rate = 0.05;        ///< the false-discovery rate
    double resolution = 1e-6;  ///< relative: numbers that differ by less are equal
    RowChoice choice = {};
};

struct Changes {
    std::vector<std::string> names;  ///< of the results
    Index layers = 0;                ///< of each result; 0: they differ, or parts are compared
    std::vector<Difference>
        differences;  ///< the surest first, then untested ones by size, the rest
    std::size_t tested = 0, significant = 0, untested = 0, equal = 0, undefined = 0;
    std::size_t paired = 0, independent = 0;  ///< of those tested: pairs; Welch's test
    /// Of each interval of a difference; an interval excludes 0 where the difference is
    /// significant.
    double interval_confidence = 0.95;
    std::size_t only_in_one = 0;     ///< rows without a counterpart
    std::vector<std::string> notes;  ///< what else differs than the model; worst first
    double rate = 0.05;
    bool same_inputs = true;  ///< by their digests, of results whose samples may be shared
};

/// Compares every later result with the first: rows of equal place and metric.
///
/// Where the inputs have one digest and the rows hold their samples, the t-test of the differences
/// by sample; of several trials that of their means, for samples of one trial share its weights.
/// Otherwise a result holds means and standard errors s, so pairs cannot be formed.  Where the
/// samples may be shared, the standard error of the mean difference of pairs is at most s_a + s_b
/// (the triangle inequality of standard deviations).  This bound is used, with the smaller number
/// of degrees of freedom: a difference that is significant here is so in the paired t-test, too,
/// whatever the correlation.  Independent samples: Welch's test.  Where an iterative number is
/// known to an interval only, the least difference that it admits is tested.
///
/// All tests together: the step-up procedure of [BY], whose false-discovery rate is at most `rate`
/// under any dependence (the metrics of one run depend on each other, in either direction).
/// Intervals have the confidence 1 - R rate / (m c(m)) of [BY-INTERVALS], R of m tests being
/// significant (at least 1), c(m) = 1 + 1/2 + ... + 1/m: of the significant ones the expected share
/// that misses its difference is at most `rate`.
///
/// Cost: O(rows log rows).  Throws `FormatError` where the results have no row in common, and
/// naming the metric where one is defined otherwise in the two run.json; `UsageError` below two
/// results.
Changes compare(std::span<const MeasuredResult> results, const ComparisonOptions& options = {});

/// The outcome of a step-up procedure: hypotheses with p <= threshold are rejected.
struct Discoveries {
    std::size_t count = 0;
    double threshold = 0;  ///< max(count, 1) rate / (m c(m)); `rate` without a hypothesis
};
/// The procedure of [BY] on p-values: the greatest k with p_(k) <= k rate / (m c(m)).  The expected
/// share of true hypotheses among the rejected ones is at most `rate`, under any dependence.
Discoveries discoveries(std::span<const double> probabilities, double rate);

/// What becomes of the tokens, then how many numbers changed; without t_sim the surest change.
std::string headline(const Changes& comparison);
/// How it was found, and what the numbers rest on.
std::vector<std::string> remarks(const Changes& comparison);

/// "A", "B", ... of the i-th result.
std::string letter(std::size_t i);
constexpr std::size_t most_results = 26;

/// compare.csv: one row a difference, `result` and `against` as the user wrote them.
std::string comparison_csv(const Changes& comparison, std::span<const MeasuredResult> results);
/// For the description of a comparison, and for `--json`.
RunRecord::Comparison comparison_record(const Changes& comparison);

}  // namespace tsdiag
