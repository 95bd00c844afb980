#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/names.hpp"

namespace tsdiag::families {

/// How a tensor is seen under its new name, in this order; the file's own where nothing is set.
struct View {
    std::vector<int> axes = {};     ///< the file's axes in another order
    Index first = 0, length = -1;   ///< rows taken: a range of the first of these; -1: all
    std::vector<Index> shape = {};  ///< axes whose elements follow each other merged into one
};

/// a b, the extent of two merged axes; -1, which no view has, where it exceeds 64 bits.
Index merged(Index a, Index b);

/// `raw` as `view` sees it.  Throws `FormatError` where it does not have those axes, rows or that
/// shape, or is quantised and would not be seen as it is; `where` names file and tensor.
RawTensor seen(RawTensor raw, const View& view, std::string_view where);

/// A file under other names, each a view of one of its tensors, or of several that are put one
/// below the other.
class Relabelled final : public Checkpoint {
  public:
    explicit Relabelled(std::shared_ptr<const Checkpoint> file) : file_(std::move(file)) {}

    /// Throws `FormatError` where two tensors get the name `there`.
    void add(std::string there, std::string original, View view = {});
    struct Part {
        std::string original;
        View view;
    };
    void add(std::string there, std::vector<Part> parts);

    const std::vector<std::string>& names() const override { return names_; }
    bool has(std::string_view name) const override { return sources_.contains(name); }
    RawTensor tensor(std::string_view name) const override;
    const Json& metadata() const override { return file_->metadata(); }
    std::string_view format() const override { return file_->format(); }
    std::string source() const override { return file_->source(); }

  private:
    RawTensor part(const Part& part) const;

    std::shared_ptr<const Checkpoint> file_;
    std::vector<std::string> names_;
    std::map<std::string, std::vector<Part>, std::less<>> sources_;
};

}  // namespace tsdiag::families
