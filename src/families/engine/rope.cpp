#include "rope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag::families {
namespace {

double positive(const Reader& r, const Json& rope, std::string_view key) {
    const Json& said = rope[key];
    if (!said.is_number() || !(said.number() > 0) || !std::isfinite(said.number()))
        throw FormatError(fmt::format("{}: its rotary scaling needs a positive number '{}'",
                                      r.config_source(), key));
    return said.number();
}

/// A number of tokens from a config, clamped to fit an Index.
Index length(double tokens) { return Index(std::min(tokens, 1e15)); }

/// Keys of all scalings: they are read here, or redundant in the types that have them.
constexpr std::array scaling_keys{"rope_type",       "type",
                                  "rope_theta",      "partial_rotary_factor",
                                  "factor",          "original_max_position_embeddings",
                                  "low_freq_factor", "high_freq_factor",
                                  "finetuned"};
constexpr std::array of_yarn{"attention_factor", "beta_fast",      "beta_slow",
                             "mscale",           "mscale_all_dim", "truncate"};
constexpr std::array of_longrope{"attention_factor", "short_factor", "long_factor"};

void refuse_unknown(const Reader& r, const Json& rope, std::string_view type) {
    const auto has = [](const auto& keys, const std::string& key) {
        return std::ranges::find(keys, key) != keys.end();
    };
    for (const auto& [key, said] : rope.object())
        if (!said.is_null() && !has(scaling_keys, key) && !(type == "yarn" && has(of_yarn, key)) &&
            !(type == "longrope" && has(of_longrope, key)))
            r.refuse(
                fmt::format("the rotary embedding of {} has a '{}' ({}), which is not supported",
                            r.config_source(), key, said.dump()));
}

/// A positive number, `fallback` where the key is missing.
double positive_or(const Reader& r, const Json& rope, std::string_view key, double fallback) {
    return rope[key].is_null() ? fallback : positive(r, rope, key);
}

/// The length before the scaling: a key of the scaling or, of Phi, beside it; 0: neither is there.
double original_length(Reader& r, const Json& rope) {
    constexpr std::string_view key = "original_max_position_embeddings";
    const double inside = positive_or(r, rope, key, 0);
    const Json& said = r.value({key});
    if (said.is_null()) return inside;
    const double outside = positive(r, r.config(), key);
    if (inside > 0 && inside != outside)
        r.refuse(fmt::format("{} says {} = {} and {} = {} in its rotary scaling", r.config_source(),
                             key, outside, key, inside));
    return outside;
}

/// The longest input of a config, which has no default where a scaling depends on it.
double longest_input(Reader& r, std::string_view type) {
    const Json& said = r.value({"max_position_embeddings"});
    if (said.is_null())
        r.refuse(fmt::format("rotary scaling '{}' needs max_position_embeddings, which {} lacks",
                             type, r.config_source()));
    return positive(r, r.config(), "max_position_embeddings");
}

/// 0.1 m ln(factor) + 1, [YARN] (22), by which the logits' square root is multiplied.
double temperature(double factor, double m = 1) {
    return factor > 1 ? 0.1 * m * std::log(factor) + 1 : 1;
}

/// [YARN].  Without a length before it, `max_position_embeddings` is that.
void read_yarn(Reader& r, const Json& rope, Rotary& out) {
    if (!(out.theta > 1)) r.refuse("rotary scaling 'yarn' needs a rotary base above 1");
    const double before = original_length(r, rope);
    if (before == 0) r.assume("original_max_position_embeddings = max_position_embeddings");
    const double original = before > 0 ? before : longest_input(r, "yarn");
    out.original_length = length(original);
    out.beta_fast = positive_or(r, rope, "beta_fast", 32);
    out.beta_slow = positive_or(r, rope, "beta_slow", 1);
    if (out.beta_fast < out.beta_slow)
        r.refuse(
            fmt::format("beta_fast {} is less than beta_slow {}", out.beta_fast, out.beta_slow));
    if (const Json& truncate = rope["truncate"]; truncate.is_bool())
        out.truncate = truncate.boolean();
    else if (!truncate.is_null())
        r.refuse(fmt::format("truncate is {}, expected true or false", truncate.dump()));
    const double one = positive_or(r, rope, "mscale", 0),
                 all = positive_or(r, rope, "mscale_all_dim", 0);
    out.magnitude = one > 0 && all > 0 ? temperature(out.factor, one) / temperature(out.factor, all)
                                       : temperature(out.factor);
    out.magnitude = positive_or(r, rope, "attention_factor", out.magnitude);
    const Json& longest = r.value({"max_position_embeddings"});
    if (before > 0 && longest.is_number() && longest.number() != out.factor * before)
        r.spec.provenance.warnings.push_back(
            fmt::format("The rotary scaling has factor {}, though max_position_embeddings {} is {} "
                        "times the {} tokens before it; the factor is used",
                        out.factor, longest.dump(), longest.number() / before, before));
}

std::vector<double> factors(const Reader& r, const Json& rope, std::string_view key, Index count) {
    const Json& said = rope[key];
    std::vector<double> out;
    if (said.is_array())
        for (const Json& one : said.array())
            if (one.is_number() && one.number() > 0 && std::isfinite(one.number()))
                out.push_back(one.number());
    if (Index(out.size()) != count || said.array().size() != out.size())
        r.refuse(fmt::format("{} of rotary scaling 'longrope' is not a list of {} positive numbers",
                             key, count));
    return out;
}

/// [LONGROPE] as Phi has it: the magnitude is sqrt(1 + ln(factor) / ln(original length)).
void read_longrope(Reader& r, const Json& rope, Rotary& out) {
    out.short_factors = factors(r, rope, "short_factor", out.columns / 2);
    out.long_factors = factors(r, rope, "long_factor", out.columns / 2);
    const double original = original_length(r, rope), longest = longest_input(r, "longrope");
    if (!(original > 1))
        r.refuse("rotary scaling 'longrope' needs an original_max_position_embeddings above 1");
    out.original_length = length(original);
    const double ratio = longest / original;
    out.factor = positive_or(r, rope, "factor", ratio);
    if (out.factor != ratio)
        r.refuse(
            fmt::format("rotary scaling 'longrope' has factor {}, but max_position_embeddings "
                        "{} is {} times the {} tokens before it",
                        out.factor, longest, ratio, original));
    out.magnitude = out.factor > 1 ? std::sqrt(1 + std::log(out.factor) / std::log(original)) : 1;
    out.magnitude = positive_or(r, rope, "attention_factor", out.magnitude);
}

void read_scaling(Reader& r, const Json& rope, Rotary& out) {
    const Json &newer = rope["rope_type"], &older = rope["type"];
    if (newer.is_string() && older.is_string() && newer.string() != older.string())
        r.refuse(fmt::format("the rotary scaling of {} says rope_type = {} and type = {}",
                             r.config_source(), newer.dump(), older.dump()));
    const Json& kind = newer.is_string() ? newer : older;
    if (!kind.is_string() && !rope["factor"].is_null())
        r.refuse(
            fmt::format("the rotary scaling of {} says factor = {}, but neither rope_type nor type",
                        r.config_source(), rope["factor"].dump()));
    std::string type = kind.is_string() ? kind.string() : "default";
    if (type == "su") type = "longrope";  // its name in Phi's first files
    refuse_unknown(r, rope, type);
    if (type == "default") return;
    if (type != "linear" && type != "dynamic" && type != "llama3" && type != "yarn" &&
        type != "longrope")
        r.refuse(
            fmt::format("rotary scaling '{}' is not supported (default, linear, dynamic, llama3, "
                        "yarn and longrope are)",
                        type));
    out.scaling = type;
    if (type == "longrope") return read_longrope(r, rope, out);
    out.factor = positive(r, rope, "factor");
    if (type == "yarn") return read_yarn(r, rope, out);
    const Json& longest = r.value({"max_position_embeddings"});
    const double original = longest.is_number() ? longest.number() : 2048;
    if (const Json& before = rope["original_max_position_embeddings"];
        type == "dynamic" && before.is_number() && before.number() != original)
        r.refuse(
            fmt::format("rotary scaling '{}' with an original_max_position_embeddings of {} is not "
                        "supported ({}, max_position_embeddings, is)",
                        type, before.dump(), original));
    if (type == "dynamic") {
        if (!(original >= 1)) r.refuse("max_position_embeddings is not a number of tokens");
        if (out.columns <= 2) r.refuse("dynamic rotary scaling needs more than two columns");
        out.original_length = length(original);
    }
    if (type != "llama3") return;
    out.low_freq_factor = positive(r, rope, "low_freq_factor");
    out.high_freq_factor = positive(r, rope, "high_freq_factor");
    out.original_length = length(positive(r, rope, "original_max_position_embeddings"));
    if (out.high_freq_factor <= out.low_freq_factor)
        throw FormatError(fmt::format("{}: high_freq_factor {} must exceed low_freq_factor {}",
                                      r.config_source(), out.high_freq_factor,
                                      out.low_freq_factor));
}

Json list(const std::vector<double>& numbers) {
    Json::Array out;
    for (const double number : numbers) out.emplace_back(number);
    return out;
}

}  // namespace

