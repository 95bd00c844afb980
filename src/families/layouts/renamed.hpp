#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/families.hpp"

namespace tsdiag::families {

/// A file under the names that its family has elsewhere.  `file` must outlive it.
class Renamed final : public Checkpoint {
  public:
    explicit Renamed(const Checkpoint& file) : file_(file) {}
    /// What is called `there`: a tensor of the file, or one of those that it stacks.
    struct Original {
        std::string name;
        Index slice = -1;     ///< along the first axis
        bool as_row = false;  ///< (d,) in the file, (1, d) there
    };
    void add(std::string there, Original original) {
        names_.push_back(there);
        original_.emplace(std::move(there), std::move(original));
    }

    const std::vector<std::string>& names() const override { return names_; }
    bool has(std::string_view name) const override { return original_.contains(name); }
    RawTensor tensor(std::string_view name) const override;
    const Json& metadata() const override { return metadata_; }
    std::string_view format() const override { return file_.format(); }
    std::string source() const override { return file_.source(); }

    /// `found` with the file's own names.  `paired`: rows of queries and keys rotate with their
    /// neighbours in the file; they are brought into order when they are read.
    void restore(Architecture& found, bool paired) const;

  private:
    Original original(std::string_view name) const;

    const Checkpoint& file_;
    Json metadata_ = Json::Object();  ///< that of the file is in the configuration
    std::vector<std::string> names_;
    std::map<std::string, Original, std::less<>> original_;
};

}  // namespace tsdiag::families
