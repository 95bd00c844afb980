#include "version.hpp"

#include "tsdiag_commit.h"

namespace tsdiag::cli {

std::string commit() { return TSDIAG_COMMIT; }

std::string version() {
#ifdef __clang__
    constexpr const char* compiler = "clang " __clang_version__;
#else
    constexpr const char* compiler = "GCC " __VERSION__;
#endif
    return std::string("tsdiag " TSDIAG_VERSION " (commit ") + commit() +
           ", " TSDIAG_BUILD_TYPE ", " + compiler + ")";
}

}  // namespace tsdiag::cli
