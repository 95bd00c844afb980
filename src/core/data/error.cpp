#include "tsdiag/error.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tsdiag {

void check(bool condition, const char* what, std::source_location where) {
    if (condition) return;
    throw BrokenInvariant(
        std::string(where.file_name()) + ":" + std::to_string(where.line()) + " (" +
        where.function_name() + "): broken invariant: " + what +
        ". This is a bug of tsdiag; please report it with the command that led here.");
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);  // distances of a prefix of a to all prefixes of b
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

}  // namespace tsdiag
