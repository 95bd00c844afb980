#include "train/state.hpp"

#include "fuzz.hpp"
#include "tsdiag/output.hpp"

/// The state of a training, as `train --resume` reads it, for a model of two parameters: the file
/// itself, and its two notes in a state with valid digests.

using namespace tsdiag;

namespace {

constexpr Index shape[] = {1, 2, 3};
const std::vector<float> zeros(6);

void read(const std::filesystem::path& file) {
    fuzz::accepts([&] {
        const training::State state(file);
        state.notes().identity.json().dump();
        training::Parameters parameters;
        for (const char* name : {"a", "b"})
            parameters.set(name, Tensor::from_host(cpu(), {shape[0], shape[1], shape[2]},
                                                   std::span(zeros), Type::f32));
        training::Optimiser optimiser({});
        state.restore(parameters, optimiser);
    });
}

void write(const std::filesystem::path& file, std::string identity, std::string logs) {
    std::vector<NamedArray> arrays;
    std::string lines;
    const std::string bytes(sizeof(float) * zeros.size(), '\0');
    for (const char* name : {"m.a", "parameter.a", "parameter.b", "v.a"}) {
        NamedArray array;
        array.name = name;
        array.shape.assign(std::begin(shape), std::end(shape));
        array.f32 = zeros;
        arrays.push_back(array);
        lines += fmt::format("{} 1x2x3 {}\n", name, sha256(bytes));
    }
    Json notes;
    notes.set("sha256", sha256(identity + "\n" + logs + "\n" + lines));
    notes.set("training", std::move(identity)).set("logs", std::move(logs)).set("tensors", lines);
    write_safetensors(file, arrays, notes);
}

}  // namespace

void examine(std::string_view input) {
    read(fuzz::folder().write("training.safetensors", input));
    const std::vector<std::string_view> notes = fuzz::parts(input, 2);
    const std::filesystem::path file = fuzz::folder().path() / "noted.safetensors";
    if (fuzz::accepts([&] { write(file, std::string(notes[0]), std::string(notes[1])); }))
        read(file);
}
