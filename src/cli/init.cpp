#include <fmt/format.h>

#include "commands.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::cli {

int run_command(const InitCommand& command) {
    SubjectOptions options;
    options.model = command.model;
    if (!command.model.starts_with("random:"))
        throw UsageError(fmt::format(
            "{}: is no random model, expected random:NAME[,key=value...] (tsdiag list random).",
            command.model));
    const Subject subject = open_subject(options);
    const auto weights =
        random_weights(subject.random, weights_rng(command.seed, 0), cpu(), Type::f32);
    // The last three are other forms of a model, which would be opened in place of this.
    OutputFolder directory(command.out,
                           {.writes = {"config.json", "model.safetensors", "model-*.safetensors",
                                       "model.safetensors.index.json", "pytorch_model.bin",
                                       "pytorch_model-*.bin", "pytorch_model.bin.index.json"},
                            .replace = false,
                            .force = command.force});
    write_model(subject.spec(), *weights, directory.temporary());
    directory.commit();
    print(fmt::format("{}\n", printable(command.out)));
    return 0;
}

}  // namespace tsdiag::cli
