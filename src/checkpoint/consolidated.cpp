#include <fmt/format.h>

#include <algorithm>

#include "directory.hpp"
#include "layout.hpp"
#include "listed.hpp"
#include "owner.hpp"
#include "tiles.hpp"

/// Meta's files of several processes, consolidated.00.pth and so on: each has a part of the rows or
/// of the columns of every matrix.
namespace tsdiag::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Matrices whose inputs are split: fairscale's RowParallelLinear.
bool splits_columns(std::string_view name) {
    return name.ends_with(".attention.wo.weight") || name.ends_with(".feed_forward.w2.weight");
}
bool splits_rows(std::string_view name) {
    constexpr std::string_view endings[] = {".attention.wq.weight",    ".attention.wk.weight",
                                            ".attention.wv.weight",    ".feed_forward.w1.weight",
                                            ".feed_forward.w3.weight", "output.weight"};
    return std::ranges::any_of(endings, [&](auto ending) { return name.ends_with(ending); });
}

bool equal_bytes(const RawTensor& a, const RawTensor& b) {
    verify(a);
    verify(b);
    const bool plain = a.contiguous() && b.contiguous() && a.dtype == b.dtype && a.shape == b.shape;
    const std::size_t width = bytes_of(a.dtype), size = std::size_t(a.count()) * width;
    return plain && std::ranges::equal(a.bytes.subspan(std::size_t(a.offset) * width, size),
                                       b.bytes.subspan(std::size_t(b.offset) * width, size));
}

RawTensor joined(const std::string& name, std::vector<RawTensor> parts, std::int64_t width,
                 const std::string& where) {
    const auto fail = [&](const std::string& found) {
        refuse(where,
               fmt::format("tensor '{}' {} its {} files, expected parts as Meta's code saves "
                           "them. Download them again.",
                           name, found, parts.size()));
    };
    const bool matrix = parts.front().shape.size() == 2;
    const bool same = std::ranges::all_of(
        parts, [&](const RawTensor& part) { return part.shape == parts.front().shape; });
    if (!same) fail("has different shapes in");
    const bool tokens = name == "tok_embeddings.weight";
    const auto count = std::int64_t(parts.size());
    // LLaMA 1 and 2 split the columns of the embedding, LLaMA 3 the words.
    const bool down = matrix && (splits_rows(name) || (tokens && parts.front().shape[1] == width));
    const bool across = matrix && (splits_columns(name) || (tokens && !down));
    if (!down && !across) {
        if (matrix) fail("is a matrix without a known split in");
        for (const RawTensor& part : parts)
            if (!equal_bytes(part, parts.front())) fail("has different values in");
        return parts.front();
    }
    std::vector<std::int64_t> shape = parts.front().shape;
    std::vector<Tile> tiles;
    for (std::int64_t i = 0; i < count; ++i)
        tiles.push_back(
            {down ? i * shape[0] : 0, across ? i * shape[1] : 0, std::move(parts[std::size_t(i)])});
    std::int64_t& extent = shape[down ? 0 : 1];
    const auto whole = times(extent, count);
    if (!whole) refuse(where, fmt::format("tensor '{}' has too many elements.", name));
    extent = *whole;
    return tiled(std::move(tiles), shape, where, fmt::format("tensor '{}'", name));
}

}  // namespace

bool are_consolidated(const std::vector<fs::path>& files) {
    for (std::size_t i = 0; i < files.size(); ++i)
        if (files[i].filename() != fmt::format("consolidated.{:02}.pth", i)) return false;
    return files.size() > 1;
}

std::unique_ptr<Checkpoint> open_consolidated(const std::vector<fs::path>& files) {
    std::vector<std::unique_ptr<Checkpoint>> opened;
    for (const fs::path& file : files) opened.push_back(open_file(file));
    const Checkpoint& first = *opened.front();
    const std::string where = files.front().parent_path().string();
    const std::int64_t width = first.has("norm.weight") ? first.tensor("norm.weight").count() : 0;
    auto listed = std::make_unique<ListedCheckpoint>("torch, in parts", where);
    listed->set_metadata(first.metadata());
    for (const std::string& name : first.names()) {
        std::vector<RawTensor> parts;
        for (std::size_t i = 0; i < opened.size(); ++i) {
            if (!opened[i]->has(name) || opened[i]->names().size() != first.names().size())
                refuse(files[i].string(),
                       fmt::format("has not the tensors of '{}', expected '{}' and all others. "
                                   "Download it again.",
                                   files.front().filename().string(), name));
            parts.push_back(opened[i]->tensor(name));
        }
        listed->add(name, joined(name, std::move(parts), width, where));
    }
    return listed;
}

}  // namespace tsdiag::checkpoint
