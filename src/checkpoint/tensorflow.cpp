#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "directory.hpp"
#include "layout.hpp"
#include "listed.hpp"
#include "mapped_file.hpp"
#include "tsdiag/checksum.hpp"

/// TensorFlow's checkpoints V2 (tensor bundles): PREFIX.index, a table of what tensors there are,
/// in the layout of LevelDB's tables, and PREFIX.data-00000-of-0000N, their elements.
namespace tsdiag::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t table_magic = 0xdb4775248b80fb57u;
constexpr std::size_t table_footer = 48, block_trailer = 5;  ///< a type and a checksum
constexpr std::size_t longest_tensor_key = 1 << 16, most_bundle_tensors = 1 << 20;
constexpr std::int64_t most_bundle_shards = 4096;

struct TensorFlowType {
    std::uint64_t number;
    std::string_view name;
    DType type;
};
constexpr std::array tensorflow_types{
    TensorFlowType{1, "float", DType::f32},        TensorFlowType{2, "double", DType::f64},
    TensorFlowType{3, "int32", DType::i32},        TensorFlowType{4, "uint8", DType::u8},
    TensorFlowType{5, "int16", DType::i16},        TensorFlowType{6, "int8", DType::i8},
    TensorFlowType{7, "string", DType::other},     TensorFlowType{8, "complex64", DType::c64},
    TensorFlowType{9, "int64", DType::i64},        TensorFlowType{10, "bool", DType::boolean},
    TensorFlowType{14, "bfloat16", DType::bf16},   TensorFlowType{17, "uint16", DType::u16},
    TensorFlowType{18, "complex128", DType::c128}, TensorFlowType{19, "half", DType::f16},
    TensorFlowType{22, "uint32", DType::u32},      TensorFlowType{23, "uint64", DType::u64},
};

/// Do the bytes have this masked CRC-32C?
bool has_checksum(Bytes bytes, std::uint32_t masked) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION  // else no mutated input passes the checksum
    static_cast<void>(bytes);
    static_cast<void>(masked);
    return true;
#else
    return masked_crc32c(text_of(bytes)) == masked;
#endif
}

/// Bytes of a data file, verified when they are first read.
class BundleBytes final : public Owner {
  public:
    BundleBytes(std::shared_ptr<const MappedFile> file, Bytes bytes, std::uint32_t masked,
                std::string name)
        : file_(std::move(file)), bytes_(bytes), masked_(masked), name_(std::move(name)) {}

    bool mapped() const override { return true; }
    void verify() const override {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!verified_ && !has_checksum(bytes_, masked_))
            refuse(file_->path(), fmt::format("the bytes of tensor '{}' do not match their "
                                              "checksum. The file is damaged; download it again.",
                                              name_));
        verified_ = true;
    }

  private:
    std::shared_ptr<const MappedFile> file_;
    Bytes bytes_;
    std::uint32_t masked_;
    std::string name_;
    mutable std::mutex mutex_;
    mutable bool verified_ = false;
};

/// Numbers of 7 bits a byte, and the fields of protocol buffers.
class ProtoReader {
  public:
    ProtoReader(Bytes bytes, const std::string& where) : in_(bytes, where) {}

    bool done() const { return in_.left() == 0; }
    std::size_t left() const { return in_.left(); }
    Bytes take(std::uint64_t count) { return in_.take_bytes(count); }

    std::uint64_t varint() {
        std::uint64_t out = 0;
        constexpr int most = 64;
        for (int shift = 0; shift < most; shift += 7) {
            const auto byte = in_.take<std::uint8_t>();
            out |= std::uint64_t(byte & 0x7f) << shift;
            if (byte < 0x80) return out;
        }
        refuse(in_.where(),
               "has a number of more than ten bytes, expected one of 64 bits. It is "
               "damaged; download it again.");
    }

    struct Field {
        std::uint64_t number = 0, value = 0;
        Bytes bytes;
    };
    Field field() {
        Field out;
        const std::uint64_t tag = varint();
        out.number = tag >> 3;
        switch (tag & 7) {
            case 0:
                out.value = varint();
                return out;
            case 1:
                out.value = in_.take<std::uint64_t>();
                return out;
            case 2:
                out.bytes = in_.take_bytes(varint());
                return out;
            case 5:
                out.value = in_.take<std::uint32_t>();
                return out;
            default:
                refuse(in_.where(), fmt::format("has a field of wire type {}, expected 0, 1, 2 or "
                                                "5. It is damaged; download it again.",
                                                tag & 7));
        }
    }

  private:
    ByteReader in_;
};

