#include "tsdiag/checkpoint_series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "same_tensors.hpp"
#include "step_names.hpp"
#include "tsdiag/adapter.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> metadata_keys = {
    std::pair{"global_step", "step"},
    {"step", "step"},
    {"iter_num", "iteration"},
    {"iteration", "iteration"},
    {"num_updates", "step"}};

/// A non-negative integer, also as text (safetensors metadata are strings).
std::optional<Index> whole(const Json& value) {
    if (value.is_integer())
        return value.integer() >= 0 ? std::optional(value.integer()) : std::nullopt;
    if (!value.is_string()) return std::nullopt;
    const std::string& text = value.string();
    Index out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || out < 0)
        return std::nullopt;
    return out;
}

std::optional<SeriesMember> step_in(const Json& metadata, const std::string& where) {
    for (const auto& [key, unit] : metadata_keys)
        if (const auto step = whole(metadata[key]))
            return SeriesMember{{}, *step, std::string(unit), fmt::format("{} of {}", key, where)};
    return std::nullopt;
}

std::optional<SeriesMember> step_beside(const fs::path& path) {
    std::error_code failed;
    const fs::path state =
        (fs::is_directory(path, failed) ? path : path.parent_path()) / "trainer_state.json";
    if (!fs::is_regular_file(state, failed)) return std::nullopt;
    return step_in(file_json(state, "a trainer_state.json", longest_history), "trainer_state.json");
}

std::optional<SeriesMember> step_in_file_name(const fs::path& path) {
    std::string name = path.filename().string();
    for (const std::string_view suffix :
         {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".npz", ".model"})
        if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    const auto found = step_in_name(name);
    if (!found) return std::nullopt;
    return SeriesMember{{}, found->step, std::string(found->unit), "its name"};
}

/// A standard Hugging Face name, which holds no step; the number of model-500.pt is one.
bool has_unnumbered_name(const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with("model.") || name.starts_with("pytorch_model");
}

/// The steps that a checkpoint gives of itself, of which the first counts.
std::vector<SeriesMember> given_steps(const std::string& path, const Json& metadata,
                                      const fs::path& named) {
    std::vector<SeriesMember> all;
    const auto add = [&](std::optional<SeriesMember> found) {
        if (found) all.push_back(std::move(*found));
    };
    add(step_in(metadata, fs::is_directory(path) ? "its file" : "the file"));
    if (fs::is_directory(path) || has_unnumbered_name(path)) try {
            add(step_beside(path));
        } catch (const FormatError&) {
            if (all.empty()) throw;  // else the step is known
        }
    // model.safetensors has no number; its directory may have one
    add(step_in_file_name(has_unnumbered_name(named) ? fs::absolute(named).parent_path() : named));
    return all;
}

/// Nullopt: the checkpoint gives none.
std::optional<SeriesMember> known_step(const std::string& path) {
    const std::unique_ptr<Checkpoint> file = open_file(path);
    const std::string where = fs::is_directory(path) ? "its file" : "the file";
    const fs::path given = fs::path(path).lexically_normal();
    const fs::path named = given.has_filename() ? given : given.parent_path();
    const std::vector<SeriesMember> all = given_steps(path, file->metadata(), named);
    if (!all.empty()) {
        SeriesMember first = all.front();
        const auto other = std::ranges::find_if(all, [&](const SeriesMember& one) {
            return one.unit == first.unit && one.step != first.step;
        });
        if (other != all.end())
            first.contradiction =
                fmt::format("{}: is taken for {} {} ({}), not {} ({}); rename it", path, first.unit,
                            first.step, first.origin, other->step, other->origin);
        return first;
    }
    if (const auto epoch = whole(file->metadata()["epoch"]))
        return SeriesMember{{}, *epoch, "epoch", fmt::format("epoch of {}", where)};
    return std::nullopt;
}

[[noreturn]] void refuse_without_step(const std::string& path) {
    const fs::path given = fs::path(path).lexically_normal();
    const fs::path named = given.has_filename() ? given : given.parent_path();
    if (fs::absolute(named).parent_path().filename() == "snapshots")
        throw UsageError(
            fmt::format("{}: is one of several revisions in a cache of a hub, which are no steps "
                        "of a training; name the one to measure, or pass --steps with one number "
                        "per revision.",
                        path));
    if (adapter_files(path))
        throw UsageError(
            fmt::format("{}: is one of several adapters, none of which gives a training step; name "
                        "the one to measure, or pass --steps with one number per adapter.",
                        path));
    throw UsageError(fmt::format(
        "{}: neither its metadata nor its name gives a training step, expected a name such as "
        "checkpoint-500; rename it, or pass --steps with one number per checkpoint.",
        path));
}

