#include "tsdiag/run_record.hpp"

#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>

namespace tsdiag {
namespace {

// The members of each part of a description, in the order in which they are written.  `io` reads or
// writes them: `key(name, field, there)` one that is written where `there` holds, `some(name,
// field)` one that is written unless it is empty.  A number that is not known is null.

template <class T, class Part>
concept Is = std::same_as<std::remove_const_t<T>, Part>;

void fields(auto& io, Is<RunRecord::Phase> auto& phase) {
    io.key("name", phase.name).key("seconds", phase.seconds).key("peak_memory", phase.peak_memory);
}

void fields(auto& io, Is<RunRecord::Model> auto& model) {
    const bool trace = model.kind == "trace";  // which has the width before the placement
    io.key("argument", model.argument).key("kind", model.kind).key("trained", model.trained);
    io.some("deescalated", model.deescalated).some("format", model.format);
    io.some("digest", model.digest).key("family", model.family).key("name", model.name);
    io.key("layers", model.layers).some("heads", model.heads);
    const auto placement = [&] { io.some("placement", model.placement); };
    if (!trace) placement();
    io.key("width", model.width);
    if (trace) placement();
    io.some("spec", model.spec).key("recognised", model.recognised).key("ignored", model.ignored);
    io.key("defaults", model.defaults).some("warnings", model.warnings).some("a2", model.a2);
    io.some("no_attention", model.no_attention);
}

void fields(auto& io, Is<RunRecord::Text> auto& text) {
    io.key("sha256", text.sha256).key("bytes", text.bytes).key("tokens", text.tokens);
    io.key("tokenizer", text.tokenizer).key("tokenizer_files", text.tokenizer_files);
    io.key("ids", text.ids).key("pieces", text.pieces);
}

void fields(auto& io, Is<RunRecord::Input> auto& input) {
    io.key("kind", input.kind).key("tokens", input.tokens).key("samples", input.samples);
    io.key("trials", input.trials).key("defaults", input.defaults, input.kind != "trace");
    io.some("text", input.text).some("pictures", input.pictures);
}

void fields(auto& io, Is<RunRecord::Loss> auto& loss) {
    io.key("name", loss.name).some("classes", loss.classes).some("labels", loss.labels);
    io.some("mask_id", loss.mask_id).key("value", loss.value);
}

void fields(auto& io, Is<RunRecord::Setting> auto& setting) {
    io.key("scale", setting.scale).some("model", setting.model).some("data", setting.data);
    io.key("keys", setting.keys);
}

void fields(auto& io, Is<RunRecord::Log> auto& log) {
    io.key("model", log.model).key("source", log.source).key("series", log.series);
    io.key("count", log.count).key("order", log.order).key("window", log.window);
    io.some("first_step", log.first_step).some("last_step", log.last_step).key("drift", log.drift);
    io.key("notes", log.notes);
}

void fields(auto& io, Is<RunRecord::Checkpoint> auto& checkpoint) {
    io.key("path", checkpoint.path).key("step", checkpoint.step).key("origin", checkpoint.origin);
    io.key("digest", checkpoint.digest).key("kept", checkpoint.kept);
    io.some("contradiction", checkpoint.contradiction);
}

void fields(auto& io, Is<RunRecord::Change> auto& change) {
    io.key("metric", change.metric).key("stage", change.stage).key("layer", change.layer);
    io.key("from", change.from).key("to", change.to).key("first", change.first);
    io.key("last", change.last).key("error", change.error).key("certain", change.certain);
    io.key("steepest_from", change.steepest_from).key("steepest_to", change.steepest_to);
    io.key("steepest", change.steepest);
}

void fields(auto& io, Is<RunRecord::Alarm> auto& alarm) {
    io.key("kind", alarm.kind).key("number", alarm.number).key("step", alarm.step);
    io.key("sentence", alarm.sentence);
}

void fields(auto& io, Is<RunRecord::Watch> auto& watch) {
    io.key("alarms", watch.alarms).key("false_alarms", watch.false_alarms);
    io.key("refresh", watch.refresh);
}

void fields(auto& io, Is<RunRecord> auto& run) {
    const bool figure = !run.experiment.empty();  // which has the device behind the phases
    // What measures says that there are no warnings.
    const bool measured = figure || !run.logs.empty() || !run.solver.is_null();
    io.some("tsdiag", run.version).key("command", run.command, !run.version.empty());
    io.some("logs", run.logs).some("experiment", run.experiment).some("seed", run.seed);
    const auto device = [&] { io.some("device", run.device); };
    if (!figure) device();
    io.some("threads", run.threads).some("dtype", run.dtype);
    io.key("model", run.model, run.model.described || !run.model.argument.empty());
    io.some("parameters", run.parameters);
    io.key("deescalated", run.model.deescalated,
           !run.model.described && !run.model.deescalated.empty());
    io.some("samples", run.samples).some("train", run.train).some("guess", run.guess);
    io.key("input", run.input, !run.input.kind.empty());
    io.key("loss", run.loss, !run.loss.name.empty()).some("confidence", run.confidence);
    io.some("distribution", run.distribution).some("resamples", run.resamples);
    io.some("comparisons", run.comparisons);
    io.key("settings", run.settings, !run.settings.all.is_null()).some("schema", run.schema);
    io.some("solver", run.solver).some("fast", run.fast).some("setting", run.setting);
    io.some("shortages", run.shortages).some("phases", run.phases);
    if (figure) device();
    io.some("runs", run.runs).key("warnings", run.warnings, measured || !run.warnings.empty());
    io.some("digest", run.digest).some("series", run.series);
    io.key("unit", run.unit, run.checkpoints.has_value()).some("checkpoints", run.checkpoints);
    io.key("changes", run.changes, run.checkpoints.has_value()).some("watch", run.watch);
    io.some("tables", run.tables);
}

/// A number or a word, as it stands.
std::string word(const Json& value) {
    if (value.is_null()) return {};
    return value.is_string() ? value.string() : value.dump();
}

/// Takes the members of an object that are known; a field stays as it is where there is none of its
/// type.
class Reader {
  public:
    explicit Reader(const Json& from) : from_(from) {}

