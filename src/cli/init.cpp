#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "commands.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::cli {

namespace fs = std::filesystem;

namespace {

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

int run_command(const InitCommand& command) {
    SubjectOptions options;
    options.model = command.model;
    if (!command.model.starts_with("random:"))
        throw UsageError(
            fmt::format("{}: is not a random model, expected random:NAME[,key=value...] (see "
                        "tsdiag list random).",
                        command.model));
    const Subject subject = open_subject(options);
    // The last three are other formats of a model, which would take precedence when it is opened.
    OutputFolder directory(command.out,
                           {.writes = {"config.json", "model.safetensors", "model-*.safetensors",
                                       "model.safetensors.index.json", "pytorch_model.bin",
                                       "pytorch_model-*.bin", "pytorch_model.bin.index.json"},
                            .replace = false,
                            .force = command.force});
    require_room(subject.spec(), command.model, directory.temporary());
    const auto weights =
        random_weights(subject.random, weights_rng(command.seed, 0), cpu(), Type::f32);
    write_model(subject.spec(), *weights, directory.temporary());
    directory.commit();
    print_json("init", Json().set("out", command.out));
    print(fmt::format("{}\n", printable(command.out)));
    return 0;
}

}  // namespace tsdiag::cli
