#include <algorithm>
#include <map>

#include "gradient.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/model.hpp"

/// A step of training: samples forward and back, their activations kept.
namespace tsdiag {
namespace {

using model::TrackedWeights;

/// Dropout: 0 with probability p, else times 1 / (1 - p), from each sample's own generator.
Tensor drop(const Tensor& x, double p, std::span<const Rng> rngs,
            const std::function<Rng(const Rng&)>& place) {
    std::vector<Tensor> above;
    for (const Rng& rng : rngs)
        above.push_back(random_tensor(x.backend(), {1, x.rows(), x.cols()}, x.type(), Law::uniform,
                                      place(rng), -p, 1));
    return multiply(x, scale(map(Unary::step, concat_batches(above)), 1 / (1 - p)));
}

/// The derivatives of `value` by the used parameters of `tracked`, each whole and once.
std::vector<std::pair<std::string, Tensor>> derivatives(const Tensor& value,
                                                        const TrackedWeights& tracked,
                                                        const Weights& weights,
                                                        const Tensor& classifier) {
    std::vector<Tensor> wrt;
    for (const TrackedWeights::Used& u : tracked.used()) wrt.push_back(u.value);
    if (classifier.defined()) wrt.push_back(classifier);
    const std::vector<Tensor> found = grad(value, affine(value.detached(), 0, 1), wrt);
    std::vector<std::pair<std::string, Tensor>> out;
    std::map<std::string, std::size_t> index;
    for (std::size_t i = 0; i < tracked.used().size(); ++i) {
        const auto& [name, variable, rows] = tracked.used()[i];
        if (model::constant_in_sweep(name)) continue;
        const Tensor g =
            rows.empty() ? found[i] : scatter_add_rows(found[i], rows, weights.get(name).rows());
        const auto [at, fresh] = index.emplace(name, out.size());
        if (fresh)
            out.emplace_back(name, g);
        else
            out[at->second].second = add(out[at->second].second, g);
    }
    if (classifier.defined()) out.emplace_back("classifier", found.back());
    return out;
}

}  // namespace

StepResult Model::step(std::span<const Input> inputs, std::span<const Loss> losses,
                       const StepSettings& settings) const {
    const bool drops = settings.dropout > 0;
    check(!inputs.empty() && inputs.size() == losses.size(), "a loss a sample");
    for (const Loss& loss : losses)
        check(loss.kind == losses.front().kind &&
                  loss.classifier.defined() == losses.front().classifier.defined() &&
                  (!loss.classifier.defined() ||
                   loss.classifier.view().data == losses.front().classifier.view().data),
              "losses of one kind, by one classifier");
    check(!drops || settings.rngs.size() == inputs.size(), "random numbers a sample");
    const TrackedWeights tracked(*weights_);
    const Weights& weights = settings.gradients ? static_cast<const Weights&>(tracked) : *weights_;
    std::vector<Loss> own(losses.begin(), losses.end());
    Tensor classifier, value;
    const bool pairs = own.front().kind == Loss::Kind::pairs;
    model::FiniteStates finite;
    std::vector<Tensor> means;  // of pairs, whose samples may differ in length
    if (settings.gradients && (pairs || own.front().kind == Loss::Kind::classes))
        classifier = variable(own.front().classifier);
    if (classifier.defined())
        for (Loss& loss : own) loss.classifier = classifier;
    model::Hits hits;
    for (std::size_t at = 0, count = 0; at < inputs.size(); at += count) {
        const auto rest = inputs.subspan(at);
        count = std::size_t(model::batchable(rest, std::ssize(rest)));
        const auto rngs = std::span(settings.rngs).subspan(drops ? at : 0, drops ? count : 0);
        const auto dropped = [&](const Tensor& x, const std::function<Rng(const Rng&)>& place) {
            return drops ? drop(x, settings.dropout, rngs, place) : x;
        };
        model::Batch batch =
            model::embed(spec_, weights, rest.first(count), *backend_, type_, false);
        batch.x = dropped(batch.x, [](const Rng& rng) { return rng.fork("embed"); });
        for (Index l = 0; l < std::ssize(spec_.blocks); ++l) {
            const model::LayerSteps steps = model::load_layer(weights, spec_, l);
            model::LayerRun run{.layer = l, .block = spec_.blocks[std::size_t(l)], .steps = steps};
            run.finite = &finite;
            run.rng = settings.attention_rng;
            run.update = settings.update;
            if (drops)
                run.dropout = [&](const Tensor& branch, std::string_view stage) {
                    return dropped(branch, [&](const Rng& rng) {
                        return rng.fork(std::uint64_t(l)).fork(stage);
                    });
                };
            Tensor memory;
            if (batch.memory.defined()) {
                const model::LayerSteps constant = model::load_layer(*weights_, spec_, l);
                memory = model::next_memory({.layer = l,
                                             .block = run.block,
                                             .steps = constant,
                                             .rng = run.rng,
                                             .update = run.update},
                                            batch);
            }
            Tensor y = model::apply_layer(run, batch);
            batch =
                model::after_layer(run.block, std::move(batch), std::move(y), std::move(memory));
        }
        const Tensor y = model::last_state(spec_, weights, batch.x);
        if (pairs) {
            means.push_back(model::mean_rows(y));
            continue;
        }
        const Tensor part =
            model::loss_of(spec_, weights, y, std::span(std::as_const(own)).subspan(at, count),
                           settings.hits ? &hits : nullptr);
        value = value.defined() ? add(value, part) : part;
    }
    if (pairs)
        value = model::loss_of_pairs(concat_rows(means), own, settings.hits ? &hits : nullptr);
    finite.require();
    StepResult result{.loss = value.item(),
                      .predictions = std::ssize(hits),
                      .correct = std::ranges::count(hits, true),
                      .hit = std::move(hits)};
    if (settings.gradients) result.gradients = derivatives(value, tracked, *weights_, classifier);
    return result;
}

}  // namespace tsdiag
