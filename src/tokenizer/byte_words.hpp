#pragma once
#include "parts.hpp"

/// How byte-level vocabularies divide a text into words.
namespace tsdiag::tokenizer {

/// By its name in llama.cpp (`tokenizer.ggml.pre`): as the published tokenizer.json of its models
/// has it.
struct ByteWords {
    std::string_view pre;
    std::string_view regex;    ///< empty: GPT-2's
    bool digits = false;       ///< each is a word
    bool composed = false;     ///< NFC first
    bool whole_first = false;  ///< a word that is a token is not merged
    bool begins = false;       ///< a text begins with a token, unless the file says otherwise
};

/// nullptr: it is not known.
const ByteWords* byte_words(std::string_view pre);
std::string known_byte_words();  ///< separated by commas
/// Sets the normaliser and the pre-tokenizer.
void divide_bytes(const ByteWords& words, Parts& parts);

}  // namespace tsdiag::tokenizer
