#include "tsdiag/adapter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "adapter_tensors.hpp"
#include "directory.hpp"
#include "layout.hpp"
#include "listed.hpp"
#include "lora_config.hpp"
#include "low_rank.hpp"

namespace tsdiag {
namespace checkpoint {
namespace {

std::string_view leading_part(std::string_view name) { return name.substr(0, name.find('.')); }

/// The beginning of a name up to its last number, and the dot behind: that of its layer.
std::string_view layer_part(std::string_view name) {
    std::size_t end = 0;
    for (std::size_t at = 0, dot; (dot = name.find('.', at)) != name.npos; at = dot + 1) {
        const std::string_view part = name.substr(at, dot - at);
        if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) end = dot + 1;
    }
    return name.substr(0, end);
}

/// How the names that the adapter's model has become those of the base, which may be saved with or
/// without the prefix of its class: `transformer.h.0` and `h.0`.
struct PrefixChange {
    std::string dropped, added;

    std::string operator()(const std::string& name) const {
        if (!dropped.empty()) return name.starts_with(dropped) ? name.substr(dropped.size()) : name;
        return added + name;
    }
};

bool is_token_embedding(std::string_view name) {
    constexpr std::array<std::string_view, 4> embeddings = {
        "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight"};
    return std::ranges::any_of(embeddings, [&](auto end) { return name.ends_with(end); });
}

constexpr std::array<std::string_view, 2> language_heads = {"lm_head", "embed_out"};

bool is_language_head(std::string_view name) {
    return std::ranges::any_of(language_heads, [&](std::string_view head) {
        return name.ends_with(std::string(head) + ".weight");
    });
}

/// A model whose head is the token embedding is saved without it.  PEFT adds to the head alone, so
/// where an adapter has a pair for it, its W is the embedding.
std::shared_ptr<const Checkpoint> with_tied_head(std::shared_ptr<const Checkpoint> base,
                                                 const Adapter& adapter) {
    for (const std::string_view name_of_head : language_heads) {
        const std::string head(name_of_head);
        const auto adds_to_head = [&](const std::string& name) {
            return name.starts_with(head + ".lora_") ||
                   name.find("." + head + ".lora_") != std::string::npos;
        };
        const std::string weight = head + ".weight";
        if (adapter.head_is_separate || base->has(weight) ||
            std::ranges::none_of(adapter.weights->names(), adds_to_head) ||
            std::ranges::count_if(base->names(), is_token_embedding) != 1)
            continue;
        auto headed = std::make_shared<ListedCheckpoint>(base->format(), base->source());
        headed->set_metadata(base->metadata());
        for (const std::string& name : base->names()) headed->add(name, base->tensor(name));
        headed->add(weight, base->tensor(*std::ranges::find_if(base->names(), is_token_embedding)));
        return headed;
    }
    return base;
}

class Applying {
  public:
    Applying(const Checkpoint& base, const Adapter& adapter)
        : base_(base),
          source_(adapter.weights->source()),
          config_(adapter.config, adapter.where),
          config_name_(adapter.where),
          within_model_(adapter.within_model),
          tensors_(*adapter.weights) {
        if (tensors_.modules.empty() && tensors_.whole.empty())
            refuse(source_, "holds no tensors, expected those of an adapter. Save it again.");
        for (const std::string& name : base.names()) known_.insert(name);
        find_change();
    }

    /// The changed tensors by their names in the base, and those that it lacks.
    std::map<std::string, RawTensor> changed() {
        for (const auto& [name, named] : tensors_.whole) put_whole(name, named);
        for (const auto& [module, of] : tensors_.modules) put_low_rank(module, of);
        require_saved_modules();
        require_biases();
        warn_of_untouched();
        return std::move(changed_);
    }

