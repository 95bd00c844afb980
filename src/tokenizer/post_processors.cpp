#include "parts.hpp"

namespace tsdiag::tokenizer {
namespace {

void surround(Parts& parts, const std::vector<Id>& before, const std::vector<Id>& after) {
    parts.before.insert(parts.before.begin(), before.begin(), before.end());
    parts.after.insert(parts.after.end(), after.begin(), after.end());
}

Id checked(const Component& c, std::string_view key, const Json& id) {
    if (!id.is_integer() || id.integer() < 0 || id.integer() > largest_id) c.refuse_value(key);
    return id.integer();
}

/// An array of a token and its id.
Id pair_id(const Component& c, std::string_view key) {
    const Json& pair = c.json()[key];
    if (!pair.is_array() || pair.array().size() != 2 || !pair.array()[0].is_string())
        c.refuse_value(key);
    return checked(c, key, pair.array()[1]);
}

void read_template(const Component& c, Parts& parts) {
    constexpr std::size_t most = 1000;
    c.require_keys({"single", "pair", "special_tokens"});
    std::vector<Id> sides[2];
    bool seen = false;
    for (const Component& item : c.list("single")) {
        if (item.json().is_object() && item.json().contains("Sequence")) {
            if (item.member("Sequence").text("id") != "A" || seen) c.refuse_value("single");
            seen = true;
            continue;
        }
        item.require_keys({"SpecialToken"});
        const std::string name = item.member("SpecialToken").text("id");
        const Component tokens = c.member("special_tokens");
        const Json& token = tokens.json()[name];
        if (!token.is_object() || !token["ids"].is_array()) tokens.refuse_value(name);
        for (const Json& id : token["ids"].array())
            sides[seen ? 1 : 0].push_back(checked(tokens, name, id));
    }
    if (!seen || sides[0].size() + sides[1].size() > most) c.refuse_value("single");
    surround(parts, sides[0], sides[1]);
}

}  // namespace

void read_post_processor(const Component& c, Parts& parts) {
    const std::string type = c.type();
    if (type == "Sequence") {
        c.require_keys({"processors"});
        for (const Component& one : c.list("processors")) read_post_processor(one, parts);
    } else if (type == "TemplateProcessing") {
        read_template(c, parts);
    } else if (type == "BertProcessing") {
        c.require_keys({"sep", "cls"});
        surround(parts, {pair_id(c, "cls")}, {pair_id(c, "sep")});
    } else if (type == "RobertaProcessing") {
        c.require_keys({"sep", "cls", "trim_offsets", "add_prefix_space"});
        surround(parts, {pair_id(c, "cls")}, {pair_id(c, "sep")});
    } else if (type == "ByteLevel") {
        c.require_keys({"add_prefix_space", "trim_offsets", "use_regex"});
    } else {
        c.refuse();
    }
}

}  // namespace tsdiag::tokenizer
