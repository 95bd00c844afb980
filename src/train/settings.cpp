#include "settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/probe.hpp"

namespace tsdiag::training {

void require_sane(const TrainOptions& o) {
    const auto refuse = [](const std::string& what) { throw UsageError(what); };
    if (o.steps < 1) refuse("--steps: expected 1 or more.");
    if (!(o.epochs >= 0)) refuse("--epochs: expected 0 (use --steps) or more.");
    if (o.batch < 1) refuse("--batch: expected 1 or more.");
    if (!(o.dropout >= 0 && o.dropout < 1))
        refuse(fmt::format("--dropout {}: expected a fraction from 0 to below 1.", o.dropout));
    if (!(o.schedule.rate > 0)) refuse("--rate: expected a number above 0.");
    if (!(o.clip >= 0)) refuse("--clip: expected 0 (no clipping) or more.");
    if (!(o.adam.beta1 >= 0 && o.adam.beta1 < 1 && o.adam.beta2 >= 0 && o.adam.beta2 < 1))
        refuse("--beta1, --beta2: expected numbers from 0 to below 1.");
    if (!(o.adam.decay >= 0)) refuse("--weight-decay: expected 0 or more.");
    if (!(o.adam.eps > 0)) refuse("--eps: expected a number above 0.");
    if (!(o.schedule.floor >= 0 && o.schedule.floor <= 1))
        refuse("--floor: expected a fraction of the rate, from 0 to 1.");
    if (!(o.schedule.factor > 0)) refuse("--factor: expected a number above 0.");
    resolve_metrics(o.probes);
    if (o.resume && o.directory.empty()) refuse("--resume: there is no directory to resume from.");
}

namespace {

/// Lower bound on the bytes that a step keeps of one sample.
double kept_bytes(const ModelSpec& spec, Index tokens) {
    double n = double(tokens), d = double(spec.width);
    double kept = n * double(spec.embedding.vocabulary);
    for (const BlockSpec& b : spec.blocks) {
        const double columns = double(b.attention.heads) *
                               double(std::max(b.attention.head_dim, b.attention.value_columns()));
        // P with its logits, and the activations kept for the backward pass.
        const Index window = b.attention.windows.side;
        const double seen = window > 0 ? double(window * window) : n;
        kept += 2 * double(b.attention.heads) * n * seen +
                n * (4 * d + 3 * columns + (b.ffn.gated ? 3 : 2) * double(b.ffn.width));
        n = b.merge.tokens_behind(n);
        d = double(b.merge.width_behind(Index(d)));
    }
    return sizeof(float) * kept;
}

}  // namespace

Index samples_together(const ModelSpec& spec, Index tokens, Index batch, const Backend& backend) {
    constexpr Index enough_rows = 512;  // of a product, for one core
    constexpr Index groups = 8;         // at least so many, for as many cores
    constexpr double share = 0.25;      // of a device's memory: kept_bytes is a lower bound
    if (backend.host_memory())
        return std::clamp<Index>(std::min(enough_rows / tokens, batch / groups), 1, batch);
    const double most = share * double(backend.memory()) / kept_bytes(spec, tokens);
    return std::clamp<Index>(Index(std::min(most, double(batch))), 1, batch);
}

void require_memory(const ModelSpec& spec, Index tokens, Index samples, const Backend& backend) {
    constexpr double copies = 5;  // of the parameters: gradients and their sum, two moments
    double count = 0;
    for (const Parameter& p : parameters(spec)) count += double(p.shape.count());
    const double bytes =
        sizeof(float) * copies * count + double(samples) * kept_bytes(spec, tokens);
    constexpr double gib = double(Index(1) << 30);
    const double most = double(backend.memory());
    if (bytes > most)
        throw UsageError(fmt::format(
            "--tokens {}: a step of this model, with {} sample{} at a time, needs at least {:.1f} "
            "GiB, but this {} has {:.1f}; pass fewer --tokens or --threads, or a smaller model.",
            tokens, samples, samples == 1 ? "" : "s", bytes / gib,
            backend.host_memory() ? "machine" : "device", most / gib));
}

RunRecord::Training identity_of(const TrainOptions& o, const ModelSpec& spec,
                                const std::string& loss, const std::string& contents,
                                Index tokens) {
    RunRecord::Training out;
    out.model = o.subject.model;
    if (!o.subject.config.empty()) out.config = o.subject.config;
    out.heads = o.subject.heads;
    out.width = o.subject.width;
    const std::set<std::string> ignored(o.subject.ignore.begin(), o.subject.ignore.end());
    if (!ignored.empty()) out.ignore.emplace(ignored.begin(), ignored.end());  // in one order
    out.map = o.subject.map;
    out.adapter = o.subject.adapter;
    out.base = o.subject.base;
    out.architecture = sha256(spec.computation().dump());
    out.data = o.data;
    out.contents = contents;
    out.loss = loss;
    out.tokens = tokens;
    out.batch = o.batch;
    out.steps = o.steps;
    out.schedule = name(o.schedule.kind);
    out.rate = o.schedule.rate;
    out.warmup = o.schedule.warmup;
    out.floor = o.schedule.floor;
    if (o.schedule.length > 0) out.length = o.schedule.length;
    out.milestones = o.schedule.milestones;
    out.factor = o.schedule.factor;
    out.beta1 = o.adam.beta1;
    out.beta2 = o.adam.beta2;
    out.eps = o.adam.eps;
    out.decay = o.adam.decay;
    out.clip = o.clip;
    out.dropout = o.dropout;
    out.seed = o.seed;
    // Older states, which lack it, go on from other draws.
    if (spec.provenance.draws)
        out.draws = fmt::format("of seed {} after {} updates", spec.provenance.draws->seed,
                                spec.provenance.draws->updates);
    else if (spec.draws_at_random())
        out.draws = "by seed and update";
    out.eval_every = o.eval_every;
    out.eval_samples = o.eval_samples;
    out.probe_every = o.probe_every;
    out.probe_samples = o.probe_samples;
    out.probes = o.probes;
    return out;
}

}  // namespace tsdiag::training