    std::string description() const {
        std::string text = fmt::format("adapter: {}", config_name_);
        if (!tensors_.modules.empty()) {
            const auto range = [](const auto& values) {
                return values.size() == 1
                           ? fmt::format("{}", *values.begin())
                           : fmt::format("{} to {}", *values.begin(), *values.rbegin());
            };
            text += fmt::format(
                ", {} of rank {}, alpha {}, scale {}, on {} {} ({})", config_.kind(), range(ranks_),
                range(alphas_), range(scales_), tensors_.modules.size(),
                tensors_.modules.size() == 1 ? "matrix" : "matrices", fmt::join(kinds_, ", "));
        }
        if (!replaced_.empty())
            text += fmt::format("; in place of the model's: {}", listed_names(replaced_));
        if (!added_.empty()) text += fmt::format("; added: {}", listed_names(added_));
        return text;
    }
    const std::vector<std::string>& warnings() const { return warnings_; }
    const std::vector<std::string>& trained() const { return trained_; }

  private:
    static std::string listed_names(const std::vector<std::string>& names) {
        constexpr std::size_t most = 4;
        const auto shown = std::min(names.size(), most);
        return fmt::format(
            "{}{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "),
            shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
    }

    bool base_has(const std::string& name) const { return known_.contains(name); }

    /// A name of the base as the adapter's model has it.
    std::string of_adapter(const std::string& name) const {
        if (!change_.dropped.empty()) return change_.dropped + name;
        return name.starts_with(change_.added) ? name.substr(change_.added.size()) : name;
    }

    void find_change() {
        std::vector<std::string> wanted;
        for (const auto& [module, of] : tensors_.modules) wanted.push_back(module + ".weight");
        if (wanted.empty())
            for (const auto& [name, named] : tensors_.whole)
                if (config_.saved_module(name).empty()) wanted.push_back(name);
        if (wanted.empty()) return;
        std::vector<PrefixChange> changes(1);
        std::set<std::string_view> dropped, leading;
        for (const std::string& name : wanted) dropped.insert(leading_part(name));
        for (const std::string_view part : dropped)
            changes.push_back({std::string(part) + ".", ""});
        for (const std::string& name : base_.names())
            if (name.find('.') != name.npos) leading.insert(leading_part(name));
        for (const std::string_view part : leading)
            changes.push_back({"", std::string(part) + "."});
        std::size_t most = 0;
        std::string missing = wanted.front();
        for (const PrefixChange& change : changes) {
            std::size_t found = 0;
            const std::string* first = nullptr;
            for (const std::string& name : wanted)
                if (base_has(change(name)))
                    ++found;
                else if (first == nullptr)
                    first = &name;
            if (first == nullptr) {
                change_ = change;
                return;
            }
            if (found > most) most = found, missing = *first;
        }
        refuse(source_, fmt::format("is of a model with the tensor '{}', which {} does not have. "
                                    "Name the model that it was trained on with --base DIR.",
                                    missing, base_.source()));
    }

    /// PEFT saves whole tensors of modules_to_save, of biases that it trains, and of embeddings and
    /// output heads, whose vocabulary it may have changed.
    bool is_expected(const std::string& name, const AdapterTensor& named) const {
        constexpr std::array<std::string_view, 6> embeddings = {
            "embed_tokens", "lm_head", "wte", "word_embeddings", "embed_in", "embed_out"};
        const std::size_t dot = name.rfind('.');
        const std::string module = name.substr(0, dot == name.npos ? 0 : dot);
        const bool wrapped = tensors_.modules.contains(module);
        if (!config_.saved_module(name).empty()) return true;
        if (is_of_wrapped_layer(named.name) && !wrapped) return false;
        if (name.ends_with(".bias"))
            return config_.bias() == "all" || (config_.bias() == "lora_only" && wrapped);
        const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
        return std::ranges::find(embeddings, last) != embeddings.end();
    }

    /// A head that is tied is saved with the embedding (`save_embedding_layers`), as the same
    /// numbers.
    bool is_saved_with_embedding(const std::string& name, const AdapterTensor& named) const {
        return is_language_head(name) && std::ranges::any_of(tensors_.whole, [&](const auto& one) {
                   return is_token_embedding(one.first) &&
                          one.second.tensor.shape == named.tensor.shape;
               });
    }

