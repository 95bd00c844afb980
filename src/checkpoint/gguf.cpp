#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "budget.hpp"
#include "ggml_types.hpp"
#include "layout.hpp"
#include "listed.hpp"
#include "mapped_file.hpp"

namespace tsdiag::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view gguf_magic = "GGUF";
constexpr std::uint64_t longest_name = 1 << 16, most_dimensions_of_ggml = 4;
constexpr std::uint64_t longest_list = 1024;  ///< listed in the metadata; longer arrays are counted
constexpr std::uint64_t most_elements = 1 << 22;  ///< of a list that is read whole
constexpr std::uint64_t most_shards = 1 << 16;

bool sniff_gguf(Bytes head) { return starts_with(head, gguf_magic); }

struct Shard {
    std::shared_ptr<const MappedFile> file;
    Json metadata = Json::Object();
    std::map<std::string, std::size_t, std::less<>> long_lists;  ///< where they begin
    std::vector<std::pair<std::string, RawTensor>> tensors;
};

/// One file, from its first byte to its last.
class Parser {
  public:
    explicit Parser(std::shared_ptr<const MappedFile> file)
        : file_(std::move(file)),
          in_(file_->bytes(), file_->path()),
          budget_(file_->path(), file_->bytes().size()) {}

    Shard parse() {
        in_.take_bytes(gguf_magic.size());
        const auto version = in_.take<std::uint32_t>();
        if (version > 0xffff)
            fail(
                fmt::format("is a GGUF file of version {:#x}, so it is big-endian, which is not "
                            "supported. Convert it to little-endian.",
                            version));
        if (version != 2 && version != 3)
            fail(
                fmt::format("is a GGUF file of version {}, expected 2 or 3. Convert the original "
                            "model again.",
                            version));
        const auto tensors = in_.take<std::uint64_t>(), keys = in_.take<std::uint64_t>();
        // At least: lengths of names, types and values.
        require_count(tensors, 8 + 4 + 4 + 8, "tensors");
        require_count(keys, 8 + 4 + 1, "metadata keys");
        Shard shard;
        for (std::uint64_t i = 0; i < keys; ++i) read_key(shard);
        std::vector<Described> described;
        for (std::uint64_t i = 0; i < tensors; ++i) described.push_back(describe());
        place(described, alignment(shard.metadata));
        for (Described& d : described)
            shard.tensors.emplace_back(std::move(d.name), std::move(d.tensor));
        shard.file = file_;
        return shard;
    }

    /// All elements of the list that begins at byte `at`.
    Json whole_list(std::size_t at, const std::string& key) {
        in_.take_bytes(at);
        const auto [type, count] = list_head(key);
        if (count > most_elements)
            fail(fmt::format("has metadata key '{}' of {} elements, expected at most {}.", key,
                             count, most_elements));
        return elements(type, count, key);
    }

  private:
    struct Described {
        std::string name;
        RawTensor tensor;
        std::uint64_t offset, size;
    };

    [[noreturn]] void fail(const std::string& sentence) const { refuse(file_->path(), sentence); }

    void require_count(std::uint64_t count, std::uint64_t least, std::string_view what) const {
        if (count > in_.left() / least)
            fail(
                fmt::format("has {} {} by its header, expected at most the {} that its bytes can "
                            "hold. It is truncated or damaged; download it again.",
                            count, what, in_.left() / least));
    }

    std::string text(std::string_view what, std::uint64_t longest) {
        const auto length = in_.take<std::uint64_t>();
        if (length > longest || length > in_.left())
            fail(fmt::format(
                "has a {} of {} bytes at byte {}, expected at most {}. It is "
                "damaged; download it again.",
                what, length, in_.position(), std::min<std::uint64_t>(longest, in_.left())));
        budget_.spend(length, "a text of the metadata");
        return std::string(text_of(in_.take_bytes(length)));
    }

