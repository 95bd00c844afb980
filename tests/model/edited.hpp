#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {

/// A checkpoint with other names: tensors can be dropped, renamed and duplicated without a copy.
class Edited final : public Checkpoint {
  public:
    explicit Edited(std::shared_ptr<const Checkpoint> file)
        : file_(std::move(file)), names_(file_->names()) {}

    void drop(const std::string& name) { std::erase(names_, name); }
    /// Adds `name` with the tensor of `of`.
    void add(const std::string& name, const std::string& of) {
        names_.push_back(name);
        sources_[name] = of;
    }
    void rename(const std::string& from, const std::string& to) {
        std::ranges::replace(names_, from, to);
        sources_[to] = from;
    }

    const std::vector<std::string>& names() const override { return names_; }
    RawTensor tensor(std::string_view name) const override {
        if (std::ranges::find(names_, name) == names_.end())
            throw UsageError("no tensor " + std::string(name));
        const auto found = sources_.find(std::string(name));
        return file_->tensor(found == sources_.end() ? name : std::string_view(found->second));
    }
    const Json& metadata() const override { return file_->metadata(); }
    std::string_view format() const override { return file_->format(); }
    std::string source() const override { return file_->source(); }

  private:
    std::shared_ptr<const Checkpoint> file_;
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::string> sources_;
};

}  // namespace tsdiag::test
