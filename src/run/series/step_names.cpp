#include "step_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace tsdiag {
namespace {

constexpr std::string_view digits = "0123456789", behind_words = "-_.= ";

bool is_digit(char c) { return digits.find(c) != std::string_view::npos; }
bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

/// The number that `text` begins with, and how long it is.
struct Counted {
    Index value = 0;
    std::size_t length = 0;
};

/// "500", "1e4", "1.5k" and "2m", up to a separator or the end.  None for decimal numbers.
std::optional<Counted> count_at(std::string_view text) {
    if (text.empty() || !is_digit(text.front())) return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    auto length = std::size_t(end - text.data());
    if (text[length - 1] == '.') --length;  // of what follows
    if (length < text.size() && (text[length] == 'k' || text[length] == 'm'))
        value *= text[length++] == 'k' ? 1e3 : 1e6;
    else if (text.substr(0, length).find('.') != std::string_view::npos)
        return std::nullopt;  // "1.000", a thousand or one
    const bool ends =
        length == text.size() || (!is_digit(text[length]) && !is_letter(text[length]));
    constexpr double most = 1e15;
    if (!ends || value != std::floor(value) || value > most) return std::nullopt;
    return Counted{Index(value), length};
}

/// Is what stands before a word, as in "warmup_steps", of another count?
bool is_of_another(std::string_view before) {
    while (!before.empty() && behind_words.find(before.back()) != std::string_view::npos)
        before.remove_suffix(1);
    constexpr std::array<std::string_view, 9> others = {
        "warmup", "max", "total", "num", "accumulation", "accum", "save", "logging", "per"};
    return std::ranges::any_of(others, [&](std::string_view one) { return before.ends_with(one); });
}

/// The number behind the last `word`, with at most one separator between; of "checkpoint_1_500", an
/// epoch and a step, the second.  None where another number follows, which may be a group of
/// thousands, "step_1_000".
std::optional<Counted> number_after(std::string_view name, std::string_view word) {
    for (std::size_t at = name.rfind(word); at != std::string_view::npos;
         at = at == 0 ? std::string_view::npos : name.rfind(word, at - 1)) {
        if (at > 0 && is_letter(name[at - 1])) continue;  // the end of another word
        std::string_view rest = name.substr(at + word.size());
        if (!rest.empty() && behind_words.find(rest.front()) != std::string_view::npos)
            rest.remove_prefix(1);
        const auto found = count_at(rest);
        if (!found || is_of_another(name.substr(0, at))) continue;
        rest.remove_prefix(found->length);
        if (rest.size() < 2 || !is_digit(rest[1])) return found;
        if (word == "checkpoint" && rest.starts_with('_'))
            if (const auto step = count_at(rest.substr(1)); step && step->length + 1 == rest.size())
                return step;
    }
    return std::nullopt;
}

/// 20240531
bool may_be_date(Index number) {
    const Index year = number / 10000, month = number / 100 % 100, day = number % 100;
    return year >= 1900 && year < 2100 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 17> step_words = {
    std::pair{"step", "step"},
    {"steps", "step"},
    {"iteration", "iteration"},
    {"iterations", "iteration"},
    {"iter", "iteration"},
    {"iters", "iteration"},
    {"it", "iteration"},
    {"update", "step"},
    {"updates", "step"},
    {"ba", "step"},  // batches
    {"epoch", "epoch"},
    {"epochs", "epoch"},
    {"ep", "epoch"},
    {"checkpoint", "step"},
    {"ckpt", "step"},
    {"chkpt", "step"},
    {"snapshot", "step"}};

/// Digits alone, unless they may be the short name of a revision: seven or more that are
/// neither round nor padded.
std::optional<Index> bare_number(std::string_view name) {
    constexpr std::size_t short_revision = 7;
    if (name.find_first_not_of(digits) != std::string_view::npos) return std::nullopt;
    if (name.size() >= short_revision && !name.starts_with("00") && !name.ends_with("00"))
        return std::nullopt;
    const auto found = count_at(name);
    return found ? std::optional(found->value) : std::nullopt;
}

/// The number at the end of a name, behind what is saved again and again: "model_500".  A small one
/// that is not padded with zeros may as well count models: those of an ensemble, of clients.
std::optional<Index> number_at_end(std::string_view name) {
    constexpr Index least = 100;
    constexpr std::size_t padded = 4;
    for (const std::string_view word :
         {"model", "models", "weights", "net", "network", "state", "params", "save", "saved"})
        if (const auto found = number_after(name, word);
            found && (found->value >= least || found->length >= padded))
            if (const auto last = count_at(name.substr(name.size() - found->length));
                last && last->value == found->value)
                return found->value;
    return std::nullopt;
}

}  // namespace

std::optional<NamedStep> step_in_name(std::string_view name) {
    for (const auto& [word, unit] : step_words)
        if (const auto step = number_after(name, word); step && !may_be_date(step->value))
            return NamedStep{step->value, unit};
    auto step = bare_number(name);
    if (!step) step = number_at_end(name);
    if (!step || may_be_date(*step)) return std::nullopt;
    return NamedStep{*step, "step"};
}

}  // namespace tsdiag
