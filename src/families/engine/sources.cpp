#include "sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "known.hpp"
#include "reader.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {

std::vector<std::pair<std::string, const Json*>> said_in(const Json& metadata) {
    std::vector<std::pair<std::string, const Json*>> out;
    const auto add = [&](const Json& at, std::string_view key, const std::string& name) {
        if (at.is_object() && at[key].is_object()) out.emplace_back(name, &at[key]);
    };
    for (const std::string_view key : said_keys) add(metadata, key, std::string(key));
    for (const std::string_view holder : said_holders) {
        for (const std::string_view key : said_keys)
            add(metadata[holder], key, fmt::format("{}.{}", holder, key));
        add(metadata[holder], "model", fmt::format("{}.model", holder));
    }
    return out;
}

/// Only keys that the family has asked for: other arguments of a training may differ.
void Reader::check_sources() {
    const auto plain = [](const Json& v) { return v.is_number() || v.is_bool() || v.is_string(); };
    questions_.try_emplace({"tie_word_embeddings"}, false);
    for (const auto& [name, said] : options_.also_said) also_said(said, name);
    for (const auto& [name, said] : said_in(file_.metadata()))
        also_said(*said, name + " in the file");
    std::vector<std::string> overruled;
    for (const auto& [name, said] : other_sources_)
        for (const auto& [keys, by_default] : questions_) {
            const auto used =
                std::ranges::find_if(keys, [&](auto& key) { return plain(config_[key]); });
            for (const std::string& key : keys) {
                const Json& other = said[key];
                if (used == keys.end() && !by_default) continue;  // shapes tell it
                if (!plain(other) || (used != keys.end() && equal(other, config_[*used])) ||
                    (key != "tie_word_embeddings" && is_harmless(key, other)))
                    continue;
                if (used != keys.end() && !options_.config_given)
                    refuse(fmt::format(
                        "{} says {} = {}, but {} says {} = {}; pass the one that is "
                        "right with --config FILE",
                        config_source_, *used, config_[*used].dump(), name, key, other.dump()));
                overruled.push_back(fmt::format("{} = {} of {}", key, other.dump(), name));
            }
        }
    if (overruled.empty()) return;
    std::ranges::sort(overruled);
    saw(fmt::format("{} precedes what the file itself says: {}",
                    options_.config_given ? "--config" : config_source_,
                    fmt::join(overruled, ", ")));
}

}  // namespace tsdiag::families
