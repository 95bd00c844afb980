#include "run/inputs.hpp"

#include "fuzz.hpp"
#include "run/arrays.hpp"
#include "run/losses.hpp"
#include "tsdiag/families.hpp"

/// The files of --input, --mask and --labels, for a model of 50 ids and width 8.

using namespace tsdiag;

namespace {

RandomModel small_gpt2() { return random_model("gpt2,layers=1,d=8,heads=2,vocab=50,tokens=16"); }

}  // namespace

void examine(std::string_view input) {
    static const ModelSpec spec = small_gpt2().spec;
    const unsigned choice = fuzz::take_choice(input);
    const char* kinds[] = {"ids:", "ids:", "hidden:", "embeddings:"};
    const bool text = choice % 8 == 0;
    const std::string file = fuzz::folder().write(text ? "ids.txt" : "array.npy", input);
    fuzz::accepts([&] {
        RunOptions options;
        if (choice % 8 < 4)
            options.input = kinds[choice % 4] + file;
        else
            options.mask = file;
        options.tokens = choice / 8 % 4 == 3 ? 5 : 0;
        const InputSource source(options, spec, cpu(), Type::f32);
        source.samples(0);
    });
}
