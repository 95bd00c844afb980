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

/// What docs/run-json.md describes, by fields; claims.json has those of them that it shares.  Who
/// reads a description reads fields, and who writes one fills them: one list of keys serves both.
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
        std::vector<std::string> defaults = {};  ///< a trace has none
        std::optional<Text> text = {};
        Json pictures = {};
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
        Json all = {};  ///< in the order of the description; the others are read from it
        std::string input = {}, mask = {};
        std::optional<double> tolerance = {};
    };
    struct Training {
        std::string model = {}, data = {}, contents = {}, loss = {};
        std::optional<Index> tokens = {}, steps = {}, probe_every = {}, probe_samples = {};
        std::optional<Index> seed = {};  ///< none: beyond int64, so that JSON has it rounded
        Json all = {};                   ///< every setting, in the order of the description
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
        std::optional<double> error = {};  ///< standard, of last - first, inputs independent
        bool certain = false;              ///< the intervals of all changes together exclude 0
    };
    struct Alarm {
        std::string kind = {}, number = {}, sentence = {};
        Index step = 0;

        Json json() const;
    };
    /// What `tsdiag watch` has told of a series.
    struct Watch {
        std::vector<Alarm> alarms = {};
        double false_alarms = 0;            ///< expected, a checkpoint
        std::optional<Index> refresh = {};  ///< seconds after which the page is read again
    };

    RunRecord() = default;
    /// Implicit: a description is one, whoever has parsed or made it.
    RunRecord(const Json& json);

    bool has_table(std::string_view file) const;

    /// The fields by their keys, in the order in which runs are described.  What was read comes
    /// back, but for the claims and the comparisons of `check` and `compare`.
    Json json() const;

    Kind kind = Kind::check;
    std::string version = {};
    std::vector<std::string> command = {};
    std::optional<std::uint64_t> seed = {};
    std::string device = {}, dtype = {};
    std::optional<Index> threads = {};
    std::vector<Phase> phases = {};
    Model model = {};
    Input input = {};
    Loss loss = {};
    Settings settings = {};
    Json schema = {}, solver = {}, fast = {};
    std::map<std::string, std::string> definitions = {};  ///< of each metric of `schema`
    std::vector<std::string> shortages = {}, warnings = {};
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

    std::string series = {}, unit = "step";                   ///< of a series of checkpoints
    std::optional<std::vector<Checkpoint>> checkpoints = {};  ///< none: a single model
    std::vector<Change> changes = {};
    std::string digest = {};  ///< of one of them: of its contents and settings
    std::optional<Watch> watch = {};
};

/// "probe", "train", ...
std::string_view name(RunRecord::Kind kind);

}  // namespace tsdiag