    template <class T>
    Json number() {
        return Json(std::int64_t(in_.take<T>()));
    }
    /// The shortest decimal that rounds to it, as writers have it: 1e-05, not 9.99999974e-06.
    static Json decimal(float value) {
        if (!std::isfinite(value)) return Json(fmt::format("{}", value));
        return Json(std::stod(fmt::format("{}", value)));
    }

    Json value(std::uint32_t type, const std::string& key) {
        constexpr std::uint64_t longest_text = 1u << 30;
        switch (type) {
            case 0:
                return number<std::uint8_t>();
            case 1:
                return number<std::int8_t>();
            case 2:
                return number<std::uint16_t>();
            case 3:
                return number<std::int16_t>();
            case 4:
                return number<std::uint32_t>();
            case 5:
                return number<std::int32_t>();
            case 6:
                return decimal(in_.take<float>());
            case 7:
                return Json(in_.take<std::uint8_t>() != 0);
            case 8:
                return Json(text("metadata text", longest_text));
            case 9:
                return list(key);
            case 10: {
                const auto big = in_.take<std::uint64_t>();
                return std::in_range<std::int64_t>(big) ? Json(std::int64_t(big))
                                                        : Json(double(big));
            }
            case 11:
                return number<std::int64_t>();
            case 12: {
                const auto wide = in_.take<double>();
                return std::isfinite(wide) ? Json(wide) : Json(fmt::format("{}", wide));
            }
            default:
                break;
        }
        fail(
            fmt::format("has metadata key '{}' of type {}, expected one of the types 0 to 12. It "
                        "is damaged or newer than this reader.",
                        key, type));
    }

    static constexpr std::uint64_t widths_[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};

    /// Type and number of the elements that follow.
    std::pair<std::uint32_t, std::uint64_t> list_head(const std::string& key) {
        const auto type = in_.take<std::uint32_t>();
        const auto count = in_.take<std::uint64_t>();
        if (type >= std::size(widths_) || widths_[type] == 0)
            fail(
                fmt::format("has metadata key '{}', an array of elements of type {}, expected "
                            "numbers, truth values or texts. It is damaged; download it again.",
                            key, type));
        require_count(count, widths_[type], fmt::format("elements in '{}'", key));
        return {type, count};
    }
    Json elements(std::uint32_t type, std::uint64_t count, const std::string& key) {
        Json::Array all;
        all.reserve(count);
        for (std::uint64_t i = 0; i < count; ++i) all.push_back(value(type, key));
        return Json(std::move(all));
    }

    /// Long ones are skipped, and described by their length.
    Json list(const std::string& key) {
        const auto [type, count] = list_head(key);
        if (count <= longest_list) return elements(type, count, key);
        if (type != 8)
            in_.take_bytes(count * widths_[type]);
        else
            for (std::uint64_t i = 0; i < count; ++i) in_.take_bytes(in_.take<std::uint64_t>());
        return Json().set("length", std::int64_t(count));
    }

    void read_key(Shard& shard) {
        Json& metadata = shard.metadata;
        const std::string key = text("metadata key", longest_name);
        if (key.empty() || metadata.contains(key))
            fail(
                fmt::format("has the metadata key '{}' {}, expected names that differ. It is "
                            "damaged; download it again.",
                            key, key.empty() ? "without a name" : "twice"));
        constexpr std::size_t most_keys = 1 << 14;  // `Json` looks them up one by one
        if (metadata.object().size() >= most_keys)
            fail(fmt::format("has more than {} metadata keys. It is damaged; download it again.",
                             most_keys));
        const auto type = in_.take<std::uint32_t>();
        const std::size_t at = in_.position();
        Json read = value(type, key);
        constexpr std::uint32_t list_type = 9;
        if (type == list_type && !read.is_array()) shard.long_lists.emplace(key, at);
        metadata.set(key, std::move(read));
    }

