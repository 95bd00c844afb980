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

/// What a persistent id says: ('storage', Class, key, location, numel[, view]).
struct StorageId {
    DType dtype = DType::other;
    std::string class_name;  ///< "FloatStorage"
    std::size_t width = 0;   ///< bytes an element; 1 for untyped storages, 0 where it is not known
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
/// The bytes of a storage, checked to be there.
using StorageSource = std::function<Storage(const StorageId&)>;

/// The bytes of a Python 2 string, a bytes object, or text encoded in latin-1; nothing for other
/// values and for those of more than `most` bytes.
std::optional<std::string> bytes_of_value(PickleValue::Ref value, std::size_t most = SIZE_MAX);

/// Which elements a tensor shows: of these bytes, from an offset on, in sizes and strides.
using View = std::tuple<const std::byte*, std::int64_t, std::vector<std::int64_t>,
                        std::vector<std::int64_t>>;

class TensorReader {
  public:
    TensorReader(std::string where, StorageSource source, Budget& budget)
        : where_(std::move(where)), source_(std::move(source)), budget_(budget) {}

    /// The tensor that `value` is; nothing where it is none.  `name` is for messages.
    std::optional<RawTensor> read(PickleValue::Ref value, const std::string& name);
    /// Is `value` a tensor that `read` will read?
    bool is_tensor(PickleValue::Ref value) const;
    /// A NumPy scalar (`numpy.core.multiarray.scalar`) as a tensor without dimensions.
    std::optional<RawTensor> read_scalar(PickleValue::Ref value) const;

  private:
    RawTensor read_rebuilt(std::string_view function, PickleValue::Ref arguments,
                           const std::string& name);
    RawTensor read_array(PickleValue::Ref value, const std::string& name);
    void spend_on_view(const RawTensor& tensor, std::size_t width, const std::string& what);

    std::string where_;
    StorageSource source_;
    Budget& budget_;
    std::set<View> views_;  ///< a tensor that is shared by many names is looked at once
    std::unordered_map<PickleValue::Ref, RawTensor> arrays_;  ///< copied once, however often named
};

}  // namespace tsdiag::checkpoint
