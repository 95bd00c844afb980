#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tsdiag/claim.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// The claims, one line each, in the order of the papers.
// clang-format off
#define TSDIAG_CLAIMS(X) \
    X(devil_eq7)         \
    X(devil_eq9)         \
    X(devil_eq11)        \
    X(devil_prop31)      \
    X(devil_propD4)      \
    X(devil_propD5)      \
    X(devil_propD6)      \
    X(devil_eq43)        \
    X(devil_eq47)        \
    X(devil_eq48_linear) \
    X(devil_eq49)        \
    X(devil_eq52)        \
    X(devil_eq53)        \
    X(devil_eq53_steps)  \
    X(devil_eq55)        \
    X(devil_eq57)        \
    X(devil_eq58)        \
    X(devil_eq59)        \
    X(devil_eq60)        \
    X(devil_eq61)        \
    X(poly_thm41a)       \
    X(poly_thm41b)       \
    X(poly_eq24)         \
    X(poly_eq34)         \
    X(poly_thm42)        \
    X(poly_cor43)        \
    X(poly_thm44)        \
    X(poly_cor45)        \
    X(poly_cor45_k)      \
    X(poly_eq43)         \
    X(poly_eq55)         \
    X(poly_eq56)         \
    X(poly_eq71)         \
    X(tse_def11)         \
    X(tse_eq1)           \
    X(tse_eq3)           \
    X(tse_prop23)        \
    X(tse_lemma24)       \
    X(tse_eq11)          \
    X(tse_prop25)        \
    X(tse_thm26)         \
    X(tse_cor27)         \
    X(tse_rem28)         \
    X(tse_prop29)        \
    X(tse_lemmaA1)       \
    X(tse_lemmaA2)       \
    X(tse_lemmaA3)       \
    X(tse_eq27)          \
    X(tse_lemmaA5)       \
    X(tse_sec221)        \
    X(tse_sec23_ffn)     \
    X(tse_sec23_ln)      \
    X(tse_sec25)         \
    X(tse_eq20)          \
    X(tse_eq21)

namespace tsdiag {
namespace claim {
#define TSDIAG_DECLARE(name) extern const Claim name;
TSDIAG_CLAIMS(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace claim

std::span<const Claim* const> claims() {
#define TSDIAG_ADDRESS(name) &claim::name,
    static constexpr std::array list = {TSDIAG_CLAIMS(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
    return list;
}

namespace {

/// "tse" and "tse." match every "tse.x".
bool matches(const Claim& claim, std::string_view word) {
    return claim.name == word ||
           (claim.name.starts_with(word) &&
            (word.ends_with('.') || claim.name.substr(word.size()).starts_with('.')));
}

[[noreturn]] void unknown(const std::string& word) {
    std::vector<std::string_view> known;
    for (const Claim* claim : claims()) known.push_back(claim->name);
    const std::string near = nearest(word, known);
    throw UsageError(fmt::format("unknown claim '{}'.{} See tsdiag check --list for the names.", word,
                                 near.empty() ? "" : fmt::format(" Did you mean '{}'?", near)));
}

}  // namespace

std::vector<const Claim*> resolve_claims(std::span<const std::string> words) {
    const auto listed = claims();
    for (const std::string& word : words)
        if (std::ranges::none_of(listed, [&](const Claim* c) { return matches(*c, word); }))
            unknown(word);
    std::vector<const Claim*> chosen;
    for (const Claim* claim : listed)
        if (words.empty() || std::ranges::any_of(words, [&](const std::string& word) {
                return matches(*claim, word);
            }))
            chosen.push_back(claim);
    return chosen;
}

}  // namespace tsdiag