    void put_whole(const std::string& name, const AdapterTensor& named) {
        const std::string there = change_(name);
        const bool head = !base_has(there) && !base_has(name);
        const bool copied = !config_.saved_module(name).empty();
        if (!is_expected(name, named) || (head && !copied && !is_saved_with_embedding(name, named)))
            refuse(
                source_,
                fmt::format("has the tensor '{}', which is none of LoRA's, of the modules_to_save "
                            "and of the trained biases that {} names. Are both of one adapter, "
                            "and of {}? If so, merge it in PEFT (merge_and_unload).",
                            named.name, config_name_, base_.source()));
        if (head) {
            put(there, named);
            added_.push_back(there);
            if (copied) trained_.push_back(there);
            return;
        }
        const std::string& at = base_has(there) ? there : name;
        const RawTensor before = base_.tensor(at);
        if (before.shape != named.tensor.shape)
            refuse(source_,
                   fmt::format("tensor '{}' is {}, but '{}' of {} is {}. If the vocabulary "
                               "was resized, merge both in PEFT (merge_and_unload) and "
                               "save the result.",
                               named.name, shape_text(named.tensor.shape), at, base_.source(),
                               shape_text(before.shape)));
        put(at, named);
        replaced_.push_back(at);
        if (!copied)
            return;  // loaded into the module of the model, and into a head that is tied to it
        trained_.push_back(at);
        if (is_token_embedding(at)) keep(at, before);
    }

    /// An embedding that the adapter trains, for a head that is tied to it.
    void keep(const std::string& name, RawTensor before) {
        changed_.emplace(name + std::string(before_adapter), std::move(before));
    }

    void put(const std::string& at, const AdapterTensor& named) {
        if (!changed_.emplace(at, named.tensor).second)
            refuse(source_, fmt::format("has '{}' beside another tensor that is '{}' of {}, "
                                        "expected one of them. Remove the other.",
                                        named.name, at, base_.source()));
    }

    void put_low_rank(const std::string& module, const LowRankTensors& of) {
        require_pair(module, of);
        const std::string name = change_(module + ".weight");
        const auto whole = changed_.find(name);
        if (whole != changed_.end() && whole->second.packed != nullptr)
            refuse(source_, fmt::format("has '{}' beside another pair for '{}' of {}, expected one "
                                        "of them. Remove the other.",
                                        of.a->name, name, base_.source()));
        LowRank parts;
        parts.weight = whole != changed_.end() ? whole->second : base_.tensor(name);
        parts.a = of.a->tensor;
        parts.b = of.b->tensor;
        const bool joined = parts.weight.packed != nullptr && parts.weight.packed->rounding() == 0;
        if (!is_plain_float(parts.weight) && !joined)
            refuse(base_.source(),
                   fmt::format("tensor '{}' is quantised ({}), and an adapter is added to "
                               "unquantised weights only. Name the model in f32, f16 or bf16 with "
                               "--base DIR.",
                               name, parts.weight.dtype_name));
        const std::size_t dimensions = parts.weight.shape.size();
        if (dimensions != 2)
            refuse(source_,
                   fmt::format("adds to '{}', which has {} dimensions, expected matrices: "
                               "convolutions and stacks of experts are not supported. "
                               "Merge both in PEFT (merge_and_unload) and save the result.",
                               name, dimensions));
        const std::int64_t rank = require_rank(module, of);
        parts.turned = is_turned(module, name, of, parts.weight.shape);
        if (of.magnitude) {
            require_shape(*of.magnitude, {parts.b.shape[0]}, "one number an output");
            parts.magnitude = of.magnitude->tensor;
        }
        parts.scale = config_.scale_of(module);
        ranks_.insert(rank);
        alphas_.insert(config_.alpha_of(module));
        scales_.insert(parts.scale);
        kinds_.insert(module.substr(module.rfind('.') + 1));
        if (of.embedding) keep(name, parts.weight);
        changed_.insert_or_assign(name, low_rank_sum(std::move(parts)));
        trained_.push_back(name);
        if (of.bias) put_bias(module, *of.bias);
    }

