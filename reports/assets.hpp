#pragma once
#include <string_view>

/// Files of this folder that every report contains, embedded in the library.
namespace tsdiag::reports {

struct Asset {
    std::string_view text;
    std::string_view sha256;  ///< of the text, 64 hexadecimal digits
};

Asset vega_js();
Asset vega_lite_js();
Asset vega_embed_js();
Asset licences();  ///< of the three
Asset page_css();
Asset skeleton_html();  ///< see skeleton.hpp
Asset page_js();

}  // namespace tsdiag::reports