    std::uint64_t alignment(const Json& metadata) const {
        const Json& said = metadata["general.alignment"];
        if (said.is_null()) return 32;
        const bool good = said.is_integer() && said.integer() >= 1 &&
                          said.integer() <= std::int64_t{1} << 30 &&
                          std::has_single_bit(std::uint64_t(said.integer()));
        if (!good)
            fail(
                fmt::format("has a general.alignment of {}, expected a power of two. It is "
                            "damaged; download it again.",
                            said.dump()));
        return std::uint64_t(said.integer());
    }

    Described describe() {
        Described d;
        d.name = text("tensor name", longest_name);
        const auto rank = in_.take<std::uint32_t>();
        if (rank > most_dimensions_of_ggml)
            fail(
                fmt::format("tensor '{}' has {} dimensions, expected at most {}. The file is "
                            "damaged; download it again.",
                            d.name, rank, most_dimensions_of_ggml));
        RawTensor& t = d.tensor;
        for (std::uint32_t k = 0; k < rank; ++k) {
            const auto extent = in_.take<std::uint64_t>();
            if (!std::in_range<std::int64_t>(extent))
                fail(
                    fmt::format("tensor '{}' has {} as dimension {} of {}, expected no negative "
                                "number. The file is damaged; download it again.",
                                d.name, std::int64_t(extent), k + 1, rank));
            t.shape.insert(t.shape.begin(), std::int64_t(extent));  // the file's first is innermost
        }
        const auto id = in_.take<std::uint32_t>();
        d.offset = in_.take<std::uint64_t>();
        const GgmlType* type = ggml_type(id);
        if (type == nullptr)
            fail(
                fmt::format("tensor '{}' has ggml type {}, which was withdrawn or is unknown. "
                            "Quantise the original model to another type.",
                            d.name, id));
        const BlockType& blocks = type->blocks;
        const auto count = element_count(t.shape);
        const std::int64_t columns = t.shape.empty() ? 1 : t.shape.back();
        const auto size = count ? times(*count / blocks.elements, blocks.bytes) : std::nullopt;
        if (!size || columns % blocks.elements != 0)
            fail(
                fmt::format("tensor '{}' of type {} has shape {}, expected rows of a multiple of "
                            "{} elements, and a size that fits 63 bits. The file is damaged; "
                            "download it again.",
                            d.name, blocks.name, shape_text(t.shape), blocks.elements));
        d.size = std::uint64_t(*size);
        t.dtype = type->dtype;
        t.dtype_name = blocks.name;
        if (t.dtype == DType::blocks) t.blocks = &blocks;
        t.strides = row_major(t.shape);
        return d;
    }

    /// Each tensor must begin where the one before ends, padded to the alignment.
    void place(std::vector<Described>& tensors, std::uint64_t alignment) {
        const auto padded = [&](std::uint64_t at) {
            return (at + alignment - 1) / alignment * alignment;
        };
        const std::uint64_t all = file_->bytes().size();
        const std::uint64_t begin = tensors.empty() ? all : padded(in_.position());
        if (begin > all && !tensors.empty() && tensors.back().offset + tensors.back().size > 0)
            fail("ends before its tensors. It is truncated; download it again.");
        const Bytes data = file_->bytes().subspan(std::min(begin, all));
        std::vector<Described*> order;
        for (Described& d : tensors) order.push_back(&d);
        std::ranges::sort(order, {}, [](const Described* d) { return std::pair(d->offset, d); });
        std::uint64_t at = 0;
        for (Described* d : order) {
            if (d->offset != at)
                fail(
                    fmt::format("tensor '{}' begins at data byte {}, expected {}: tensors must "
                                "not overlap or leave gaps. The file is damaged; download it "
                                "again.",
                                d->name, d->offset, at));
            if (!inside(d->offset, d->size, data.size()))
                fail(
                    fmt::format("tensor '{}' needs {} bytes at data byte {}, but the file has {} "
                                "bytes of data. It is truncated; download it again.",
                                d->name, d->size, d->offset, data.size()));
            d->tensor.bytes = data.subspan(d->offset, d->size);
            d->tensor.owner = file_;
            at = padded(at + d->size);
        }
        if (data.size() > at)
            fail(
                fmt::format("has {} bytes of data, expected {}. It is followed by extra bytes; "
                            "download it again.",
                            data.size(), at));
    }

