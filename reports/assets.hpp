#pragma once
#include <string_view>

/// Files of this folder that every report carries, built into the library.
namespace tsdiag::reports {

std::string_view vega_js();
std::string_view vega_lite_js();
std::string_view vega_embed_js();
std::string_view licences();  ///< of the three
std::string_view page_css();
std::string_view page_js();

}  // namespace tsdiag::reports
