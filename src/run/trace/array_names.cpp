#include "array_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string>
#include <vector>

#include "tsdiag/spec.hpp"

namespace tsdiag {
namespace {

constexpr Index largest_layer = 1'000'000;
constexpr std::string_view behind_a_kind = "._-/[";

/// A kind of array, and other names of it.
struct Kind {
    std::string_view name, other, joined = {};
};
// A name that another begins with stands behind it.
constexpr std::array<Kind, 6> kinds{{{"hidden_states", "hidden_state", "hiddenstates"},
                                     {"attention_inputs", "attention_input", "attentioninputs"},
                                     {"attentions", "attention"},
                                     {"queries", "query"},
                                     {"keys", "key"},
                                     {"values", "value"}}};
// Read where a layer follows.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> letters{
    {{"queries", "q"}, {"keys", "k"}}};

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = char(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

bool take_separator(std::string_view& text) {
    if (text.empty() || behind_a_kind.find(text.front()) == std::string_view::npos) return false;
    text.remove_prefix(1);
    return true;
}

/// The number that `text` is, behind an optional "layer" and the like.
std::optional<Index> number_in(std::string_view text) {
    take_separator(text);
    for (const std::string_view word : {"layers", "layer", "blocks", "block", "h", "l"})
        if (text.starts_with(word)) {
            text.remove_prefix(word.size());
            take_separator(text);
            break;
        }
    if (text.ends_with(']')) text.remove_suffix(1);
    Index number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0 ||
        number > largest_layer)
        return std::nullopt;
    return number;
}

/// May a kind end here, and its layer begin, at once where `digits`?
bool ends_kind(std::string_view rest, bool digits) {
    const auto in_a_word = [](unsigned char c) { return std::isalnum(c) != 0 || c > 127; };
    if (rest.empty() || !in_a_word(static_cast<unsigned char>(rest.front()))) return true;
    return digits && number_in(rest).has_value();  // norm10 is no layer of norm1
}

}  // namespace

const std::vector<std::string_view>& saved_stages() {
    static const std::vector<std::string_view> inner = [] {
        std::vector<std::string_view> all = all_stages();
        std::erase_if(all, [](std::string_view stage) {
            const std::vector<std::string_view>& outer = outer_stages();
            return stage == "in" || std::ranges::find(outer, stage) != outer.end();
        });
        return all;
    }();
    return inner;
}

const std::vector<std::string_view>& outer_stages() {
    static const std::vector<std::string_view> outer = {"embed", "out", "merge", "class",
                                                        "final_norm"};
    return outer;
}

ArrayName read_array_name(std::string_view name) {
    const std::string small = lower(name);
    const auto read = [&](std::string_view kind, std::string_view word,
                          bool digits) -> std::optional<ArrayName> {
        if (word.empty() || !small.starts_with(word)) return std::nullopt;
        const std::string_view rest = std::string_view(small).substr(word.size());
        if (!ends_kind(rest, digits)) return std::nullopt;
        return ArrayName{kind, number_in(rest), name.substr(word.size())};
    };
    for (const Kind& kind : kinds)
        for (const std::string_view word : {kind.name, kind.other, kind.joined})
            if (const auto found = read(kind.name, word, true)) return *found;
    for (const std::string_view stage : saved_stages())
        if (const auto found = read(stage, stage, false)) return *found;
    for (const std::string_view stage : outer_stages())
        if (const auto found = read(stage, stage, false); found && found->layer) return *found;
    for (const auto& [kind, letter] : letters)
        if (const auto found = read(kind, letter, false); found && found->layer) return *found;
    return {};
}

bool is_mask_of_tokens(std::string_view name) {
    const std::string small = lower(name);
    return small == "attention_mask" || small == "attention_masks";
}

bool is_other_mask(std::string_view name) {
    const std::string small = lower(name);
    return !is_mask_of_tokens(name) && small.find("mask") != std::string::npos &&
           small.find("special_tokens") == std::string::npos;
}

bool names_lengths(std::string_view name) {
    constexpr std::array words = {"length",    "seq_len",    "seqlen",
                                  "valid_len", "num_tokens", "n_tokens"};
    constexpr std::array others = {"max", "target", "label", "wave"};
    const std::string small = lower(name);
    const auto has = [&](const char* word) { return small.find(word) != std::string::npos; };
    return std::ranges::none_of(others, has) && std::ranges::any_of(words, has);
}

std::optional<std::pair<std::string, std::string>> inner_array(std::string_view name) {
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos;
         dot = name.find('.', dot + 1)) {
        const ArrayName inner = read_array_name(name.substr(dot + 1));
        const bool whole = inner.layer || inner.rest.empty();
        if ((inner.kind == "hidden_states" || inner.kind == "attentions") && whole)
            return std::pair(std::string(name.substr(0, dot)), std::string(inner.kind));
    }
    return std::nullopt;
}

bool is_unplaced(const ArrayName& name) {
    return !name.kind.empty() && !name.layer && !name.rest.empty() &&
           std::ranges::any_of(name.rest, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string usual_name(std::string_view name) {
    const ArrayName read = read_array_name(name);
    if (!is_unplaced(read) || read.rest.starts_with(".-")) return {};  // counted from the end
    std::string word, digits;
    bool apart = false;  // is the number no part of a word?
    for (std::size_t i = 0; i < read.rest.size(); ++i) {
        const char c = read.rest[i], before = i > 0 ? read.rest[i - 1] : ' ';
        const auto is = [](int (&kind)(int), char one) {
            return kind(static_cast<unsigned char>(one)) != 0;
        };
        if (is(std::isalpha, c)) word += c;
        if (!is(std::isdigit, c)) continue;
        if (!is(std::isdigit, before)) {
            if (!digits.empty()) return {};
            apart = !is(std::isalpha, before);
        }
        digits += c;
    }
    constexpr std::array maps = {"weight", "prob",    "probabilitie", "probability", "score",
                                 "map",    "pattern", "matrice",      "matrix"};
    word = lower(word);
    if (word.ends_with('s')) word.pop_back();
    const bool attention = read.kind == "attentions" || read.kind == "attn";
    const bool of_maps = attention && std::ranges::find(maps, word) != maps.end();
    const bool of_states = !attention && word == "state";
    if (!apart || (!word.empty() && !of_maps && !of_states)) return {};
    return std::string(of_maps ? "attentions" : read.kind) + "." + digits;
}

std::string only_number(std::string_view name) {
    constexpr std::string_view digits = "0123456789";
    const std::size_t first = name.find_first_of(digits);
    if (first == std::string_view::npos) return {};
    const std::size_t end = std::min(name.find_first_not_of(digits, first), name.size());
    const bool only = name.find_first_of(digits, end) == std::string_view::npos;
    return only ? std::string(name.substr(first, end - first)) : std::string();
}

}  // namespace tsdiag
