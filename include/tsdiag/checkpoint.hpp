#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/json.hpp"

/// A file as named, typed, memory-mapped arrays and metadata.  Input is untrusted: every length,
/// offset and count is validated before it is used, and nothing is executed. File formats:
/// docs/formats.md.
namespace tsdiag {

/// Element types as files have them.
enum class DType {
    boolean,
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    u64,
    i64,
    f8_e4m3,
    f8_e5m2,
    f8_e8m0,  ///< powers of two: scales
    f16,
    bf16,
    f32,
    f64,
    c64,
    c128,
    blocks,  ///< quantised: a number of adjacent elements share their bytes, see `BlockType`
    packed,  ///< held by several tensors, most in few bits, see `PackedMatrix`
    other    ///< known by name only (f4, ...): listed, not read
};
std::string_view name(DType type);
std::size_t bytes_of(DType type);  ///< bytes an element; 0 for `blocks`, `packed`, `other`
/// The largest relative error of a number that is rounded to a type of 16, 32 or 64 bits: half the
/// distance of its neighbours.  0 for the others.
double rounding_of(DType type);

/// A quantised type: `elements` adjacent elements are stored in `bytes` bytes.
struct BlockType {
    std::string_view name;
    std::int64_t elements = 1, bytes = 1;
    /// The values of one block: the exact ones, rounded to float where that does not hold them.
    void (*decode)(const std::byte* block, float* out) = nullptr;
    double rounding = 0;  ///< as `PackedMatrix::rounding`; 0: not known

    double bits() const { return 8 * double(bytes) / double(elements); }  ///< an element
};

/// One array of a file.  `bytes` points into the mapping (or into memory that `owner` keeps alive):
/// element (i_0, i_1, ...) is at `offset + sum i_k strides[k]` elements from its beginning.
struct RawTensor {
    DType dtype = DType::other;
    std::string dtype_name;           ///< as spelled in the file, for messages
    std::vector<std::int64_t> shape;  ///< empty: a scalar; zero-sized dimensions are legal
    std::vector<std::int64_t>
        strides;                       ///< in elements, one a dimension; 0 repeats (expanded views)
    std::int64_t offset = 0;           ///< in elements
    std::span<const std::byte> bytes;  ///< checked: every element lies inside
    bool big_endian = false;
    const BlockType* blocks = nullptr;  ///< of `DType::blocks`; blocks start at multiples of their
                                        ///< elements from the beginning of `bytes`
    std::shared_ptr<const struct BlockScales> scales;  ///< null: values are the stored elements
    std::shared_ptr<const class PackedMatrix> packed;  ///< of `DType::packed`: element i of all
                                                       ///< its rows, one after the other, is i
    std::shared_ptr<const void> owner;  ///< keeps `bytes` alive; never null for a non-empty tensor

    std::int64_t count() const;  ///< number of elements
    bool contiguous() const;     ///< row-major without gaps
};

/// Factors of a stored matrix (rows, columns), one a block of `block_rows` x `block_columns`: the
/// value of element (i, j) is the stored one times `unit` times
/// `factors`(i / block_rows, j / block_columns).
struct BlockScales {
    RawTensor factors;  ///< two dimensions
    double unit = 1;
    std::int64_t columns = 1, block_rows = 1, block_columns = 1;
};

/// A matrix that several tensors hold together: codes of few bits and what these mean, parts that
/// processes have saved, or a matrix and what an adapter adds to it.
class PackedMatrix {
  public:
    PackedMatrix(std::int64_t columns, std::vector<RawTensor> parts, double rounding)
        : columns_(columns), parts_(std::move(parts)), rounding_(rounding) {}
    virtual ~PackedMatrix() = default;
    PackedMatrix(const PackedMatrix&) = delete;
    PackedMatrix& operator=(const PackedMatrix&) = delete;

    /// Elements `column` .. `column + columns` of rows `row` .. `row + rows`, row by row: the exact
    /// values, each rounded to float.  Cost: O(rows columns).
    virtual void decode(std::int64_t row, std::int64_t rows, std::int64_t column,
                        std::int64_t columns, float* out) const = 0;
    /// As `decode`, rounded to double where a value is no float; by default that of `decode`.
    virtual void decode_double(std::int64_t row, std::int64_t rows, std::int64_t column,
                               std::int64_t columns, double* out) const;

