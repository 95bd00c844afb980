#pragma once
#include <string>

namespace tsdiag::cli {

/// "tsdiag 0.1.0 (commit 57d7f1b2, Release, GCC 12.2.0)"
std::string version();
/// The commit that was built, "-dirty" behind it where files differed; "unknown" without Git.
std::string commit();

}  // namespace tsdiag::cli