/// The deepest directory that contains all paths.
std::string common_directory(const std::vector<std::string>& paths) {
    fs::path common = fs::path(paths.front()).lexically_normal();
    if (!common.has_filename()) common = common.parent_path();
    common = common.parent_path();
    for (const std::string& path : paths) {
        const std::string normal = fs::path(path).lexically_normal().string();
        while (!common.empty() && common != common.root_path() &&
               !normal.starts_with(common.string() + "/"))
            common = common.parent_path();
    }
    return common.empty() ? "checkpoints" : common.string();
}

/// Keeps the first of checkpoints with equal step and equal tensors.
void leave_out_copies(CheckpointSeries& series) {
    std::vector<SeriesMember> kept;
    for (SeriesMember& one : series.members) {
        if (!kept.empty() && kept.back().step == one.step) {
            if (!same_tensors(kept.back().path, one.path))
                throw UsageError(fmt::format(
                    "{}: has {} {} ({}), as does {}, but the tensors of the two differ; omit one, "
                    "or pass --steps.",
                    one.path, series.unit, one.step, one.origin, kept.back().path));
            series.notes.push_back(fmt::format("{}: a copy of {} (the same tensors), skipped",
                                               one.path, kept.back().path));
            continue;
        }
        kept.push_back(std::move(one));
    }
    series.members = std::move(kept);
}

/// Files that trainings keep beside the numbered ones, as copies of one of them (Lightning's
/// last.ckpt) or as states of their own.
bool is_named_by_role(const SeriesMember& one) {
    const std::string name = fs::path(one.path).filename().string();
    constexpr std::array<std::string_view, 4> roles = {"last", "latest", "best", "final"};
    return std::ranges::any_of(roles,
                               [&](std::string_view role) { return name.starts_with(role); });
}

/// A checkpoint that has the tensors of a numbered one is that step, whatever it says of itself;
/// one without a step that has them of none is refused.
void leave_out_twins(CheckpointSeries& series, const std::vector<std::string>& without_step) {
    std::vector<SeriesMember> kept, roles;
    for (SeriesMember& one : series.members)
        (is_named_by_role(one) ? roles : kept).push_back(std::move(one));
    const auto skipped = [&](const std::string& path, const SeriesMember* self) {
        const auto twin = std::ranges::find_if(
            kept, [&](const SeriesMember& one) { return same_tensors(one.path, path); });
        if (twin == kept.end()) return false;
        const bool other = self != nullptr && self->step != twin->step;
        series.notes.push_back(fmt::format(
            "{}: a copy of {} (the same tensors), skipped{}", path, twin->path,
            other ? fmt::format(", though {} says {} {}", self->origin, self->unit, self->step)
                  : std::string()));
        return true;
    };
    std::vector<SeriesMember> own;
    for (SeriesMember& one : roles)
        if (!skipped(one.path, &one)) own.push_back(std::move(one));
    std::ranges::move(own, std::back_inserter(kept));
    std::ranges::sort(kept, {}, &SeriesMember::step);
    for (const std::string& path : without_step)
        if (!skipped(path, nullptr)) refuse_without_step(path);
    series.members = std::move(kept);
}

/// The folders beside `paths`, all in one, that have the name of a checkpoint but hold no model.
std::vector<std::string> without_model(const std::vector<std::string>& paths) {
    std::set<fs::path> known;
    for (const std::string& path : paths) known.insert(fs::path(path).filename());
    std::vector<std::string> out;
    std::error_code failed;
    for (fs::directory_iterator at(fs::path(paths.front()).parent_path(), failed), end;
         !failed && at != end; at.increment(failed)) {
        std::error_code ignored;
        const fs::path& path = at->path();
        if (at->is_directory(ignored) && step_in_file_name(path) &&
            !known.contains(path.filename()))
            out.push_back(path.string());
    }
    std::ranges::sort(out);
    return out;
}

std::vector<std::string> expanded(const std::vector<std::string>& arguments) {
    if (arguments.size() > 1) return arguments;
    std::vector<std::string> paths;
    for (const fs::path& path : checkpoints_in(arguments.front())) paths.push_back(path.string());
    return paths;
}

/// What the members of a series have in common.  Where no table of positions ends there, the
/// longest input that a model was made for changes no number.
Json architecture_of(const Subject& subject) {
    Json out;
    if (!subject.is_trace()) {
        const Json all = subject.spec().computation();
        const bool table = subject.spec().embedding.positions == Positions::learned;
        for (const auto& [key, value] : all.object())
            if (table || key != "max_tokens") out.set(key, value);
        return out;
    }
    const TraceSummary trace = summarise_trace(*subject.file);
    out.set("family", "trace").set("layers", trace.layers).set("heads", trace.heads);
    return out.set("width", trace.width).set("tokens", trace.tokens);
}