    /// The bias of a module, which `lora_bias` adds to: b + scale lora_B.bias.
    void put_bias(const std::string& module, const AdapterTensor& added) {
        const std::string name = change_(module + ".bias");
        if (!base_has(name))
            refuse(source_, fmt::format("adds '{}' to a module of {} that has no bias. Save the "
                                        "adapter without lora_bias.",
                                        added.name, base_.source()));
        const auto whole = changed_.find(name);
        RawTensor bias = whole != changed_.end() ? whole->second : base_.tensor(name);
        if (!is_plain_float(bias))
            refuse(base_.source(),
                   fmt::format("tensor '{}' is {}, and an adapter is added to numbers in f32, f16 "
                               "or bf16 only. Name the model in one of these with --base DIR.",
                               name, bias.dtype_name));
        require_shape(added, bias.shape, "as the bias that it is added to");
        const auto sum = std::make_shared<std::vector<double>>(std::size_t(bias.count()));
        std::vector<double> change(sum->size());
        widen(bias, std::span(*sum));
        widen(added.tensor, std::span(change));
        const double scale = config_.scale_of(module);
        for (std::size_t o = 0; o < change.size(); ++o) (*sum)[o] += scale * change[o];
        bias.dtype = DType::f64;
        bias.strides = row_major(bias.shape);
        bias.offset = 0;
        bias.big_endian = false;
        bias.bytes = std::as_bytes(std::span(*sum));
        bias.owner = sum;
        changed_.insert_or_assign(name, std::move(bias));
    }

    void require_pair(const std::string& module, const LowRankTensors& of) const {
        const auto& any = of.a ? of.a : of.b ? of.b : of.bias ? of.bias : of.magnitude;
        if (!of.a || !of.b)
            refuse(source_, fmt::format("has '{}' without its {}, expected both. Save the adapter "
                                        "again.",
                                        any->name, of.a ? "lora_B" : "lora_A"));
        if (config_.lora_bias() != of.bias.has_value())
            refuse(source_,
                   fmt::format("has {} lora_B.bias of '{}', but {} {} lora_bias. Save the adapter "
                               "again.",
                               of.bias ? "a" : "no", module, config_name_,
                               config_.lora_bias() ? "says" : "does not say"));
        if (config_.dora() != of.magnitude.has_value())
            refuse(source_,
                   config_.dora()
                       ? fmt::format("has no lora_magnitude_vector of '{}', but {} says use_dora. "
                                     "Save the adapter again.",
                                     module, config_name_)
                       : fmt::format("has '{}', but {} does not say use_dora. Are both of one "
                                     "adapter?",
                                     of.magnitude->name, config_name_));
        if (!config_.targets(module).value_or(true))
            refuse(source_, fmt::format("has '{}', but target_modules of {} (or exclude_modules, "
                                        "layers_to_transform) leaves the module out. Are both of "
                                        "one adapter?",
                                        any->name, config_name_));
    }

    void require_shape(const AdapterTensor& named, const std::vector<std::int64_t>& expected,
                       std::string_view what) const {
        if (named.tensor.shape != expected)
            refuse(source_,
                   fmt::format("tensor '{}' is {}, expected {}, {}. Is it an adapter of {}?",
                               named.name, shape_text(named.tensor.shape), shape_text(expected),
                               what, base_.source()));
    }

    std::int64_t require_rank(const std::string& module, const LowRankTensors& of) const {
        const std::int64_t rank = config_.rank_of(module);
        const std::vector<std::int64_t>&a = of.a->tensor.shape, &b = of.b->tensor.shape;
        if (a.size() != 2 || b.size() != 2)
            refuse(source_,
                   fmt::format("tensors '{}' and '{}' are {} and {}, expected matrices. "
                               "Merge both in PEFT (merge_and_unload) and save the result.",
                               of.a->name, of.b->name, shape_text(a), shape_text(b)));
        if (a[0] != rank || b[1] != rank)
            refuse(source_,
                   fmt::format("tensors '{}' and '{}' are {} and {}, expected ({}, inputs) "
                               "and (outputs, {}) by the rank of {}. Are both of one adapter?",
                               of.a->name, of.b->name, shape_text(a), shape_text(b), rank, rank,
                               config_name_));
        return rank;
    }

