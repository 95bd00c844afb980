#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "bytes.hpp"
#include "listed.hpp"

namespace tsdiag {
namespace checkpoint {
namespace {

/// Dicts that hold the model, in order of preference; averaged weights only where there is nothing
/// else.
constexpr std::array<std::string_view, 8> wrappers = {
    "state_dict", "model", "model_state_dict", "module",
    "net",        "app",   "state_dict_ema",   "model_ema"};

/// Dicts and lists beside a model that has no dict of its own.
constexpr std::array<std::string_view, 9> bookkeeping = {
    "optimizer", "optimizers",    "optim", "scheduler", "lr_scheduler",
    "scaler",    "lr_schedulers", "loops", "callbacks"};
constexpr std::array<std::string_view, 3> bookkeeping_prefixes = {"optimizer_", "last_optimizer_",
                                                                  "scheduler_"};

/// Prepended to every name by DataParallel and torch.compile.
constexpr std::array<std::string_view, 2> machine_prefixes = {"module.", "_orig_mod."};
/// Inside names, of each module that is wrapped: by FSDP, by activation checkpointing, by
/// torch.compile.
constexpr std::array<std::string_view, 3> wrapped_parts = {
    "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."};

/// Prefixes of families, which the detection of the architecture handles; `model.` is examined
/// separately.
constexpr std::array<std::string_view, 9> family_prefixes = {
    "bert", "roberta",     "albert",   "distilbert",   "vit",
    "deit", "transformer", "gpt_neox", "nystromformer"};

template <std::size_t n>
bool contains(const std::array<std::string_view, n>& list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

std::string_view first_part(std::string_view name) { return name.substr(0, name.find('.')); }

/// A name in the file, and what is left of it without wrappers.
struct Renamed {
    std::string full, own;

    std::string_view rest() const { return own; }
    void skip(std::size_t bytes) { own.erase(0, bytes); }
};
using Names = std::vector<Renamed>;

class Unwrapping {
  public:
    Unwrapping(const Checkpoint& file, std::vector<std::string>* notes)
        : file_(file), listed_(dynamic_cast<const ListedCheckpoint*>(&file)), notes_(notes) {
        for (const std::string& name : file.names()) names_.push_back({name, name});
    }

    Names names() {
        while (enter_wrapper()) {
        }
        if (entered_.empty()) drop_bookkeeping();
        strip_machine_prefixes();
        if (strip_wrapped_parts()) strip_machine_prefixes();
        if (strip_lightning_attribute()) strip_machine_prefixes();
        check_collisions();
        return std::move(names_);
    }

  private:
    void note(std::string text) {
        if (notes_ != nullptr) notes_->push_back(std::move(text));
    }

    bool is_container(std::string_view key) const {
        return listed_ != nullptr && listed_->is_container(entered_ + std::string(key));
    }

    /// Keeps the names below the first wrapper found; false where there is none.
    bool enter_wrapper() {
        for (const std::string_view wrapper : wrappers) {
            if (!is_container(wrapper)) continue;
            const std::string prefix = std::string(wrapper) + ".";
            note(fmt::format("entered '{}{}'", entered_, wrapper));
            if (wrapper.ends_with("_ema"))
                note(fmt::format(
                    "'{}' contains weights averaged over training; the file has no others",
                    wrapper));
            keep([&](std::string_view rest) { return rest.starts_with(prefix); });
            for (Renamed& name : names_) name.skip(prefix.size());
            entered_ += prefix;
            return true;
        }
        return false;
    }

    void drop_bookkeeping() {
        keep([&](std::string_view rest) {
            const std::string_view key = first_part(rest);
            const bool other =
                contains(bookkeeping, key) ||
                std::any_of(bookkeeping_prefixes.begin(), bookkeeping_prefixes.end(),
                            [&](std::string_view begin) { return key.starts_with(begin); });
            return !(other && is_container(key));
        });
    }

    /// Drops the names that `wanted` refuses, and notes how many there were per first component.
    template <class Wanted>
    void keep(Wanted wanted) {
        std::map<std::string, std::size_t> left_out;
        Names kept;
        for (const Renamed& name : names_)
            if (wanted(name.rest()))
                kept.push_back(name);
            else
                ++left_out[entered_ + std::string(first_part(name.rest()))];
        names_ = std::move(kept);
        for (const auto& [key, count] : left_out)
            note(fmt::format("skipped {} tensor{} of '{}'", count, count == 1 ? "" : "s", key));
    }

    /// Were there any?
    bool strip_wrapped_parts() {
        bool any = false;
        for (const std::string_view part : wrapped_parts) {
            std::size_t count = 0;
            for (Renamed& name : names_) {
                const std::size_t before = name.own.size();
                for (std::size_t at = 0; (at = name.own.find(part, at)) != std::string::npos;)
                    if (at == 0 || name.own[at - 1] == '.')
                        name.own.erase(at, part.size());
                    else
                        ++at;
                count += name.own.size() < before;
            }
            if (count > 0)
                note(fmt::format("removed '{}' from inside {} name{}", part, count,
                                 count == 1 ? "" : "s"));
            any = any || count > 0;
        }
        return any;
    }

    void strip_machine_prefixes() {
        std::map<std::string_view, std::size_t> stripped;
        for (Renamed& name : names_)
            for (bool again = true; again;) {
                again = false;
                for (const std::string_view prefix : machine_prefixes)
                    if (name.rest().starts_with(prefix) && name.rest().size() > prefix.size()) {
                        name.skip(prefix.size());
                        ++stripped[prefix];
                        again = true;
                    }
            }
        for (const auto& [prefix, count] : stripped)
            note(fmt::format("stripped '{}' from {} name{}", prefix, count, count == 1 ? "" : "s"));
    }

    bool is_lightning() const {
        const Json& metadata = file_.metadata();
        return entered_ == "state_dict." &&
               (metadata.contains("pytorch-lightning_version") || metadata.contains("epoch"));
    }

    /// Strips the attribute of a LightningModule that holds the whole model, if there is one.
    bool strip_lightning_attribute() {
        if (!is_lightning() || names_.empty()) return false;
        const std::string attribute(first_part(names_.front().rest()));
        const std::string prefix = attribute + ".";
        if (contains(family_prefixes, attribute)) return false;
        bool llama = false;
        for (const Renamed& name : names_) {
            if (!name.rest().starts_with(prefix) || name.rest().size() == prefix.size())
                return false;
            const std::string_view rest = name.rest().substr(prefix.size());
            const std::string_view next = first_part(rest);
            if (std::all_of(next.begin(), next.end(), [](char c) { return c >= '0' && c <= '9'; }))
                return false;  // an nn.Sequential: its name is more informative than "0"
            llama = llama || next == "embed_tokens" ||
                    (next == "layers" && rest.find(".self_attn.") != std::string_view::npos);
        }
        if (attribute == "model" && llama) return false;
        for (Renamed& name : names_) name.skip(prefix.size());
        note(fmt::format("stripped the Lightning attribute '{}' from all names", prefix));
        return true;
    }

    void check_collisions() const {
        std::unordered_map<std::string_view, const Renamed*> seen;
        for (const Renamed& name : names_) {
            const auto [at, is_new] = seen.emplace(name.rest(), &name);
            if (!is_new)
                refuse(file_.source(),
                       fmt::format(
                           "tensors '{}' and '{}' are both '{}' after removing wrapper prefixes, "
                           "expected different names. Remove one of them when saving.",
                           at->second->full, name.full, name.rest()));
        }
    }

    const Checkpoint& file_;
    const ListedCheckpoint* listed_;
    std::vector<std::string>* notes_;
    Names names_;
    std::string entered_;  ///< "" or the wrappers so far, each with its dot
};

class UnwrappedCheckpoint final : public Checkpoint {
  public:
    UnwrappedCheckpoint(std::unique_ptr<Checkpoint> file, const Names& names)
        : file_(std::move(file)) {
        for (const Renamed& name : names) {
            names_.emplace_back(name.rest());
            full_.emplace(name.rest(), name.full);
        }
    }

    const std::vector<std::string>& names() const override { return names_; }
    RawTensor tensor(std::string_view name) const override {
        const auto full = full_.find(std::string(name));
        if (full == full_.end()) unknown_tensor(*this, name);
        return file_->tensor(full->second);
    }
    const Json& metadata() const override { return file_->metadata(); }
    std::string_view format() const override { return file_->format(); }
    std::string source() const override { return file_->source(); }
    bool has(std::string_view name) const override { return full_.contains(std::string(name)); }

  private:
    std::unique_ptr<Checkpoint> file_;
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::string> full_;
};

}  // namespace
}  // namespace checkpoint

std::unique_ptr<Checkpoint> unwrap(std::unique_ptr<Checkpoint> file,
                                   std::vector<std::string>* notes) {
    const checkpoint::Names names = checkpoint::Unwrapping(*file, notes).names();
    const bool same = names.size() == file->names().size() &&
                      std::all_of(names.begin(), names.end(),
                                  [](const auto& name) { return name.rest() == name.full; });
    if (same) return file;
    return std::make_unique<checkpoint::UnwrappedCheckpoint>(std::move(file), names);
}

}  // namespace tsdiag