    template <class T>
    const Reader& key(const char* name, T& field, bool = true) const {
        take(from_[name], field);
        return *this;
    }
    template <class T>
    const Reader& some(const char* name, T& field) const {
        return key(name, field);
    }

  private:
    // Whether `value` is of the type.
    static bool take(const Json& value, std::string& out) {
        if (value.is_string()) out = value.string();
        return value.is_string();
    }
    static bool take(const Json& value, Index& out) {
        if (value.is_integer()) out = value.integer();
        return value.is_integer();
    }
    static bool take(const Json& value, double& out) {
        if (value.is_number()) out = value.number();
        return value.is_number();
    }
    static bool take(const Json& value, bool& out) {
        if (value.is_bool()) out = value.boolean();
        return value.is_bool();
    }
    static bool take(const Json& value, Json& out) {
        out = value;
        return true;
    }
    /// JSON has seeds beyond int64 as doubles.
    static bool take(const Json& value, std::uint64_t& seed) {
        if (value.is_integer()) {
            seed = std::uint64_t(value.integer());
            return true;
        }
        if (!value.is_number() || !(value.number() >= 0)) return false;
        seed = value.number() < 0x1p64 ? std::uint64_t(value.number())
                                       : std::numeric_limits<std::uint64_t>::max();
        return true;
    }
    static bool take(const Json& value, std::vector<std::string>& lines) {
        if (!value.is_array()) return false;
        for (const Json& line : value.array()) lines.push_back(word(line));
        return true;
    }
    static bool take(const Json& value, std::vector<std::pair<std::string, std::string>>& words) {
        if (!value.is_object()) return false;
        for (const auto& [name, one] : value.object()) words.emplace_back(name, word(one));
        return true;
    }
    template <class T>
    static bool take(const Json& value, std::vector<T>& list) {
        if (!value.is_array()) return false;
        for (const Json& one : value.array()) take(one, list.emplace_back());
        return true;
    }
    template <class T>
    static bool take(const Json& value, std::optional<T>& out) {
        T held{};
        if (!take(value, held)) return false;
        out = std::move(held);
        return true;
    }
    static bool take(const Json& value, RunRecord::Settings& settings) {
        const Reader asked(settings.all = value);
        asked.key("input", settings.input).key("tolerance", settings.tolerance);
        settings.mask = word(value["mask"]);
        return true;
    }
    static bool take(const Json& value, RunRecord::Training& train) {
        if (!value.is_object()) return false;
        const Reader asked(train.all = value);
        asked.key("model", train.model).key("data", train.data).key("contents", train.contents);
        asked.key("loss", train.loss).key("tokens", train.tokens).key("steps", train.steps);
        asked.key("probe_every", train.probe_every).key("probe_samples", train.probe_samples);
        asked.key("seed", train.seed);
        return true;
    }
    static bool take(const Json& value, RunRecord::Model& model) {
        if (take(value, model.argument)) return true;
        if (!value.is_object()) return false;
        model.described = true;
        const Reader members(value);
        fields(members, model);
        if (const Json& blocks = model.spec["blocks"]; blocks.is_array())
            model.deescalates = std::ranges::any_of(blocks.array(), [](const Json& block) {
                const Json& tau = block["deesc"];  // learned ones have no number
                return !tau.is_number() || tau.number() != 0;
            });
        return true;
    }
    template <class Part>
    requires std::is_class_v<Part>
    static bool take(const Json& value, Part& part) {
        if (!value.is_object()) return false;
        const Reader members(value);
        fields(members, part);
        return true;
    }

