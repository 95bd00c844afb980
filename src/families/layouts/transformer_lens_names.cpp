#include <fmt/format.h>

#include "layouts.hpp"
#include "tsdiag/error.hpp"

/// TransformerLens: matrices (in, out), those of the attention with an axis of heads.  Names stay,
/// but for W_X and b_X, which become X.weight and X.bias; the unembedding is the head.
namespace tsdiag::families {
namespace {

constexpr std::string_view lens_query = "blocks.0.attn.W_Q";

bool is_transformer_lens(const Checkpoint& file) {
    return file.has(lens_query) && file.has("embed.W_E");
}

/// The matrices of all heads, one below the other, each turned round.
std::vector<Relabelled::Part> lens_heads(const Checkpoint& file, const std::string& name) {
    const std::vector<Index> n = file.tensor(name).shape;
    constexpr std::size_t with_heads = 3;
    constexpr Index most = 4096;
    if (n.size() != with_heads || n[0] < 1 || n[0] > most)
        throw FormatError(fmt::format("{}: tensor '{}' is {}, expected (heads, width, columns)",
                                      file.source(), name, text(n)));
    std::vector<Relabelled::Part> parts;
    for (Index head = 0; head < n[0]; ++head)
        parts.push_back(
            {name, {.axes = {0, 2, 1}, .first = head, .length = 1, .shape = {n[2], n[1]}}});
    return parts;
}

void add_lens_tensor(const Checkpoint& file, const std::string& name, Relabelled& out) {
    const std::size_t dot = name.rfind('.') + 1;
    const std::string before = name.substr(0, dot), last = name.substr(dot);
    const std::vector<Index> n = file.tensor(name).shape;
    if (last == "W_Q" || last == "W_K" || last == "W_V")
        return out.add(before + last.substr(2) + ".weight", lens_heads(file, name));
    constexpr std::size_t with_heads = 3, matrix = 2;
    if (last == "W_O" && n.size() == with_heads)
        return out.add(before + "O.weight", name,
                       {.axes = {2, 0, 1}, .shape = {n[2], merged(n[0], n[1])}});
    const bool of_heads = last == "b_Q" || last == "b_K" || last == "b_V";
    if (of_heads && n.size() == matrix)
        return out.add(before + last.substr(2) + ".bias", name, {.shape = {merged(n[0], n[1])}});
    if (name == "unembed.W_U") return out.add("lm_head.weight", name, {.axes = {1, 0}});
    if (name == "unembed.b_U") return out.add("lm_head.bias", name);
    if (last == "W_E" || last == "W_pos") return out.add(before + last, name);  // tables of rows
    if (last.starts_with("W_") && n.size() == matrix)
        return out.add(before + last.substr(2) + ".weight", name, {.axes = {1, 0}});
    if (last.starts_with("b_")) return out.add(before + last.substr(2) + ".bias", name);
    if (last == "w" || last == "b")
        return out.add(before + (last == "w" ? "weight" : "bias"), name);
    out.add(name, name);
}

std::string rename_transformer_lens(const Checkpoint& file, Relabelled& out, Json& config) {
    for (const std::string& name : file.names()) add_lens_tensor(file, name, out);
    const Index heads = file.tensor(lens_query).shape.front();
    const Json& said = config["n_heads"];
    constexpr Index unset = -1;
    if (said.is_null() || equal(said, Json(unset)))
        config.set("n_heads", heads);
    else if (!equal(said, Json(heads)))
        throw FormatError(
            fmt::format("{}: the configuration says n_heads = {}, but tensor '{}' "
                        "has {} heads",
                        file.source(), said.dump(), lens_query, heads));
    return "layouts of TransformerLens: matrices of heads put one below the other, W_X and b_X "
           "read as X.weight and X.bias";
}

}  // namespace

const Layout transformer_lens_names = {"TransformerLens", is_transformer_lens,
                                       rename_transformer_lens};

}  // namespace tsdiag::families
