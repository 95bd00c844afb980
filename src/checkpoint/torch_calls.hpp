#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "npy.hpp"
#include "pickle.hpp"

/// The calls of a pickle that build tensors of PyTorch and arrays of NumPy.
namespace tsdiag::checkpoint {

inline constexpr std::size_t longest_word = 64;  // a type, an order of bytes

std::string_view last_part(std::string_view dotted);
/// Is this NumPy's function of that name, in whichever module?
bool is_numpy(std::string_view function, std::string_view name);
bool is_tuple(PickleValue::Ref value, std::size_t at_least);
/// The name of the function that an object would call; empty for other values.
std::string_view called(PickleValue::Ref value);
/// A tuple or list of few integers, also as `torch.Size`; nullopt for other values.
std::optional<std::vector<std::int64_t>> integers(PickleValue::Ref value);

/// Attributes that a tensor gets when it is built, which may change what it stands for.
struct Attributes {
    PickleValue::Ref state;
    std::string_view type;  ///< the class; empty: Tensor or Parameter, which use none
};

/// A tensor's own function and arguments, without wrappers that add nothing: Parameter, subclass,
/// device.
struct TensorCall {
    std::string_view function;
    PickleValue::Ref arguments = nullptr;
    PickleValue::Ref value = nullptr;  ///< the object; null where only the arguments are known
    std::string_view type;             ///< the outermost subclass, or none
    bool wrapped = false;              ///< a wrapper says that it is a tensor
    std::vector<Attributes> attributes;
};
TensorCall unwrapped(PickleValue::Ref value);

/// Does `call` build a tensor from a storage, an offset, sizes and strides?
bool is_rebuild(std::string_view function);
/// Is `value` an array of numbers, not of objects, texts or records?
bool is_numeric_array(PickleValue::Ref value);

/// The parts of a pickled array.
struct ArrayParts {
    PickleValue::Ref dtype, shape, data;
    bool fortran;
};
std::optional<ArrayParts> array_parts(PickleValue::Ref value);
/// `numpy.dtype('f4', ...)` with the byte order in its state.
NumpyType numpy_type_of(PickleValue::Ref value);

/// A tensor without elements that can be read.
struct Unreadable {
    std::string what;                 ///< and what to save instead: "sparse (save x.to_dense())"
    std::vector<std::int64_t> shape;  ///< empty where it is not known
};
/// nullopt where `call` builds no tensor, or one that is neither `is_rebuild` nor readable.
std::optional<Unreadable> unreadable_of(const TensorCall& call);

/// The attribute that may change what a tensor stands for: of a subclass a number or a tensor, of
/// all others a scale; nullopt where there is none.
std::optional<std::string> telling_attribute(const Attributes& attributes);

}  // namespace tsdiag::checkpoint
