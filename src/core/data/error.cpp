#include "tsdiag/error.hpp"

namespace tsdiag {

void check(bool condition, const char* what, std::source_location where) {
    if (condition) return;
    throw BrokenInvariant(
        std::string(where.file_name()) + ":" + std::to_string(where.line()) + " (" +
        where.function_name() + "): broken invariant: " + what +
        ". This is a bug in tsdiag; please report it with the command that you ran.");
}

}  // namespace tsdiag
