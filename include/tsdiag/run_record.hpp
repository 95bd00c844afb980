#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// The description of a run, run.json, as its readers see it.
namespace tsdiag {

/// What docs/run-json.md describes, by fields; claims.json and what `compare` writes are
/// descriptions, too.  Who reads one reads fields, and who writes one fills them: one list of keys
/// serves both.
///
///     const RunRecord run = Json::parse(text, "run.json");
///     run.model.layers, run.input.tokens, run.json()
///
/// A field is empty where the description lacks it, or has another type there: earlier versions
/// wrote less.  Members of type `Json` are as their writers describe them.  Cost: a copy of the
/// JSON.
class RunRecord {
  public:
    /// The command that wrote it.
    enum class Kind { probe, train, figure, gradients, compare, check };

    /// When and where it was computed: where it was begun, whoever went on with it.
    struct Measured {
        std::string date = {};    ///< UTC, "2026-11-28T14:03:05Z"; empty: not known
        std::string commit = {};  ///< of the program
        std::string processor = {};

        std::string day() const { return date.substr(0, date.find('T')); }
        Json json() const;
        /// Throws `FormatError` naming `source` and the member that is of another type.
        static Measured of(const Json& json, std::string_view source);
    };
    struct Model {
        bool described = false;  ///< of a training only the argument is known, and `deescalated`
        std::string argument = {}, kind = {}, family = {}, name = {}, format = {}, digest = {};
        std::string placement = {};
        std::optional<bool> trained = {};
        std::optional<Index> layers = {}, heads = {}, width = {};
        std::vector<std::string> recognised = {}, ignored = {}, defaults = {}, warnings = {};
        std::string no_attention = {};               ///< why P of a trace is no attention
        std::vector<std::optional<double>> a2 = {};  ///< of each layer; none: not finite
        std::string deescalated = {};                ///< the same model with tau = 0.5
        Json spec = {};                              ///< every field; null: a trace
        bool deescalates = false;                    ///< of `spec`: a block may subtract the mean
    };
    /// Of which samples are made.
    struct Text {
        std::string sha256 = {}, tokenizer = {};
        Index bytes = 0, tokens = 0;
        std::vector<std::string> tokenizer_files = {};
        std::vector<Index> ids = {};           ///< of the first sample
        std::vector<std::string> pieces = {};  ///< the same tokens
    };
    struct Input {
        std::string kind = {};
        std::optional<Index> tokens = {}, samples = {}, trials = {};
        std::optional<Index> least_tokens =
            {};                   ///< of the shortest sample; none: all have `tokens`
        std::string digest = {};  ///< of the samples; empty: not known
        std::vector<std::string> defaults = {};  ///< a trace has none
        std::optional<Text> text = {};
        Json pictures = {};
        std::string tokens_in_words() const;  ///< "64 tokens", "12 to 43 tokens"; empty: not known
    };
    struct Loss {
        std::string name = {};  ///< empty: there is none
        std::optional<Index> classes = {};
        std::string labels = {};
        std::optional<Index> mask_id = {};
        std::optional<double> value = {};
    };
    /// Options of the user.
    struct Settings {
        /// Names of those that are read.
        static constexpr const char *input_name = "input", *mask_name = "mask",
                                    *tolerance_name = "tolerance";
        Json all = {};  ///< in the order of the description; the others are read from it
        std::string input = {}, mask = {};
        std::optional<double> tolerance = {};
    };
    /// Every setting of a training: where two differ, none of them goes on with the other's state.
    struct Training {
        std::string model = {};
        std::optional<std::string> config = {};
        std::optional<Index> heads = {}, width = {};
        std::optional<std::vector<std::string>> ignore = {};
        std::string map = {}, adapter = {}, base = {};
        std::string architecture = {};  ///< a digest; older trainings have none
        std::string data = {}, contents = {}, loss = {};
        std::optional<Index> tokens = {}, steps = {};
        Index batch = 0;
        std::string schedule = {};
        Index warmup = 0;
        double rate = 0, floor = 0, factor = 0;
        std::optional<Index> length = {};
        std::vector<Index> milestones = {};
        double beta1 = 0, beta2 = 0, eps = 0, decay = 0, clip = 0, dropout = 0;
        std::optional<std::uint64_t> seed = {};  ///< beyond int64 as JSON has it, rounded
        std::string draws = {};                  ///< older trainings have none
        Index eval_every = 0, eval_samples = 0;
        std::optional<Index> probe_every = {}, probe_samples = {};
        std::vector<std::string> probes = {};

        Json json() const;
        /// Throws `FormatError` naming `source` and the setting that is absent or no such thing.
        static Training of(const Json& json, std::string_view source);
    };
    /// That of an experiment.
    struct Setting {
        std::string scale = {}, model = {}, data = {};
        std::vector<std::pair<std::string, std::string>> keys = {};