double read_share(Reader& r, Words keys, double fallback) {
    const Json& newer = r.value({"rope_parameters"})["partial_rotary_factor"];
    const bool all = fallback == 1 && r.value(keys).is_null();  // the default needs no key
    const double share = newer.is_number() ? newer.number() : all ? 1 : r.number(keys, fallback);
    if (!(share >= 0 && share <= 1))
        r.refuse(fmt::format("{} is {}, expected a fraction from 0 to 1", *keys.begin(), share));
    return share;
}

Rotary read_rotary(Reader& r, Index columns, Words theta_keys, double theta) {
    Rotary out;
    out.columns = columns;
    const Json& newer = r.value({"rope_parameters"});
    const Json& older = r.value({"rope_scaling"});
    const Json& rope = newer.is_null() ? older : newer;
    if (!newer.is_null() && !older.is_null() && !equal(newer, older))
        r.refuse(
            fmt::format("{} has rope_parameters and a different rope_scaling", r.config_source()));
    const Json& declared = r.value(theta_keys);
    if (rope["rope_theta"].is_number())
        out.theta = positive(r, rope, "rope_theta");
    else
        out.theta = r.number(theta_keys, theta);
    if (declared.is_number() && declared.number() != out.theta)
        r.refuse(fmt::format("{} says {} = {} and rope_theta = {}", r.config_source(),
                             *theta_keys.begin(), declared.dump(), out.theta));
    if (!(out.theta > 0))
        r.refuse(fmt::format("the rotary base is {}, expected a positive number", out.theta));
    if (rope.is_object())
        read_scaling(r, rope, out);
    else if (!rope.is_null())
        r.refuse(fmt::format("the rotary scaling of {} is {}, expected an object",
                             r.config_source(), rope.dump()));
    else
        r.assume("rope_scaling = none");
    return out;
}

