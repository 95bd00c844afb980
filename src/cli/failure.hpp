#pragma once
#include <string>

namespace tsdiag::cli {

enum Exit { done = 0, bad_input = 1, usage = 2, not_available = 3, failed = 4 };

/// An error as the program ends with it.
struct Failure {
    int code = done;
    std::string message;  ///< empty: none is said (a closed pipe)
};
/// That of the exception that is being handled.
Failure current_failure();

}  // namespace tsdiag::cli
