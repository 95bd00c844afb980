#include "arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "recipe.hpp"
#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/intervals.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/weights.hpp"

namespace tsdiag::experiment_list {
namespace {

// LS: segments of 8 and rank 32, as in its own code for these tasks; Linformer and Reformer as in
// Skyformer's code, the latter Hugging Face's.
constexpr std::array all_models = {
    ArenaModel{"Transformer", "softmax", false, {61.95, 38.37, 80.69, 65.26, 40.57}},
    ArenaModel{"Kernelized Attention", "kernelized", false, {60.22, 38.78, 81.77, 70.73, 41.29}},
    ArenaModel{
        "Nystromformer", "nystrom,landmarks={f}", false, {64.83, 38.51, 80.52, 69.48, 41.30}},
    ArenaModel{"Linformer",
               "linformer,length={f},shared=1,per_head=1",
               false,
               {58.93, 37.45, 78.19, 60.93, 37.96}},
    ArenaModel{"Informer", "informer,factor={u}", false, {62.64, 32.53, 77.57, 57.83, 38.10}},
    ArenaModel{"Performer", "performer,features={f}", false, {64.19, 38.02, 80.04, 66.30, 41.43}},
    ArenaModel{"Reformer",
               "reformer,rounds=2,chunk={b},keys=rms,across=1,wrap=1,duplicates=1,buckets=power",
               false,
               {62.93, 37.68, 78.99, 66.49, 48.87}},
    ArenaModel{"BigBird", "bigbird,block={b},random=3", false, {63.86, 39.25, 80.28, 68.72, 43.16}},
    ArenaModel{"Skyformer", "skyformer,landmarks={f}", false, {64.70, 38.69, 82.06, 70.73, 40.77}},
    ArenaModel{"LS", "transformer_ls", false, {66.62, 40.30, 81.68, 69.98, 47.60}},
    ArenaModel{"cosFormer", "cosformer", false, {67.70, 36.50, 83.15, 71.96, 51.23}},
    ArenaModel{"FLASH-quad", "gau", true, {64.10, 42.20, 83.00, 63.28, 48.30}},
    ArenaModel{"FLASH", "flash,shift=0,group={b}", true, {64.10, 38.70, 86.10, 70.25, 47.40}},
    ArenaModel{
        "TransNormer T1", "transnormer1-mlm,block={b}", true, {66.90, 41.03, 83.11, 75.92, 51.60}},
    ArenaModel{
        "TransNormer T2", "transnormer2-mlm,block={b}", true, {72.20, 41.60, 83.82, 76.80, 49.60}}};

std::size_t index_of(const ArenaTask& task) {
    return std::size_t(std::ranges::find(arena_tasks, task.name, &ArenaTask::name) -
                       arena_tasks.begin());
}

/// The task's of a list by task.
template <class Values>
auto of_task(const ExperimentSetting& setting, std::string_view key, const Values& values,
             const ArenaTask& task) {
    if (values.size() != arena_tasks.size())
        throw UsageError(
            fmt::format("{}: {} has {} values, expected {}: for text, listops, retrieval, "
                        "pathfinder and image.",
                        setting.entry().name, key, values.size(), arena_tasks.size()));
    return values[index_of(task)];
}
Index count_of(const ExperimentSetting& setting, std::string_view key, const ArenaTask& task) {
    return of_task(setting, key, setting.counts(key), task);
}
double number_of(const ExperimentSetting& setting, std::string_view key, const ArenaTask& task) {
    return of_task(setting, key, setting.numbers(key), task);
}

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Peak bytes of the tensors that the work allocates.
double bytes_of_tensors(const std::function<void()>& work) {
    restart_cpu_peak();
    const TensorBytes before = cpu_bytes();
    work();
    return double(cpu_bytes().peak - before.now);
}

}  // namespace

std::span<const ArenaModel> arena_models() { return all_models; }

const ArenaModel& arena_model(std::string_view label) {
    const auto found =
        std::ranges::find_if(all_models, [&](const ArenaModel& m) { return m.label == label; });
    check(found != all_models.end(), "a model of Table 6");
    return *found;
}

std::string arena_data(const ExperimentSetting& setting, const ArenaTask& task) {
    if (setting.data().empty()) {
        if (!task.drawn)
            throw UsageError(
                fmt::format("{}: the task {} is not generated; pass --data DIR, a folder with {} "
                            "in it, or --reading tasks=listops,pathfinder.",
                            setting.entry().name, task.name, task.folder));
        return std::string(task.data);
    }
    const std::filesystem::path folder = std::filesystem::path(setting.data()) / task.folder;
    std::error_code none;
    if (!std::filesystem::is_directory(folder, none))
        throw UsageError(fmt::format("{}: the task {} is read from {}, which is not a directory.",
                                     setting.entry().name, task.name, folder.string()));
    return fmt::format("{}:{}", task.data, folder.string());
}

ArenaSizes arena_sizes(const ExperimentSetting& setting, Index block) {
    return {.layers = setting.count("layers"),
            .d = setting.count("d"),
            .heads = setting.count("heads"),
            .glu = setting.count("glu"),
            .features = setting.count("features"),
            .block = block};
}

std::string arena_model_text(const ArenaSizes& sizes, const ArenaModel& model, Index tokens) {
    const double queries = double(sizes.features) / std::ceil(std::log(double(tokens)));
    const std::string keys = fmt::format(fmt::runtime(model.keys), fmt::arg("f", sizes.features),
                                         fmt::arg("b", sizes.block),
                                         fmt::arg("u", std::max<Index>(1, std::llround(queries))));
    if (is_gated_unit(keys))
        return fmt::format("{},layers={},d={},tokens={}", keys, units_of_encoder(sizes.layers),
                           sizes.d, tokens);
    // a width with two matrices that has as many weights as with three
    return fmt::format("{},layers={},d={},heads={},ffn={}{},tokens={}",
                       model.own ? keys : "bert-base", sizes.layers, sizes.d, sizes.heads,
                       model.own ? sizes.glu : (3 * sizes.glu + 1) / 2,
                       model.own ? "" : fmt::format(",attention={}", keys), tokens);
}

TrainOptions arena_options(const ExperimentSetting& setting, const ArenaModel& model,
                           const ArenaTask& task) {
    TrainOptions options;
    const Index tokens = count_of(setting, "tokens", task);
    options.subject.model =
        "random:" + arena_model_text(arena_sizes(setting, setting.count("block")), model, tokens);
    options.device = setting.device();
    options.data = arena_data(setting, task);
    options.tokens = tokens;
    options.steps = setting.count("steps");
    options.batch = count_of(setting, "batch", task);
    options.dropout = setting.number("dropout");
    options.schedule = {.kind = Schedule::Kind::linear,
                        .rate = number_of(setting, "rate", task),
                        .warmup = count_of(setting, "warmup", task)};
    options.adam = {.eps = 1e-6, .decay = 0};
    options.clip = 0;
    options.eval_samples = setting.count("test");
    return options;
}

RunResult arena_trained(const ExperimentSetting& setting, std::span<const ArenaModel> models) {
    std::vector<Trained> all;
    for (const ArenaTask& task : arena_tasks_of(setting))
        for (const ArenaModel& model : models)
            all.push_back({on_task(model, task), arena_options(setting, model, task)});
    return trained(setting, all, [](const Outcome& run, Sink& out) {
        Value excess = undefined("training diverged");
        if (run.diverged.empty()) {
            const Evaluation& last = run.evaluations.back();
            excess =
                last.accuracy - double(std::ranges::max(last.of_class)) / double(last.predictions);
        }
        out.scalar({}, "accuracy_excess", excess);
    });
}

std::vector<ArenaTask> arena_tasks_of(const ExperimentSetting& setting) {
    const std::vector<std::string> asked = setting.list("tasks");
    std::vector<ArenaTask> out;
    for (const ArenaTask& task : arena_tasks)
        if (std::ranges::find(asked, task.name) != asked.end()) out.push_back(task);
    return out;
}

std::string on_task(const ArenaModel& model, const ArenaTask& task) {
    return fmt::format("{} on {}", model.label, task.label);
}

Number arena_score(const Numbers& numbers, const ArenaModel& model,
                   std::span<const ArenaTask> tasks) {
    Number sum{.value = 0, .error = 0};
    bool first = true;
    for (const ArenaTask& task : tasks) {
        const Number one = numbers.at(on_task(model, task), "final_accuracy");
        if (!one.value) return one;
        sum.value = *sum.value + *one.value;
        if (sum.error && one.error)
            sum.error = std::hypot(*sum.error, *one.error);
        else
            sum.error = std::nullopt;
        sum.count = first ? one.count : std::min(sum.count, one.count);
        first = false;
    }
    return scaled(sum, 100 / double(tasks.size()));
}

ByTrial arena_scores(const Numbers& numbers, const ArenaModel& model,
                     std::span<const ArenaTask> tasks) {
    ByTrial scores;
    std::map<double, std::size_t> known;
    for (const ArenaTask& task : tasks)
        for (const auto& [trial, accuracy] :
             numbers.trials(on_task(model, task), "final_accuracy")) {
            scores[trial] += 100 * accuracy / double(tasks.size());
            ++known[trial];
        }
    std::erase_if(scores, [&](const auto& score) { return known[score.first] < tasks.size(); });
    return scores;
}

std::vector<std::string> constant_notes(const Numbers& numbers, std::span<const ArenaModel> models,
                                        std::span<const ArenaTask> tasks) {
    std::vector<std::string> out;
    for (const ArenaTask& task : tasks) {
        Index better = 0, worse = 0;
        std::optional<double> constant;
        for (const ArenaModel& model : models) {
            const std::string name = on_task(model, task);
            const Number excess = numbers.at(name, "accuracy_excess"),
                         accuracy = numbers.at(name, "final_accuracy");
            if (!excess.value || !accuracy.value) continue;
            constant = *accuracy.value - *excess.value;
            if (!excess.error) continue;
            const double reach = *excess.error * student_quantile(0.95, excess.freedom());
            better += *excess.value > reach ? 1 : 0;
            worse += *excess.value < -reach ? 1 : 0;
        }
        if (constant)
            out.push_back(fmt::format(
                "On {} the best constant answer is right for {:.1f} % of the held-out samples "
                "(mean over seeds). Of {} models, {} are significantly more accurate than it and "
                "{} less (95 % intervals of the differences, paired by seed).",
                task.label, 100 * *constant, models.size(), better, worse));
    }
    return out;
}

double paper_score(const ArenaModel& model, std::span<const ArenaTask> tasks) {
    double sum = 0;
    for (const ArenaTask& task : tasks) sum += model.scores[index_of(task)];
    return sum / double(tasks.size());
}

StepCosts step_costs(const ExperimentSetting& setting, const std::string& text, Index n) {
    constexpr Index vocabulary = 64, symbols = vocabulary - 1;  // one may be padding
    const RandomModel drawn = random_model(fmt::format("{},vocab={}", text, vocabulary));
    const auto model_on = [&](const Backend& backend) {
        const std::shared_ptr<const Weights> weights = resident_weights(
            random_weights(drawn, weights_rng(setting.seed(), 0), backend, Type::f32));
        return Model(drawn.spec, weights, backend, Type::f32);
    };
    const Backend& backend = open_backend(setting.device());
    const Model model = model_on(backend);
    Input input;
    Rng rng = Rng(setting.seed()).fork("input");
    Loss loss{.kind = Loss::Kind::tokens};
    for (Index i = 0; i < n; ++i) {
        input.ids.push_back(symbol_id(drawn.spec, Index(rng.below(symbols))));
        loss.rows.push_back(i);
        loss.targets.push_back(input.ids.back());
    }
    const auto forward = [&] {
        model.step(input, loss, {.gradients = false});
        backend.synchronise();
    };
    const auto step = [&] {
        model.step(input, loss);
        backend.synchronise();
    };
    step();  // warm-up: draws the weights
    StepCosts out;
    for (Index trial = 0; trial < setting.count("trials"); ++trial) {
        out.forward.push_back(seconds_of(forward));
        out.bytes = bytes_of_tensors([&] { out.training.push_back(seconds_of(step)); });
    }
    if (backend.host_memory()) return out;
    const Model on_host = model_on(cpu());
    const auto host_step = [&] { on_host.step(input, loss); };
    host_step();
    out.bytes = bytes_of_tensors(host_step);
    return out;
}

}  // namespace tsdiag::experiment_list
