#include <fmt/format.h>

#include <tuple>

#include "options.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// Options of commands that several processes compute.
namespace tsdiag::cli {

std::pair<Index, Index> parse_fraction(const std::string& text, std::string_view option) {
    constexpr Index most = 1'000'000;
    const std::vector<std::string> numbers = tsdiag::split(text, '/');
    if (numbers.size() != 2)
        throw UsageError(fmt::format("{}: '{}' is not I/N, expected 2/7, say.", option, text));
    const Index parts = parse_count(numbers[1], option, 1, most);
    return {parse_count(numbers[0], option, 1, parts), parts};
}

void add_split(CLI::App& app, SplitOptions& split, const char* group) {
    const auto grouped = [&](CLI::Option* option) {
        if (group) option->group(group);
    };
    grouped(value(app, "--part", "I/N",
                  "compute part I of N only, for tsdiag merge (docs/cluster.md)",
                  [&](const std::string& t) {
                      std::tie(split.part, split.parts) = parse_fraction(t, "--part");
                  }));
    grouped(app.add_flag("--mixed", split.mixed,
                         "several processes may have different instruction sets"));
}

}  // namespace tsdiag::cli
