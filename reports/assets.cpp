#include "assets.hpp"

#include <cstddef>

// The assembler copies the files; TSDIAG_REPORTS is this folder, and TSDIAG_HASH_x the SHA-256 of x
// in hexadecimal digits, both set by the build.
#define TSDIAG_ASSET(name, file)                                                                 \
    __asm__(".section .rodata\n.balign 16\n.global tsdiag_asset_" #name "\ntsdiag_asset_" #name  \
            ":\n.incbin \"" TSDIAG_REPORTS "/" file "\"\n.global tsdiag_asset_" #name            \
            "_end\ntsdiag_asset_" #name "_end:\n.byte 0\n.previous\n");                          \
    extern "C" const char tsdiag_asset_##name[], tsdiag_asset_##name##_end[];                    \
    Asset name() {                                                                               \
        return {                                                                                 \
            {tsdiag_asset_##name, std::size_t(tsdiag_asset_##name##_end - tsdiag_asset_##name)}, \
            TSDIAG_HASH_##name};                                                                 \
    }

namespace tsdiag::reports {

TSDIAG_ASSET(vega_js, "vendor/vega.min.js")
TSDIAG_ASSET(vega_lite_js, "vendor/vega-lite.min.js")
TSDIAG_ASSET(vega_embed_js, "vendor/vega-embed.min.js")
TSDIAG_ASSET(licences, "vendor/LICENSES.txt")
TSDIAG_ASSET(page_css, "page.css")
TSDIAG_ASSET(skeleton_html, "skeleton.html")
TSDIAG_ASSET(page_js, "page.js")

}  // namespace tsdiag::reports
