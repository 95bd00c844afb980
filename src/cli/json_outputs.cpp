#include "json_outputs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "result_files.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

const JsonKey out_key{"out", "text", "the folder that was written"};
const JsonKey findings_key{
    "findings", "list",
    "of the verdict, the headline first: `level`, `text`, `figure`, `headline`"};
const JsonKey warnings_key{"warnings", "list", "texts"};
const JsonKey files_key{"files", "list", "the names of the files in it"};
const JsonKey text_key{"text", "text", "what is printed without --json"};

/// Of `what`: is it of the type that a key declares?
bool is_of_type(const Json& what, std::string_view type) {
    constexpr std::string_view or_null = " or null";
    if (type.ends_with(or_null)) {
        if (what.is_null()) return true;
        type.remove_suffix(or_null.size());
    }
    return (type == "text" && what.is_string()) || (type == "number" && what.is_number()) ||
           (type == "integer" && what.is_integer()) || (type == "boolean" && what.is_bool()) ||
           (type == "list" && what.is_array()) || (type == "object" && what.is_object());
}

const JsonOutput& output_of(std::string_view command) {
    const auto all = json_outputs();
    const auto found = std::ranges::find(all, command, &JsonOutput::command);
    check(found != all.end(), "every command declares what it prints with --json");
    return *found;
}

void require_declared(const JsonOutput& output, const Json& body) {
    for (const auto& [name, value] : body.object()) {
        const auto key = std::ranges::find(output.keys, name, &JsonKey::name);
        check(key != output.keys.end() && is_of_type(value, key->type),
              "keys of --json are declared, with their types");
    }
    for (const JsonKey& key : output.keys)
        check(!key.always || body.contains(key.name), "declared keys of --json are printed");
}

}  // namespace

