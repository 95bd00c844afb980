#include "tiles.hpp"

#include <fmt/format.h>

#include "layout.hpp"
#include "packed.hpp"
#include "tsdiag/layouts.hpp"

namespace tsdiag::checkpoint {
namespace {

std::vector<RawTensor> parts_of(const std::vector<Tile>& tiles) {
    std::vector<RawTensor> parts;
    for (const Tile& tile : tiles) parts.push_back(tile.part);
    return parts;
}

class Tiles final : public PackedMatrix {
  public:
    Tiles(std::int64_t columns, std::vector<Tile> tiles)
        : PackedMatrix(columns, parts_of(tiles), 0), tiles_(std::move(tiles)) {}

    void decode(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                float* out) const override {
        for (const Tile& tile : tiles_) {
            const std::int64_t top = std::max(row, tile.row),
                               bottom = std::min(row + rows, tile.row + tile.part.shape[0]),
                               left = std::max(column, tile.column),
                               right = std::min(column + columns, tile.column + tile.part.shape[1]);
            if (top >= bottom || left >= right) continue;
            RawTensor part = tile.part;
            part.offset +=
                (top - tile.row) * part.strides[0] + (left - tile.column) * part.strides[1];
            const bool whole = right - left == columns;
            part.shape = {whole ? bottom - top : 1, right - left};
            for (std::int64_t r = top; r < bottom; r += part.shape[0]) {
                float* to = out + (r - row) * columns + left - column;
                widen(part, std::span(to, std::size_t(part.count())));
                part.offset += part.strides[0];
            }
        }
    }

  private:
    std::vector<Tile> tiles_;
};

bool overlap(const Tile& a, const Tile& b) {
    return a.row < b.row + b.part.shape[0] && b.row < a.row + a.part.shape[0] &&
           a.column < b.column + b.part.shape[1] && b.column < a.column + a.part.shape[1];
}

}  // namespace

RawTensor tiled(std::vector<Tile> tiles, const std::vector<std::int64_t>& shape,
                const std::string& where, const std::string& what) {
    constexpr std::size_t most = 4096;  // every two are compared
    const std::int64_t rows = shape.empty() ? 1 : shape[0];
    const auto count = element_count(shape);
    std::int64_t filled = 0;
    bool good = count && *count > 0 && !tiles.empty() && tiles.size() <= most;
    const std::int64_t columns = good ? *count / rows : 0;
    for (std::size_t i = 0; good && i < tiles.size(); ++i) {
        const Tile& tile = tiles[i];
        const std::int64_t high = tile.part.shape[0], wide = tile.part.shape[1];
        good = tile.row >= 0 && tile.column >= 0 && high <= rows && tile.row <= rows - high &&
               wide <= columns && tile.column <= columns - wide &&
               tile.part.dtype == tiles[0].part.dtype;
        filled += good ? high * wide : 0;
        for (std::size_t k = 0; good && k < i; ++k) good = !overlap(tile, tiles[k]);
    }
    if (!good || filled != *count)
        refuse(where,
               fmt::format("{} of shape {} is not filled exactly by its {} parts of one type. "
                           "Are all files there? Download or save them again.",
                           what, shape_text(shape), tiles.size()));
    const DType type = tiles.front().part.dtype;
    std::string name = tiles.front().part.dtype_name;
    RawTensor tensor =
        packed_tensor(std::make_shared<Tiles>(columns, std::move(tiles)), shape, std::move(name));
    // Other types would lose what a float does not hold.
    if (type != DType::f32 && type != DType::f16 && type != DType::bf16)
        tensor.dtype = DType::other;
    return tensor;
}

}  // namespace tsdiag::checkpoint

namespace tsdiag {

RawTensor stacked(const std::vector<RawTensor>& parts, const std::string& where,
                  const std::string& what) {
    using namespace checkpoint;
    std::vector<Tile> tiles;
    std::int64_t rows = 0;
    for (const RawTensor& part : parts) {
        const std::size_t rank = part.shape.size();
        const bool plain =
            part.dtype == DType::f32 || part.dtype == DType::f16 || part.dtype == DType::bf16;
        if (!plain || part.scales || rank < 1 || rank > 2 || rank != parts.front().shape.size() ||
            part.shape.back() < 1 || part.shape.front() < 1)
            refuse(where, fmt::format("{} is put together of a {} {}, expected matrices or vectors "
                                      "of f32, f16 or bf16.",
                                      what, part.dtype_name, shape_text(part.shape)));
        Tile tile{rows, 0, part};
        if (rank == 1) {
            tile.part.shape.push_back(1);
            tile.part.strides.push_back(1);
        }
        rows += part.shape.front();
        tiles.push_back(std::move(tile));
    }
    if (tiles.empty()) refuse(where, fmt::format("{} is put together of nothing.", what));
    std::vector<std::int64_t> shape = parts.front().shape;
    shape.front() = rows;
    return tiled(std::move(tiles), shape, where, what);
}

}  // namespace tsdiag
