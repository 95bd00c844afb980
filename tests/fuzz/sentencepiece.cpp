#include "fuzz.hpp"
#include "tsdiag/tokenizer.hpp"

/// A model of SentencePiece and a text: ids lie in its vocabulary, and each is shown.

using namespace tsdiag;

void examine(std::string_view input) {
    const std::vector<std::string_view> both = fuzz::parts(input, 2);
    const std::string path = fuzz::folder().write("fuzzed.model", both[0]);
    fuzz::accepts([&] {
        const Tokenizer tokenizer = open_tokenizer(path);
        for (const std::int64_t id : tokenizer.encode(both[1])) {
            if (id < 0 || id >= tokenizer.size()) std::abort();
            tokenizer.shown(id);
        }
    });
}
