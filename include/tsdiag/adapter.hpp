#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tsdiag/checkpoint.hpp"

/// Adapters of PEFT: what a fine-tuning adds to the matrices of a model (docs/checkpoints.md,
/// "Adapters").
namespace tsdiag {

/// Where an adapter lies.
struct AdapterFiles {
    std::filesystem::path config;   ///< its adapter_config.json
    std::filesystem::path weights;  ///< adapter_model.safetensors or .bin; empty: there is neither
    /// A model of a name of Hugging Face's lies in the folder, to which Transformers applies it.
    bool beside_model = false;
};
/// That of a folder, or of its adapter_model file; nullopt: there is no adapter_config.json.
std::optional<AdapterFiles> adapter_files(const std::filesystem::path& path);

struct Adapter {
    std::string where;  ///< the path of its configuration, for messages
    Json config;        ///< adapter_config.json
    std::shared_ptr<const Checkpoint> weights;
    bool within_model = false;      ///< of one file with it (`without_adapter`)
    bool head_is_separate = false;  ///< the model's configuration unties it (tie_word_embeddings)
};

/// The model `base` as `adapter` changes it.  A matrix W of m outputs and n inputs becomes, when
/// its elements are read,
///
///     LoRA, rsLoRA    W' = W + s B A             s = alpha / r, alpha / sqrt(r)
///     DoRA            W'_o = m_o (W + s B A)_o / |(W + s B A)_o|      for each output o
///     lora_bias       b' = b + s lora_B.bias
///
/// in double, rounded once; tensors that the adapter holds whole (biases, `modules_to_save`) stand
/// in the place of the model's, or beside them.  `notes` and `warnings` receive what the report
/// tells, `trained` the names of the tensors of adapted and saved modules, which are no longer
/// tied to others: of an embedding and the head that is tied to it PEFT leaves one as it is where
/// it trains the other (`before_adapter`). Throws `FormatError` for an adapter that is none of
/// these, and unless all of its tensors and all of its configuration fit the model.
std::shared_ptr<const Checkpoint> apply_adapter(std::shared_ptr<const Checkpoint> base,
                                                const Adapter& adapter,
                                                std::vector<std::string>& notes,
                                                std::vector<std::string>& warnings,
                                                std::vector<std::string>* trained = nullptr);

/// Does one file hold a model and an adapter that is not merged: `query.base_layer.weight` and
/// `query.lora_A.default.weight`?
bool holds_adapter(const Checkpoint& file);
/// The model of such a file, under its own names, and the tensors of the adapter.
std::pair<std::shared_ptr<const Checkpoint>, std::shared_ptr<const Checkpoint>> without_adapter(
    const std::shared_ptr<const Checkpoint>& file);

}  // namespace tsdiag
