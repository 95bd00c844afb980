#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "tsdiag/table.hpp"

/// Bands and columns of attention maps of images, as numbers.
namespace tsdiag::experiment_list {

/// The map of the patches alone: without the first row and column, which are the class token's.
struct PatchMap {
    Index side = 0;              ///< patches of an image's side; n = side^2
    std::vector<double> values;  ///< n x n, row-major

    explicit PatchMap(const Map& map);
    Index patches() const { return side * side; }
};

/// R^2: the share of the variance of a map's entries that lies between groups of entries, in [0,
/// 1].
struct MapScore {
    std::string_view name, words;
    Index (*groups)(Index side);                   ///< how many there are
    Index (*group)(Index side, Index i, Index j);  ///< that of an entry, from 0

    /// Empty where all entries are equal.
    std::optional<double> of(const PatchMap& map) const;
    /// Its mean over maps of entries drawn independently: (groups - 1) / (n^2 - 1).
    double chance(Index side) const;
};
extern const MapScore map_bands;      ///< groups of equal j - i
extern const MapScore map_row_bands;  ///< of equal distance of the image rows of i and j
extern const MapScore map_columns;    ///< of equal j

/// Correlation of the key's number j with the mean of column j; empty where either is constant.
std::optional<double> key_order(const PatchMap& map);

}  // namespace tsdiag::experiment_list
