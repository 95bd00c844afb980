#pragma once
#include <array>

#include "training.hpp"

/// Shared by the experiments on the Long-Range Arena [LRA]: Table 6, Table 7 and Figure 1 of
/// [DEVIL].
namespace tsdiag::experiment_list {

/// The tasks in the order of Table 6.
struct ArenaTask {
    std::string_view name;    ///< of the key `tasks`
    std::string_view label;   ///< of the table
    std::string_view data;    ///< as of `TrainOptions::data`, without its folder
    std::string_view folder;  ///< under --data DIR, as it is published
    bool drawn;               ///< by its rules, where there is no folder
};
constexpr std::array<ArenaTask, 5> arena_tasks = {
    ArenaTask{"text", "Text", "imdb", "aclImdb", false},
    ArenaTask{"listops", "ListOps", "listops", "listops-1000", true},
    ArenaTask{"retrieval", "Retrieval", "aan", "tsv_data", false},
    ArenaTask{"pathfinder", "Pathfinder", "pathfinder", "pathfinder32/curv_contour_length_14",
              true},
    ArenaTask{"image", "Image", "pixels", "cifar-10-batches-bin", false}};

/// The models in the order of Table 6.
struct ArenaModel {
    const char* label;
    const char* keys;  ///< attention, or the whole model where it is `own`; {f} and {b}: features
                       ///< and tokens of a block, {u}: the factor of Informer
    bool own;          ///< has GLU and an attention of its own, or gated attention units
    std::array<double, 5> scores;  ///< Table 6, per cent
};
std::span<const ArenaModel> arena_models();
const ArenaModel& arena_model(std::string_view label);

/// The samples of a task as `tsdiag train` names them.  Throws `UsageError` where it needs --data
/// DIR, or its folder is not there.
std::string arena_data(const ExperimentSetting& setting, const ArenaTask& task);

/// Those of appendix E and of the configuration that it names; blocks are not stated.
struct ArenaSizes {
    Index layers = 2, d = 64, heads = 2, glu = 85, features = 128, block = 64;
};
/// The setting's layers, d, heads, glu and features.
ArenaSizes arena_sizes(const ExperimentSetting& setting, Index block);
/// The model for n tokens, without "random:".  A model without a gate has a feed-forward step of as
/// many weights, half as wide again; one of gated attention units has twice the layers and no
/// feed-forward step.
std::string arena_model_text(const ArenaSizes& sizes, const ArenaModel& model, Index tokens);

/// Training of the model on a task with the setting's steps, dropout, features and block, and the
/// task's of its lists tokens, batch, rate and warmup.  Throws `UsageError` where the task needs
/// --data DIR.
TrainOptions arena_options(const ExperimentSetting& setting, const ArenaModel& model,
                           const ArenaTask& task);
/// Trains all of them on all of the setting's tasks, by `on_task`; adds `accuracy_excess`,
/// final_accuracy less the share of the held-out samples that are of the commonest class: what the
/// best constant answer gets.
RunResult arena_trained(const ExperimentSetting& setting, std::span<const ArenaModel> models);
/// The setting's tasks in the order of Table 6.
std::vector<ArenaTask> arena_tasks_of(const ExperimentSetting& setting);
/// "LS on ListOps", the name in a table.
std::string on_task(const ArenaModel& model, const ArenaTask& task);
/// final_accuracy in per cent, the mean over the tasks.
Number arena_score(const Numbers& numbers, const ArenaModel& model,
                   std::span<const ArenaTask> tasks);
/// The same of each trial that has all of them.
ByTrial arena_scores(const Numbers& numbers, const ArenaModel& model,
                     std::span<const ArenaTask> tasks);
/// Of each task, how often the best constant answer is right, and how many models are better or
/// worse than it.
std::vector<std::string> constant_notes(const Numbers& numbers, std::span<const ArenaModel> models,
                                        std::span<const ArenaTask> tasks);
/// The paper's.
double paper_score(const ArenaModel& model, std::span<const ArenaTask> tasks);

/// Seconds of a step forward and of one with the gradient by all parameters, one sample of n tokens
/// on the setting's device; peak bytes of the tensors of the latter on the CPU.
struct StepCosts {
    std::vector<double> forward, training;  ///< seconds of each repetition
    double bytes = 0;
};
StepCosts step_costs(const ExperimentSetting& setting, const std::string& model, Index tokens);

constexpr ExperimentKey key_arena_layers = key_layers("2", "2", "2");
constexpr ExperimentKey key_arena_heads = key_heads("2", "2", "2");
constexpr ExperimentKey key_arena_d(std::string_view quick) {
    return {"d", "8", quick, "64", "width"};
}
constexpr ExperimentKey key_arena_glu(std::string_view quick) {
    return {"glu", "8", quick, "85", "inner width of a GLU; 1.5 times as wide without a gate"};
}
constexpr ExperimentKey key_arena_tasks(std::string_view quick, std::string_view paper) {
    return listed(word_key("tasks", "listops", quick, paper,
                           "text, retrieval and image need --data DIR",
                           "text listops retrieval pathfinder image"));
}
/// The other keys of `arena_options`.
inline constexpr std::array arena_keys{
    key_steps("40", "50000"),
    listed(whole_key("tokens", "16,16,16,144,1024", "256,48,256,144,1024",
                     "4096,2048,4096,1024,1024",
                     "tokens n of text, listops, retrieval, pathfinder and image", 8, 65536)),
    listed(whole_key("batch", "2,2,2,2,2", "4,4,4,4,4", "16,32,16,128,256",
                     "samples per update, by task")),
    listed(real_key(
        "rate", "1e-3,1e-3,1e-3,1e-3,1e-3", "1e-3,1e-3,1e-3,1e-3,1e-3", "1e-4,1e-4,2e-4,2e-4,1e-4",
        "greatest learning rate, by task: linear warm-up, then a linear fall to 0", 1e-8, 1)),
    listed(whole_key("warmup", "3,3,3,3,3", "10,10,10,10,10", "80,1000,800,312,175",
                     "updates of the warm-up, by task", 0, 1e6)),
    key_dropout("0"),
    key_arena_layers,
    key_arena_d("32"),
    key_arena_heads,
    key_arena_glu("42"),
    ExperimentKey{"features", "4", "16", "128",
                  "landmarks, projected tokens, random features, or queries kept"},
    ExperimentKey{
        "block", "4", "8", "64",
        "tokens of a block of BigBird and TransNormer, of a group of FLASH and of a chunk "
        "of Reformer"},
    ExperimentKey{"test", "4", "64", "2000", "held-out samples at the end"}};

}  // namespace tsdiag::experiment_list