std::span<const JsonOutput> json_outputs() {
    static const std::vector<JsonOutput> all = {
        {"probe",
         "an object",
         {out_key,
          {"checkpoints", "integer or null", "how many of a training; null: a single model"},
          findings_key,
          {"layers", "list",
           "of a single model, for each `layer` the numbers that are printed without --json",
           false},
          warnings_key,
          files_key}},
        {"watch",
         "an object per line, whenever something is new",
         {out_key,
          {"unit", "text", "step, iteration or epoch"},
          {"step", "integer", "the last that was measured"},
          {"checkpoints", "integer", "how many were measured"},
          findings_key,
          {"alarms", "list",
           "all so far: `kind` (change or assertion), `number`, `step`, `sentence`"},
          {"new", "list", "those of them that were not told before"}}},
        {"figure",
         "an object",
         {{"figures", "list",
           "`name`, `title`, `source`; with numbers `out`, `seconds`, `outcome` and "
           "`comparisons`, each `what`, `measured`, `stderr`, `expected`, `seen`, `count`, `says`, "
           "`judgement`, and `files`"}}},
        {"train", "an object", {out_key, findings_key, files_key}},
        {"gradients",
         "an object",
         {out_key,
          {"series", "list",
           "`log`, `series`, `grad_rsd`, `low`, `high`, `stderr`, `mean`, `count`"},
          findings_key,
          files_key}},
        {"inspect",
         "an object",
         {{"argument", "text", "MODEL as it was given"},
          {"format", "text", "of the file", false},
          {"digest", "text", "of names, types, shapes and sizes, as in run.json", false},
          {"bits_a_weight", "number", "of files with quantised weights", false},
          {"quantised_weights", "integer", "how many tensors are quantised", false},
          {"rounding", "number or null",
           "largest error of a weight, relative to what the values of its block span", false},
          {"model", "object",
           "what would be run, as `spec` of run.json, or of what a trace is; where layers differ, "
           "`sizes`: of each `layer` its `tokens`, `width`, `heads` and `kv_heads` (of keys and "
           "values), null where not known",
           false},
          {"unknown", "text", "why nothing would be run", false},
          {"draft", "text", "the beginning of a map for `--map`, where nothing would be run",
           false},
          {"callables", "list", "what a pickle asks Python to call", false},
          {"tensors", "list", "`name`, `dtype`, `shape`, and a summary of the values"}}},
        {"init", "an object", {out_key}},
        {"list",
         "a list of objects",
         {{"name", "text", "what an option accepts"},
          {"description", "text", "of all lists but `metrics`", false},
          {"symbol", "text", "of `metrics`, as the others", false},
          {"definition", "text", "", false},
          {"source", "text", "", false},
          {"range", "text", "", false},
          {"unit", "text", "", false},
          {"undefined", "text", "when there is no number", false},
          {"of", "text", "what it describes", false},
          {"stage", "text", "at which summaries read it", false},
          {"core", "boolean", "is it measured by `--probes core`?", false}}},
        {"info",
         "an object",
         {{"facts", "object", "version, commit, compiler, processor, devices, ... as texts"}}},
        {"report", "an object", {out_key, warnings_key, files_key}},
        {"plot",
         "an object",
         {{"figures", "list", "without FIGURE: `name`, `title` and `panels` of each", false},
          {"out", "text", "the file that was drawn, with FIGURE as the next", false},
          {"caption", "text", "", false}}},
        {"export",
         "an object",
         {{"files", "list", "`file`, `table` (null: all of them) and `rows`; needs --out"}}},
        {"compare",
         "an object",
         {{"compared", "list", "the results: `letter`, `name`, `model`, `step`, `tables`"},
          {"assertions", "list", "`holds`, `value`, `sentence`"},
          {"verdict", "text", "what was found, where two results were compared, as the others",
           false},
          {"notes", "list", "what else differs", false},
          {"remarks", "list", "how differences were judged", false},
          {"rate", "number", "the false-discovery rate", false},
          {"interval_confidence", "number", "of each interval", false},
          {"tested", "integer", "differences, as the others", false},
          {"paired", "integer", "of those tested", false},
          {"significant", "integer", "", false},
          {"untested", "integer", "", false},
          {"equal", "integer", "", false},
          {"undefined", "integer", "", false},
          {"only_in_one", "integer", "rows without a counterpart", false},
          {"differences", "list", "the columns of compare.csv", false},
          {"out", "text or null", "the folder that was written"},
          files_key}},
        {"check",
         "an object",
         {{"claims", "list", "as in claims.json; with --list what the statements are"},
          {"seed", "integer", "without --list, as the others", false},
          {"confidence", "number", "", false},
          {"distribution", "text", "", false},
          {"findings", "list", "the headline, as of `probe`", false},
          {"out", "text or null", "the folder that was written", false},
          {"files", "list", "the names of the files in it", false}}},
        {"merge", "what the merged command prints", {}},
        {"status",
         "a list of objects",
         {{"result", "text", "a folder"},
          {"command", "list", "its words"},
          {"numerics", "text", "of which machines its numbers are"},
          {"done", "integer", "units, as the next"},
          {"known", "integer", "of the stages begun so far"},
          {"unit_seconds", "number", "of one unit"},
          {"seconds_left", "number or null", "null: nobody works"},
          {"workers", "list", "`host`, `pid`, `state`, `units`, `seconds`, `age`"}}},
        {"submit",
         "an object",
         {{"script", "text", "for sbatch"},
          {"file", "text or null", "that holds it; null with --dry-run"}}},
        {"trace-hook", "an object", {text_key}},
        {"completion", "an object", {text_key}},
        {"manual", "an object", {text_key}},
    };
    return all;
}

void print_json(std::string_view command, const Json& body, bool line) {
    if (!prints_json()) return;
    require_declared(output_of(command), body);
    Json whole = headed(RunRecord());
    whole.set("output", std::string(command)).set("version", json_version);
    for (const auto& [key, value] : body.object()) whole.set(key, value);
    print_document(whole.dump(line ? -1 : 2) + "\n");
}

void tell(const Failure& failure) {
    if (failure.message.empty()) return;
    say(fmt::format("tsdiag: {}", printable(failure.message)));
    if (!prints_json()) return;
    try {
        Json whole = headed(RunRecord());
        whole.set("version", json_version).set("error", visible(failure.message));
        print_document(whole.set("exit_code", failure.code).dump(-1) + "\n");
    } catch (...) {  // nobody reads standard output, or it is full: the sentence was told
    }
}

void print_json_list(std::string_view command, Json::Array all) {
    if (!prints_json()) return;
    for (const Json& one : all) require_declared(output_of(command), one);
    print_document(Json(std::move(all)).dump(2) + "\n");
}

std::string json_outputs_markdown() {
    std::string out = "| Command | Key | Type | Meaning |\n|---|---|---|---|\n";
    for (const JsonOutput& output : json_outputs()) {
        out += fmt::format("| `{}` | | | prints {} |\n", output.command, output.prints);
        for (const JsonKey& key : output.keys)
            out += fmt::format("| | `{}` | {} | {}{} |\n", key.name, key.type,
                               key.always ? "" : "*", key.meaning);
    }
    return out;
}

}  // namespace tsdiag::cli