    /// Is the matrix stored (inputs, outputs)?  An embedding is; of others shapes tell, and of
    /// square ones what is stored beside them.
    bool is_turned(const std::string& module, const std::string& name, const LowRankTensors& of,
                   const std::vector<std::int64_t>& shape) {
        const std::int64_t inputs = of.a->tensor.shape[1], outputs = of.b->tensor.shape[0];
        const bool upright = shape == std::vector{outputs, inputs},
                   turned = shape == std::vector{inputs, outputs};
        if (of.embedding ? !turned : !upright && !turned)
            refuse(source_, fmt::format("tensors '{}' and '{}' are {} and {}, which give no change "
                                        "of '{}' {}. Is it an adapter of {}?",
                                        of.a->name, of.b->name, shape_text(of.a->tensor.shape),
                                        shape_text(of.b->tensor.shape), name, shape_text(shape),
                                        base_.source()));
        if (of.embedding) return true;
        const bool found = upright && turned ? square_is_turned(module, name) : turned;
        if (found != config_.fan_in_fan_out() && !said_otherwise_) {
            said_otherwise_ = true;
            warnings_.push_back(fmt::format(
                "fan_in_fan_out of the adapter is {}, but '{}' is stored ({}): it is taken as it "
                "is stored, as in PEFT",
                config_.fan_in_fan_out(), name, found ? "inputs, outputs" : "outputs, inputs"));
        }
        return found;
    }

    /// PEFT looks whether the module is a Conv1D of Transformers, which has a bias and is stored
    /// (inputs, outputs); so are then all matrices with a bias of its layer.
    bool square_is_turned(const std::string& module, const std::string& name) const {
        const std::string bias = ".bias", stem = change_(module);
        if (!base_has(stem + bias)) return false;
        const std::string_view layer = layer_part(name);
        bool upright = false, turned = false;
        for (const std::string& other : base_.names()) {
            constexpr std::string_view ending = ".weight";
            if (!other.starts_with(layer) || !other.ends_with(ending)) continue;
            const std::string of_other = other.substr(0, other.size() - ending.size()) + bias;
            const std::vector<std::int64_t> shape = base_.tensor(other).shape;
            if (shape.size() != 2 || shape[0] == shape[1] || !base_has(of_other)) continue;
            const std::vector<std::int64_t> length = base_.tensor(of_other).shape;
            upright = upright || length == std::vector{shape[0]};
            turned = turned || length == std::vector{shape[1]};
        }
        if (upright && turned)
            refuse(source_, fmt::format("adds to '{}', which is square, and the matrices beside it "
                                        "do not tell whether it is stored (outputs, inputs). Merge "
                                        "both in PEFT (merge_and_unload) and save the result.",
                                        name));
        return upright || turned ? turned : config_.fan_in_fan_out();
    }

    /// A module that the adapter replaces is replaced in whole.
    void require_saved_modules() const {
        for (const std::string& name : base_.names()) {
            const std::string module = config_.saved_module(of_adapter(name));
            if (module.empty() || changed_.contains(name)) continue;
            if (!is_plain_float(base_.tensor(name))) continue;  // positions and masks
            refuse(source_, fmt::format("does not have '{}', which modules_to_save of {} says that "
                                        "it replaces. Save the adapter again.",
                                        name, config_name_));
        }
        for (const std::string& name : added_)
            for (const std::string& own : base_.names())
                if (const std::string module = config_.saved_module(of_adapter(own));
                    !module.empty() && of_adapter(name).starts_with(module + "."))
                    refuse(source_, fmt::format("has '{}', which the module of {} that it replaces "
                                                "does not have. Is it an adapter of this model?",
                                                name, base_.source()));
    }

    void require_biases() const {
        if (within_model_) return;  // its biases are the trained ones
        constexpr std::string_view ending = ".bias";
        const auto missing = [&](const std::string& name) {
            refuse(source_, fmt::format("does not have '{}', but {} says that biases were trained "
                                        "(bias = {}). Save the adapter again.",
                                        name, config_name_, config_.bias()));
        };
        if (config_.bias() == "lora_only")
            for (const auto& [module, of] : tensors_.modules)
                if (const std::string name = change_(module + std::string(ending));
                    base_has(name) && !changed_.contains(name))
                    missing(name);
        if (config_.bias() == "all")
            for (const std::string& name : base_.names())
                if (name.ends_with(ending) && base_.tensor(name).shape.size() == 1 &&
                    !changed_.contains(name) && !is_of_head(name))
                    missing(name);
    }

