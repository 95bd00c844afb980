#include <fmt/format.h>

#include "layouts.hpp"
#include "tsdiag/error.hpp"

/// Names and layouts of Flax, as Hugging Face's Flax models have them: those of its PyTorch models
/// but for the last word, with matrices (in, out) and kernels (height, width, in, out).
namespace tsdiag::families {
namespace {

constexpr std::string_view parameters_of_flax = "params.", statistics_of_flax = "batch_stats.";

bool is_flax(const Checkpoint& file) { return file.format().starts_with("flax"); }

/// The file's axes in PyTorch's order.
View turned_kernel(const Checkpoint& file, const std::string& name) {
    switch (file.tensor(name).shape.size()) {
        case 2:
            return {.axes = {1, 0}};
        case 3:
            return {.axes = {2, 1, 0}};
        case 4:
            return {.axes = {3, 2, 0, 1}};
        default:
            throw FormatError(
                fmt::format("{}: tensor '{}' is {}, expected a kernel of 2 to 4 dimensions",
                            file.source(), name, text(file.tensor(name).shape)));
    }
}

std::string rename_flax(const Checkpoint& file, Relabelled& out, Json&) {
    // Of a training state, which has its parameters beside the optimizer's.
    bool state = false;
    for (const std::string& name : file.names())
        state = state || name.starts_with(parameters_of_flax);
    std::size_t left_out = 0;
    for (const std::string& name : file.names()) {
        std::string there = name;
        if (state) {
            if (there.starts_with(parameters_of_flax)) {
                while (there.starts_with(parameters_of_flax))
                    there.erase(0, parameters_of_flax.size());
            } else if (there.starts_with(statistics_of_flax)) {
                there.erase(0, statistics_of_flax.size());
            } else {
                ++left_out;
                continue;
            }
        }
        const std::size_t dot = there.rfind('.') + 1;  // 0 where there is none
        const std::string last = there.substr(dot), before = there.substr(0, dot);
        if (last == "kernel")
            out.add(before + "weight", name, turned_kernel(file, name));
        else if (last == "scale" || last == "embedding")
            out.add(before + "weight", name);
        else if (last == "mean" || last == "var")
            out.add(fmt::format("{}running_{}", before, last), name);
        else
            out.add(there, name);
    }
    std::string note = "names and layouts of Flax, read as those of PyTorch";
    if (left_out > 0) note += fmt::format("; skipped {} tensors beside 'params'", left_out);
    return note;
}

}  // namespace

const Layout flax_names = {"Flax", is_flax, rename_flax};

}  // namespace tsdiag::families
