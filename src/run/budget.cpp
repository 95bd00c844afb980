#include "budget.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tsdiag/ops.hpp"
#include "tsdiag/probe.hpp"
#include "tsdiag/spec.hpp"

namespace tsdiag {
namespace {

/// FLOP/s of a product of two square matrices, measured on this machine: of a layer's size, or of
/// about `flops` operations where a run has no more.
double product_rate(const Backend& backend, Type type, double flops) {
    const Index side = Index(std::clamp(std::cbrt(flops / 2), 32.0, 512.0));
    constexpr Index repeats = 3;
    constexpr double slow = 0.1;  // seconds: enough for a measurement
    const std::vector<double> ones(std::size_t(side * side), 1.0);
    const Tensor a =
        Tensor::from_host(backend, {1, side, side}, std::span<const double>(ones), type);
    if (!backend.host_memory()) {  // loads the code of the device's library
        matmul(a, a);
        backend.synchronise();
    }
    double best = 1;  // seconds
    for (Index i = 0; i < repeats && (i == 0 || best < slow); ++i) {
        const auto start = std::chrono::steady_clock::now();
        matmul(a, a);
        backend.synchronise();
        best = std::min(
            best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return 2 * std::pow(double(side), 3) / best;
}

}  // namespace

ExtraCosts extra_costs(const std::vector<std::string>& wanted, bool rows, Index tokens) {
    ExtraCosts costs{.rows = rows};
    for (const ProbeEntry* entry : probes()) {
        double most = 0;  // metrics of one probe share their work
        for (const Metric& m : entry->metrics)
            if (std::ranges::find(wanted, m.name) != wanted.end() &&
                (m.most_tokens == 0 || tokens <= m.most_tokens))
                most = std::max(most, m.seconds + m.seconds_times_tokens * double(tokens));
        costs.an_entry += most;
    }
    return costs;
}

double estimate_seconds(const ModelSpec& spec, Index tokens, Index runs, const Backend& backend,
                        Type type, const ExtraCosts& costs) {
    constexpr double pass = 3e-9;  // seconds per entry of P on one core, measured
    constexpr double draw = 3e-9;  // seconds per random number
    double entries = 0;            // of P
    auto n = double(tokens);
    for (const BlockSpec& block : spec.blocks) {
        const AttentionSpec& a = block.attention;
        const double side = a.channels ? double(a.head_dim) : n;
        entries += double(a.heads) * side * side;
        n = block.merge.tokens_behind(n);
    }
    const double an_entry = costs.an_entry + (costs.rows ? pass : 0);
    const double passes = costs.gradients ? 5 : 1;  // forward twice, each layer again, and back
    const double flops = passes * forward_flops(spec, tokens);
    const double seconds =
        flops / product_rate(backend, type, flops * double(runs)) +
        (entries * an_entry + costs.drawn * draw) / double(omp_get_max_threads());
    return seconds * double(runs);
}

}  // namespace tsdiag