double share_of(Index part, Index whole) {
    const double share = double(part) / double(whole);
    return Index(share * double(whole)) == part ? share : std::nextafter(share, 1.0);
}

void write_rope_scaling(const Rotary& rotary, Json& config) {
    if (rotary.scaling.empty()) return;
    Json rope;
    rope.set("rope_type", rotary.scaling).set("factor", rotary.factor);
    if (rotary.scaling == "llama3") {
        rope.set("low_freq_factor", rotary.low_freq_factor);
        rope.set("high_freq_factor", rotary.high_freq_factor);
        rope.set("original_max_position_embeddings", rotary.original_length);
    }
    if (rotary.scaling == "yarn") {
        rope.set("beta_fast", rotary.beta_fast).set("beta_slow", rotary.beta_slow);
        rope.set("truncate", rotary.truncate).set("attention_factor", rotary.magnitude);
        rope.set("original_max_position_embeddings", rotary.original_length);
    }
    if (rotary.scaling == "longrope") {
        rope.set("short_factor", list(rotary.short_factors));
        rope.set("long_factor", list(rotary.long_factors));
        rope.set("attention_factor", rotary.magnitude);
        rope.set("original_max_position_embeddings", rotary.original_length);
    }
    config.set("rope_scaling", std::move(rope));
}

}  // namespace tsdiag::families
