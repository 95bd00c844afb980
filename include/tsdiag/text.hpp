#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Untrusted text from files: names of tensors, of models, of columns.
namespace tsdiag {

/// Length of the well-formed UTF-8 sequence at the beginning of `s`; 0 where there is none
/// (overlong forms, surrogates, beyond U+10FFFF, cut off).  `s` is not empty.
std::size_t utf8_length(std::string_view s);

/// The code point of a well-formed sequence.
std::uint32_t code_point(std::string_view sequence);

/// Whether the sequence is invisible but changes how its neighbours are displayed: C0 and C1
/// controls, DEL, line and paragraph separators, bidirectional controls, zero-width characters.
/// Such names could forge a second line of output, or read backwards.
bool is_control(std::string_view sequence);

/// The control character `sequence` spelled in ASCII: \n, \x1b, \u202e.
std::string spelled_control(std::string_view sequence);

/// `s` as valid UTF-8 without hidden characters: an invalid byte becomes U+FFFD, a control
/// character its spelling, except for those of `kept`.
std::string visible(std::string_view s, std::string_view kept = "");

/// About `most` bytes of `s` at most: of a longer text its beginning and end, and the number of
/// bytes omitted.
std::string shortened(std::string_view s, std::size_t most);

/// A code point below 2^21 in UTF-8.
std::string utf8(std::uint32_t code);

/// The parts of `text` between separators, empty ones too; at least one.
std::vector<std::string> split(std::string_view text, char separator);

/// `text` as one word of a shell: in single quotes unless it is plain.
std::string shell_word(std::string_view text);

/// "no heads", "1 head", "12 heads".
std::string counted(std::size_t count, std::string_view noun);

/// "0.021 %", "35 %", "100 %", of a share; two digits, or whole where there are more.
std::string as_percent(double share);

/// Those of `names` that `word` stands for, as their places: the one that equals it, else all that
/// begin with it, where it is a paper ("tse") or has a dot ("tse.", "tse.thm").
std::vector<std::size_t> named_by(std::string_view word,
                                  const std::vector<std::string_view>& names);

/// The nearest of `known` to `word` by edit distance, for "did you mean"; empty where more than a
/// third of the word would change.
template <class Range>
std::string nearest(const std::string& word, const Range& known);
std::size_t edit_distance(const std::string& a, const std::string& b);

template <class Range>
std::string nearest(const std::string& word, const Range& known) {
    std::string best;
    std::size_t distance = (word.size() + 2) / 3 + 1;
    for (const auto& k : known) {
        const std::string candidate(k);
        const std::size_t e = edit_distance(word, candidate);
        if (e < distance) {
            distance = e;
            best = candidate;
        }
    }
    return best;
}

}  // namespace tsdiag
