#include "budget.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>

#include "tsdiag/model.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

/// FLOP/s of a product of the size of a layer's, on this machine.
double product_rate(const Backend& backend, Type type) {
    constexpr Index side = 512, repeats = 3;
    constexpr double slow = 0.1;  // seconds: more of them tell nothing new
    const std::vector<double> ones(std::size_t(side * side), 1.0);
    const Tensor a =
        Tensor::from_host(backend, {1, side, side}, std::span<const double>(ones), type);
    double best = 1;  // seconds
    for (Index i = 0; i < repeats && (i == 0 || best < slow); ++i) {
        const auto start = std::chrono::steady_clock::now();
        matmul(a, a);
        backend.synchronise();
        best = std::min(
            best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return 2.0 * side * side * side / best;
}

}  // namespace

Extras extras_of(const std::vector<std::string>& metrics, bool rows, Index tokens) {
    constexpr Index largest_for_dobrushin = 2048;  // unless it is asked for by name
    const auto any = [&](std::initializer_list<std::string_view> names) {
        return std::ranges::find_first_of(metrics, names) != metrics.end();
    };
    return {
        .rows = rows,
        .spectra = any({"lambda2_abs", "spectral_gap", "gap", "delta", "est1", "est2", "delta_pi"}),
        .dobrushin = any({"dobrushin"}) && tokens <= largest_for_dobrushin,
        .jacobians = any({"jac_q_fro", "jac_k_fro"})};
}

double estimate_seconds(const ModelSpec& spec, Index tokens, Index runs, const Backend& backend,
                        Type type, const Extras& extras) {
    // Seconds of one core, for an entry of P: measured at 512 tokens and 64 columns a head.
    constexpr double pass = 3e-9, spectra = 6e-8, jacobians = 2.9e-7, dobrushin = 5e-10;
    constexpr double draw = 3e-9;  // a number
    const double n = double(tokens);
    double heads = 0;
    for (const BlockSpec& block : spec.blocks) heads += double(block.heads);
    double an_entry = 0;
    if (extras.rows) an_entry += pass;
    if (extras.spectra) an_entry += spectra;
    if (extras.jacobians) an_entry += jacobians;
    if (extras.dobrushin) an_entry += dobrushin * n;
    const double passes = extras.gradients ? 5 : 1;  // forward twice, each layer again, and back
    const double seconds =
        passes * forward_flops(spec, tokens) / product_rate(backend, type) +
        (heads * n * n * an_entry + extras.drawn * draw) / double(omp_get_max_threads());
    return seconds * double(runs);
}

}  // namespace tsdiag
