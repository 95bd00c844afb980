#include "version.hpp"

#include <fmt/format.h>

#include "tsdiag_commit.h"

namespace tsdiag::cli {

std::string commit() { return TSDIAG_COMMIT; }

std::string version() {
#ifdef __clang__
    constexpr const char* compiler = "clang " __clang_version__;
#else
    constexpr const char* compiler = "GCC " __VERSION__;
#endif
    return fmt::format("tsdiag {} (commit {}, {}, {})", TSDIAG_VERSION, TSDIAG_COMMIT,
                       TSDIAG_BUILD_TYPE, compiler);
}

}  // namespace tsdiag::cli