struct BlockHandle {
    std::uint64_t offset = 0, size = 0;
};
BlockHandle handle_of(ProtoReader& in) {
    BlockHandle out;
    out.offset = in.varint();
    out.size = in.varint();
    return out;
}

/// LevelDB's table: keys in order, each with a value.
class BundleTable {
  public:
    explicit BundleTable(std::shared_ptr<const MappedFile> file)
        : file_(std::move(file)), where_(file_->path()) {}

    /// Calls `entry(key, value)` for each.
    template <class Entry>
    void read(Entry entry) {
        const Bytes all = file_->bytes();
        if (all.size() < table_footer ||
            load<std::uint64_t>(all.data() + all.size() - sizeof table_magic) != table_magic)
            fail("does not end as a table does");
        blocks_ = all.size() - table_footer;
        ProtoReader footer(all.last(table_footer).first(table_footer - sizeof table_magic), where_);
        each(block(handle_of(footer)), [](const std::string&, Bytes) {});  // such as filters
        const Bytes index = block(handle_of(footer));
        std::uint64_t end = 0;
        std::string before;
        each(index, [&](const std::string&, Bytes value) {
            ProtoReader in(value, where_);
            const BlockHandle at = handle_of(in);
            if (at.offset < end) fail("has blocks that are not in order");
            end = at.offset + at.size;
            each(block(at), [&](const std::string& key, Bytes content) {
                if (!(before < key) && !(first_ && key.empty()))
                    fail(fmt::format("has the key '{}' out of order", key));
                first_ = false;
                before = key;
                entry(key, content);
            });
        });
    }

    [[noreturn]] void fail(const std::string& found) const {
        refuse(where_, fmt::format("{}, expected the index of a TensorFlow checkpoint (V2). It is "
                                   "damaged or no such file; download it again.",
                                   found));
    }
    const std::string& where() const { return where_; }

  private:
    Bytes block(BlockHandle at) const {
        if (!inside(at.offset, at.size, blocks_) || blocks_ - at.offset - at.size < block_trailer)
            fail(fmt::format("has a block of {} bytes at {}", at.size, at.offset));
        const Bytes with_type = file_->bytes().subspan(at.offset, at.size + 1);
        const auto type = std::to_integer<unsigned>(with_type.back());
        if (type != 0)
            refuse(where_, fmt::format("has a compressed block (type {}), which is not supported. "
                                       "Save the checkpoint with TensorFlow again.",
                                       type));
        if (!has_checksum(with_type, load<std::uint32_t>(with_type.data() + with_type.size())))
            fail("has a block that does not match its checksum");
        return with_type.first(at.size);
    }

    /// Keys share a beginning with the one before; offsets of those that do not are at the end.
    template <class Entry>
    void each(Bytes block, Entry entry) const {
        constexpr std::size_t word = sizeof(std::uint32_t);
        if (block.size() < word) fail("has an empty block");
        const auto restarts = load<std::uint32_t>(block.data() + block.size() - word);
        if (restarts > block.size() / word - 1) fail("has a block with too many restarts");
        ProtoReader in(block.first(block.size() - word * (restarts + std::size_t{1})), where_);
        std::string key;
        while (!in.done()) {
            const std::uint64_t shared = in.varint(), more = in.varint(), size = in.varint();
            if (shared > key.size() || more > longest_tensor_key ||
                shared + more > longest_tensor_key)
                fail("has a key of a wrong length");
            key.resize(shared);
            key += text_of(in.take(more));
            entry(key, in.take(size));
        }
    }

    std::shared_ptr<const MappedFile> file_;
    std::string where_;
    std::uint64_t blocks_ = 0;  ///< where the footer begins
    bool first_ = true;
};

struct BundleEntry {
    std::uint64_t type = 0, shard = 0, offset = 0, size = 0;
    std::uint32_t checksum = 0;
    std::vector<std::int64_t> shape;
    bool divided = false;
};

BundleEntry entry_of(Bytes bytes, const std::string& where) {
    BundleEntry out;
    for (ProtoReader in(bytes, where); !in.done();) {
        const ProtoReader::Field field = in.field();
        if (field.number == 1) out.type = field.value;
        if (field.number == 3) out.shard = field.value;
        if (field.number == 4) out.offset = field.value;
        if (field.number == 5) out.size = field.value;
        if (field.number == 6) out.checksum = std::uint32_t(field.value);
        if (field.number == 7) out.divided = true;
        if (field.number != 2) continue;
        for (ProtoReader shape(field.bytes, where); !shape.done();) {
            const ProtoReader::Field dimension = shape.field();
            if (dimension.number != 2) continue;
            std::int64_t extent = 0;
            for (ProtoReader size(dimension.bytes, where); !size.done();)
                if (const ProtoReader::Field one = size.field(); one.number == 1)
                    extent = std::int64_t(one.value);
            if (out.shape.size() < most_dimensions + 1) out.shape.push_back(extent);
        }
    }
    return out;
}

