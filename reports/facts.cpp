#include <fmt/format.h>

#include "page.hpp"
#include "skeleton.hpp"
#include "text.hpp"

/// Model and run according to the description.  Absent entries are left out.
namespace tsdiag::reports {
namespace {

void add(std::string& out, std::string_view name, const std::string& value) {
    if (!value.empty()) out += filled("fact", {{"name", name}, {"value", value}});
}

void add_text(std::string& out, std::string_view name, const std::string& text) {
    add(out, name, html(text));
}

template <class T>
void add_count(std::string& out, std::string_view name, const std::optional<T>& count) {
    if (count) add(out, name, std::to_string(*count));
}

/// A list of lines; long ones are collapsed.
void add_lines(std::string& out, std::string_view name, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    std::string items;
    for (const std::string& line : lines) items += "<li>" + html(line) + "</li>";
    constexpr std::size_t most = 6;
    items = "<ul>" + items + "</ul>";
    if (lines.size() > most)
        items = fmt::format("<details><summary>{}</summary>{}</details>",
                            counted(lines.size(), "line"), items);
    add(out, name, items);
}

/// "2" where all layers agree, else the range.
std::string gains(const std::vector<std::optional<double>>& a2) {
    std::optional<double> least, most;
    for (const std::optional<double>& v : a2) {
        if (!v) continue;
        least = std::min(least.value_or(*v), *v);
        most = std::max(most.value_or(*v), *v);
    }
    if (!least) return {};
    if (number(*least) == number(*most)) return number(*least) + " in every layer";
    return fmt::format("{} to {}", number(*least), number(*most));
}

}  // namespace

std::string origin_text(const RunRecord& run) {
    std::string text = run.measured.day();
    const auto add_part = [&](std::string_view joint, const std::string& part) {
        if (!part.empty()) text += (text.empty() ? "" : std::string(joint)) + part;
    };
    add_part(" on ", run.device_name);
    add_part(run.device_name.empty() ? " on " : " and ", run.measured.processor);
    add_part(", ", run.threads ? counted(std::size_t(*run.threads), "thread") : "");
    add_part(", ", run.version.empty() ? "" : "tsdiag " + run.version);
    if (!run.measured.commit.empty()) text += fmt::format(" (commit {})", run.measured.commit);
    return text;
}

std::string facts_html(const RunRecord& run) {
    const RunRecord::Model& model = run.model;
    const std::string command = shell_command(run.command);
    std::string out;
    add_text(out, "Model", model.name);
    add_text(out, "Given as", model.described ? model.argument : "");
    add_text(out, "Family", model.family);
    add_text(out, "Format", model.format);
    if (model.trained) add_text(out, "Weights", *model.trained ? "read from files" : "random");
    add_count(out, "Layers", model.layers);
    add_count(out, "Heads", model.heads);
    add_count(out, "Width", model.width);
    add_text(out, "Norm placement", model.placement);
    add_text(out, "a2", gains(model.a2));
    add_text(out, "Digest", model.digest);
    add_lines(out, "Recognised", model.recognised);
    add_lines(out, "Ignored", model.ignored);
    add_lines(out, "Defaults used", model.defaults);
    add_text(out, "Input", run.input.kind);
    add_text(out, "Length", run.input.tokens_in_words());
    add_count(out, "Samples", run.input.samples);
    add_count(out, "Trials", run.input.trials);
    add_lines(out, "Assumptions about the input", run.input.defaults);
    add_count(out, "Seed", run.seed);
    add_text(out, "Device", run.device);
    add_text(out, "Number type", run.dtype);
    if (!command.empty()) add(out, "Command", "<code>" + html(command) + "</code>");
    for (const auto& [name, value] : origin_facts(run)) add_text(out, name, value);
    add_lines(out, "Warnings", run.warnings);
    return out.empty() ? out : filled("facts", {{"items", out}});
}

}  // namespace tsdiag::reports

namespace tsdiag {

std::vector<std::pair<std::string, std::string>> origin_facts(const RunRecord& run) {
    std::string cite;
    if (!run.version.empty())
        cite = fmt::format(
            "tsdiag {}, and the paper that defines the metric; CITATION.cff, which comes with "
            "tsdiag, has both.",
            run.version);
    const char* how = run.measured.date.empty() ? "Computed with" : "Measured";
    return {{how, reports::origin_text(run)}, {"How to cite", std::move(cite)}};
}

}  // namespace tsdiag
