#include "windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "tsdiag/error.hpp"

namespace tsdiag::model {
namespace {

/// A side of the turned grid is [0, size - window), [size - window, size - shift), [size - shift,
/// size): tokens of a window in different parts were no neighbours before.
Index part_of(Index at, Index size, Index window, Index shift) {
    return shift == 0 ? 0 : at < size - window ? 0 : at < size - shift ? 1 : 2;
}

}  // namespace

Partition partition(const WindowSpec& windows, const Grid& grid, Index layer) {
    const Index side = windows.side;
    if (grid.rows % side != 0 || grid.cols % side != 0)
        throw UsageError(
            fmt::format("layer {}: windows of {} x {} patches do not divide its grid of {} x {}; "
                        "pass an image of another size, or another window",
                        layer, side, side, grid.rows, grid.cols));
    const Index shift = std::min(grid.rows, grid.cols) > side ? windows.shift : 0;
    struct Token {
        Index old, window, part, place;
    };
    std::vector<Token> tokens;
    for (Index y = 0; y < grid.rows; ++y)
        for (Index x = 0; x < grid.cols; ++x) {  // of the turned grid
            const Index old = (y + shift) % grid.rows * grid.cols + (x + shift) % grid.cols;
            tokens.push_back(
                {old, y / side * (grid.cols / side) + x / side,
                 3 * part_of(y, grid.rows, side, shift) + part_of(x, grid.cols, side, shift),
                 y % side * side + x % side});
        }
    const auto block = [](const Token& t) { return std::pair(t.window, t.part); };
    // The place within a window is unique, and follows the grid.
    std::ranges::sort(tokens, {},
                      [](const Token& t) { return std::tuple(t.window, t.part, t.place); });
    Partition out;
    out.back.resize(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        out.order.push_back(tokens[i].old);
        out.back[std::size_t(tokens[i].old)] = Index(i);
        out.place.push_back(tokens[i].place);
        if (i + 1 == tokens.size() || block(tokens[i + 1]) != block(tokens[i]))
            out.ends.push_back(Index(i) + 1);
    }
    return out;
}

}  // namespace tsdiag::model
