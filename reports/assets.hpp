#pragma once
#include <string_view>

/// Files of this folder that every report contains, embedded in the library.
namespace tsdiag::reports {

std::string_view page_css();
std::string_view page_js();
std::string_view skeleton_html();  ///< see skeleton.hpp

}  // namespace tsdiag::reports
