#include "tsdiag/run_record.hpp"

#include <algorithm>
#include <limits>

namespace tsdiag {
namespace {

std::string text(const Json& value) { return value.is_string() ? value.string() : std::string(); }

/// A number or a word, as it stands.
std::string word(const Json& value) {
    if (value.is_null() || value.is_string()) return text(value);
    return value.dump();
}

std::optional<Index> whole(const Json& value) {
    return value.is_integer() ? std::optional(value.integer()) : std::nullopt;
}

std::optional<double> real(const Json& value) {
    return value.is_number() ? std::optional(value.number()) : std::nullopt;
}

std::optional<bool> truth(const Json& value) {
    return value.is_bool() ? std::optional(value.boolean()) : std::nullopt;
}

const Json::Array& list(const Json& value) {
    static const Json::Array none;
    return value.is_array() ? value.array() : none;
}

std::vector<std::string> lines(const Json& value) {
    std::vector<std::string> out;
    for (const Json& line : list(value)) out.push_back(word(line));
    return out;
}

/// JSON has seeds beyond int64 as doubles.
std::optional<std::uint64_t> seed_of(const Json& value) {
    if (value.is_integer()) return std::uint64_t(value.integer());
    const double seed = real(value).value_or(-1);
    if (!(seed >= 0)) return std::nullopt;
    return seed < 0x1p64 ? std::uint64_t(seed) : std::numeric_limits<std::uint64_t>::max();
}

RunRecord::Kind kind_of(const Json& run) {
    using enum RunRecord::Kind;
    if (run.contains("logs")) return gradients;
    if (run.contains("experiment")) return figure;
    if (run.contains("compared")) return compare;
    if (run.contains("train")) return train;
    return run["tables"].contains("metrics.csv") ? probe : check;
}

RunRecord::Model model_of(const Json& run) {
    const Json& model = run["model"];
    if (!model.is_object())
        return {.argument = text(model), .deescalated = text(run["deescalated"])};
    RunRecord::Model out{.described = true};
    out.argument = text(model["argument"]);
    out.kind = text(model["kind"]);
    out.family = text(model["family"]);
    out.name = text(model["name"]);
    out.format = text(model["format"]);
    out.digest = text(model["digest"]);
    out.placement = text(model["placement"]);
    out.trained = truth(model["trained"]);
    out.layers = whole(model["layers"]);
    out.heads = whole(model["heads"]);
    out.width = whole(model["width"]);
    out.recognised = lines(model["recognised"]);
    out.ignored = lines(model["ignored"]);
    out.defaults = lines(model["defaults"]);
    out.warnings = lines(model["warnings"]);
    out.no_attention = text(model["no_attention"]);
    for (const Json& gain : list(model["a2"])) out.a2.push_back(real(gain));
    out.deescalated = text(model["deescalated"]);
    out.deescalates = std::ranges::any_of(list(model["spec"]["blocks"]), [](const Json& block) {
        return real(block["deesc"]) != 0;  // learned ones have no number
    });
    return out;
}

RunRecord::Input input_of(const Json& input) {
    RunRecord::Input out{.kind = text(input["kind"]),
                         .tokens = whole(input["tokens"]),
                         .samples = whole(input["samples"]),
                         .trials = whole(input["trials"]),
                         .defaults = lines(input["defaults"])};
    for (const Json& piece : list(input["text"]["pieces"])) out.pieces.push_back(text(piece));
    return out;
}

std::optional<RunRecord::Training> training_of(const Json& train) {
    if (!train.is_object()) return std::nullopt;
    return RunRecord::Training{.model = text(train["model"]),
                               .data = text(train["data"]),
                               .contents = text(train["contents"]),
                               .loss = text(train["loss"]),
                               .tokens = whole(train["tokens"]),
                               .steps = whole(train["steps"]),
                               .probe_every = whole(train["probe_every"]),
                               .probe_samples = whole(train["probe_samples"]),
                               .seed = whole(train["seed"]),
                               .all = train};
}

std::optional<RunRecord::Setting> setting_of(const Json& setting) {
    if (!setting.is_object()) return std::nullopt;
    RunRecord::Setting out{.scale = text(setting["scale"]),
                           .model = text(setting["model"]),
                           .data = text(setting["data"])};
    if (setting["keys"].is_object())
        for (const auto& [key, value] : setting["keys"].object())
            out.keys.emplace_back(key, word(value));
    return out;
}

RunRecord::Log log_of(const Json& log) {
    return {.model = text(log["model"]),
            .series = text(log["series"]),
            .count = whole(log["count"]).value_or(0),
            .first_step = whole(log["first_step"]).value_or(0),
            .last_step = whole(log["last_step"]).value_or(0),
            .order = whole(log["order"]).value_or(0),
            .drift = real(log["drift"]),
            .notes = lines(log["notes"])};
}

RunRecord::Change change_of(const Json& change) {
    return {.metric = text(change["metric"]),
            .stage = text(change["stage"]),
            .layer = whole(change["layer"]).value_or(0),
            .from = whole(change["from"]).value_or(0),
            .to = whole(change["to"]).value_or(0),
            .steepest_from = whole(change["steepest_from"]).value_or(0),
            .steepest_to = whole(change["steepest_to"]).value_or(0),
            .first = real(change["first"]).value_or(0),
            .last = real(change["last"]).value_or(0),
            .steepest = real(change["steepest"]).value_or(0),
            .error = real(change["error"]),
            .certain = truth(change["certain"]).value_or(false)};
}

}  // namespace

Json RunRecord::Phase::json() const {
    return Json().set("name", name).set("seconds", seconds).set("peak_memory", peak_memory);
}

Json RunRecord::Change::json() const {
    Json out;
    out.set("metric", metric).set("stage", stage).set("layer", layer);
    out.set("from", from).set("to", to).set("first", first).set("last", last);
    out.set("error", error ? Json(*error) : Json()).set("certain", certain);
    out.set("steepest_from", steepest_from).set("steepest_to", steepest_to);
    return out.set("steepest", steepest);
}

RunRecord::RunRecord(Json json) : json_(std::move(json)) {
    const Json& run = json_;
    kind = kind_of(run);
    version = text(run["tsdiag"]);
    command = lines(run["command"]);
    seed = seed_of(run["seed"]);
    device = text(run["device"]);
    dtype = text(run["dtype"]);
    loss = text(run["loss"].is_object() ? run["loss"]["name"] : run["loss"]);
    threads = whole(run["threads"]);
    for (const Json& phase : list(run["phases"]))
        phases.push_back({text(phase["name"]), real(phase["seconds"]).value_or(0),
                          whole(phase["peak_memory"]).value_or(0)});
    model = model_of(run);
    input = input_of(run["input"]);
    const Json& asked = run["settings"];
    settings = {text(asked["input"]), word(asked["mask"]), real(asked["tolerance"])};
    for (const Json& metric : list(run["schema"]))
        if (metric["name"].is_string() && metric["definition"].is_string())
            definitions[metric["name"].string()] = metric["definition"].string();
    warnings = lines(run["warnings"]);
    if (run["tables"].is_object()) {
        tables.emplace();
        for (const auto& [file, sha256] : run["tables"].object())
            tables->emplace_back(file, text(sha256));
    }

    train = training_of(run["train"]);
    samples = text(run["samples"]);
    parameters = whole(run["parameters"]);
    guess = real(run["guess"]);
    experiment = text(run["experiment"]);
    setting = setting_of(run["setting"]);

    for (const Json& log : list(run["logs"])) logs.push_back(log_of(log));
    confidence = real(run["confidence"]);
    distribution = text(run["distribution"]);
    if (run["unit"].is_string()) unit = run["unit"].string();
    if (run["checkpoints"].is_array()) checkpoints.emplace();
    for (const Json& one : list(run["checkpoints"]))
        checkpoints->push_back({text(one["path"]), text(one["origin"]), text(one["digest"]),
                                whole(one["step"]).value_or(0), text(one["contradiction"])});
    for (const Json& change : list(run["changes"])) changes.push_back(change_of(change));
    digest = text(run["digest"]);
    for (const Json& alarm : list(run["watch"]["alarms"]))
        alarms.push_back(text(alarm["sentence"]));
    refresh = whole(run["watch"]["refresh"]).value_or(0);
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
