#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/tensor.hpp"

namespace tsdiag {

/// The stages inside a layer that a trace may hold, as `STAGE.L`.
const std::vector<std::string_view>& saved_stages();
/// Those before and behind layers, which are read where a number follows: "embed", "out", "merge",
/// "class", "final_norm".
const std::vector<std::string_view>& outer_stages();

/// What the name of an array in a saved trace says.
struct ArrayName {
    std::string_view kind = {};       ///< "hidden_states", "attentions", "sa", ...; empty: none
    std::optional<Index> layer = {};  ///< of `KIND.L`; none: of all layers, or not to be told
    std::string_view rest = {};       ///< what follows the kind where no layer can be told
};

/// Reads `KIND.L`, and what people write in its place: _, -, /, brackets or nothing for the point,
/// "layer" or "block" before the number, leading zeros, capital letters, a singular.  `KIND` alone
/// is an array of all layers.
ArrayName read_array_name(std::string_view name);

/// `attention_mask`, in capitals or in the plural: 1 for each token that is kept.
bool is_mask_of_tokens(std::string_view name);
/// Another name with "mask" in it, whose zeros and ones may mean either.
bool is_other_mask(std::string_view name);
/// A name of how many tokens samples have, as "lengths" or "seq_len"; not of the most they may, nor
/// of targets.
bool names_lengths(std::string_view name);

/// Where states or maps are inside something else, as in "outputs.hidden_states.0" or
/// "layer3.attentions": what they are in, and their kind.
std::optional<std::pair<std::string, std::string>> inner_array(std::string_view name);

/// Can a name with this `rest` be meant for an array of its kind that nobody can place?  "note" of
/// `keys_note` is not, "0.3" of `attentions.0.3` is.
bool is_unplaced(const ArrayName& name);

/// The name KIND.L that a name nobody can place is clearly meant for, as attentions.0 for
/// "attn_weights.0" and hidden_states.3 for "hidden_states:3"; empty where there is none.
std::string usual_name(std::string_view name);

/// The digits of the only number in a name, as "3" of "layers.3.attn_weights"; empty where there is
/// none, or another one.
std::string only_number(std::string_view name);

}  // namespace tsdiag
