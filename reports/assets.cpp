#include "assets.hpp"

#include <cstddef>

// The assembler copies the files; TSDIAG_REPORTS is this folder, set by the build.
#define TSDIAG_ASSET(name, file)                                                                \
    __asm__(".section .rodata\n.balign 16\n.global tsdiag_asset_" #name "\ntsdiag_asset_" #name \
            ":\n.incbin \"" TSDIAG_REPORTS "/" file "\"\n.global tsdiag_asset_" #name           \
            "_end\ntsdiag_asset_" #name "_end:\n.byte 0\n.previous\n");                         \
    extern "C" const char tsdiag_asset_##name[], tsdiag_asset_##name##_end[];                   \
    std::string_view name() {                                                                   \
        return {tsdiag_asset_##name,                                                            \
                std::size_t(tsdiag_asset_##name##_end - tsdiag_asset_##name)};                  \
    }

namespace tsdiag::reports {

TSDIAG_ASSET(page_css, "page.css")
TSDIAG_ASSET(page_js, "page.js")
TSDIAG_ASSET(skeleton_html, "skeleton.html")

}  // namespace tsdiag::reports
