#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "gradient.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

/// A step of training: one sample forward and back, its activations kept.
namespace tsdiag {
namespace {

using model::TrackedWeights;

/// Times 0 with probability p, else 1 / (1 - p).
Tensor drop(const Tensor& x, double p, const Rng& rng) {
    const Tensor above = random_tensor(x.backend(), x.shape(), x.type(), Law::uniform, rng, -p, 1);
    return multiply(x, scale(map(Unary::step, above), 1 / (1 - p)));
}

/// The derivatives of `value` by what was used of `tracked`, each parameter whole and once.
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

Index fitting_tokens(const ModelSpec& spec, Index most) {
    const Index longest = spec.max_tokens > 0 ? std::min(spec.max_tokens, most) : most;
    Index step = 1;
    for (const BlockSpec& b : spec.blocks)
        if (const auto multiple = attention(b.attention).token_multiple)
            step = std::min(std::lcm(step, multiple(b.attention_options)), longest + 1);
    return step > longest ? longest : longest / step * step;
}

Index tokens_of(const ModelSpec& spec, const Input& input) {
    return std::max<Index>({1, std::ssize(input.ids),
                            input.hidden.defined() ? input.hidden.rows() : 0,
                            input.embeddings.defined() ? input.embeddings.rows() : 0,
                            input.image.defined() ? spec.patches() + spec.prefix_tokens : 0});
}

StepResult Model::step(const Input& input, const Loss& given, const StepSettings& settings) const {
    const TrackedWeights tracked(*weights_);
    const Weights& weights = settings.gradients ? static_cast<const Weights&>(tracked) : *weights_;
    const bool drops = settings.dropout > 0;
    model::Sample sample = model::embed(spec_, weights, input, *backend_, type_, false);
    if (drops) sample.x = drop(sample.x, settings.dropout, settings.rng.fork("embed"));
    for (Index l = 0; l < std::ssize(spec_.blocks); ++l) {
        const model::LayerWeights parameters = model::load_layer(weights, spec_, l);
        model::LayerRun run{
            .layer = l, .block = spec_.blocks[static_cast<std::size_t>(l)], .weights = parameters};
        if (drops)
            run.dropout = [&](const Tensor& branch, std::string_view stage) {
                return drop(branch, settings.dropout,
                            settings.rng.fork(static_cast<std::uint64_t>(l)).fork(stage));
            };
        sample.x = model::apply_layer(run, sample);
    }
    Loss loss = given;
    if (settings.gradients && loss.kind == Loss::Kind::classes)
        loss.classifier = variable(given.classifier);
    model::Hits hits;
    const Tensor value = model::loss_of(spec_, weights, model::last_state(spec_, weights, sample.x),
                                        loss, settings.hits ? &hits : nullptr);
    StepResult result{
        .loss = value.item(), .predictions = hits.predictions, .correct = hits.correct};
    if (settings.gradients)
        result.gradients = derivatives(value, tracked, *weights_,
                                       loss.classifier.tracked() ? loss.classifier : Tensor());
    return result;
}

}  // namespace tsdiag
