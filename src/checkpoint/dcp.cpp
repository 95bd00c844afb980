#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "directory.hpp"
#include "layout.hpp"
#include "pickle.hpp"
#include "tiles.hpp"
#include "torch_zip.hpp"

/// torch.distributed.checkpoint: a pickle `.metadata` says which part of which tensor lies where in
/// the files of the processes (`*.distcp`); a part is an archive of torch.save within its file.
namespace tsdiag::checkpoint {
namespace {

namespace fs = std::filesystem;
using Ref = PickleValue::Ref;
using Kind = PickleValue::Kind;
using Sizes = std::vector<std::int64_t>;

/// The member of an object of a dataclass; null: it has none of this name.
Ref member(Ref object, std::string_view name) {
    if (object == nullptr || object->state == nullptr) return nullptr;
    for (const auto& [key, value] : object->state->pairs)
        if (key->is(Kind::text) && key->text == name) return value;
    return nullptr;
}

bool is_none(Ref value) { return value == nullptr || value->is(Kind::none); }

bool is_a(Ref value, std::string_view class_name) {
    return value->is(Kind::object) && value->callee->is(Kind::global) &&
           value->callee->text.ends_with("." + std::string(class_name));
}

/// `torch.Size` or a tuple; nullopt: neither.
std::optional<Sizes> sizes_of(Ref value) {
    if (value == nullptr) return std::nullopt;
    if (is_a(value, "Size") && value->arguments != nullptr && value->arguments->items.size() == 1)
        value = value->arguments->items[0];
    if (!value->is(Kind::tuple) && !value->is(Kind::list)) return std::nullopt;
    if (value->items.size() > most_dimensions) return std::nullopt;
    Sizes sizes;
    for (const Ref item : value->items) {
        if (!item->is(Kind::integer) || item->integer < 0) return std::nullopt;
        sizes.push_back(item->integer);
    }
    return sizes;
}

/// Where a part lies.
struct Place {
    std::string file;
    std::uint64_t offset = 0, length = 0;
};

class DistributedCheckpoint {
  public:
    explicit DistributedCheckpoint(const fs::path& directory)
        : directory_(directory), metadata_(MappedFile::open(directory / ".metadata")) {}

    std::unique_ptr<Checkpoint> open() {
        const Pickle pickle = read_pickle(metadata_->bytes(), metadata_->path());
        const Ref tensors = member(pickle.root, "state_dict_metadata");
        const Ref places = member(pickle.root, "storage_data");
        if (is_none(tensors) || is_none(places) || !tensors->is(Kind::dict) ||
            !places->is(Kind::dict))
            fail("has no state_dict_metadata and storage_data");
        read_places(places);
        auto listed = std::make_unique<ListedCheckpoint>("torch distributed", directory_.string());
        for (const auto& [name, about] : tensors->pairs)
            if (is_a(about, "TensorStorageMetadata"))
                listed->add(text(name), read(text(name), about));
        add_containers(member(pickle.root, "planner_data"), *listed);
        return listed;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        refuse(metadata_->path(), what +
                                      ", expected the index of a checkpoint that "
                                      "torch.distributed.checkpoint saved. Save it again.");
    }

    const std::string& text(Ref value) const {
        if (!value->is(Kind::text)) fail("has a name that is no text");
        return value->text;
    }

    void read_places(Ref places) {
        for (const auto& [index, about] : places->pairs) {
            const Ref name = member(index, "fqn"), offset = member(index, "offset"),
                      file = member(about, "relative_path"), at = member(about, "offset"),
                      length = member(about, "length"),
                      transforms = member(about, "transform_descriptors");
            const auto corner = is_none(offset) ? Sizes() : sizes_of(offset).value_or(Sizes{-1});
            const bool whole = name != nullptr && file != nullptr && at != nullptr &&
                               length != nullptr && name->is(Kind::text) && file->is(Kind::text) &&
                               at->is(Kind::integer) && length->is(Kind::integer) &&
                               at->integer >= 0 && length->integer >= 0 && corner != Sizes{-1};
            if (!whole) fail("has an entry of storage_data without a name and a place");
            if (!is_none(transforms) && !transforms->items.empty())
                fail(fmt::format("says that the parts of '{}' are transformed (compressed)",
                                 name->text));
            const Place place{file->text, std::uint64_t(at->integer),
                              std::uint64_t(length->integer)};
            if (!places_.emplace(std::pair(name->text, corner), place).second)
                fail(fmt::format("places a part of '{}' twice", name->text));
        }
    }

