#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>

#include "bytes.hpp"
#include "directory.hpp"
#include "layout.hpp"
#include "listed.hpp"
#include "packed.hpp"

/// DeepSpeed's folders, global_stepN: mp_rank_00_model_states.pt has the model, but for stage 3 of
/// ZeRO.  There each process has an equal part of the elements of every parameter, the trained ones
/// one behind the other in float32 in its optimizer's file, and of frozen ones a part in its
/// model's file.
namespace tsdiag::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view of_model = "_model_states.pt", of_optimizer = "_optim_states.pt",
                           part_of_rank = "zero_pp_rank_", first_tensor_rank = "_mp_rank_00";
/// Leads to the optimizer's state, and to the parameters in it.
constexpr std::string_view state_key = "optimizer_state_dict", parts_key = "fp32_flat_groups";
constexpr std::string_view join_first =
    "Join the parts by the zero_to_fp32.py that DeepSpeed left beside their folder.";

std::string name_of(const fs::path& file) { return file.filename().string(); }

bool has_model(const std::string& name) {
    return name.starts_with("mp_rank_") && name.ends_with(of_model);
}
bool has_part(const std::string& name) {
    return name.starts_with(part_of_rank) && name.ends_with(of_model);
}
bool has_optimizer(const std::string& name) {
    return (name.starts_with(part_of_rank) || name.starts_with("bf16_zero_pp_rank_")) &&
           name.ends_with(of_optimizer);
}

/// The process of a part, of the first of those that divide tensors; nullopt: of another.
std::optional<std::size_t> rank_of(const std::string& name) {
    const std::size_t begin = name.find(part_of_rank) + part_of_rank.size(),
                      end = name.find('_', begin);
    const std::string_view ending = has_part(name) ? of_model : of_optimizer;
    if (end == name.npos || name.substr(end) != fmt::format("{}{}", first_tensor_rank, ending))
        return std::nullopt;
    std::size_t rank = 0;
    const auto [at, error] = std::from_chars(name.data() + begin, name.data() + end, rank);
    return error == std::errc() && at == name.data() + end ? std::optional(rank) : std::nullopt;
}

/// The number 3, or the member of DeepSpeed's enumeration, which versions of Python pickle by its
/// name or by its value.
bool is_stage_3(const Json& stage) {
    if (stage.is_string()) return stage.string().ends_with(".ZeroStageEnum.weights");
    const Json& arguments = stage["__args__"];
    const bool one = arguments.is_array() && arguments.array().size() == 1;
    const Json& number = one ? arguments.array()[0] : stage;
    return number.is_integer() && number.integer() == 3;
}

/// A tensor whose elements, in the order of rows, are those of its parts, one behind the other.
class ElementsInParts final : public PackedMatrix {
  public:
    ElementsInParts(std::int64_t columns, std::vector<RawTensor> parts)
        : PackedMatrix(columns, std::move(parts), 0) {
        std::int64_t begin = 0;
        for (const RawTensor& part : this->parts()) {
            begins_.push_back(begin);
            begin += part.count();
        }
    }

    void decode(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                float* out) const override {
        const bool whole = columns == this->columns();
        const std::int64_t runs = whole ? 1 : rows, length = whole ? rows * columns : columns;
        for (std::int64_t r = 0; r < runs; ++r)
            copy((row + r) * this->columns() + column, length, out + r * length);
    }

  private:
    void copy(std::int64_t first, std::int64_t count, float* out) const {
        auto k = std::size_t(std::ranges::upper_bound(begins_, first) - begins_.begin()) - 1;
        for (; count > 0; ++k) {
            RawTensor part = parts()[k];
            const std::int64_t within = first - begins_[k],
                               some = std::min(count, part.count() - within);
            part.offset += within * part.strides[0];
            part.shape[0] = some;
            widen(part, std::span(out, std::size_t(some)));
            first += some;
            count -= some;
            out += some;
        }
    }

    std::vector<std::int64_t> begins_;  ///< of the parts
};

class Stage3 {
  public:
    explicit Stage3(const std::vector<fs::path>& files) : where_(files.front().parent_path()) {
        for (const fs::path& file : files) {
            const std::string name = name_of(file);
            const auto rank = rank_of(name);
            if (!rank) fail(fmt::format("holds '{}', a part of another division", name));
            auto& of = has_part(name) ? models_ : optimizers_;
            if (!of.emplace(*rank, open_file(file)).second)
                fail(fmt::format("holds two files like '{}'", name));
        }
        world_ = std::int64_t(models_.size());
        const auto complete = [&](const auto& of) {
            return std::int64_t(of.size()) == world_ &&
                   std::int64_t(of.rbegin()->first) == world_ - 1;
        };
        if (optimizers_.empty() || !complete(models_) || !complete(optimizers_))
            fail(fmt::format("holds the models of {} processes and the optimizers of {}",
                             models_.size(), optimizers_.size()));
        for (const auto& [rank, file] : optimizers_) {
            const Json& state = file->metadata()[state_key];
            const Json& count = state["partition_count"];
            if (!is_stage_3(state["zero_stage"]) || !count.is_integer() ||
                count.integer() != world_)
                fail(fmt::format("holds '{}', which does not say that it is one of {} of stage 3",
                                 fs::path(file->source()).filename().string(), world_));
        }
    }

