#pragma once
#include <string>
#include <string_view>

#include "tsdiag/claim.hpp"

/// What was examined of a claim, as the record of a unit (units.hpp).
namespace tsdiag {

std::string claim_record(const Examined& examined);
/// Throws `FormatError` for bytes that `claim_record` cannot have made.
Examined read_claim_record(std::string_view record, const Claim& claim,
                           const CheckSettings& settings);

}  // namespace tsdiag
