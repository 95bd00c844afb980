#include "train/state.hpp"

#include "fuzz.hpp"

/// The state of a training, as `train --resume` reads it, for a model of two parameters.

using namespace tsdiag;

void examine(std::string_view input) {
    std::filesystem::create_directories(fuzz::folder().path() / "checkpoints/step-2");
    fuzz::folder().write("checkpoints/step-2/training.safetensors", input);
    fuzz::accepts([] { training::described_state(fuzz::folder().path(), 2).dump(); });
    fuzz::accepts([] {
        training::Parameters parameters;
        for (const char* name : {"a", "b"}) {
            const std::vector<float> zeros(6);
            parameters.set(name, Tensor::from_host(cpu(), {1, 2, 3}, std::span(zeros), Type::f32));
        }
        training::Optimiser optimiser({});
        training::load_state(fuzz::folder().path(), 2, parameters, optimiser);
    });
}