    std::unique_ptr<Checkpoint> open() {
        const Checkpoint& first = *models_.at(0);
        listed_ = std::make_unique<ListedCheckpoint>("torch, DeepSpeed's ZeRO-3", where_.string());
        listed_->set_metadata(first.metadata());
        add_trained();
        add_frozen();
        const Json& buffers = first.metadata()["buffer_names"];
        if (buffers.is_array())
            for (const Json& name : buffers.array())
                if (name.is_string() && first.has("module." + name.string()))
                    listed_->add(name.string(), first.tensor("module." + name.string()));
        const Json& shared = first.metadata()["shared_params"];
        if (shared.is_object())
            for (const auto& [name, other] : shared.object())
                if (other.is_string() && listed_->has(other.string()) && !listed_->has(name))
                    listed_->add(name, listed_->tensor(other.string()));
        constexpr std::string_view module = "module.";
        for (const std::string& name : first.names())
            if (name.starts_with(module) && !listed_->has(name.substr(module.size())))
                fail(fmt::format("holds no part of '{}'", name.substr(module.size())));
        return std::move(listed_);
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        refuse(where_.string(),
               fmt::format("{}, expected all parts of a model that DeepSpeed's ZeRO has divided "
                           "in stage 3. {}",
                           what, join_first));
    }

    /// Calls `take(name, shape)` for each of the parameters that `key` lists, in all files alike.
    template <class Take>
    void each_parameter(std::string_view key, Take take) const {
        const Json& listed = models_.at(0)->metadata()[key];
        for (const auto& [rank, file] : models_)
            if (file->metadata()[key].dump() != listed.dump())
                fail(fmt::format("holds files that list other {}", key));
        const auto each_of = [&](const Json& group) {
            if (!group.is_object()) fail(fmt::format("has {} without names", key));
            for (const auto& [name, extents] : group.object()) {
                std::vector<std::int64_t> shape;
                if (!extents.is_array()) fail(fmt::format("has no shape of '{}'", name));
                for (const Json& extent : extents.array())
                    shape.push_back(extent.is_integer() ? extent.integer() : 0);
                const bool positive =
                    std::ranges::all_of(shape, [](std::int64_t extent) { return extent > 0; });
                if (!positive || !element_count(shape))
                    fail(fmt::format("has an empty shape of '{}'", name));
                take(name, shape);
            }
        };
        if (listed.is_array())
            for (const Json& group : listed.array()) each_of(group);
        else if (!listed.is_null())
            each_of(listed);
    }

    /// What each process has of a parameter: so many elements, the last ones padding.
    std::int64_t part_of(const std::vector<std::int64_t>& shape) const {
        return (element_count(shape).value_or(0) - 1) / world_ + 1;
    }

    /// Elements of one dimension, of a type that tensors are put together of.
    RawTensor stream(RawTensor part, const std::string& name) const {
        const bool plain =
            part.dtype == DType::f32 || part.dtype == DType::f16 || part.dtype == DType::bf16;
        if (!plain || part.shape.size() != 1)
            fail(fmt::format("has '{}' of {} {}", name, part.dtype_name, shape_text(part.shape)));
        return part;
    }

    void add(const std::string& name, const std::vector<std::int64_t>& shape,
             std::vector<RawTensor> parts) {
        std::int64_t left = *element_count(shape);
        for (RawTensor& part : parts) {  // without the padding
            part.shape[0] = std::min(part.shape[0], left);
            left -= part.shape[0];
        }
        std::erase_if(parts, [](const RawTensor& part) { return part.shape[0] == 0; });
        const bool alike = std::ranges::all_of(
            parts, [&](const RawTensor& part) { return part.dtype == parts.front().dtype; });
        if (left != 0 || parts.empty() || !alike)
            fail(fmt::format("has parts that are not those of '{}'", name));
        const std::int64_t columns = shape.empty() ? 1 : *element_count(shape) / shape.front();
        std::string type = parts.front().dtype_name;
        listed_->add(
            name, packed_tensor(std::make_shared<ElementsInParts>(columns, std::move(parts)), shape,
                                std::move(type)));
    }

