#include <fmt/format.h>

#include <array>
#include <set>

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

std::vector<std::string_view> claim_names() {
    std::vector<std::string_view> names;
    for (const Claim* claim : claims()) names.push_back(claim->name);
    return names;
}

[[noreturn]] void refuse_claim(const std::string& word) {
    const std::string near = nearest(word, claim_names());
    throw UsageError(fmt::format("unknown claim '{}'.{} See tsdiag check --list for the names.", word,
                                 near.empty() ? "" : fmt::format(" Did you mean '{}'?", near)));
}

}  // namespace

std::vector<const Claim*> resolve_claims(std::span<const std::string> words) {
    const auto listed = claims();
    if (words.empty()) return {listed.begin(), listed.end()};
    std::set<std::size_t> chosen;  // in the order of the list
    for (const std::string& word : words) {
        const std::vector<std::size_t> found = named_by(word, claim_names());
        if (found.empty()) refuse_claim(word);
        chosen.insert(found.begin(), found.end());
    }
    std::vector<const Claim*> out;
    for (const std::size_t i : chosen) out.push_back(listed[i]);
    return out;
}

}  // namespace tsdiag
