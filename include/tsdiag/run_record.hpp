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
/// reads a description reads fields; the keys are known here and to who writes them.  Phases and
/// changes are written by their own `json()`.
///
///     const RunRecord run = Json::parse(text, "run.json");
///     run.model.layers, run.input.tokens, run.json()
///
/// A field is empty where the description lacks it, or has another type there: earlier versions
/// wrote less.  Cost: a copy of the JSON.
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
        bool deescalates = false;                    ///< a block may subtract the mean token
    };
    struct Input {
        std::string kind = {};
        std::optional<Index> tokens = {}, samples = {}, trials = {};
        std::vector<std::string> defaults = {};
        std::vector<std::string> pieces = {};  ///< of a text: the tokens of its first sample
    };
    /// Options of the user, as far as they are read.
    struct Settings {
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
    };
    /// A series of gradient norms.
    struct Log {
        std::string model = {}, series = {};
        Index count = 0, first_step = 0, last_step = 0, order = 0;
        std::optional<double> drift = {};  ///< in standard errors
        std::vector<std::string> notes = {};
    };
    /// A part of the work.
    struct Phase {
        std::string name = {};
        double seconds = 0;
        Index peak_memory = 0;  ///< in bytes

        Json json() const;
    };
    /// A checkpoint of a series.
    struct Checkpoint {
        std::string path = {}, origin = {}, digest = {};
        Index step = 0;
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

        Json json() const;
    };

    RunRecord() = default;
    /// Implicit: a description is one, whoever has parsed or made it.
    RunRecord(Json json);

    bool has_table(std::string_view file) const;

    /// What was read, every member in its order.
    const Json& json() const { return json_; }

    Kind kind = Kind::check;
    std::string version = {};
    std::vector<std::string> command = {};
    std::optional<std::uint64_t> seed = {};
    std::string device = {}, dtype = {}, loss = {};
    std::optional<Index> threads = {};
    std::vector<Phase> phases = {};
    Model model = {};
    Input input = {};
    Settings settings = {};
    std::map<std::string, std::string> definitions = {};  ///< of each metric of the tables
    std::vector<std::string> warnings = {};
    /// Name and SHA-256 of each table; none: the description names no tables.
    std::optional<std::vector<std::pair<std::string, std::string>>> tables = {};

    std::optional<Training> train = {};
    std::string samples = {};  ///< of a training, in words
    std::optional<Index> parameters = {};
    std::optional<double> guess = {};  ///< the loss of a guess

    std::string experiment = {};
    std::optional<Setting> setting = {};

    std::vector<Log> logs = {};
    std::optional<double> confidence = {};
    std::string distribution = {};  ///< of what `tsdiag check` draws

    std::string unit = "step";                                ///< of a series of checkpoints
    std::optional<std::vector<Checkpoint>> checkpoints = {};  ///< none: a single model
    std::vector<Change> changes = {};
    std::string digest = {};  ///< of one of them: of its contents and settings
    std::vector<std::string> alarms = {};
    Index refresh = 0;  ///< seconds after which the page of a series is read again; 0: never

  private:
    Json json_;
};

/// "probe", "train", ...
std::string_view name(RunRecord::Kind kind);

}  // namespace tsdiag
