#pragma once
#include "reader.hpp"

namespace tsdiag::families {

/// The share of a head's columns that rotate, in [0, 1]: `rope_parameters` of transformers 5, else
/// `keys`.
double read_share(Reader& reader, Words keys, double fallback);

/// The share of `whole` columns that gives `part` again when it is cut off to a whole number.
double share_of(Index part, Index whole);

/// The rotary embedding of a HF config: `rope_theta` (`theta_keys`), `rope_scaling` of transformers
/// 4 or `rope_parameters` of 5.  `columns` of a head rotate.  Unsupported scalings and unknown keys
/// are refused by name.  Scalings: [YARN], [LONGROPE] and those of transformers.  `theta`: the base
/// where no key has it.
Rotary read_rotary(Reader& reader, Index columns, Words theta_keys, double theta = 10000);

/// Writes the scaling of `rotary` into a config of HF: sets `rope_scaling` where there is any.
void write_rope_scaling(const Rotary& rotary, Json& config);

}  // namespace tsdiag::families
