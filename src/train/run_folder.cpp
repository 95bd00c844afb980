#include "run_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag::training {
namespace {

namespace fs = std::filesystem;

OutputPlan checkpoint_plan() {
    return {.writes = {"config.json", "model.safetensors", "model-*.safetensors",
                       "model.safetensors.index.json", state_file},
            .force = true};
}

void require_same(const fs::path& directory, RunRecord::Training then,
                  const RunRecord::Training& now) {
    if (!then.architecture.empty() && then.architecture != now.architecture)
        throw UsageError(fmt::format("--resume: {} was trained with another configuration of {}.",
                                     directory.string(), now.model));
    then.architecture = now.architecture;
    const Json before = then.json(), after = now.json();
    for (const Json* all : {&after, &before})  // either lacks what was not given
        for (const auto& [key, value] : all->object())
            if (before[key].dump() != after[key].dump())
                throw UsageError(
                    fmt::format("--resume: {} was trained with {} {}, but now it is {}.",
                                directory.string(), key, before[key].dump(), after[key].dump()));
}

/// Renames a state from which no run can be resumed, so that a new one can take its name.
void put_aside(const fs::path& state) {
    for (int k = 0;; ++k) {
        const fs::path aside =
            state.string() + (k == 0 ? ".damaged" : fmt::format(".damaged-{}", k));
        if (fs::exists(fs::symlink_status(aside))) continue;
        fs::rename(state, aside);
        return;
    }
}

}  // namespace

fs::path RunFolder::checkpoint(Index step) const {
    return directory_ / "checkpoints" / fmt::format("step-{}", step);
}

std::vector<Index> RunFolder::saved_steps() const {
    std::vector<Index> out;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory_ / "checkpoints", none)) {
        const std::string name = entry.path().filename().string();
        Index step = 0;
        if (!name.starts_with("step-")) continue;
        const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
        if (error == std::errc() && end == name.data() + name.size() &&
            fs::is_regular_file(entry.path() / state_file, none))
            out.push_back(step);
    }
    std::ranges::sort(out);
    return out;
}

Index RunFolder::last_saved() const {
    const std::vector<Index> steps = directory_.empty() ? std::vector<Index>() : saved_steps();
    return steps.empty() ? -1 : steps.back();
}

void RunFolder::begin(const Json& words) {
    if (directory_.empty()) return;
    lock_.emplace(directory_);
    finish_output(directory_ / "checkpoints");
    OutputPlan plan{
        .writes = {"characters.json", "run.json", "report.html", "figures/*", "checkpoints/step-*"},
        .force = true};
    for (const char* name : Log::files()) {
        plan.writes.emplace_back(name);
        plan.grows.emplace_back(name);
    }
    OutputFolder folder(directory_, plan);
    Log::write_empty(folder.temporary());
    if (!words.is_null())
        write_atomically(folder.temporary() / "characters.json", words.dump(1) + "\n");
    folder.commit();
    log_.open(directory_, Log::empty_marks(), Table());
}

Index RunFolder::resume(const RunRecord::Training& identity, Parameters& parameters,
                        Optimiser& optimiser, TrainResult& result,
                        std::vector<std::string>& notes) {
    lock_.emplace(directory_);
    finish_output(directory_ / "checkpoints");
    std::vector<Index> steps = saved_steps();
    std::ranges::reverse(steps);
    if (steps.empty())
        throw UsageError(fmt::format("--resume: {} contains no checkpoint to resume from.",
                                     directory_.string()));
    for (const Index step : steps) {
        try {
            const State state(checkpoint(step) / state_file);
            require_same(directory_, state.notes().identity, identity);
            read_logs(directory_, &state.notes().logs, result);
            if (std::ssize(result.steps) != step)
                throw FormatError(fmt::format("{}/steps.csv: has {} steps, expected {}.",
                                              directory_.string(), result.steps.size(), step));
            state.restore(parameters, optimiser);
            for (const Index later : steps) {
                if (later <= step) break;
                const Manifest own = Manifest::of(checkpoint(later));
                if (!own.owns(checkpoint(later), state_file))
                    put_aside(checkpoint(later) / state_file);
                const OutputFolder refused_now(checkpoint(later), checkpoint_plan());
            }
            set_marks(state.notes().logs);
            drop_old_states();  // left by a kill after a save
            measured_ = state.notes().measured;
            log_.open(directory_, state.notes().logs, result.table);
            return step;
        } catch (const FormatError& error) {
            std::string why = error.what();
            if (why.ends_with('.')) why.pop_back();
            notes.push_back(fmt::format("cannot resume from step {}: {}", step, why));
        }
    }
    std::string all;
    for (const std::string& note : notes) all += (all.empty() ? "" : "; ") + note;
    throw FormatError(
        fmt::format("--resume: {} contains no intact state ({}); pass --force to start over.",
                    directory_.string(), all));
}

/// Marks the files that the run may overwrite: its logs up to `marks`, and a manifest below.
void RunFolder::set_marks(const LogMarks& marks, const std::string& file,
                          const std::string& digest) const {
    Manifest manifest = Manifest::of(directory_);
    for (const auto& [name, mark] : marks) manifest.set(name, mark);
    if (!file.empty()) manifest.set(file, {digest});
    manifest.write(directory_);
}

std::string RunFolder::save(Index step, const ModelSpec& spec, const Parameters& parameters,
                            const Optimiser& optimiser, const RunRecord::Training& identity) {
    if (directory_.empty()) return {};
    const LogMarks marks = log_.sync();
    OutputFolder folder(checkpoint(step), checkpoint_plan());
    std::string why;
    try {
        write_model(spec, parameters, folder.temporary());
    } catch (const NotAvailable& error) {
        why = error.what();
    }
    write_state(folder.temporary() / state_file, parameters, optimiser,
                {identity, marks, measured_});
    const std::string digest = folder.seal();
    set_marks(marks, fmt::format("checkpoints/step-{}/{}", step, Manifest::file), digest);
    folder.commit();
    drop_old_states();
    return why;
}

/// Removes the states of all but the last two checkpoints.
void RunFolder::drop_old_states() const {
    const std::vector<Index> steps = saved_steps();
    for (std::size_t i = 0; i + 2 < steps.size(); ++i) {
        const fs::path folder = checkpoint(steps[i]);
        if (Manifest::of(folder).owns(folder, state_file)) fs::remove(folder / state_file);
    }
}

void RunFolder::finish() {
    if (directory_.empty()) return;
    LogMarks marks = log_.sync();
    for (auto& [name, mark] : marks) mark.grows.reset();
    set_marks(marks);
    log_.close();
}

}  // namespace tsdiag::training
