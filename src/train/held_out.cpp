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

/// The settings of the training in `directory`; null where there is none.
Json settings_of(const fs::path& directory) {
    if (const Index step = training::RunFolder(directory).last_saved(); step >= 0) {
        const fs::path checkpoint = directory / "checkpoints" / fmt::format("step-{}", step);
        return training::State(checkpoint / training::state_file).notes().identity;
    }
    const fs::path description = directory / "run.json";
    if (!fs::exists(description)) return {};
    const RunRecord run = file_json(description, "a run.json", longest_result);
    return run.train ? run.train->all : Json();
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
    const Json settings = settings_of(directory);
    if (!settings.is_object()) return std::nullopt;
    const std::string name = settings["data"].string();
    const auto refuse = [&](const std::string& why) {
        throw UsageError(
            fmt::format("{}: was trained on {}, {}; pass the input to measure with --input.",
                        model.string(), name, why));
    };
    std::string loss = settings["loss"].string();
    std::shared_ptr<training::Data> data;
    try {
        data = training::open_data(name, loss);
    } catch (const Error& error) {
        refuse(fmt::format("which cannot be read ({})", error.what()));
    }
    if (training::digest_of_file(name) != settings["contents"].string())
        refuse("which has changed since");

    const bool probed = settings["probe_every"].integer() > 0;
    if (!settings["seed"].is_integer()) refuse("but its state does not contain the full seed");
    const auto seed = std::uint64_t(settings["seed"].integer());
    const Rng rng = Rng(seed).fork("train").fork("data");
    OwnInput out;
    out.kind = "held out";
    out.origin =
        fmt::format("samples that the training {} held out from {}", directory.string(), name);
    out.digest = fmt::format("{} {} {} {}", name, settings["contents"].string(), loss, seed);
    out.tokens = settings["tokens"].integer();
    out.most = data->held_out();
    out.samples = std::min(out.most, probed ? settings["probe_samples"].integer() : 1);
    out.make = [data, rng](Index sample, Index tokens, const ModelSpec& spec,
                           const Backend& backend, Type type) {
        const training::Fit fit{spec, backend, type, tokens};
        data->require(fit);
        return data->held_out(fit, rng, sample).input;
    };
    return out;
}

}  // namespace tsdiag
