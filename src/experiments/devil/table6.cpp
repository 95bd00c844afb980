#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "arena.hpp"
#include "recipe.hpp"

/// [DEVIL] Table 6: fifteen models on the Long-Range Arena.
namespace tsdiag::experiment_list::devil_table6 {
namespace {

constexpr auto keys = joined(
    std::array{key_arena_tasks("listops,pathfinder", "text,listops,retrieval,pathfinder,image")},
    arena_keys, std::array{key_trials("6", "4")});

RunResult measure(const ExperimentSetting& setting) {
    return arena_trained(setting, arena_models());
}

Figure figure_of(const Numbers& numbers, const std::vector<ArenaTask>& tasks) {
    const auto models = arena_models();
    Scores scores{.table = "Table 6"};
    for (const ArenaModel& model : models) scores.models.emplace_back(model.label);
    for (const ArenaTask& task : tasks) scores.columns.emplace_back(task.label);
    if (tasks.size() > 1) scores.columns.emplace_back("mean");
    scores.paper_columns = scores.columns;
    const auto of = [&](std::size_t column) {  // a task, or all
        return column < tasks.size() ? std::span(&tasks[column], 1) : std::span(tasks);
    };
    scores.here = [&](std::size_t i, std::size_t j) {
        return arena_score(numbers, models[i], of(j)).value;
    };
    scores.paper = [&](std::size_t i, std::size_t j) { return paper_score(models[i], of(j)); };
    return figure_of(
        {.name = "devil_table6",
         .title = "Long-Range Arena",
         .caption = "Accuracy in per cent on held-out samples at the end of training, mean over "
                    "seeds, here and in [DEVIL] Table 6; grey: no run finished."},
        scores, [&](std::size_t i) {
            return std::pair(arena_score(numbers, models[i], tasks), paper_score(models[i], tasks));
        });
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    const std::vector<ArenaTask> tasks = arena_tasks_of(setting);
    Findings found{.figures = {figure_of(numbers, tasks)}};
    const auto models = arena_models();
    const std::span<const ArenaModel> own = models.last(2),
                                      others = models.first(models.size() - 2);
    for (const ArenaModel& model : own) {
        std::vector<Order> orders;
        for (const ArenaModel& other : others)
            orders.push_back({model.label, other.label, arena_scores(numbers, model, tasks),
                              arena_scores(numbers, other, tasks)});
        found.comparisons.push_back(
            all_orders("mean accuracy in per cent", orders,
                       "[DEVIL] 5.2: \"In terms of overall results, both TransNormer variants "
                       "(T1,T2) outperform all other competing methods\""));
    }
    std::vector<Placed> placed;
    for (const ArenaModel& model : models)
        placed.push_back({arena_scores(numbers, model, tasks), paper_score(model, tasks)});
    found.comparisons.push_back(
        same_order("mean accuracy in per cent", placed,
                   "[DEVIL] Table 6, the order of its accuracies on these tasks"));
    std::string of_tasks;
    for (const ArenaTask& task : tasks)
        of_tasks += fmt::format("{}{}", of_tasks.empty() ? "" : ", ", task.label);
    for (const ArenaModel& model : models) {
        found.comparisons.push_back(
            compare(fmt::format("mean accuracy in per cent, {}", model.label),
                    fmt::format("[DEVIL] Table 6, {}: {:.2f}", of_tasks, paper_score(model, tasks)),
                    std::nullopt, arena_score(numbers, model, tasks)));
        for (const ArenaTask& task : tasks) add_diverged(found, numbers, on_task(model, task));
    }
    std::ranges::move(constant_notes(numbers, models, tasks), std::back_inserter(found.notes));
    return found;
}

}  // namespace

extern const ExperimentEntry devil_table6 = {
    .name = "devil.table6",
    .title = "Fifteen models on the Long-Range Arena",
    .source = "[DEVIL] Table 6, section 5.2, appendix E",
    .claim =
        "\"we achieve either first or second places across all five tasks. In terms of overall "
        "results, both TransNormer variants (T1,T2) outperform all other competing methods "
        "including vanilla transformer\": 63.71 and 64.80 % on average, next cosFormer with 62.11, "
        "vanilla 57.37.",
    .method =
        "At paper scale appendix E: 2 layers, 64 features, 2 heads, GLU of 85, batch and rate of "
        "each task; the rest is the released configuration of Skyformer, which the paper follows: "
        "50000 updates, AdamW with eps 1e-6 and no decay, linear warm-up and decay, dropout 0.1, "
        "128 landmarks, features or queries, blocks of 64, 3 random ones; its Reformer is Hugging "
        "Face's with 2 rounds and chunks of 64, its Linformer has one matrix of each head for keys "
        "and values (references.md), not trained there, but here; its Performer divides logits by "
        "the width of a head, here by the root of it. --data DIR contains the arena's folders "
        "listops-1000, pathfinder32/curv_contour_length_14 and tsv_data, and aclImdb and "
        "cifar-10-batches-bin. Without it ListOps and Pathfinder are generated by their published "
        "rules. Here all but TransNormer and FLASH use BERT's post-norm block with a feed-forward "
        "step of as many weights in place of the GLU; FLASH and FLASH-quad are gated attention "
        "units, two per layer, as in the paper's encoders (5.1); Skyformer's is pre-norm, its "
        "classifier has a hidden layer, its gradients are clipped by element, it hides padding "
        "from attention and tests the best of its checkpoints: here the last, with one matrix on "
        "the mean of the last state. The paper's block size and settings of LS are not stated. Our "
        "Pathfinder is a reading of the generator's source: the free space around a paddle is "
        "tested by distances in the plane, not on pixels, and the number of paddles for other "
        "sizes than 32 x 32 is in proportion to the area. Quick scale has shorter lists, 12 x 12 "
        "pixels, half the width and few updates.",
    .table =
        "for each model on each task final_accuracy, accuracy_excess (over the best constant "
        "answer), final_test_loss, final_loss, diverged, and each by trial; curves train_loss, "
        "train_grad_norm, test_loss and accuracy over steps",
    .keys = keys,
    .takes_data = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_table6
