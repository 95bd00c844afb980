#include <array>

#include "fuzz.hpp"
#include "tsdiag/tokenizer.hpp"

/// Ranks of tiktoken and a text, which is divided as the first byte chooses: ids lie in the
/// vocabulary, and each is shown.

using namespace tsdiag;

void examine(std::string_view input) {
    constexpr std::array names{"cl100k_base", "o200k_base", "r50k_base", "p50k_base", "qwen"};
    const std::string name =
        std::string(names[fuzz::take_choice(input) % names.size()]) + ".tiktoken";
    const std::vector<std::string_view> both = fuzz::parts(input, 2);
    const std::string path = fuzz::folder().write(name, both[0]);
    fuzz::accepts([&] {
        const Tokenizer tokenizer = open_tokenizer(path);
        for (const std::int64_t id : tokenizer.encode(both[1])) {
            if (id < 0 || id >= tokenizer.size()) std::abort();
            tokenizer.shown(id);
        }
    });
}