    std::int64_t columns() const { return columns_; }
    /// The tensors that hold it, the codes first.
    const std::vector<RawTensor>& parts() const { return parts_; }
    /// Half of the widest step between values that a block can hold, divided by the spread of
    /// these: rounding moved a weight by at most this share of what its block spans.  0: none did.
    double rounding() const { return rounding_; }

  private:
    std::int64_t columns_;
    std::vector<RawTensor> parts_;
    double rounding_;
};

/// The elements in row-major order, widened: bf16, f16, f8, integers and bool become T exactly
/// where T can hold them (f64 and 64-bit integers are rounded to float); quantised elements become
/// the float that `BlockType::decode` gives, for both T, and what `PackedMatrix::decode` or
/// `decode_double` gives; elements with scales become the product in double, rounded to T.  T:
/// float or double. Throws `NotAvailable` for a dtype that cannot be read, naming it.  Cost:
/// O(count).
template <class T>
void widen(const RawTensor& tensor, std::span<T> out);

/// The storage itself, without a copy, where it is contiguous, little-endian and aligned for T;
/// else nullopt.
template <class T>
std::optional<std::span<const T>> as_is(const RawTensor& tensor);

/// Installs a SIGBUS handler: where a page of a mapped file cannot be read (file truncated
/// meanwhile, disk failure), it calls `lost` with the path.  `lost` runs in the signal handler of
/// the faulting thread, on the alternate stack of a thread that has multiplied (backend.hpp), at
/// least 64 KiB: it may call async-signal-safe functions only and must not return.  Any other
/// SIGBUS has its default effect.
void watch_mapped_files(void (*lost)(const char* path));

/// Throws `FormatError` where a file mapped since the last call has changed (length, modification
/// time): data read from it may be inconsistent.
void require_unchanged_files();

/// Advises the system that the pages of `tensor` are not needed for now (memory-mapped files only).
void release_pages(const RawTensor& tensor);

struct TensorSummary {
    double sum = 0, norm = 0;                     ///< over the finite elements, in double
    std::optional<double> minimum, maximum;       ///< of the finite elements
    std::int64_t nonfinite = 0;                   ///< number of NaN or infinite elements
    std::optional<std::int64_t> first_nonfinite;  ///< row-major index of the first
};
/// Throws `NotAvailable` for a dtype that cannot be read (complex values, `other`).
TensorSummary summarise(const RawTensor& tensor);

class Checkpoint {
  public:
    virtual ~Checkpoint() = default;
    Checkpoint() = default;
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;

    virtual const std::vector<std::string>& names() const = 0;  ///< in the file's order, unique
    /// Throws `UsageError` for an unknown name (the nearest one is suggested).
    virtual RawTensor tensor(std::string_view name) const = 0;
    /// Metadata of the file: config, hyper-parameters, epoch ... as a JSON object.
    virtual const Json& metadata() const = 0;
    /// A list of `metadata()` with all its elements: there a long one (GGUF's vocabulary) is only
    /// {"length": N}.  null: there is none.  Throws `FormatError` for more than 2^22 elements.
    virtual Json whole_list(std::string_view key) const { return metadata()[key]; }
    virtual std::string_view format() const = 0;  ///< "safetensors", "torch zip", ...
    virtual std::string source() const = 0;       ///< the path, for messages
    virtual bool has(std::string_view name) const;
};

/// One file format: the first bytes decide.
struct FormatEntry {
    std::string_view name;
    std::string_view description;
    bool (*sniff)(std::span<const std::byte> head);
    std::unique_ptr<Checkpoint> (*open)(const std::filesystem::path& file);
};
std::span<const FormatEntry* const> formats();

/// Opens a checkpoint file or directory.
///
///  - a file: by its first bytes; an unknown one throws `FormatError` saying what it looks like
///    (empty, git-lfs pointer, HDF5, HTML, gzip, tar, an older PyTorch tar ...);
///  - a HF directory: model.safetensors, else model.safetensors.index.json and its shards, else
///    pytorch_model.bin, else pytorch_model.bin.index.json, else the only checkpoint file in it, or
///    the only GGUF file in shards.
///
/// Tensor names are the file's full paths, dicts joined by '.': `state_dict.net.0.weight`.
/// Throws `FormatError`.
std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& path);