    const Json& from_;
};

class Writer {
  public:
    template <class T>
    Writer& key(const char* name, const T& field, bool there = true) {
        if (there) out_.set(name, json_of(field));
        return *this;
    }
    template <class T>
    Writer& some(const char* name, const T& field) {
        return key(name, field, !is_empty(field));
    }

    template <class Part>
    static Json members(const Part& part) {
        Writer io;
        fields(io, part);
        return std::move(io.out_);
    }

  private:
    template <class Part>
    static Json json_of(const Part& part) {
        return members(part);
    }
    template <class T>
    requires std::is_convertible_v<const T&, Json>
    static Json json_of(const T& value) { return value; }
    template <class T>
    static Json json_of(const std::vector<T>& list) {
        Json::Array all;
        for (const T& one : list) all.push_back(json_of(one));
        return all;
    }
    template <class T>
    static Json json_of(const std::optional<T>& value) {
        return value ? json_of(*value) : Json();
    }
    static Json json_of(const std::vector<std::pair<std::string, std::string>>& words) {
        return Json::Object(words.begin(), words.end());
    }
    static Json json_of(const RunRecord::Settings& settings) { return settings.all; }
    static Json json_of(const RunRecord::Training& train) { return train.all; }
    static Json json_of(const RunRecord::Model& model) {
        return model.described ? members(model) : Json(model.argument);
    }

    template <class T>
    static bool is_empty(const T& field) {
        if constexpr (requires { field.has_value(); })
            return !field.has_value();
        else if constexpr (requires { field.is_null(); })
            return field.is_null();
        else
            return field.empty();
    }

    Json out_ = Json::Object{};
};

RunRecord::Kind kind_of(const RunRecord& run, const Json& json) {
    using enum RunRecord::Kind;
    if (!run.logs.empty()) return gradients;
    if (!run.experiment.empty()) return figure;
    if (json.contains("compared")) return compare;
    if (run.train) return train;
    return run.has_table("metrics.csv") ? probe : check;
}

}  // namespace

Json RunRecord::Setting::json() const { return Writer::members(*this); }

Json RunRecord::Alarm::json() const { return Writer::members(*this); }

Json RunRecord::json() const { return Writer::members(*this); }

RunRecord::RunRecord(const Json& json) {
    Reader run(json);
    fields(run, *this);
    kind = kind_of(*this, json);
    if (schema.is_array())
        for (const Json& metric : schema.array())
            if (metric["name"].is_string() && metric["definition"].is_string())
                definitions[metric["name"].string()] = metric["definition"].string();
}

bool RunRecord::has_table(std::string_view file) const {
    return tables && std::ranges::any_of(*tables, [&](auto& one) { return one.first == file; });
}

std::string_view name(RunRecord::Kind kind) {
    using enum RunRecord::Kind;
    switch (kind) {
        case probe:
            return "probe";
        case train:
            return "train";
        case figure:
            return "figure";
        case gradients:
            return "gradients";
        case compare:
            return "compare";
        case check:
            return "check";
    }
    return "unknown";
}

}  // namespace tsdiag
