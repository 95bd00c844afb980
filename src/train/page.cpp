#include <fmt/format.h>

#include <algorithm>

#include "findings.hpp"
#include "tsdiag/table_view.hpp"
#include "tsdiag/train.hpp"

/// The page of a training run.
namespace tsdiag {
namespace {

constexpr Index most_points = 400;

/// A number of every step: means over equal parts of the run, with minimum and maximum where a
/// part has several steps.
Series by_step(const std::string& name, const std::vector<TrainStep>& steps,
               const std::function<double(const TrainStep&)>& number) {
    Series out{.name = name};
    const Index count = std::ssize(steps), parts = std::min(count, most_points);
    for (Index p = 0; p < parts; ++p) {
        const Index first = p * count / parts, last = (p + 1) * count / parts;
        double mean = 0, low = HUGE_VAL, high = -HUGE_VAL;
        for (Index i = first; i < last; ++i) {
            const double v = number(steps[std::size_t(i)]);
            mean += v / double(last - first);  // their sum may overflow
            low = std::min(low, v);
            high = std::max(high, v);
        }
        out.x.push_back(double(steps[std::size_t(last - 1)].step));
        out.y.emplace_back(mean);
        if (count > parts) {
            out.low.emplace_back(low);
            out.high.emplace_back(high);
        }
    }
    return out;
}

Series by_evaluation(const std::string& name, const TrainResult& result,
                     double Evaluation::*number) {
    Series out{.name = name};
    for (const Evaluation& e : result.evaluations) {
        out.x.push_back(double(e.step));
        out.y.emplace_back(e.*number);
    }
    return out;
}

std::string words_of_band(const std::vector<TrainStep>& steps) {
    return std::ssize(steps) > most_points
               ? " A point is a mean over steps, the band their minimum and maximum."
               : "";
}

Figure learning(const TrainResult& result) {
    const Axis steps{.title = "step"};
    Plot loss{.title = "loss", .x = steps, .y = {.title = "L, nats"}};
    loss.series = {by_step("training", result.steps, [](const TrainStep& s) { return s.loss; })};
    Figure out{.name = "learning",
               .title = "Loss",
               .caption =
                   "L is the mean cross-entropy of a step's batch before its update, and of "
                   "held-out samples." +
                   words_of_band(result.steps)};
    if (!result.evaluations.empty())
        loss.series.push_back(by_evaluation("held out", result, &Evaluation::loss));
    out.panels.push_back(loss);
    if (!result.evaluations.empty()) {
        Plot accuracy{.title = "held-out accuracy",
                      .x = steps,
                      .y = {.title = "fraction of targets", .low = 0, .high = 1}};
        accuracy.series = {by_evaluation("held out", result, &Evaluation::accuracy)};
        out.panels.push_back(accuracy);
    }
    out.alt =
        fmt::format("The loss goes from {:.4g} at step 1 to {:.4g} at step {}.",
                    result.steps.front().loss, result.steps.back().loss, result.steps.back().step);
    return out;
}

/// The number of layers with a gradient norm in every step; the last norm is that without a layer.
std::size_t layers_of(const std::vector<TrainStep>& steps) {
    std::size_t least = steps.front().layer_norms.size();
    for (const TrainStep& s : steps) least = std::min(least, s.layer_norms.size());
    return least > 0 ? least - 1 : 0;
}

Figure gradients(const TrainResult& result) {
    const Axis steps{.title = "step"};
    Plot norm{.title = "gradient norm", .x = steps, .y = {.title = "|dL/dw|", .scale = Scale::log}};
    norm.series = {
        by_step("all parameters", result.steps, [](const TrainStep& s) { return s.grad_norm; })};
    Plot layers{.title = "by layer",
                .x = steps,
                .y = {.title = "|dL/dw|", .scale = Scale::log},
                .ordered = true};
    for (std::size_t l = 0; l < layers_of(result.steps); ++l)
        layers.series.push_back(by_step(fmt::format("layer {}", l), result.steps,
                                        [l](const TrainStep& s) { return s.layer_norms[l]; }));
    Plot rate{.title = "learning rate", .x = steps, .y = {.title = "rate", .low = 0}};
    rate.series = {by_step("rate", result.steps, [](const TrainStep& s) { return s.rate; })};
    Figure out{.name = "gradients",
               .title = "Gradients",
               .caption =
                   "Norms of the gradient of the batch's mean loss, before clipping: of all "
                   "parameters, and of those of each layer." +
                   words_of_band(result.steps)};
    out.panels = {norm, rate};
    if (!layers.series.empty()) out.panels.insert(out.panels.begin() + 1, layers);
    const auto [least, most] = std::ranges::minmax(result.steps, {}, &TrainStep::grad_norm);
    out.alt = fmt::format("The gradient norm is between {:.3g} (step {}) and {:.3g} (step {}).",
                          least.grad_norm, least.step, most.grad_norm, most.step);
    return out;
}

/// A metric against the step: a line per layer, of heads their mean.
Plot trajectory(const TableView& rows, std::string_view metric) {
    Plot out{.title = std::string(metric),
             .x = {.title = "step"},
             .y = {.title = std::string(metric)},
             .ordered = true};
    for (const auto& [layer, steps] : rows.course(metric, find_metric(metric)->stage)) {
        Series line{.name = fmt::format("layer {}", layer)};
        for (const auto& [step, point] : steps) {
            if (!point.value) continue;
            line.x.push_back(double(step));
            line.y.push_back(point.value);
        }
        if (!line.x.empty()) out.series.push_back(std::move(line));
    }
    return out;
}

struct TrajectoryFigure {
    const char *name, *title;
    std::vector<std::string_view> metrics;
};

std::vector<Figure> trajectories(const Table& table) {
    const std::vector<TrajectoryFigure> all = {
        {"similarity",
         "Token similarity and escalation through training",
         {metric::t_sim, metric::r, metric::xi_ratio}},
        {"mixing", "Mixing through training", {metric::lambda2_abs, metric::delta}},
        {"norms",
         "Attention and Jacobian norms through training",
         {metric::attn_fro, metric::jac_fro, metric::entropy}}};
    const TableView rows(table);
    std::vector<Figure> out;
    for (const TrajectoryFigure& group : all) {
        Figure figure{
            .name = group.name,
            .title = group.title,
            .caption = fmt::format(
                "On held-out samples, the same at every step{}. docs/metrics.md defines "
                "the metrics.",
                find_metric(group.metrics.front())->of == Of::head ? "; means over heads" : "")};
        for (const std::string_view metric : group.metrics)
            if (Plot plot = trajectory(rows, metric); !plot.series.empty())
                figure.panels.push_back(std::move(plot));
        if (figure.panels.empty()) continue;
        for (const Plot& plot : figure.panels) {
            const Series& last = plot.series.back();
            figure.alt += fmt::format("{} of {} goes from {:.4g} to {:.4g}. ", plot.title,
                                      last.name, *last.y.front(), *last.y.back());
        }
        figure.alt.pop_back();
        out.push_back(std::move(figure));
    }
    return out;
}

/// Empty where there is nothing to say.
std::string fact(const Json& value) {
    if (value.is_null()) return {};
    if (value.is_string()) return value.string();
    if (!value.is_array()) return value.dump();
    std::string out;
    for (const Json& one : value.array()) out += (out.empty() ? "" : ", ") + fact(one);
    return out;
}

}  // namespace

PlainPage training_page(const TrainResult& result) {
    const RunRecord run = result.run;
    PlainPage page{.title = fmt::format("Training of {}", run.model.argument), .lead = run.samples};
    page.facts = {{"parameters", run.parameters ? std::to_string(*run.parameters) : ""},
                  {"device", run.device}};
    const Json settings = run.train ? run.train->json() : Json::Object{};
    for (const auto& [key, value] : settings.object())
        if (std::string text = fact(value); !text.empty())
            page.facts.emplace_back(key, std::move(text));
    for (auto& [name, value] : origin_facts(run)) page.facts.emplace_back(name, std::move(value));
    page.files = {{"steps.csv", "loss, gradient norm and learning rate of every step"},
                  {"gradients.csv", "gradient norms by layer"},
                  {"evaluations.csv", "loss and accuracy of held-out samples"},
                  {"metrics.csv", "probe measurements, by step"},
                  {"checkpoints", "the model at saved steps"},
                  {"run.json", "the settings"}};
    if (result.steps.empty()) return page;
    page.findings = training::findings(result);
    page.figures = {learning(result), gradients(result)};
    for (Figure& figure : trajectories(result.table)) page.figures.push_back(std::move(figure));
    return page;
}

}  // namespace tsdiag