    std::shared_ptr<const MappedFile> file_;
    ByteReader in_;
    Budget budget_;
};

std::int64_t counted(const Shard& shard, std::string_view key) {
    const Json& said = shard.metadata[key];
    return said.is_integer() ? said.integer() : 0;
}

/// NAME-00002-of-00003.gguf as the path of shard `number`, from 1; nullopt for another name.
std::optional<fs::path> sibling(const fs::path& path, std::int64_t number, std::int64_t count) {
    const std::string name = path.filename().string();
    const std::string end = fmt::format("-of-{:05}.gguf", count);
    constexpr std::size_t digits = 5;
    if (!name.ends_with(end) || name.size() < end.size() + digits + 1) return std::nullopt;
    const std::string stem = name.substr(0, name.size() - end.size() - digits);
    if (!stem.ends_with('-')) return std::nullopt;
    return path.parent_path() / fmt::format("{}{:05}{}", stem, number, end);
}

std::unique_ptr<Checkpoint> open_gguf(const fs::path& path) {
    std::vector<Shard> shards;
    shards.push_back(Parser(MappedFile::open(path)).parse());
    const std::int64_t count = counted(shards.front(), "split.count");
    std::string source = shards.front().file->path();
    if (count > 1) {
        const auto fail = [&](const std::string& sentence) { refuse(path.string(), sentence); };
        if (count > std::int64_t(most_shards) || !sibling(path, 1, count))
            fail(
                fmt::format("is one of {} shards, expected the name NAME-00001-of-{:05}.gguf. "
                            "Rename the shards as they were.",
                            count, count));
        shards.clear();
        for (std::int64_t i = 1; i <= count; ++i) {
            const fs::path shard = *sibling(path, i, count);
            std::error_code error;
            if (!fs::exists(shard, error))
                fail(
                    fmt::format("is one of {} shards, but '{}' is missing, expected all of them "
                                "in the same directory. Download the missing ones.",
                                count, shard.filename().string()));
            shards.push_back(Parser(MappedFile::open(shard)).parse());
            const Shard& read = shards.back();
            if (counted(read, "split.count") != count || counted(read, "split.no") != i - 1)
                fail(
                    fmt::format("belongs to {} shards, but '{}' says that it is number {} of {}. "
                                "The shards are of different models; download them again.",
                                count, shard.filename().string(), counted(read, "split.no") + 1,
                                counted(read, "split.count")));
        }
        source = shards.front().file->path();
    }
    auto listed =
        std::make_unique<ListedCheckpoint>(count > 1 ? "gguf, in shards" : "gguf", source);
    Shard& first = shards.front();
    listed->set_lists([file = first.file, lists = std::move(first.long_lists)](
                          std::string_view key) -> std::optional<Json> {
        const auto found = lists.find(key);
        if (found == lists.end()) return std::nullopt;
        return Parser(file).whole_list(found->second, found->first);
    });
    std::int64_t tensors = 0;
    for (Shard& shard : shards)
        for (auto& [name, tensor] : shard.tensors) {
            listed->add(std::move(name), std::move(tensor));
            ++tensors;
        }
    const Json& all = first.metadata["split.tensors.count"];
    if (all.is_integer() && all.integer() != tensors)
        refuse(source, fmt::format("has {} tensors in its shards, expected {} by "
                                   "split.tensors.count. Download the shards again.",
                                   tensors, all.integer()));
    listed->set_metadata(std::move(first.metadata));
    return listed;
}

}  // namespace

extern const FormatEntry gguf = {"gguf", "GGUF of llama.cpp, single or sharded", sniff_gguf,
                                 open_gguf};

}  // namespace tsdiag::checkpoint
