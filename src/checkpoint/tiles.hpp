#pragma once
#include <vector>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// A part of a matrix, with its upper left corner.
struct Tile {
    std::int64_t row = 0, column = 0;
    RawTensor part;  ///< two dimensions
};

/// The tensor of this shape whose rows (its first axis) and columns (all others) the tiles fill.
/// Throws `FormatError` unless they fill it exactly and are of one type; `where` and `what` name
/// it.
RawTensor tiled(std::vector<Tile> tiles, const std::vector<std::int64_t>& shape,
                const std::string& where, const std::string& what);

}  // namespace tsdiag::checkpoint
