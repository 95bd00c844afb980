#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "known.hpp"
#include "reader.hpp"
#include "tsdiag/error.hpp"

/// A family is recognised by its required tensors and by leaving nothing unexplained: a tensor or
/// key that no rule has read is either on a list of harmless ones or refused by name.
namespace tsdiag::families {
namespace {

/// "layers.*.mlp.extra" of "layers.12.mlp.extra": the --ignore pattern for all layers.
std::string for_all_layers(std::string_view name) {
    std::string out;
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    while (!name.empty()) {
        const std::size_t dot = name.find('.');
        const std::string_view part = name.substr(0, dot);
        out += !part.empty() && std::ranges::all_of(part, is_digit) ? "*" : std::string(part);
        if (dot == std::string_view::npos) break;
        out += '.';
        name.remove_prefix(dot + 1);
    }
    return out;
}

std::string brief(std::string text) {
    constexpr std::size_t longest = 40;
    return text.size() > longest ? text.substr(0, longest) + " ..." : text;
}

std::string and_more(std::size_t count) {
    return count > 1 ? fmt::format(" and {} more", count - 1) : std::string();
}

/// Outside the model's prefix: may it change what the model computes?  An adapter saved without the
/// prefix does, a head does not.  Of a unit inside a user's model, surrounding tensors are ignored,
/// unless the unit continues there.
bool is_foreign_part(std::string_view prefix, std::string_view name, Words own) {
    const bool whole = std::ranges::all_of(own, &std::string_view::empty);
    if (whole) {
        // A head is a sibling of the model or of a module that contains it.
        for (std::size_t end = 0; end < prefix.size(); end = prefix.find('.', end) + 1)
            if (name.starts_with(prefix.substr(0, end)) && is_head(name.substr(end))) return false;
        return true;
    }
    return std::ranges::any_of(own, [&](std::string_view start) {
        return name.starts_with(start) || name.find("." + std::string(start)) != name.npos;
    });
}

}  // namespace

void Reader::check_leftovers(const Names& names, const Names& head, Words unused, Words own) {
    std::set<std::string_view> used, of_head;
    for (const auto& [canonical, source] : names) {
        used.insert(source.file_name);
        used.insert(source.concat.begin(), source.concat.end());
    }
    for (const auto& [canonical, source] : head) of_head.insert(source.file_name);
    std::vector<std::string_view> known, unknown, of_loss;
    for (const std::string& name : file_.names()) {
        if (used.contains(name) || name.ends_with(before_adapter)) continue;
        const bool below = name.starts_with(prefix_);
        const std::string_view rest = std::string_view(name).substr(below ? prefix_.size() : 0);
        if (is_frequencies(name)) check_frequencies(name);
        const auto starts = [&](std::string_view start) { return rest.starts_with(start); };
        const auto matches = [&](std::string_view pattern) {
            return glob(pattern, rest) || glob(pattern, name);
        };
        if (is_frequencies(name) || is_buffer(name, file_.tensor(name)) ||
            std::ranges::any_of(unused, matches))
            (of_head.contains(name) ? of_loss : known).push_back(name);
        else if (below ? std::ranges::any_of(own, starts) : is_foreign_part(prefix_, name, own))
            unknown.push_back(name);
        else if (of_head.contains(name))
            of_loss.push_back(name);
        else
            spec.provenance.ignored.push_back(name);
    }
    if (!unknown.empty())
        refuse(
            fmt::format("tensor '{}'{} is unknown to family {} and may change what the model "
                        "computes; if it does not, pass --ignore '{}'",
                        unknown.front(), and_more(unknown.size()), spec.family,
                        for_all_layers(unknown.front())));
    if (!of_loss.empty())
        saw(
            fmt::format("{} tensor{} of the output head, used by --loss lm and mlm alone (such as "
                        "'{}')",
                        of_loss.size(), of_loss.size() == 1 ? "" : "s", of_loss.front()));
    if (!known.empty())
        saw(fmt::format("{} tensor{} of heads and buffers, not used (such as '{}')", known.size(),
                        known.size() == 1 ? "" : "s", known.front()));
}

/// Old files store the frequencies, in half precision at worst, which verifies the base.
void Reader::check_frequencies(const std::string& name) const {
    constexpr double rounding = 0.02;
    const Rotary& rotary = spec.blocks.front().attention.rotary;
    const RawTensor raw = file_.tensor(name);
    const auto half = std::size_t(rotary.columns / 2);
    if (!rotary.scaling.empty() || raw.dtype == DType::other) return;
    std::vector<double> stored(half);
    const bool fits = raw.count() == std::ssize(stored);
    if (fits) widen(raw, std::span(stored));
    const auto near = [](double a, double b) { return std::abs(a - b) <= rounding * b + 1e-7; };
    if (!fits || !std::ranges::equal(stored, rotary.frequencies(1), near))
        refuse(
            fmt::format("tensor '{}' differs from the frequencies of the rotary base {} for {} "
                        "columns; the configuration may lack its rope_theta",
                        name, rotary.theta, rotary.columns));
}

void Reader::check_keys() {
    if (!config_.is_object()) return;
    std::vector<std::string> unknown;
    for (const auto& [key, said] : config_.object())
        if (!asked_.contains(key) && !is_harmless(key, said)) unknown.push_back(key);
    if (unknown.empty()) return;
    if (script_)  // all arguments of a training script, most not about the model
        return saw(fmt::format("not used in {}: {}", config_source_, fmt::join(unknown, ", ")));
    refuse(
        fmt::format("{} has the key '{}' ({}){}, which is unknown to family {} and may change what "
                    "the model computes; if it does not, pass --ignore {}",
                    config_source_, unknown.front(), brief(config_[unknown.front()].dump()),
                    and_more(unknown.size()), spec.family, unknown.front()));
}

void Reader::check_told_sizes() const {
    const Index heads = spec.blocks.front().attention.heads;
    if (options_.heads && *options_.heads != heads)
        ask(fmt::format("--n-heads {}: the file has {} heads", *options_.heads, heads));
    if (options_.width && *options_.width != spec.width)
        ask(fmt::format("--width {}: the model is {} wide", *options_.width, spec.width));
}

void Reader::warn_of_assumptions() {
    if (assumed_.empty()) return;
    spec.provenance.warnings.push_back(
        fmt::format("Assumed, because neither the file nor a configuration says: {}. Other values "
                    "change the numbers; state them with --config FILE",
                    fmt::join(assumed_, ", ")));
}

}  // namespace tsdiag::families
