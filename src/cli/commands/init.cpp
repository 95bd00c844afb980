#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "command.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::cli {

namespace fs = std::filesystem;

namespace {

struct InitCommand final : Command {
    explicit InitCommand(CLI::App& app);
    int run() const override;

    std::string model, out;
    std::uint64_t seed = 0;
    bool force = false;
};

/// A model is written tensor by tensor: memory must hold the largest one, the disk all of them.
void require_room(const ModelSpec& spec, const std::string& argument, const fs::path& out) {
    const auto size = [](double bytes) {
        constexpr double kib = 1024, gib = kib * kib * kib;
        return bytes < gib / 10 ? fmt::format("{:.0f} KiB", bytes / kib)
                                : fmt::format("{:.1f} GiB", bytes / gib);
    };
    double largest = 0, all = 0;
    for (const Parameter& p : parameters(spec)) {
        const double bytes = sizeof(float) * double(p.shape.count());
        largest = std::max(largest, bytes);
        all += bytes;
    }
    const auto refuse = [&](std::string_view what, double needed, std::string_view where,
                            double has) {
        if (needed > has)
            throw UsageError(fmt::format("{}: {} takes {}, but {} has {}; choose smaller sizes.",
                                         argument, what, size(needed), where, size(has)));
    };
    refuse("its largest tensor", largest, "this machine", double(machine_memory()));
    std::error_code none;
    if (const fs::space_info disk = fs::space(out, none); !none)
        refuse("the model", all, "the disk", double(disk.available));
}

}  // namespace

InitCommand::InitCommand(CLI::App& app) {
    app.add_option("MODEL", model, "random:NAME[,key=value...]")->required()->type_name("");
    place(app, out, "DIR", "output directory")->required();
    value(app, "--seed", "K", "random seed of the weights (default 0)",
          [&](const std::string& t) { seed = parse_seed(t, "--seed"); });
    app.add_flag("--force", force, "write into a directory that contains other files");
}

int InitCommand::run() const {
    SubjectOptions options;
    options.model = model;
    if (!model.starts_with("random:"))
        throw UsageError(
            fmt::format("{}: is not a random model, expected random:NAME[,key=value...] (see "
                        "tsdiag list random).",
                        model));
    const Subject subject = open_subject(options);
    // The last three are other formats of a model, which would take precedence when it is opened.
    OutputFolder directory(
        out, {.writes = {"config.json", "model.safetensors", "model-*.safetensors",
                         "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model-*.bin",
                         "pytorch_model.bin.index.json"},
              .replace = false,
              .force = force});
    require_room(subject.spec(), model, directory.temporary());
    const auto weights = random_weights(subject.random, weights_rng(seed, 0), cpu(), Type::f32);
    ModelSpec spec = subject.spec();
    spec.provenance.draws = Draws{.seed = seed};
    write_model(spec, *weights, directory.temporary());
    directory.commit();
    print_json("init", Json().set("out", out));
    print(fmt::format("{}\n", printable(out)));
    return 0;
}

extern const CommandEntry init_command = {
    .name = "init",
    .about = "write a random model as a Hugging Face directory",
    .examples = R"(Examples:
  tsdiag init random:gpt2,layers=24 -o gpt2-24
  tsdiag init random:bert-base --seed 7 -o bert-seed7)",
    .make = made<InitCommand>,
    .names = random_models,
    .has_settings = true};

}  // namespace tsdiag::cli
