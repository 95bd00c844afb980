#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "budget.hpp"
#include "pickle.hpp"
#include "tsdiag/checkpoint.hpp"

/// Tensors among the values of a pickle: those of PyTorch, over storages that lie outside the
/// pickle, and arrays of NumPy, whose data lie inside it.
namespace tsdiag::checkpoint {

/// The fields of a persistent id: ('storage', Class, key, location, numel[, view]).
struct StorageId {
    DType dtype = DType::other;
    std::string class_name;  ///< "FloatStorage"
    std::size_t width = 0;   ///< bytes per element; 1 for untyped storages, 0 where not known
    std::string key;
    std::int64_t count = 0;           ///< elements
    PickleValue::Ref view = nullptr;  ///< (key, offset, size), of old files
};
/// Throws `FormatError` where `persistent` is no such id.
StorageId read_storage_id(PickleValue::Ref persistent, const std::string& where);

struct Storage {
    Bytes bytes;
    std::shared_ptr<const void> owner;
    bool big_endian = false;
};
/// Returns the bytes of a storage, checked to exist.
using StorageSource = std::function<Storage(const StorageId&)>;

/// The bytes of a Python 2 string, a bytes object, or text encoded in latin-1; nullopt for other
/// values and for those of more than `most` bytes.
std::optional<std::string> bytes_of_value(PickleValue::Ref value, std::size_t most = SIZE_MAX);

/// The elements that a tensor refers to: bytes, offset, sizes and strides.
using View = std::tuple<const std::byte*, std::int64_t, std::vector<std::int64_t>,
                        std::vector<std::int64_t>>;

class TensorReader {
  public:
    TensorReader(std::string where, StorageSource source, Budget& budget)
        : where_(std::move(where)), source_(std::move(source)), budget_(budget) {}

    /// The tensor of `value`; nullopt where it is none.  `name` is for messages.  One whose
    /// elements cannot be read is of `DType::other` or complex; its `dtype_name` says what to save
    /// instead, and its elements are refused by its name.
    std::optional<RawTensor> read(PickleValue::Ref value, const std::string& name);
    /// Is `value` a tensor that `read` will read?
    bool is_tensor(PickleValue::Ref value) const;
    /// A NumPy scalar (`numpy.core.multiarray.scalar`) as a tensor without dimensions.
    std::optional<RawTensor> read_scalar(PickleValue::Ref value) const;

  private:
    RawTensor read_rebuilt(std::string_view function, PickleValue::Ref arguments,
                           const std::string& name);
    RawTensor read_array(PickleValue::Ref value, const std::string& name);
    void spend_on_attributes(PickleValue::Ref state, const std::string& name);
    /// Names what it is of, and what to save instead, for whoever asks for the elements.
    void refuse_elements(RawTensor& tensor, const std::string& name);
    void spend_on_view(const RawTensor& tensor, std::size_t width, const std::string& what);

    std::string where_;
    StorageSource source_;
    Budget& budget_;
    std::set<View> views_;  ///< a tensor shared by several names is checked once
    std::unordered_map<PickleValue::Ref, RawTensor> arrays_;  ///< copied once, however many names
};

}  // namespace tsdiag::checkpoint
