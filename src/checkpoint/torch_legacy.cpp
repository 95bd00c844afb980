#include <fmt/format.h>

#include <unordered_map>

#include "budget.hpp"
#include "callables.hpp"
#include "mapped_file.hpp"
#include "torch_objects.hpp"

/// The format before PyTorch 1.6: five pickles in a row, then the storages in the order of the
/// fifth. Elements are little-endian on all machines: `little_endian` in the third pickle describes
/// the machine that wrote it, and PyTorch ignores it.
namespace tsdiag::checkpoint {
namespace {

using Ref = PickleValue::Ref;
using Kind = PickleValue::Kind;

/// LONG1 of ten bytes, 0x1950a86a20f9469cfc6c.
constexpr std::string_view binary_magic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t legacy_protocol = 1001;

/// The magic number in decimal, as protocols 0 and 1 write it.
constexpr std::string_view decimal_magic = "L119547037146038801333356L\n.";

/// The magic follows PROTO, and FRAME for protocols 4 and 5.
bool sniff_torch_legacy(Bytes head) {
    if (starts_with(head, decimal_magic)) return true;
    return starts_with(head, "\x80") &&
           (starts_with(head.subspan(std::min<std::size_t>(2, head.size())), binary_magic) ||
            starts_with(head.subspan(std::min<std::size_t>(11, head.size())), binary_magic));
}

/// Reads one pickle after the other.
class Stream {
  public:
    explicit Stream(const MappedFile& file) : file_(file) {}
    Pickle next() {
        Pickle pickle = read_pickle(rest(), file_.path());
        at_ += pickle.size;
        return pickle;
    }
    Bytes rest() const { return file_.bytes().subspan(at_); }

  private:
    const MappedFile& file_;
    std::size_t at_ = 0;
};

class LegacyStorages {
  public:
    LegacyStorages(std::shared_ptr<const MappedFile> file, const Pickle& objects,
                   const Pickle& keys, Bytes data)
        : file_(std::move(file)) {
        std::unordered_map<std::string, StorageId> ids;
        for (const Ref persistent : objects.persistent) {
            StorageId id = read_storage_id(persistent, file_->path());
            const std::string key = id.key;
            ids.emplace(key, std::move(id));
        }
        if (!keys.root->is(Kind::list)) fail("has no list of storage keys");
        ByteReader in(data, file_->path() + " (storages)");
        for (const Ref key : keys.root->items) {
            const auto id = ids.find(key->text);
            if (!key->is(Kind::text) || id == ids.end() || id->second.width == 0)
                fail(fmt::format("lists the storage '{}', which is unused or has an unknown type",
                                 key->text));
            const auto count = in.take<std::int64_t>();
            const auto bytes = times(count, std::int64_t(id->second.width));
            if (count != id->second.count || !bytes)
                fail(fmt::format("storage '{}' has {} elements, expected {}", key->text, count,
                                 id->second.count));
            bytes_[key->text] = in.take_bytes(std::uint64_t(*bytes));
        }
        if (in.left() != 0) fail(fmt::format("has {} bytes after its storages", in.left()));
    }

    Storage operator()(const StorageId& id) const {
        const auto found = bytes_.find(id.key);
        if (found == bytes_.end())
            fail(fmt::format("has no storage '{}', which a tensor uses", id.key));
        const auto size = times(id.count, std::int64_t(id.width));
        if (!size || std::uint64_t(*size) > found->second.size())
            fail(fmt::format("storage '{}' has {} bytes, expected {} elements of {}", id.key,
                             found->second.size(), id.count, id.class_name));
        if (id.view == nullptr) return {found->second, file_, false};
        return {view_of(id, found->second), file_, false};
    }

  private:
    /// A part of the storage, in elements: (key of the view, offset, size).
    Bytes view_of(const StorageId& id, Bytes whole) const {
        const auto& view = id.view->items;
        const bool good = view.size() == 3 && view[1]->is(Kind::integer) &&
                          view[2]->is(Kind::integer) && view[1]->integer >= 0 &&
                          view[2]->integer >= 0;
        const auto width = std::int64_t(id.width);
        const auto begin = good ? times(view[1]->integer, width) : std::nullopt;
        const auto size = good ? times(view[2]->integer, width) : std::nullopt;
        if (!begin || !size || !inside(std::uint64_t(*begin), std::uint64_t(*size), whole.size()))
            fail(fmt::format("has a view beyond its storage '{}' of {} bytes", id.key,
                             whole.size()));
        return whole.subspan(std::size_t(*begin), std::size_t(*size));
    }
    [[noreturn]] void fail(const std::string& found) const {
        refuse(file_->path(), found +
                                  ", which torch.save never writes. The file is damaged or "
                                  "truncated; download or save it again.");
    }

    std::shared_ptr<const MappedFile> file_;
    std::unordered_map<std::string, Bytes> bytes_;
};

std::unique_ptr<Checkpoint> open_torch_legacy(const std::filesystem::path& path) {
    const auto file = MappedFile::open(path);
    Stream stream(*file);
    stream.next();  // the magic number, already checked
    const Pickle version = stream.next();
    if (!version.root->is(Kind::integer) || version.root->integer != legacy_protocol)
        refuse(file->path(), fmt::format("has an unknown torch.save protocol, expected {}. Save it "
                                         "again with a newer PyTorch.",
                                         legacy_protocol));
    stream.next();  // the machine that wrote it
    const Pickle objects = stream.next();
    const Pickle keys = stream.next();
    auto listed = std::make_unique<ListedCheckpoint>("torch legacy", file->path());
    Budget budget(file->path(), file->bytes().size());
    list_objects(objects, LegacyStorages(file, objects, keys, stream.rest()), budget, *listed);
    list_callables(objects, *listed);
    return listed;
}

}  // namespace

extern const FormatEntry torch_legacy = {"torch legacy", "PyTorch before 1.6, without zip",
                                         sniff_torch_legacy, open_torch_legacy};

}  // namespace tsdiag::checkpoint