class BundleReader {
  public:
    explicit BundleReader(const fs::path& index)
        : prefix_(index.string().substr(0, index.string().size() - tensorflow_ending.size())),
          table_(MappedFile::open(index)),
          listed_(std::make_unique<ListedCheckpoint>("tensorflow", index.string())) {}

    std::unique_ptr<Checkpoint> read() {
        table_.read([&](const std::string& key, Bytes value) {
            if (key.empty()) return read_header(value);
            if (shards_.empty()) table_.fail("begins without a header");
            add(key, value);
        });
        if (shards_.empty()) table_.fail("has no header");
        return std::move(listed_);
    }

  private:
    void read_header(Bytes value) {
        std::uint64_t count = 0, endianness = 0;
        for (ProtoReader in(value, table_.where()); !in.done();) {
            const ProtoReader::Field field = in.field();
            if (field.number == 1) count = field.value;
            if (field.number == 2) endianness = field.value;
        }
        if (count < 1 || count > most_bundle_shards || endianness > 1)
            table_.fail(fmt::format("has {} data files of byte order {}", count, endianness));
        big_endian_ = endianness == 1;
        for (std::uint64_t i = 0; i < count; ++i) {
            const fs::path file = fmt::format("{}.data-{:05}-of-{:05}", prefix_, i, count);
            std::error_code error;
            if (!fs::exists(file, error))
                refuse(table_.where(), fmt::format("needs the file '{}', which is missing. "
                                                   "Download it as well.",
                                                   file.filename().string()));
            shards_.push_back(MappedFile::open(file));
        }
    }

    void add(const std::string& key, Bytes value) {
        const BundleEntry entry = entry_of(value, table_.where());
        const std::string what = fmt::format("tensor '{}'", key);
        if (++count_ > most_bundle_tensors)
            table_.fail(fmt::format("has more than {} tensors", most_bundle_tensors));
        if (entry.divided)
            refuse(table_.where(),
                   fmt::format("{} is a partitioned variable, which is not supported. Save the "
                               "model as safetensors.",
                               what));
        if (entry.shard >= shards_.size())
            table_.fail(
                fmt::format("{} lies in data file {} of {}", what, entry.shard, shards_.size()));
        const std::shared_ptr<const MappedFile>& shard = shards_[entry.shard];
        if (!inside(entry.offset, entry.size, shard->bytes().size()))
            refuse(shard->path(),
                   fmt::format("{} needs {} bytes at byte {}, but the file has {}. It is "
                               "truncated; download it again.",
                               what, entry.size, entry.offset, shard->bytes().size()));
        RawTensor out;
        const auto known = std::ranges::find(tensorflow_types, entry.type, &TensorFlowType::number);
        out.dtype = known == tensorflow_types.end() ? DType::other : known->type;
        out.dtype_name = known == tensorflow_types.end() ? fmt::format("type {}", entry.type)
                                                         : std::string(known->name);
        out.shape = entry.shape;
        out.strides = row_major(out.shape);
        out.bytes = shard->bytes().subspan(entry.offset, entry.size);
        out.big_endian = big_endian_;
        const std::size_t width = bytes_of(out.dtype);
        if (width > 0) {
            checkpoint::check_layout(out, width, table_.where(), what);
            if (std::uint64_t(*element_count(out.shape)) != entry.size / width ||
                entry.size % width != 0)
                table_.fail(fmt::format("{} of shape {} has {} bytes", what, shape_text(out.shape),
                                        entry.size));
        } else {
            out.shape = {std::int64_t(entry.size)};  // of texts and the like: bytes, listed only
            out.strides = {1};
        }
        out.owner = own<Owner>(new BundleBytes(shard, out.bytes, entry.checksum, key));
        listed_->add(key, std::move(out));
    }

    std::string prefix_;
    BundleTable table_;
    std::unique_ptr<ListedCheckpoint> listed_;
    std::vector<std::shared_ptr<const MappedFile>> shards_;
    bool big_endian_ = false;
    std::size_t count_ = 0;
};

}  // namespace

std::unique_ptr<Checkpoint> open_tensorflow(const fs::path& index) {
    return BundleReader(index).read();
}

}  // namespace tsdiag::checkpoint
