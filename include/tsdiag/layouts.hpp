#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/checkpoint.hpp"

/// Checkpoints under the names of a known family: those of other libraries, and a user's own.
namespace tsdiag {

/// `file` under the names of Hugging Face's PyTorch models where it has those of Flax
/// (docs/formats.md, "Flax"), else `file` itself.  Tensors are views: nothing is copied or read.
/// What the layout tells of the model and `config` does not is added to `config`; `notes` receives
/// a line.  Throws `FormatError` for a tensor whose layout is unknown, and where two tensors have
/// one name.
std::shared_ptr<const Checkpoint> apply_layout(std::shared_ptr<const Checkpoint> file, Json& config,
                                               std::vector<std::string>& notes);

/// What those layouts are, in words, in the order in which they are tried.
std::vector<std::string_view> layout_titles();

/// Matrices or vectors one below the other, as one tensor; nothing is copied.  Throws `FormatError`
/// unless they are of one type (f32, f16, bf16) and have the same columns; `where` and `what` name
/// the tensor.
RawTensor stacked(const std::vector<RawTensor>& parts, const std::string& where,
                  const std::string& what);

/// `file` under the names that a map gives to its tensors, as --map FILE does (docs/checkpoints.md,
/// "A map of names").  Each line of `map` is one of
///
///     net.blocks.*.qkv.weight -> h.*.attn.c_attn.weight [transposed] [part I of N | rows A:B]
///     net.*.q.bias + net.*.k.bias + net.*.v.bias -> h.*.attn.c_attn.bias [transposed]
///     model_type = gpt2
///
/// '*' is a number, the same on both sides; `transposed` turns a matrix round; `part` and `rows`
/// take rows, of what was turned round if it was; '+' puts tensors one below the other, turned
/// round or not.  A tensor that no line names keeps its name. Tensors are views: nothing is copied
/// or read.  The keys are added to `config`; `name` is that of the map, for messages.  Throws
/// `FormatError` for a line that is none of these or that matches no tensor, where two tensors get
/// one name, where a tensor is taken twice or not in whole, and where `config` has another value of
/// a key.  Cost: O(lines tensors).
std::shared_ptr<const Checkpoint> apply_map(std::shared_ptr<const Checkpoint> file,
                                            std::string_view map, std::string_view name,
                                            Json& config);

/// The beginning of a map for `file`: a line for each pattern of its names, with numbers as '*',
/// and what the right side is for its user to say.
std::string draft_map(const Checkpoint& file);

}  // namespace tsdiag