    /// Of modules that the configuration names and that have no matrices.
    void warn_of_untouched() {
        std::vector<std::string> untouched;
        for (const std::string& name : base_.names()) {
            constexpr std::string_view ending = ".weight";
            if (!name.ends_with(ending) || base_.tensor(name).shape.size() != 2) continue;
            const std::string weight = name.substr(0, name.size() - ending.size());
            if (!changed_.contains(name) && config_.targets(of_adapter(weight)).value_or(false))
                untouched.push_back(weight);
        }
        if (!untouched.empty())
            warnings_.push_back(fmt::format(
                "The adapter has no matrices for {} of the modules that its target_modules names "
                "({}): these are the model's own",
                untouched.size(), listed_names(untouched)));
    }

    /// Of a head of pretraining, which another task's model does not have.
    static bool is_of_head(std::string_view name) {
        constexpr std::array<std::string_view, 8> heads = {
            "cls",        "lm_head",        "classifier",      "score",
            "qa_outputs", "pre_classifier", "vocab_transform", "vocab_projector"};
        return std::ranges::find(heads, leading_part(name)) != heads.end() ||
               name.find("pooler.") != name.npos;
    }

    const Checkpoint& base_;
    std::string source_;
    LoraConfig config_;
    std::string config_name_;
    bool within_model_;
    AdapterTensors tensors_;
    std::set<std::string> known_;
    PrefixChange change_;
    std::map<std::string, RawTensor> changed_;
    std::vector<std::string> replaced_, added_, trained_, warnings_;
    std::set<std::int64_t> ranks_;
    std::set<double> alphas_, scales_;
    std::set<std::string> kinds_;
    bool said_otherwise_ = false;
};

}  // namespace
}  // namespace checkpoint

std::optional<AdapterFiles> adapter_files(const std::filesystem::path& path) {
    namespace fs = std::filesystem;
    std::error_code failed;
    if (path.empty()) return adapter_files(".");  // the parent of a plain name
    const bool is_folder = fs::is_directory(path, failed);
    const fs::path folder = is_folder ? path : path.parent_path();
    if (!is_folder && !path.filename().string().starts_with("adapter_model.")) return std::nullopt;
    AdapterFiles found{.config = folder / "adapter_config.json", .weights = {}};
    if (!fs::is_regular_file(found.config, failed)) return std::nullopt;
    for (const char* name : {"adapter_model.safetensors", "adapter_model.bin"})
        if (found.weights.empty() && fs::is_regular_file(folder / name, failed))
            found.weights = folder / name;
    if (!is_folder) found.weights = path;
    found.beside_model = is_folder && checkpoint::has_known_name(folder);
    return found;
}

std::shared_ptr<const Checkpoint> apply_adapter(std::shared_ptr<const Checkpoint> base,
                                                const Adapter& adapter,
                                                std::vector<std::string>& notes,
                                                std::vector<std::string>& warnings,
                                                std::vector<std::string>* trained) {
    base = checkpoint::with_tied_head(std::move(base), adapter);
    checkpoint::Applying applying(*base, adapter);
    std::map<std::string, RawTensor> changed = applying.changed();
    auto adapted = std::make_shared<checkpoint::ListedCheckpoint>(base->format(), base->source());
    adapted->set_metadata(base->metadata());
    for (const std::string& name : base->names()) {
        const auto found = changed.find(name);
        adapted->add(name, found != changed.end() ? found->second : base->tensor(name));
        if (found != changed.end()) changed.erase(found);
    }
    for (auto& [name, tensor] : changed) adapted->add(name, std::move(tensor));
    notes.push_back(applying.description());
    std::ranges::copy(applying.warnings(), std::back_inserter(warnings));
    if (trained != nullptr) *trained = applying.trained();
    return adapted;
}

}  // namespace tsdiag