/// The first difference of two descriptions, in words with the path to it; `at`: the path to both.
/// Empty: they are equal.
std::string first_difference(const Json& a, const Json& b, const std::string& at = {}) {
    if (a.is_object() || b.is_object()) {
        for (const Json* one : {&a, &b}) {
            if (!one->is_object()) continue;
            for (const auto& [key, value] : one->object())
                if (std::string found =
                        first_difference(a[key], b[key], at.empty() ? key : at + "." + key);
                    !found.empty())
                    return found;
        }
        return {};
    }
    if (a.is_array() && b.is_array()) {
        const Json::Array &of_a = a.array(), &of_b = b.array();
        for (std::size_t i = 0; i < std::min(of_a.size(), of_b.size()); ++i)
            if (std::string found =
                    first_difference(of_a[i], of_b[i], fmt::format("{}[{}]", at, i));
                !found.empty())
                return found;
        if (of_a.size() == of_b.size()) return {};
        return fmt::format("{} has {}, expected {}", at, counted(of_b.size(), "element"),
                           of_a.size());
    }
    const auto described = [](const Json& value, const char* missing) {
        if (value.is_null()) return std::string(missing);
        const bool real = value.is_number() && !value.is_integer();
        return real ? fmt::format("{}", value.number()) : shortened(value.dump(), 60);
    };
    if (a.dump() == b.dump()) return {};
    return fmt::format("{} is {}, expected {}", at, described(b, "not there"),
                       described(a, "none"));
}

}  // namespace

bool is_series(const std::vector<std::string>& arguments) {
    if (arguments.size() != 1) return arguments.size() > 1;
    std::error_code failed;
    return fs::is_directory(arguments.front(), failed) &&
           checkpoints_in(arguments.front()).size() > 1 && !is_batches(arguments.front());
}

SeriesMember find_member(const std::string& path) {
    std::optional<SeriesMember> found = known_step(path);
    if (!found) refuse_without_step(path);
    found->path = path;
    return *found;
}

std::string contradictory_steps(std::span<const SeriesMember> members) {
    std::string first;
    std::size_t others = 0;
    for (const SeriesMember& one : members) {
        if (one.contradiction.empty()) continue;
        if (first.empty())
            first = one.contradiction;
        else
            ++others;
    }
    return others == 0 ? first : fmt::format("{} ({} likewise)", first, counted(others, "other"));
}

CheckpointSeries find_series(const std::vector<std::string>& arguments,
                             const std::vector<Index>& steps) {
    CheckpointSeries series;
    const std::vector<std::string> paths = expanded(arguments);
    series.name = arguments.size() == 1 ? arguments.front() : common_directory(paths);
    if (!steps.empty() && steps.size() != paths.size())
        throw UsageError(
            fmt::format("--steps: {} numbers given, expected {}, one per checkpoint ({} first).",
                        steps.size(), paths.size(), paths.front()));
    std::vector<std::string> without_step;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (paths[i].starts_with("random:"))
            throw UsageError(
                fmt::format("{}: is a random model, expected a checkpoint as the others; probe "
                            "random models alone.",
                            paths[i]));
        std::optional<SeriesMember> found;
        if (steps.empty())
            found = known_step(paths[i]);
        else
            found = SeriesMember{{}, steps[i], "step", "--steps"};
        if (!found) {
            without_step.push_back(paths[i]);
            continue;
        }
        found->path = paths[i];
        if (series.unit.empty()) series.unit = found->unit;
        if (series.unit != found->unit)
            throw UsageError(fmt::format(
                "{}: gives its {} ({} {}), but {} gives its {}; expected the same for all; pass "
                "--steps.",
                paths[i], found->unit, found->origin, found->step, series.members.front().path,
                series.unit));
        series.members.push_back(std::move(*found));
    }
    if (std::string said = contradictory_steps(series.members); !said.empty())
        series.notes.push_back(said + ", or pass --steps");
    if (arguments.size() == 1)
        for (const std::string& path : without_model(paths))
            series.notes.push_back(fmt::format(
                "{}: has the name of a checkpoint but holds no model, and is left out", path));
    // a stable order: of equal steps the one named first
    std::vector<std::pair<Index, std::size_t>> order;
    for (std::size_t i = 0; i < series.members.size(); ++i)
        order.emplace_back(series.members[i].step, i);
    std::ranges::sort(order);
    std::vector<SeriesMember> sorted;
    for (const auto& [step, i] : order) sorted.push_back(std::move(series.members[i]));
    series.members = std::move(sorted);
    leave_out_copies(series);
    if (steps.empty()) leave_out_twins(series, without_step);
    if (series.members.size() < 2)
        throw UsageError(
            fmt::format("{}: is the only checkpoint; the others are copies of it. Probe it alone.",
                        series.members.front().path));
    return series;
}

void require_one_architecture(const CheckpointSeries& series, const SubjectOptions& options) {
    Json first;
    for (const SeriesMember& member : series.members) {
        SubjectOptions one = options;
        one.model = member.path;
        const Json spec = architecture_of(open_subject(one));
        if (first.is_null()) first = spec;
        if (const std::string difference = first_difference(first, spec); !difference.empty())
            throw ShapeError(
                fmt::format("{}: has another architecture than {}: {}; expected the same "
                            "architecture in all checkpoints.",
                            member.path, series.members.front().path, difference));
    }
}

}  // namespace tsdiag
