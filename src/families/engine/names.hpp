#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/families.hpp"

/// Mapping between canonical names and a family's own.
namespace tsdiag::families {

/// How a family stores a parameter.
enum class Form {
    matrix,       ///< (out, in)
    transposed,   ///< (in, out)
    conv,         ///< (out, channels, height, width): a patch kernel
    leading_one,  ///< (1, rows, cols); of a vector (1, 1, length)
    depthwise,    ///< (rows, 1, cols, 1): a convolution along the tokens, one kernel a head
    column,       ///< (length, 1), of a vector
    kernel3,      ///< (rows, cols / 9, 3, 3)
    kernel1,      ///< (rows, cols, 1, 1)
    of_heads,     ///< (length, 1, 1), of a vector
};

/// One row of a family's table.  '*' is the layer, or that of class attention, a second one the
/// expert; `.weight` and `.bias` are appended to both.
struct NamePair {
    std::string_view canonical, file;
    Form form = Form::matrix;
    int part = -1;  ///< 0, 1, 2: q, k or v of one fused tensor
    /// Fused as (kv_heads, heads / kv_heads + 2, head_dim), each group of queries followed by its
    /// keys and values; else all queries, then all keys, then all values.
    bool grouped = false;
    int parts = 3;    ///< of the fused tensor
    double plus = 0;  ///< TensorSource::plus of `.weight`
};

/// Two tables, one behind the other: of two rows of a name the first counts.
template <class Row, std::size_t a, std::size_t b>
constexpr std::array<Row, a + b> both(const std::array<Row, a>& x, const std::array<Row, b>& y) {
    std::array<Row, a + b> out;
    std::ranges::copy(x, out.begin());
    std::ranges::copy(y, out.begin() + a);
    return out;
}

/// The path of layer L in a file's names; by default the number itself.
using LayerPath = std::function<std::string(Index)>;

/// NAME of layer.L.NAME.
struct LayerParameter {
    Index layer;
    std::string name;
};
/// A parameter of one of the steps that any family may have; nullopt: it is another's.
std::optional<LayerParameter> of_further_step(const ModelSpec& spec, std::string_view parameter);
/// The name of a parameter without one of its family's own: in place of the last word of the name
/// of the queries, "encoder.layer.0.attention.self.scale".
std::string beside_queries(std::string_view query, std::string_view name);
/// The source of each parameter of `spec`, by the table of its family.
Names translate(const ModelSpec& spec, std::span<const NamePair> pairs, const LayerPath& path = {});

/// `in_proj_weight` of torch.nn has an underscore where other tensors have a dot.
Names torch_fused(Names names);

/// The shape required in the file for `parameter`; `source` may select a part of it.
std::vector<Index> file_shape(const Parameter& parameter, const TensorSource& source);

/// The shape of the whole tensor in the file of which `source` is a slice, where it stacks those of
/// several parameters: the experts of a layer.
std::vector<Index> whole_shape(const ModelSpec& spec, const Parameter& parameter,
                               const TensorSource& source);

/// Tensor `slice` of those that `raw` stacks along its first axis; `raw` where that is -1.  Throws
/// `FormatError` where it has no such slice.
RawTensor slice_of(RawTensor raw, Index slice);

/// "(768, 3072)".
std::string text(std::span<const Index> shape);

/// Whether `text` matches `pattern`, in which '*' stands for any characters.
bool glob(std::string_view pattern, std::string_view text);

/// Prefixes of `anchor` among names that equal it or end with it after a dot, shortest first.
std::vector<std::string> prefixes_of(const Checkpoint& file, std::string_view anchor);
/// The first of them.
std::optional<std::string> prefix_of(const Checkpoint& file, std::string_view anchor);

/// Whether both are equal; numbers by value, so that 1 is 1.0.
bool equal(const Json& a, const Json& b);

/// Whether `model_type` of `config` is one of `types`; nullopt where it is absent.
std::optional<bool> by_model_type(const Json& config,
                                  std::initializer_list<std::string_view> types);

/// The activation with the config name `word`.
std::optional<Unary> activation_named(std::string_view word);
/// Its name in a config of HF.
std::string_view hf_activation(Unary op);

}  // namespace tsdiag::families