    RawTensor read(const std::string& name, Ref about) {
        const auto size = sizes_of(member(about, "size"));
        const Ref chunks = member(about, "chunks");
        if (!size || is_none(chunks) || !chunks->is(Kind::list) || chunks->items.empty())
            fail(fmt::format("tells no size and parts of '{}'", name));
        std::vector<Tile> tiles;
        for (const Ref chunk : chunks->items) {
            const auto offsets = sizes_of(member(chunk, "offsets"));
            const auto extents = sizes_of(member(chunk, "sizes"));
            if (!offsets || !extents || offsets->size() != size->size() ||
                extents->size() != size->size())
                fail(fmt::format("tells no corner and sizes of a part of '{}'", name));
            RawTensor part = part_at(name, *offsets);
            if (part.shape != *extents)
                fail(fmt::format("says that a part of '{}' is {}, but it is {}", name,
                                 shape_text(*extents), shape_text(part.shape)));
            if (chunks->items.size() == 1 && *extents == *size) return part;
            tiles.push_back(tile(name, std::move(part), *size, *offsets));
        }
        return tiled(std::move(tiles), *size, metadata_->path(), fmt::format("tensor '{}'", name));
    }

    /// Parts are split along the first axis, or along the second of a matrix.
    Tile tile(const std::string& name, RawTensor part, const Sizes& size, const Sizes& offsets) {
        const bool matrix = size.size() == 2;
        for (std::size_t k = 1; !matrix && k < size.size(); ++k)
            if (part.shape[k] != size[k])
                fail(fmt::format("splits '{}' of shape {} along axis {}, which is not supported",
                                 name, shape_text(size), k));
        if (size.empty() || !part.contiguous() || part.offset != 0 || part.count() == 0)
            fail(fmt::format("has an empty part, or one with gaps, of '{}'", name));
        Tile tile{offsets[0], matrix ? offsets[1] : 0, std::move(part)};
        RawTensor& flat = tile.part;
        const std::int64_t rows = flat.shape[0];
        flat.shape = {rows, flat.count() / rows};
        flat.strides = row_major(flat.shape);
        return tile;
    }

    RawTensor part_at(const std::string& name, const Sizes& offsets) {
        auto found = places_.find(std::pair(name, offsets));
        const bool begin = std::ranges::all_of(offsets, [](std::int64_t o) { return o == 0; });
        if (found == places_.end() && begin) found = places_.find(std::pair(name, Sizes()));
        if (found == places_.end())
            fail(fmt::format("places no part of '{}' at {}", name, shape_text(offsets)));
        const Place& place = found->second;
        Storage& storage = open_storage(place.file);
        const Bytes bytes = storage.file->bytes();
        if (!inside(place.offset, place.length, bytes.size()))
            refuse(
                storage.file->path(),
                fmt::format("has {} bytes, expected a part of '{}' of {} bytes at byte {}. Is it "
                            "complete? Download or save it again.",
                            bytes.size(), name, place.length, place.offset));
        storage.read += place.length;  // each part once: no file is read more than that
        if (storage.read > bytes.size())
            fail(fmt::format("places parts of '{}' over others", name));
        ZipArchive archive(storage.file, bytes.subspan(place.offset, place.length));
        for (const ZipEntry& entry : archive.entries())
            if (entry.method != 0) fail(fmt::format("has a compressed part of '{}'", name));
        const auto part = read_torch_zip(std::move(archive));
        if (part->names().size() != 1 || !part->has("tensor"))
            fail(fmt::format("places something else than a tensor for '{}'", name));
        return part->tensor("tensor");
    }

    struct Storage {
        std::shared_ptr<const MappedFile> file;
        std::uint64_t read = 0;
    };
    Storage& open_storage(const std::string& name) {
        check_shard_name(name, metadata_->path());
        Storage& storage = storages_[name];
        if (!storage.file) storage.file = MappedFile::open(directory_ / name);
        return storage;
    }

    /// The keys that lead to each tensor, which its name joins by dots.
    void add_containers(Ref paths, ListedCheckpoint& listed) const {
        if (is_none(paths) || !paths->is(Kind::dict)) return;
        for (const auto& [name, path] : paths->pairs) {
            std::string joined;
            for (std::size_t k = 0; k + 1 < path->items.size() && k < most_dimensions; ++k) {
                if (!path->items[k]->is(Kind::text)) break;
                joined += (k > 0 ? "." : "") + path->items[k]->text;
                listed.add_container(joined);
            }
        }
    }

    fs::path directory_;
    std::shared_ptr<const MappedFile> metadata_;
    std::map<std::pair<std::string, Sizes>, Place> places_;
    std::map<std::string, Storage> storages_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_distributed(const fs::path& directory) {
    return DistributedCheckpoint(directory).open();
}

}  // namespace tsdiag::checkpoint
