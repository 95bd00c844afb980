#include "encoder.hpp"

#include <fmt/format.h>

namespace tsdiag::experiment_list {

std::string drawn_encoder(const ExperimentSetting& setting, std::string_view kind,
                          const std::string& more) {
    return encoder(setting, kind,
                   fmt::format(",var_v={}{}{}", setting.text("var_v"),
                               setting.text("out_proj") == "1" ? ",out_proj=1" : "", more));
}

double branch_gain(const ExperimentSetting& setting) {
    return branch_gain(setting.text("var_v"), setting.number("d"), setting.number("heads"),
                       setting.text("out_proj") == "1");
}

}  // namespace tsdiag::experiment_list
