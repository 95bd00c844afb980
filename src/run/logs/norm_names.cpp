#include <algorithm>
#include <array>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "log_records.hpp"
#include "tsdiag/training_log.hpp"

namespace tsdiag {
namespace {

constexpr std::array<std::string_view, 4> norm_words = {"gradient", "grad", "gnorm", "norm"};

/// Words that say in any part of a name that it is no norm but a limit, a power, a logarithm, an
/// average or another function of norms, or a time or a count; the stems also within a word.
constexpr std::array<std::string_view, 4> stems = {"clip", "thresh", "squar", "lognorm"};
constexpr std::array<std::string_view, 76> words_of_others = {
    "max",        "min",      "maximum",  "minimum",    "limit",      "sq",       "sqr",
    "sqrd",       "sqrt",     "pow",      "power",      "cubed",      "log",      "lg",
    "logarithm",  "db",       "decibel",  "ema",        "ewma",       "ewm",      "sma",
    "ma",         "smooth",   "smoothed", "smoothing",  "moving",     "running",  "rolling",
    "average",    "averaged", "avg",      "mean",       "median",     "filtered", "std",
    "stdev",      "var",      "variance", "sum",        "cumulative", "cumsum",   "quantile",
    "percentile", "scaled",   "rescaled", "normalized", "normalised", "ratio",    "percent",
    "inverse",    "inv",      "neg",      "negative",   "delta",      "diff",     "difference",
    "cosine",     "cos",      "time",     "timer",      "timers",     "seconds",  "latency",
    "duration",   "count",    "counts",   "nan",        "nans",       "finite",   "timing",
    "timings",    "elapsed",  "runtime",  "ms",         "sec",        "secs"};
/// Those that are also names of modules and parameters: only beside the words of the norm.
constexpr std::array<std::string_view, 15> words_beside = {
    "scale", "root",     "factor", "target", "rel",    "relative", "cap",    "bound",
    "pct",   "fraction", "frac",   "change", "zscore", "num",      "penalty"};

bool is_word_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
char small_letter(char c) { return is_capital(c) ? char(c - 'A' + 'a') : c; }

std::string in_small_letters(std::string_view name) {
    std::string out(name);
    std::ranges::transform(out, out.begin(), small_letter);
    return out;
}

bool has_part(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool tells_other(std::string_view word) {
    return std::ranges::find(words_of_others, word) != words_of_others.end() ||
           std::ranges::any_of(stems, [&](std::string_view stem) { return has_part(word, stem); });
}

/// Adds a word in small letters, those of norms apart: "loggradnorm" is log, grad, norm.
void add_word(std::string_view word, std::vector<std::string>& to) {
    std::string before;
    const auto end = [&] {
        if (!before.empty()) to.push_back(std::exchange(before, {}));
    };
    if (tells_other(word)) before = std::exchange(word, {});
    while (!word.empty()) {
        const auto norm = std::ranges::find_if(
            norm_words, [&](std::string_view one) { return word.starts_with(one); });
        // "avgnorm" is avg, norm.
        if (norm == norm_words.end() || (*norm == "gnorm" && tells_other(before + 'g'))) {
            before += word.front();
            word.remove_prefix(1);
            continue;
        }
        end();
        to.emplace_back(*norm);
        word.remove_prefix(norm->size());
    }
    end();
}

/// The words of a name, in small letters: between what is no letter, and before the capitals of
/// "gradNormEMA" and "EMAGradNorm".
std::vector<std::string> words_of(std::string_view name) {
    std::vector<std::string> out;
    std::string word;
    const auto end = [&] { add_word(std::exchange(word, {}), out); };
    for (std::size_t i = 0; i < name.size(); ++i) {
        const char before = i > 0 ? name[i - 1] : ' ',
                   after = i + 1 < name.size() ? name[i + 1] : ' ';
        const bool begins = is_capital(name[i]) && is_word_letter(before) &&
                            (!is_capital(before) || (is_word_letter(after) && !is_capital(after)));
        if (begins || !is_word_letter(name[i])) end();
        if (is_word_letter(name[i])) word += small_letter(name[i]);
    }
    end();
    return out;
}

/// Is a word of clipping one of norms before it, which are norms: "unclipped", "before_clip"?
bool is_before_clipping(const std::vector<std::string>& words, std::size_t i) {
    const std::string_view word = words[i];
    const std::size_t clip = word.find("clip");
    if (clip == word.npos) return false;
    constexpr std::array<std::string_view, 6> before = {"un",  "non",    "no",
                                                        "pre", "before", "without"};
    const std::string_view said = clip > 0 ? word.substr(0, clip)
                                  : i > 0  ? std::string_view(words[i - 1])
                                           : std::string_view();
    return std::ranges::find(before, said) != before.end();
}

/// The word of a part of a name that has the words of the norm that says so.
std::string word_beside_norm(std::string_view part) {
    const std::vector<std::string> words = words_of(part);
    for (std::size_t i = 0; i < words.size(); ++i) {
        // The logit_scale of CLIP is a parameter.
        const bool parameter = words[i] == "scale" && i > 0 && words[i - 1] == "logit";
        const bool beside =
            !parameter && std::ranges::find(words_beside, words[i]) != words_beside.end();
        // "ln" is a LayerNorm elsewhere.
        const bool logarithm = words[i] == "ln" && i + 1 < words.size() &&
                               (words[i + 1].starts_with("grad") || words[i + 1] == "gnorm");
        if (beside || logarithm || (tells_other(words[i]) && !is_before_clipping(words, i)))
            return words[i];
    }
    static const std::regex square(R"((grad(ient)?s?[-_. ]?norm|gnorm)(\^|\*\*)?2(?![0-9]))",
                                   std::regex::icase | std::regex::optimize);
    constexpr std::size_t longest = 1000;  // of what the search may recurse into
    const std::string_view first = part.substr(0, longest);
    return std::regex_search(first.begin(), first.end(), square) ? "2" : "";
}

/// Where the last name of a path of a parameter begins; 0: it is no path.
std::size_t last_of_path(std::string_view part) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (std::size_t i = part.size(); i-- > 0;)
        if (part[i] == '.' &&
            !(i > 0 && is_digit(part[i - 1]) && i + 1 < part.size() && is_digit(part[i + 1])))
            return i + 1;
    return 0;
}

/// The word of a part without words of the norm that says so, which is its last ("epoch_mean", not
/// "mean_head"); of the path of a parameter the only one of the last name ("norm.weight.max", not
/// "policy.log_std").  A folder of what is logged is no logarithm.
std::string word_of_another(std::string_view part, bool behind) {
    const std::size_t last = last_of_path(part);
    const std::vector<std::string> words = words_of(part.substr(last));
    if (words.empty() || (last > 0 && words.size() > 1) || !tells_other(words.back())) return {};
    return behind || words.back() != "log" ? words.back() : "";
}

/// How much of a part has the words of the norm, up to a point behind them; 0: it has none.
std::size_t end_of_norm(std::string_view part) {
    if (!is_like_gradient_norm(part)) return 0;
    const std::string word = in_small_letters(part);
    const auto behind = [&](std::string_view one) {
        const std::size_t at = word.find(one);
        return at == word.npos ? at : at + one.size();
    };
    const std::size_t end = std::min(behind("gnorm"), std::max(behind("grad"), behind("norm")));
    return std::min(part.find('.', end), part.size());
}

}  // namespace

bool is_like_gradient_norm(std::string_view name) {
    const std::string word = in_small_letters(name);
    return (has_part(word, "grad") && has_part(word, "norm")) || has_part(word, "gnorm");
}

std::string names_other_than_norm(std::string_view name) {
    // Weights & Biases writes the name of the run before that of the series: "run - grad_norm".
    if (const std::size_t run = name.rfind(" - ");
        run != name.npos && !is_like_gradient_norm(name.substr(0, run)))
        name.remove_prefix(run);
    for (bool behind = false; !name.empty();) {
        const std::size_t end = std::min(name.find('/'), name.size());
        std::string_view part = name.substr(0, end);
        name.remove_prefix(std::min(end + 1, name.size()));
        const std::size_t own = end_of_norm(part);
        if (std::string word = word_beside_norm(part.substr(0, own)); !word.empty()) return word;
        part.remove_prefix(own);
        behind = behind || own > 0;
        if (std::string word = word_of_another(part, behind); !word.empty()) return word;
    }
    return {};
}

bool names_gradient_norm(std::string_view name) {
    return is_like_gradient_norm(name) && !is_bound_of_bucket(name) &&
           names_other_than_norm(name).empty();
}

}  // namespace tsdiag
