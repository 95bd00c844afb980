#pragma once
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/json.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/table.hpp"

/// Statements of the papers, examined by measurement.  A verdict is computed from what was
/// measured; nothing in a claim says what it should be.
namespace tsdiag {

/// How entries are drawn.  The first three have the variance that a statement requires; the others
/// have their own: torch.nn.Linear's U(-1/sqrt(d), 1/sqrt(d)), and Xavier's uniform of variance
/// 2/(fan_in + fan_out).
enum class Distribution { gaussian, uniform, rademacher, torch, xavier };
std::string_view name(Distribution distribution);
std::span<const Distribution> distributions();
/// Throws `UsageError` with the nearest name.
Distribution distribution(const std::string& word);

/// The user's settings; 0 and empty: the claim's defaults.
struct CheckSettings {
    Index trials = 0;
    Index n = 0, d = 0, heads = 0;
    std::uint64_t seed = 0;
    Distribution distribution = Distribution::gaussian;
    double confidence = 0.95;
    std::vector<Index> range = {};   ///< sizes N of an exponent, ascending, three at least
    std::optional<Index> only = {};  ///< this trial alone: repeats that of a `Replay`
    Index climbs = 24;               ///< of each search for a counterexample, from draws
    bool mutated = false;            ///< each reading against its mutant: what holds must fail
};

struct Check;

/// Seconds that an examination takes, and at most, where means stay undecided.
struct Effort {
    double seconds = 0, most = 0;
};

/// A condition of a statement on the distribution of entries and the sizes.
struct Hypothesis {
    std::string_view name;  ///< "normal entries"
    /// Why `how` does not meet it: "--dist uniform draws others"; empty where it does.
    std::string (*unmet)(const Check& how);
};
/// Those of a claim, null after the last.
using Hypotheses = std::array<const Hypothesis*, 4>;

/// Settings of one examination, all sizes resolved.
struct Check {
    Index trials = 0, n = 0, d = 0, heads = 1;
    Index looks = 1;  ///< interim analyses of undecided means, each with four times the trials
    bool sizes_chosen = false;  ///< by the user: searches stay at them
    Distribution distribution = Distribution::gaussian;
    double confidence = 0.95;
    std::vector<Index> range = {};
    std::optional<Index> only = {};
    Index climbs = 24;  ///< of each search
    std::uint64_t seed = 0;
    std::string claim = {};       ///< its name, for messages and streams
    Hypotheses hypotheses = {};   ///< of the claim: default of each reading
    bool mutated = false;         ///< each reading against its mutant, a test of the test
    Effort* rehearsal = nullptr;  ///< only estimates the time; nothing is examined
    Rng rng{0};                   ///< of this claim: trial t of a part is rng.fork(part).fork(t)
    /// Confidence level of the deciding intervals, so that all random comparisons of an examination
    /// hold jointly with `confidence`: there are fewer than a hundred readings, each with `looks`
    /// interim analyses.
    double look_confidence() const { return 1 - (1 - confidence) / (100 * double(looks)); }
};

/// `holds`: not broken by these draws and this search, which is no proof.
enum class Verdict {
    holds,
    false_as_stated,
    holds_asymptotically,
    ambiguous,
    not_decided,
    hypothesis_not_met  ///< the draws do not satisfy the hypotheses of the statement
};
std::string_view name(Verdict verdict);  ///< "holds", "false as stated", ...

/// How a reading counts in the verdict of its claim.
enum class Role {
    part,            ///< a part of the statement: each must hold
    interpretation,  ///< one way to understand the words: where they differ, the claim is ambiguous
    sharper          ///< more than is stated (a sharp form, a repair): does not count
};

struct NamedMatrix {
    std::string name;
    Index rows = 0, cols = 0;
    std::vector<double> values = {};  ///< row-major
};

/// The trial that gave `measured`: Rng(seed).fork(claim).fork(part).fork(trial).
struct Replay {
    std::uint64_t seed = 0;
    std::string part;
    Index trial = 0;
};

/// A hypothesis of a reading, and why it is not met; empty where it is.
struct Asked {
    std::string name, unmet;
};

/// Data of the figure of a reading.
struct Trace {
    std::string x_title = {}, y_title = {};
    bool log_x = false, log_y = false;
    std::vector<double> x = {}, y = {}, low = {}, high = {};  ///< low, high: empty, or as y
    std::vector<double> claimed = {};                         ///< as y
};

/// Result of one reading of a claim.
struct Reading {
    std::string name = {};     ///< distinguishes the readings of a claim; lower case
    std::string formula = {};  ///< "|dL/ds| <= c1 c2 / 2"
    Role role = Role::part;
    Verdict verdict = Verdict::not_decided;
    std::optional<double> measured = {}, bound = {};
    std::optional<double> tightness = {};       ///< largest measured/bound (bound/measured of >=)
    std::optional<double> low = {}, high = {};  ///< the interval of `measured` that decided
    double resolution = 0;  ///< of an exponent: the bound is judged to within it; else 0
    Index trials = 0;
    Index steps = 0;  ///< of the search for a violation: evaluations of both sides
    std::string note = {};
    std::vector<Asked> hypotheses = {};
    std::string mutant = {};  ///< the change of the claimed side by which it fails: "x 0.99"
    std::string of = {};      ///< a control: the reading that it shows can fail
    std::vector<NamedMatrix> witness = {};  ///< violates it, or comes closest to the bound
    std::optional<Replay> replay = {};      ///< absent where a search found the witness
    Trace trace = {};
};

/// Result of a claim's tight case: |measured - bound| <= accuracy |bound|.
struct Attained {
    double measured = 0, bound = 0, accuracy = 0;
};

/// A statement of a paper.
struct Claim {
    std::string_view name;        ///< "tse.prop2.3"
    std::string_view statement;   ///< words and formula
    std::string_view words = {};  ///< the paper's own, a few
    std::string_view source;      ///< "[TSE] Prop. 2.3, (6), (7)"
    std::string_view assumes = {};
    Hypotheses hypotheses = {};   ///< those of `assumes` on entries and sizes
    std::string_view proof = {};  ///< where it is short
    std::string_view sharp = {};  ///< the sharp form, where one is known
    std::string_view loose = {};  ///< where the bound is not attained: the distance that remains
    Index n = 8, d = 4, heads = 1,
          trials = 1000;  ///< defaults of the examination
    Index least_n = 1, least_d = 1;
    bool chance = false;  ///< some reading tests a mean: two trials at least
    std::vector<Reading> (*check)(const Check& how);
    /// A case that attains the bound; may be null.
    Attained (*tight)() = nullptr;
    /// Controls: each breaks a hypothesis, and is found false.
    std::vector<Reading> (*violate)(const Check& how) = nullptr;
};
/// The list, in the order of the papers.
std::span<const Claim* const> claims();
/// Names, or prefixes ("tse", "tse.thm": `named_by`), as claims in the order of the list; empty:
/// all.
/// Throws `UsageError` with the nearest name.
std::vector<const Claim*> resolve_claims(std::span<const std::string> words);

struct Examined {
    const Claim* claim = nullptr;
    Verdict verdict = Verdict::not_decided;
    std::vector<Reading> readings = {}, controls = {};
    Check how = {};
};

/// Of a control: "found false", as expected, "not found false", or "hypothesis not met".
std::string_view control_outcome(const Reading& control);
/// Whether a reading that counts is false; never for a claim examined outside of its hypotheses.
bool has_false_reading(const Examined& examined);

/// Examines one claim.  The same settings give the same result on any number of threads.  Throws
/// `UsageError` for sizes invalid for the claim, `NonFiniteError` naming claim, part and trial
/// where a draw gives a number that is not finite.
Examined examine(const Claim& claim, const CheckSettings& settings);
/// Estimated time of `examine` on this machine with its threads, from timed trials.
Effort effort(const Claim& claim, const CheckSettings& settings);
/// The sizes that `examine` would use.
Check plan(const Claim& claim, const CheckSettings& settings);

/// Parts: false if one is, holds if all do, asymptotically if some do only so; interpretations that
/// differ make it ambiguous; not decided otherwise.  If one reading misses a hypothesis, so does
/// the claim.
Verdict overall(std::span<const Reading> readings);

/// One row of claims.csv: a reading, a control (`role` "control"), or the claim (`reading` empty).
struct ClaimRow {
    std::string name = {}, reading = {}, role = {}, verdict = {};
    std::optional<double> measured = {}, bound = {}, tightness = {}, low = {}, high = {};
    Index trials = 0, steps = 0;
    std::string note = {};
};
std::vector<ClaimRow> claim_rows(std::span<const Examined> examined);
/// `name,reading,role,verdict,measured,bound,tightness,low,high,trials,steps,note`
std::string claims_csv(const std::vector<ClaimRow>& rows);
/// Settings, statements, readings with witnesses and replays.
Json claims_json(std::span<const Examined> examined, const CheckSettings& settings);
/// docs/statements.md, of all claims examined with their defaults.
std::string statements_markdown(std::span<const Examined> examined);

}  // namespace tsdiag
