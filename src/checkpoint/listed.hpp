#pragma once
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// The tensors of a file by name, described when it was opened.
class ListedCheckpoint final : public Checkpoint {
  public:
    ListedCheckpoint(std::string_view format, std::string source)
        : format_(format), source_(std::move(source)) {}

    /// Throws `FormatError` for a duplicate `name`.
    void add(std::string name, RawTensor tensor);
    void set_metadata(Json metadata) { metadata_ = std::move(metadata); }
    /// Lists that the metadata only count, by key; nullopt: it is no such key.
    using Lists = std::function<std::optional<Json>(std::string_view key)>;
    void set_lists(Lists lists) { lists_ = std::move(lists); }
    /// `path` is a dict, list or module object of the file, not a part of a tensor's own name.
    void add_container(std::string path) { containers_.insert(std::move(path)); }
    bool is_container(const std::string& path) const { return containers_.contains(path); }

    const std::vector<std::string>& names() const override { return names_; }
    RawTensor tensor(std::string_view name) const override;
    const Json& metadata() const override { return metadata_; }
    Json whole_list(std::string_view key) const override {
        const std::optional<Json> list = lists_ ? lists_(key) : std::nullopt;
        return list ? *list : Checkpoint::whole_list(key);
    }
    std::string_view format() const override { return format_; }
    std::string source() const override { return source_; }
    bool has(std::string_view name) const override { return tensors_.contains(std::string(name)); }

  private:
    std::string_view format_;
    std::string source_;
    std::vector<std::string> names_;
    std::unordered_map<std::string, RawTensor> tensors_;
    std::unordered_set<std::string> containers_;
    Json metadata_ = Json::Object();
    Lists lists_;
};

/// Throws `UsageError` that `file` has no tensor `name`, suggesting the nearest.
[[noreturn]] void unknown_tensor(const Checkpoint& file, std::string_view name);

}  // namespace tsdiag::checkpoint
