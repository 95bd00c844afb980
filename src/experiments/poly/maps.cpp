#include "maps.hpp"

#include <cmath>

namespace tsdiag::experiment_list {
namespace {

/// Share of the variance of the entries between the groups g(i, j) = 0 .. groups - 1; empty where
/// all are equal.
template <class Group>
std::optional<double> explained(const PatchMap& map, Index groups, Group group) {
    auto sum = std::vector<double>(std::size_t(groups)), count = sum;
    double total = 0, squares = 0;
    const Index n = map.patches();
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
            const double v = map.values[std::size_t(i * n + j)];
            const auto g = std::size_t(group(i, j));
            sum[g] += v;
            count[g] += 1;
            total += v;
        }
    const double mean = total / double(n * n);
    for (const double v : map.values) squares += (v - mean) * (v - mean);
    if (!(squares > 0)) return std::nullopt;
    double between = 0;
    for (std::size_t g = 0; g < sum.size(); ++g)
        if (count[g] > 0) between += count[g] * std::pow(sum[g] / count[g] - mean, 2);
    return between / squares;
}

}  // namespace

PatchMap::PatchMap(const Map& map) : side(std::llround(std::sqrt(double(map.cols - 1)))) {
    for (Index i = 1; i < map.rows; ++i)
        for (Index j = 1; j < map.cols; ++j)
            values.push_back(map.values[std::size_t(i * map.cols + j)]);
}

std::optional<double> MapScore::of(const PatchMap& map) const {
    return explained(map, groups(map.side),
                     [&](Index i, Index j) { return group(map.side, i, j); });
}

double MapScore::chance(Index side) const {
    const Index n = side * side;
    return double(groups(side) - 1) / double(n * n - 1);
}

const MapScore map_bands{"bands", "the diagonals j - i",
                         [](Index side) { return 2 * side * side - 1; },
                         [](Index side, Index i, Index j) { return j - i + side * side - 1; }};
const MapScore map_row_bands{
    "row_bands", "the distance between image rows", [](Index side) { return 2 * side - 1; },
    [](Index side, Index i, Index j) { return j / side - i / side + side - 1; }};
const MapScore map_columns{"columns", "the key j", [](Index side) { return side * side; },
                           [](Index, Index, Index j) { return j; }};

std::optional<double> key_order(const PatchMap& map) {
    const Index n = map.patches();
    double xy = 0, xx = 0, yy = 0, mean = 0;
    auto column = std::vector<double>(std::size_t(n));
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            column[std::size_t(j)] += map.values[std::size_t(i * n + j)] / double(n);
    for (const double c : column) mean += c / double(n);
    for (Index j = 0; j < n; ++j) {
        const double x = double(j) - double(n - 1) / 2, y = column[std::size_t(j)] - mean;
        xy += x * y, xx += x * x, yy += y * y;
    }
    // Columns that differ by the rounding of their sums alone are equal.
    if (!(xx > 0 && yy > 1e-24 * double(n) * mean * mean)) return std::nullopt;
    return xy / std::sqrt(xx * yy);
}

}  // namespace tsdiag::experiment_list