        Json json() const;
    };
    /// A series of gradient norms.
    struct Log {
        std::string model = {}, source = {}, series = {};
        Index count = 0, order = 0, window = 0;
        std::optional<Index> first_step = {}, last_step = {};
        std::optional<double> drift = {};  ///< in standard errors
        std::vector<std::string> notes = {};
    };
    /// A part of the work.
    struct Phase {
        std::string name = {};
        double seconds = 0;
        Index peak_memory = 0;  ///< in bytes
    };
    /// A checkpoint of a series.
    struct Checkpoint {
        std::string path = {}, origin = {}, digest = {};
        Index step = 0;
        bool kept = false;               ///< reused from an earlier run
        std::string contradiction = {};  ///< of another source of the step; empty: none
    };
    /// Of a metric of a layer over the checkpoints, mean over the inputs.
    struct Change {
        std::string metric = {}, stage = {};
        Index layer = -1, from = 0, to = 0;  ///< between the first step and the last, where known
        Index steepest_from = 0, steepest_to = 0;  ///< the steps with the greatest difference
        double first = 0, last = 0, steepest = 0;  ///< values, and that difference
        std::optional<double> error = {};          ///< standard, of last - first, at most
        bool certain = false;  ///< the intervals of all changes together exclude 0
    };
    struct Alarm {
        std::string kind = {};    ///< "change" or "assertion"
        std::string number = {};  ///< as in `NumberName`, or the text of the assertion
        Index step = 0;           ///< at which it was raised
        std::string sentence = {};

        bool operator==(const Alarm&) const = default;
        Json json() const;
        /// Throws `FormatError` naming `source` and the member that is absent or of another type.
        static Alarm of(const Json& json, std::string_view source);
    };
    /// A result that was compared.
    struct Compared {
        std::string letter = {}, name = {}, model = {};
        std::optional<Index> step = {};
        std::vector<std::pair<std::string, std::string>> tables = {};  ///< name, SHA-256
    };
    /// Of an assertion on results.
    struct Judgement {
        bool holds = false;
        std::optional<double> value = {};
        std::string sentence = {};  ///< "t_sim@out:last < 0.9 fails: it is 0.9523 (A, layer 5)."
    };
    /// What differs between results.
    struct Comparison {
        std::string verdict = {};
        std::vector<std::string> notes = {}, remarks = {};
        double rate = 0, interval_confidence = 0;
        Index tested = 0, paired = 0, significant = 0, untested = 0, equal = 0, undefined = 0,
              only_in_one = 0;
        Json differences = {};
    };
    /// What `tsdiag watch` has told of a series.
    struct Watch {
        std::vector<Alarm> alarms = {};
        double false_alarms = 0;            ///< expected, a checkpoint
        std::optional<Index> refresh = {};  ///< seconds after which the page is read again
    };

    /// A sentence of the verdict.
    struct Found {
        std::string level = {};  ///< "good", "note" or "warning"
        std::string text = {};
        std::string figure = {};  ///< that shows it; may be empty
        bool headline = false;
    };

    RunRecord() = default;
    /// Implicit: a description is one, whoever has parsed or made it.
    RunRecord(const Json& json);

    bool has_table(std::string_view file) const;

    /// The fields by their keys, in the order in which runs are described: what was read.
    Json json() const;

    Kind kind = Kind::check;
    std::string version = {};
    std::vector<std::string> command = {};
    Measured measured = {};
    std::optional<std::uint64_t> seed = {};
    std::string device = {}, device_name = {}, dtype = {};  ///< no name: the processor
    std::optional<Index> threads = {};
    std::vector<Phase> phases = {};
    Model model = {};
    Input input = {};
    Loss loss = {};
    Settings settings = {};
    Json schema = {}, solver = {}, fast = {};
    std::map<std::string, std::string> definitions = {};  ///< of each metric of `schema`
    std::vector<std::string> shortages = {}, warnings = {};
    std::vector<Found> findings = {};  ///< headlines first
    /// Name and SHA-256 of each table; none: the description names no tables.
    std::optional<std::vector<std::pair<std::string, std::string>>> tables = {};

    std::optional<Training> train = {};
    std::string samples = {};  ///< of a training, in words
    std::optional<Index> parameters = {};
    std::optional<double> guess = {};  ///< the loss of a guess

    std::string experiment = {};
    std::optional<Setting> setting = {};
    Json runs = {};  ///< of its models

    std::vector<Log> logs = {};
    std::optional<double> confidence = {};
    std::optional<Index> resamples = {}, comparisons = {};
    std::string distribution = {};  ///< of what `tsdiag check` draws
    Json claims = {};               ///< that it examined

    std::vector<Compared> compared = {};
    std::vector<Judgement> assertions = {};
    std::optional<Comparison> comparison = {};  ///< none: a single result

    std::string series = {}, unit = "step";                   ///< of a series of checkpoints
    std::optional<std::vector<Checkpoint>> checkpoints = {};  ///< none: a single model
    std::vector<Change> changes = {};
    std::string digest = {};  ///< of one of them: of its contents and settings
    std::optional<Watch> watch = {};
};

/// "probe", "train", ...
std::string_view name(RunRecord::Kind kind);

}  // namespace tsdiag
