#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "bytes.hpp"
#include "directory.hpp"

/// DeepSpeed's folders, global_stepN: mp_rank_00_model_states.pt has the model, but for stage 3 of
/// ZeRO, whose parameters lie in parts in the files of the optimizer.
namespace tsdiag::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string name_of(const fs::path& file) { return file.filename().string(); }

bool has_model(const std::string& name) {
    return name.starts_with("mp_rank_") && name.ends_with("_model_states.pt");
}
bool has_part(const std::string& name) {
    return name.starts_with("zero_pp_rank_") && name.ends_with("_model_states.pt");
}
bool has_optimizer(const std::string& name) {
    return (name.starts_with("zero_pp_rank_") || name.starts_with("bf16_zero_pp_rank_")) &&
           name.ends_with("_optim_states.pt");
}

}  // namespace

void refuse_deepspeed_part(const fs::path& file) {
    const std::string name = name_of(file);
    if (has_part(name))
        refuse(file.string(),
               "has a process's part of a model trained with stage 3 of DeepSpeed's ZeRO, expected "
               "a whole model. Join the parts by the zero_to_fp32.py that DeepSpeed left beside "
               "their folder.");
    if (has_optimizer(name))
        refuse(file.string(),
               "has a process's part of the optimizer of DeepSpeed's ZeRO, expected a model. Pass "
               "mp_rank_00_model_states.pt, or join the parts by the zero_to_fp32.py that "
               "DeepSpeed left beside their folder.");
}

bool are_deepspeed(const std::vector<fs::path>& files) {
    return !files.empty() && std::ranges::all_of(files, [](const fs::path& file) {
        const std::string name = name_of(file);
        return has_model(name) || has_part(name) || has_optimizer(name);
    });
}

fs::path deepspeed_model(const std::vector<fs::path>& files) {
    std::vector<fs::path> models;
    std::ranges::copy_if(files, std::back_inserter(models),
                         [](const fs::path& file) { return has_model(name_of(file)); });
    if (models.size() > 1)
        refuse(models.front().parent_path().string(),
               fmt::format("has a model in {} parts of DeepSpeed's tensor parallelism, "
                           "{} and so on, expected one file. Save it without model parallelism.",
                           models.size(), name_of(models.front())));
    if (models.empty()) refuse_deepspeed_part(files.front());
    return models.front();
}

}  // namespace tsdiag::checkpoint
