#include <fmt/format.h>

#include <algorithm>

#include "data.hpp"
#include "run_folder.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/run_record.hpp"
#include "tsdiag/train.hpp"

/// The held-out samples of a training, for later diagnostics of its checkpoints.
namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t rounded = 1ULL << 63;  // from here on, JSON has seeds as doubles

/// The settings of the training in `directory`, where there is one.
std::optional<RunRecord::Training> settings_of(const fs::path& directory) {
    if (const Index step = training::RunFolder(directory).last_saved(); step >= 0) {
        const fs::path checkpoint = directory / "checkpoints" / fmt::format("step-{}", step);
        const training::State state(checkpoint / training::state_file);
        return state.notes().identity;
    }
    const fs::path description = directory / "run.json";
    if (!fs::exists(description)) return std::nullopt;
    return RunRecord(file_json(description, "a run.json", longest_result)).train;
}

/// The directory of a training: `model`, or the one whose `checkpoints` contains it.
fs::path training_of(const fs::path& model) {
    std::error_code failed;
    fs::path whole = fs::weakly_canonical(model, failed);
    for (fs::path at = whole; at.has_relative_path(); at = at.parent_path())
        if (at.filename() == "checkpoints") return at.parent_path();
    return whole;
}

}  // namespace

std::optional<OwnInput> held_out_input(const fs::path& model) {
    const fs::path directory = training_of(model);
    std::error_code failed;
    if (!fs::is_directory(directory / "checkpoints", failed)) return std::nullopt;
    const std::optional<RunRecord::Training> settings = settings_of(directory);
    if (!settings) return std::nullopt;
    const std::string& name = settings->data;
    const auto refusal = [&](const std::string& why) {
        return UsageError(
            fmt::format("{}: was trained on {}, {}; pass the input to measure with --input.",
                        model.string(), name, why));
    };
    std::string loss = settings->loss;
    std::shared_ptr<training::Data> data;
    try {
        data = training::open_data(name, loss);
    } catch (const Error& error) {
        throw refusal(fmt::format("which cannot be read ({})", error.what()));
    }
    if (training::digest_of_file(name) != settings->contents)
        throw refusal("which has changed since");

    if (settings->seed.value_or(rounded) >= rounded)
        throw refusal("but its state does not contain the full seed");
    if (!settings->tokens) throw refusal("but its state does not contain the length of a sample");
    const std::uint64_t seed = *settings->seed;
    const Rng rng = Rng(seed).fork("train").fork("data");
    OwnInput out;
    out.kind = "held out";
    out.origin =
        fmt::format("samples that the training {} held out from {}", directory.string(), name);
    out.digest = fmt::format("{} {} {} {}", name, settings->contents, loss, seed);
    out.tokens = *settings->tokens;
    out.most = data->held_out();
    const bool probed = settings->probe_every.value_or(0) > 0;
    out.samples = std::min(out.most, probed ? settings->probe_samples.value_or(1) : 1);
    out.make = [data, rng](Index sample, Index tokens, const ModelSpec& spec,
                           const Backend& backend, Type type) {
        const training::Fit fit{spec, backend, type, tokens};
        data->require(fit);
        return data->held_out(fit, rng, sample).input;
    };
    return out;
}

}  // namespace tsdiag
