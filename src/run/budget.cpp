#include "budget.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "tsdiag/model.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

/// Elements of the parameters of the largest layer.
Index largest_layer(const ModelSpec& spec) {
    std::map<std::string, Index> layers;
    Index largest = 0;
    for (const Parameter& parameter : parameters(spec)) {
        if (!parameter.name.starts_with("layer.")) continue;
        const std::string layer = parameter.name.substr(0, parameter.name.find('.', 6));
        largest = std::max(largest, layers[layer] += parameter.shape.count());
    }
    return largest;
}

/// FLOP/s of a product of the size of a layer's, on this machine.
double product_rate(const Backend& backend, Type type) {
    constexpr Index side = 512, repeats = 3;
    const std::vector<double> ones(std::size_t(side * side), 1.0);
    const Tensor a =
        Tensor::from_host(backend, {1, side, side}, std::span<const double>(ones), type);
    double best = 1;  // seconds
    for (Index i = 0; i < repeats; ++i) {
        const auto start = std::chrono::steady_clock::now();
        matmul(a, a);
        best = std::min(
            best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return 2.0 * side * side * side / best;
}

}  // namespace

Index resident_bytes(const ModelSpec& spec, Index tokens, Index samples, Type type) {
    Index inner = spec.width;
    for (const BlockSpec& block : spec.blocks)
        inner =
            std::max({inner, block.ffn * (block.gated ? 3 : 2), 4 * block.heads * block.head_dim});
    const Index states = tokens * spec.width * (samples + 4), buffers = tokens * inner;
    return (largest_layer(spec) + states + buffers) * Index(bytes_of(type));
}

double estimate_seconds(const ModelSpec& spec, Index tokens, Index runs, const Backend& backend,
                        Type type, bool rows, bool spectra) {
    const double n = double(tokens), rate = product_rate(backend, type);
    double heads = 0;
    for (const BlockSpec& block : spec.blocks) heads += double(block.heads);
    constexpr double seconds_an_entry = 1.5e-9;  // one pass over P with its logarithms
    constexpr double products_a_spectrum = 120;  // P x of both spectra, at the speed of memory
    constexpr double seconds_a_product_entry = 2.5e-10;
    double seconds = forward_flops(spec, tokens) / rate;
    if (rows) seconds += heads * n * n * seconds_an_entry;
    if (spectra) seconds += heads * n * n * products_a_spectrum * seconds_a_product_entry;
    return seconds * double(runs);
}

}  // namespace tsdiag