/// The folder of the model where `path` is one of sentence-transformers.
struct ModuleFolder {
    std::filesystem::path model;      ///< that of the transformer, which may be `path` itself
    std::vector<std::string> others;  ///< the types of the other modules: "Pooling", "Normalize"
};
/// From `modules.json`, in which sentence-transformers lists what a sentence passes through; `path`
/// and nothing else where there is no such list, or no transformer in it.  Throws `FormatError` for
/// a list that is none, for several transformers and for a folder outside.
ModuleFolder module_folder(const std::filesystem::path& path);

/// The checkpoints in a directory, sorted by name: files with a checkpoint's extension, and
/// directories with a model under Hugging Face's names or one such file.  None where the directory
/// is one model: it has a model of those names, an index of shards, shards, or a single file and no
/// such directories.  Where it holds none, those of its folder `checkpoints`.  Nothing is opened.
/// Throws `FormatError` where it cannot be read.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& directory);

/// The model's own tensors inside `file`: wrapper dicts (`state_dict`, `model`, `model_ema`, ...)
/// are entered and common prefixes (`module.`, `_orig_mod.`, and a Lightning attribute such as
/// `net.`) stripped, optimizer state and bookkeeping omitted, see docs/formats.md "Wrappers".
/// Metadata is that of `file`.  `notes`, where given, receives one line for each item stripped or
/// omitted. Throws `FormatError` where two names collide after stripping.
std::unique_ptr<Checkpoint> unwrap(std::unique_ptr<Checkpoint> file,
                                   std::vector<std::string>* notes);

/// `file` with its 8-bit weights as products with their scales, and without the tensors of these:
/// float8 of `weight_scale_inv` or `weight_scale`, int8 of `weight_scale` or `SCB`
/// (docs/formats.md, "Weights with scales").  The blocks of a scale follow from its shape for one a
/// matrix or one a row, else from `quantization_config` of `config`, which is removed where it is
/// obeyed in whole. What is stored otherwise is left as it is.  `warnings` receives a line where
/// weights have scales. Throws `FormatError` where an 8-bit weight lacks its scale, or its shape
/// fits no block told.
std::shared_ptr<const Checkpoint> apply_scales(std::shared_ptr<const Checkpoint> file, Json& config,
                                               std::vector<std::string>& warnings);

/// `file` with matrices that its libraries store in few bits (GPTQ, AWQ, bitsandbytes, MXFP4,
/// NVFP4, compressed-tensors) as tensors of `DType::packed`, and without the tensors that hold them
/// (docs/formats.md, "Packed weights").  Which layout, bits and groups it has,
/// `quantization_config` of `config` tells, which is removed where it is obeyed in whole; what is
/// not understood is left as it is.  `warnings` receives a line where weights are packed. Throws
/// `FormatError` where tensors of a matrix are missing or do not fit each other.
std::shared_ptr<const Checkpoint> apply_packing(std::shared_ptr<const Checkpoint> file,
                                                Json& config, std::vector<std::string>& warnings);

/// 64-bit digest of names, dtypes, shapes and file sizes (not of contents), as 16 hex digits.
std::string header_digest(const Checkpoint& file);

/// Writes float32/float64 arrays as one safetensors file (atomically: temporary name, then rename).
struct NamedArray {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<const float> f32;  ///< exactly one of the two is used: the one that is not empty
    std::span<const double> f64;
};
void write_safetensors(const std::filesystem::path& file, std::span<const NamedArray> arrays,
                       const Json& metadata = {});
/// Writes the arrays as one NumPy .npz (stored, not deflated), atomically: temporary name, then
/// rename.
void write_npz(const std::filesystem::path& file, std::span<const NamedArray> arrays);

/// An embedding that an adapter trains stands in the adapted model a second time, as it was, under
/// its name and this: PEFT leaves a head that is tied to it so.
inline constexpr std::string_view before_adapter = ".before_adapter";

}  // namespace tsdiag
