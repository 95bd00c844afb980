#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/json.hpp"

namespace tsdiag::checkpoint {

/// An adapter_config.json of PEFT whose `peft_type` is LORA.  A module is meant by its name in the
/// model, `bert.encoder.layer.0.attention.self.query`.
class LoraConfig {
  public:
    /// Throws `FormatError` for another kind of adapter, for a key that is not known, and for one
    /// that makes another model than W + s B A; `where` is the path, for messages.
    LoraConfig(const Json& config, std::string where);

    /// The first key of `rank_pattern`, a regular expression for the end of a name, that fits the
    /// module decides, else `r`.
    std::int64_t rank_of(const std::string& module) const;
    /// alpha / r, of rsLoRA alpha / sqrt(r), with `alpha_pattern` as `rank_pattern`.  [LORA] 4.1,
    /// [RSLORA]
    double scale_of(const std::string& module) const;
    double alpha_of(const std::string& module) const;
    /// "LoRA", "rsLoRA", "DoRA"
    std::string kind() const;
    bool dora() const { return dora_; }
    /// Does each pair add a bias of its own?
    bool lora_bias() const { return lora_bias_; }
    bool fan_in_fan_out() const { return fan_in_fan_out_; }
    /// "none", "all" or "lora_only": which biases were trained, too.
    const std::string& bias() const { return bias_; }
    /// By `target_modules`, `exclude_modules`, `layers_to_transform` and `layers_pattern`.
    /// nullopt: they do not say, or are no expression that is understood.
    std::optional<bool> targets(const std::string& module) const;
    /// The module of `modules_to_save` that holds the tensor `name`; empty: none does.
    std::string saved_module(std::string_view name) const;

  private:
    template <class T>
    T of_pattern(const std::vector<std::pair<std::string, T>>& patterns, const std::string& module,
                 T usual, std::string_view key) const;
    void require_known(const Json& config) const;
    void read_patterns(const Json& config);
    std::optional<bool> in_layers(const std::string& module) const;
    [[noreturn]] void refuse_key(std::string_view key, const Json& value,
                                 std::string_view expected) const;

    std::string where_, bias_ = "none";
    std::int64_t rank_ = 0;
    double alpha_ = 0;
    bool rank_stabilised_ = false, dora_ = false, lora_bias_ = false, fan_in_fan_out_ = false;
    std::vector<std::pair<std::string, std::int64_t>> ranks_;
    std::vector<std::pair<std::string, double>> alphas_;
    std::vector<std::string> saved_;
    Json targets_, excluded_, layers_, layer_names_;
};

}  // namespace tsdiag::checkpoint