    void add_trained() {
        std::vector<std::vector<RawTensor>> groups;  // of each process, one behind the other
        std::int64_t all = 0;
        for (const auto& [rank, file] : optimizers_) {
            std::int64_t count = 0;
            std::vector<RawTensor>& of = groups.emplace_back();
            for (std::size_t g = 0;; ++g) {
                const std::string name = fmt::format("{}.{}.{}", state_key, parts_key, g);
                if (!file->has(name)) break;
                of.push_back(stream(file->tensor(name), name));
                count += of.back().count();
            }
            if (rank > 0 && count != all) fail("holds processes with parts of other sizes");
            all = count;
        }
        std::int64_t offset = 0;
        each_parameter("param_shapes",
                       [&](const std::string& name, const std::vector<std::int64_t>& shape) {
                           const std::int64_t size = part_of(shape);
                           if (size > all - offset) fail(fmt::format("ends before '{}'", name));
                           std::vector<RawTensor> parts;
                           for (const std::vector<RawTensor>& of : groups)
                               take(of, offset, size, parts);
                           add(name, shape, std::move(parts));
                           offset += size;
                       });
        if (offset != all || all == 0)
            fail(fmt::format("has {} elements of each process in {}, and {} in param_shapes", all,
                             parts_key, offset));
    }

    /// Appends elements `first` .. `first + count` of the groups.
    static void take(const std::vector<RawTensor>& groups, std::int64_t first, std::int64_t count,
                     std::vector<RawTensor>& parts) {
        for (const RawTensor& group : groups) {
            const std::int64_t some = std::clamp<std::int64_t>(group.shape[0] - first, 0, count);
            if (some > 0) {
                RawTensor part = group;
                part.offset += first * part.strides[0];
                part.shape[0] = some;
                parts.push_back(std::move(part));
                count -= some;
            }
            first = std::max<std::int64_t>(first - group.shape[0], 0);
        }
    }

    void add_frozen() {
        each_parameter("frozen_param_shapes",
                       [&](const std::string& name, const std::vector<std::int64_t>& shape) {
                           std::vector<RawTensor> parts;
                           const std::string part = "frozen_param_fragments." + name;
                           for (const auto& [rank, file] : models_) {
                               if (!file->has(part))
                                   fail(fmt::format("has a process without '{}'", part));
                               parts.push_back(stream(file->tensor(part), part));
                               if (parts.back().count() != part_of(shape))
                                   fail(fmt::format("has a part of another size of '{}'", name));
                           }
                           add(name, shape, std::move(parts));
                       });
    }

    fs::path where_;
    std::map<std::size_t, std::unique_ptr<Checkpoint>> models_, optimizers_;  ///< by process
    std::int64_t world_ = 0;
    std::unique_ptr<ListedCheckpoint> listed_;
};

}  // namespace

void refuse_deepspeed_part(const fs::path& file) {
    const std::string name = name_of(file);
    if (has_part(name))
        refuse(file.string(),
               "has a process's part of a model trained with stage 3 of DeepSpeed's ZeRO, expected "
               "a whole model. Pass its folder, where all parts are.");
    if (has_optimizer(name))
        refuse(file.string(),
               "has a process's part of the optimizer of DeepSpeed's ZeRO, expected a model. Pass "
               "its folder, where that is.");
}

bool are_deepspeed(const std::vector<fs::path>& files) {
    return !files.empty() && std::ranges::all_of(files, [](const fs::path& file) {
        const std::string name = name_of(file);
        return has_model(name) || has_part(name) || has_optimizer(name);
    });
}

std::unique_ptr<Checkpoint> open_deepspeed(const std::vector<fs::path>& files) {
    std::vector<fs::path> models;
    std::ranges::copy_if(files, std::back_inserter(models),
                         [](const fs::path& file) { return has_model(name_of(file)); });
    if (models.size() == 1) return open_file(models.front());
    const std::string where = files.front().parent_path().string();
    if (models.size() > 1)
        refuse(where, fmt::format("has a model in {} parts of DeepSpeed's tensor parallelism, "
                                  "{} and so on, expected one file. Save it without model "
                                  "parallelism.",
                                  models.size(), name_of(models.front())));
    if (std::ranges::none_of(files, [](const fs::path& file) { return has_part(name_of(file)); }))
        refuse(where, fmt::format("has parts of the optimizer of DeepSpeed's ZeRO alone, expected "
                                  "the *{} of a model beside them. Copy these, too.",
                                  of_model));
    return Stage3(files).open();
}

}  // namespace tsdiag::checkpoint
