#pragma once
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/json.hpp"

/// What files say of their models beside the tensors.
namespace tsdiag::families {

/// Keys under which a training saves the configuration of its model, or arguments with it among
/// them, and objects that may have them inside.
constexpr std::array<std::string_view, 6> said_keys{"config", "model_config",     "model_args",
                                                    "args",   "hyper_parameters", "hparams"};
constexpr std::array<std::string_view, 6> said_holders{"model",   "module", "net",
                                                       "hparams", "cfg",    "hyper_parameters"};

/// All of them in the metadata of a file, with their names.
std::vector<std::pair<std::string, const Json*>> said_in(const Json& metadata);

}  // namespace tsdiag::families
