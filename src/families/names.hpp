#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/model.hpp"

/// Canonical names and a family's own.
namespace tsdiag::families {

/// How a family stores a parameter.
enum class Form {
    matrix,       ///< (out, in)
    transposed,   ///< (in, out)
    conv,         ///< (out, channels, height, width): a patch kernel
    leading_one,  ///< (1, rows, cols); of a vector (1, 1, length)
    depthwise,    ///< (rows, 1, cols, 1): a convolution along the tokens, one kernel a head
    column,       ///< (length, 1), of a vector
};

/// One line of a family's table.  '*' stands for the layer; `.weight` and `.bias` are carried over.
struct NamePair {
    std::string_view canonical, file;
    Form form = Form::matrix;
    int part = -1;          ///< 0, 1, 2: q, k or v of one fused tensor
    bool per_head = false;  ///< fused as (heads, 3, head_dim), not as (3, heads, head_dim)
    int parts = 3;          ///< of the fused tensor
};

/// The path that stands for layer L in a file's names; the number itself unless said otherwise.
using LayerPath = std::function<std::string(Index)>;

/// Where each parameter of `spec` lies, by the table of its family.
Names translate(const ModelSpec& spec, std::span<const NamePair> pairs, const LayerPath& path = {});

/// The shape that a file must have for `parameter`; `source` may take a part of it.
std::vector<Index> file_shape(const Parameter& parameter, const TensorSource& source);

/// "(768, 3072)".
std::string text(std::span<const Index> shape);

/// Does `text` match `pattern`, in which '*' stands for any characters?
bool glob(std::string_view pattern, std::string_view text);

/// What stands before `anchor` in the names that are it or end with it after a dot, shortest first.
std::vector<std::string> prefixes_of(const Checkpoint& file, std::string_view anchor);
/// The first of them.
std::optional<std::string> prefix_of(const Checkpoint& file, std::string_view anchor);

/// Do both say the same?  Numbers by their value, so that 1 is 1.0.
bool equal(const Json& a, const Json& b);

/// Is `model_type` of `config` one of `types`?  Nothing where the config does not say.
std::optional<bool> by_model_type(const Json& config,
                                  std::initializer_list<std::string_view> types);

/// The activation that a config calls `word`.
std::optional<Unary> activation_named(std::string_view word);
/// The word for it in a config of HF.
std::string_view hf_activation(Unary op);

}  // namespace tsdiag::families
