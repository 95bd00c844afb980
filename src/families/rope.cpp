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

/// Keys that are read here, or that are redundant in the types that have them.
constexpr std::array known{"rope_type",       "type",
                           "rope_theta",      "partial_rotary_factor",
                           "factor",          "original_max_position_embeddings",
                           "low_freq_factor", "high_freq_factor",
                           "finetuned"};

void refuse_unknown(const Reader& r, const Json& rope) {
    for (const auto& [key, said] : rope.object())
        if (!said.is_null() && std::ranges::find(known, key) == known.end())
            r.refuse(
                fmt::format("the rotary embedding of {} has a '{}' ({}), which is not supported",
                            r.config_source(), key, said.dump()));
}

void read_scaling(Reader& r, const Json& rope, Rotary& out) {
    refuse_unknown(r, rope);
    const Json& kind = rope["rope_type"].is_string() ? rope["rope_type"] : rope["type"];
    const std::string type = kind.is_string() ? kind.string() : "default";
    if (type == "default") return;
    if (type != "linear" && type != "dynamic" && type != "llama3")
        r.refuse(
            fmt::format("rotary scaling '{}' is not supported (default, linear, dynamic and "
                        "llama3 are)",
                        type));
    out.scaling = type;
    out.factor = positive(r, rope, "factor");
    const Json& longest = r.value({"max_position_embeddings"});
    const double original = longest.is_number() ? longest.number() : 2048;
    if (const Json& before = rope["original_max_position_embeddings"];
        type != "llama3" && before.is_number() && before.number() != original)
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

}  // namespace

double read_share(Reader& r, Words keys, double fallback) {
    const Json& newer = r.value({"rope_parameters"})["partial_rotary_factor"];
    const bool all = fallback == 1 && r.value(keys).is_null();  // the default needs no key
    const double share = newer.is_number() ? newer.number() : all ? 1 : r.number(keys, fallback);
    if (!(share >= 0 && share <= 1))
        r.refuse(fmt::format("{} is {}, expected a fraction from 0 to 1", *keys.begin(), share));
    return share;
}

Rotary read_rotary(Reader& r, Index columns, Words theta_keys) {
    Rotary out;
    out.columns = columns;
    const Json& newer = r.value({"rope_parameters"});
    const Json& older = r.value({"rope_scaling"});
    const Json& rope = newer.is_null() ? older : newer;
    if (!newer.is_null() && !older.is_null() && !equal(newer, older))
        r.refuse(
            fmt::format("{} has rope_parameters and a different rope_scaling", r.config_source()));
    const Json& beside = r.value(theta_keys);
    if (rope["rope_theta"].is_number())
        out.theta = positive(r, rope, "rope_theta");
    else
        out.theta = r.number(theta_keys, 10000);
    if (beside.is_number() && beside.number() != out.theta)
        r.refuse(fmt::format("{} says {} = {} and rope_theta = {}", r.config_source(),
                             *theta_keys.begin(), beside.dump(), out.theta));
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

void write_rope_scaling(const Rotary& rotary, Json& config) {
    if (rotary.scaling.empty()) return;
    Json rope;
    rope.set("rope_type", rotary.scaling).set("factor", rotary.factor);
    if (rotary.scaling == "llama3") {
        rope.set("low_freq_factor", rotary.low_freq_factor);
        rope.set("high_freq_factor", rotary.high_freq_factor);
        rope.set("original_max_position_embeddings", rotary.original_length);
    }
    config.set("rope_scaling", std::move(rope));
}

}  // namespace tsdiag::families
