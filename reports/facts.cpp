#include <fmt/format.h>

#include "page.hpp"
#include "skeleton.hpp"
#include "text.hpp"

/// Model and run according to run.json.  Absent entries are left out.
namespace tsdiag::reports {
namespace {

std::string scalar(const Json& v) {
    if (v.is_string()) return v.string();
    if (v.is_bool()) return v.boolean() ? "yes" : "no";
    if (v.is_integer()) return fmt::format("{}", v.integer());
    if (v.is_number()) return number(v.number());
    return {};
}

void add(std::string& out, std::string_view name, const std::string& value) {
    if (!value.empty()) out += filled("fact", {{"name", name}, {"value", value}});
}

void add(std::string& out, std::string_view name, const Json& value) {
    add(out, name, html(scalar(value)));
}

/// A list of lines; long ones are collapsed.
void add_lines(std::string& out, std::string_view name, const Json& lines) {
    if (!lines.is_array() || lines.array().empty()) return;
    std::string items;
    for (const Json& line : lines.array()) items += "<li>" + html(scalar(line)) + "</li>";
    constexpr std::size_t most = 6;
    const std::size_t n = lines.array().size();
    items = "<ul>" + items + "</ul>";
    if (n > most)
        items =
            fmt::format("<details><summary>{}</summary>{}</details>", counted(n, "line"), items);
    add(out, name, items);
}

std::string command_line(const Json& command) {
    const std::string text = command.is_string() ? command.string() : shell_command(command);
    return text.empty() ? text : "<code>" + html(text) + "</code>";
}

/// "2" where all layers agree, else the range.
std::string gains(const Json& a2) {
    if (!a2.is_array()) return {};
    std::optional<double> least, most;
    for (const Json& v : a2.array()) {
        if (!v.is_number()) continue;
        least = std::min(least.value_or(v.number()), v.number());
        most = std::max(most.value_or(v.number()), v.number());
    }
    if (!least) return {};
    if (number(*least) == number(*most)) return number(*least) + " in every layer";
    return fmt::format("{} to {}", number(*least), number(*most));
}

}  // namespace

std::string facts_html(const Json& run) {
    const Json &model = run["model"], &input = run["input"];
    std::string out;
    add(out, "Model", model["name"]);
    add(out, "Given as", model["argument"]);
    add(out, "Family", model["family"]);
    add(out, "Format", model["format"]);
    if (model["trained"].is_bool())
        add(out, "Weights", std::string(model["trained"].boolean() ? "as stored" : "random"));
    add(out, "Layers", model["layers"]);
    add(out, "Heads", model["heads"]);
    add(out, "Width", model["width"]);
    add(out, "Norm placement", model["placement"]);
    add(out, "a2", html(gains(model["a2"])));
    add(out, "Digest", model["digest"]);
    add_lines(out, "Recognised", model["recognised"]);
    add_lines(out, "Ignored", model["ignored"]);
    add_lines(out, "Defaults used", model["defaults"]);
    add(out, "Input", input["kind"]);
    add(out, "Tokens", input["tokens"]);
    add(out, "Samples", input["samples"]);
    add(out, "Trials", input["trials"]);
    add_lines(out, "Assumptions about the input", input["defaults"]);
    add(out, "Seed", run["seed"]);
    add(out, "Device", run["device"]);
    add(out, "Number type", run["dtype"]);
    add(out, "Threads", run["threads"]);
    add(out, "Command", command_line(run["command"]));
    add(out, "Version", run["tsdiag"]);
    add_lines(out, "Warnings", run["warnings"]);
    return out.empty() ? out : filled("facts", {{"items", out}});
}

}  // namespace tsdiag::reports
