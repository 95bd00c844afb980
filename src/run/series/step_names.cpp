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

/// "500", "1e4", up to a separator or the end; with `thousands` also "1.5k" and "2m".  None for
/// decimal numbers.
std::optional<Counted> count_at(std::string_view text, bool thousands) {
    if (text.empty() || !is_digit(text.front())) return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    auto length = std::size_t(end - text.data());
    if (text[length - 1] == '.') --length;  // of what follows
    if (thousands && length < text.size() && (text[length] == 'k' || text[length] == 'm'))
        value *= text[length++] == 'k' ? 1e3 : 1e6;
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
/// epoch and a step, the second.
std::optional<Index> number_after(std::string_view name, std::string_view word) {
    for (std::size_t at = name.rfind(word); at != std::string_view::npos;
         at = at == 0 ? std::string_view::npos : name.rfind(word, at - 1)) {
        std::string_view rest = name.substr(at + word.size());
        if (!rest.empty() && behind_words.find(rest.front()) != std::string_view::npos)
            rest.remove_prefix(1);
        const auto found = count_at(rest, true);
        if (!found || is_of_another(name.substr(0, at))) continue;
        rest.remove_prefix(found->length);
        if (word == "checkpoint" && rest.starts_with('_'))
            if (const auto step = count_at(rest.substr(1), true);
                step && step->length + 1 == rest.size())
                return step->value;
        return found->value;
    }
    return std::nullopt;
}

/// The last part of `name` between behind_words, which is taken off it with what separates it.
std::string_view take_last_part(std::string_view& name) {
    const std::size_t at = name.find_last_of(behind_words);
    const std::string_view part = at == std::string_view::npos ? name : name.substr(at + 1);
    name = at == std::string_view::npos ? std::string_view() : name.substr(0, at);
    return part;
}

/// May a number that stands at the word count the progress of a training?
bool counts_progress(std::string_view word) {
    constexpr std::array<std::string_view, 18> words = {
        "model", "models", "weights", "net",   "network", "state",  "params", "snapshot", "chkpt",
        "save",  "saved",  "it",      "iters", "update",  "global", "t",      "ba",       "backup"};
    return std::ranges::find(words, word) != words.end();
}
/// Does a number behind this word and a separator count something else?
bool counts_other_things(std::string_view word) {
    constexpr std::array<std::string_view, 28> words = {
        "seed", "fold",  "trial",   "run",    "rank",   "shard",  "part",
        "v",    "rev",   "version", "exp",    "job",    "worker", "layer",
        "gpu",  "cfg",   "config",  "sample", "prompt", "heads",  "head",
        "task", "group", "replica", "split",  "cuda",   "node",   "s"};
    return std::ranges::find(words, word) != words.end();
}

/// Does the name end in a date, 2024-05-31 or 20240531, or in a number with decimals or an exponent
/// below 0?
bool ends_in_other_number(std::string_view name) {
    const std::size_t at = name.find_last_not_of("0123456789-_.e");
    std::string_view tail = name.substr(at == std::string_view::npos ? 0 : at + 1);
    while (!tail.empty() && !is_digit(tail.front())) tail.remove_prefix(1);
    const auto matches = [](std::string_view text, std::string_view pattern) {
        return std::ranges::equal(text, pattern, [](char c, char p) {
            return p == '#' ? is_digit(c) : c == p || (p == '-' && c == '_');
        });
    };
    const auto is_date = [](std::string_view text) {
        const int month = (text[4] - '0') * 10 + text[5] - '0',
                  day = (text[6] - '0') * 10 + text[7] - '0';
        return (text.starts_with("19") || text.starts_with("20")) && month >= 1 && month <= 12 &&
               day >= 1 && day <= 31;
    };
    const std::string_view last8 = tail.size() >= 8 ? tail.substr(tail.size() - 8) : "";
    if (tail.size() >= 10 && matches(tail.substr(tail.size() - 10), "####-##-##")) return true;
    if (tail.size() == 8 && matches(last8, "########") && is_date(last8)) return true;
    // "2.31", "1e-3"
    const std::size_t digit = tail.find_last_not_of(digits);
    if (digit == std::string_view::npos || digit == 0) return false;
    return (tail[digit] == '.' && is_digit(tail[digit - 1])) ||
           (tail[digit] == '-' && tail[digit - 1] == 'e' && digit > 1 && is_digit(tail[digit - 2]));
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> step_words = {
    std::pair{"step", "step"}, {"steps", "step"},   {"iteration", "iteration"},
    {"iter", "iteration"},     {"updates", "step"}, {"epoch", "epoch"},
    {"checkpoint", "step"},    {"ckpt", "step"}};

/// Of which a number was read, unless it counts something else.
bool is_step_word(std::string_view word) {
    return std::ranges::any_of(step_words, [&](const auto& one) { return word == one.first; });
}

/// The number at the end of the name: "model_500".
std::optional<Index> number_at_end(std::string_view name) {
    if (ends_in_other_number(name)) return std::nullopt;
    std::string_view rest = name;
    const std::string_view last = take_last_part(rest);
    const std::size_t at = last.find_first_of(digits);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view word = last.substr(0, at);
    const std::string_view before = take_last_part(rest);
    const bool allowed = word.empty() ? !counts_other_things(before) && !is_step_word(before)
                                      : counts_progress(word);
    const auto found = count_at(last.substr(at), false);
    if (!allowed || !found || found->length != last.size() - at) return std::nullopt;
    return found->value;
}

}  // namespace

std::optional<NamedStep> step_in_name(std::string_view name) {
    for (const auto& [word, unit] : step_words)
        if (const auto step = number_after(name, word)) return NamedStep{*step, unit};
    if (const auto step = number_at_end(name)) return NamedStep{*step, "step"};
    return std::nullopt;
}

}  // namespace tsdiag
