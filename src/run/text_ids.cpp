#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "inputs.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag {
namespace {

constexpr std::string_view separators = " \t\r,;";

std::vector<Index> read_line(std::string_view line, Index number, const std::string& file) {
    std::vector<Index> ids;
    while (true) {
        const std::size_t begin = line.find_first_not_of(separators);
        if (begin == std::string_view::npos) return ids;
        line.remove_prefix(begin);
        const std::size_t length = std::min(line.find_first_of(separators), line.size());
        Index id = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + length, id);
        if (error != std::errc() || end != line.data() + length)
            throw FormatError(fmt::format("{}: line {} has '{}', expected integers.", file, number,
                                          line.substr(0, std::min<std::size_t>(length, 40))));
        ids.push_back(id);
        line.remove_prefix(length);
    }
}

}  // namespace

std::vector<std::vector<Index>> read_text_ids(const std::string& file) {
    const std::string text = file_text(file, "a file of token ids");
    std::vector<std::vector<Index>> samples;
    bool one_each = true;  // one id per line: a single sample
    Index number = 0;
    for (std::string_view rest = text; !rest.empty();) {
        number += 1;
        const std::size_t length = std::min(rest.find('\n'), rest.size());
        std::vector<Index> ids = read_line(rest.substr(0, length), number, file);
        rest.remove_prefix(std::min(length + 1, rest.size()));
        if (ids.empty()) continue;
        one_each = one_each && ids.size() == 1;
        if (!one_each && !samples.empty() && ids.size() != samples.front().size())
            throw FormatError(
                fmt::format("{}: line {} has {} ids, but the lines before it have {}; expected one "
                            "sample per line, all of the same length, or one id per line.",
                            file, number, ids.size(), samples.front().size()));
        samples.push_back(std::move(ids));
    }
    if (samples.empty())
        throw FormatError(fmt::format("{}: contains no ids, expected integers.", file));
    if (!one_each) return samples;
    std::vector<Index> all;
    for (const std::vector<Index>& sample : samples) all.push_back(sample.front());
    return {std::move(all)};
}

}  // namespace tsdiag
