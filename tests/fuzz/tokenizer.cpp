#include "tsdiag/tokenizer.hpp"

#include "fuzz.hpp"

/// A tokenizer.json and a text: ids lie in its vocabulary, and each is shown.

using namespace tsdiag;

void examine(std::string_view input) {
    const std::vector<std::string_view> both = fuzz::parts(input, 2);
    fuzz::accepts([&] {
        const Tokenizer tokenizer = parse_tokenizer(both[0], "tokenizer.json");
        for (const std::int64_t id : tokenizer.encode(both[1])) {
            if (id < 0 || id >= tokenizer.size()) std::abort();
            tokenizer.shown(id);
        }
    });
}
