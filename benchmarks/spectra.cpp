#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "tsdiag/attention.hpp"

/// |lambda_2| and delta of 144 heads in float32, twelve at a time: what a layer of BERT-base holds.
namespace {

using namespace tsdiag;

constexpr Index layers = 12, heads = 12, width = 64;

Tensor drawn(Shape shape, std::uint64_t seed, double deviation) {
    std::vector<float> values(std::size_t(shape.count()));
    Rng(seed).fill_normal(values, 0, deviation);
    return Tensor::from_host(cpu(), shape, values, Type::f32);
}

/// Heads with random weights: queries and keys of normalised tokens, logits of
/// standard deviation 768 * 0.02^2 = 0.31.
std::unique_ptr<AttentionOperator> drawn_head(Index n, std::uint64_t seed) {
    const double deviation = std::sqrt(768.0) * 0.02;
    AttentionInput in;
    in.q = drawn({heads, n, width}, 2 * seed, deviation);
    in.k = drawn({heads, n, width}, 2 * seed + 1, deviation);
    in.scale = 1 / std::sqrt(double(width));
    return attention("softmax").make(in);
}

/// Independent logits: no eigenvalue stands out, which is the hardest case.
std::unique_ptr<AttentionOperator> independent_head(Index n, std::uint64_t seed) {
    return given_attention(softmax_rows(drawn({heads, n, n}, seed, 1), {}), false, "");
}

template <class Make>
void spectra(benchmark::State& state, const Make& make, const char* route) {
    constexpr double memory = 2e9;
    const Index n = state.range(0);
    std::vector<std::unique_ptr<AttentionOperator>> all;
    for (Index layer = 0; layer < layers; ++layer) {
        all.push_back(make(n, std::uint64_t(layer)));
        all.back()->matrix();
    }
    double products = 0, uncertain = 0;
    for (auto _ : state) {
        products = uncertain = 0;
        for (const auto& op : all)
            for (const auto& found : {second_eigenvalue(*op, memory, usual_accuracy, route),
                                      centred_norm(*op, memory, usual_accuracy, route)})
                for (const Estimate& e : found) {
                    products += double(e.iterations);
                    uncertain += e.converged ? 0 : 1;
                }
    }
    state.counters["products"] = products / double(layers * heads);  // a head, of both
    state.counters["uncertain"] = uncertain;
}

BENCHMARK_CAPTURE(spectra, drawn, drawn_head, "auto")
    ->Arg(512)
    ->Arg(1024)
    ->UseRealTime()
    ->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(spectra, drawn_by_the_library, drawn_head, "spectra")
    ->Arg(512)
    ->Arg(1024)
    ->UseRealTime()
    ->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(spectra, independent, independent_head, "auto")
    ->Arg(512)
    ->Arg(1024)
    ->UseRealTime()
    ->Unit(benchmark::kSecond);
BENCHMARK_CAPTURE(spectra, independent_by_the_library, independent_head, "spectra")
    ->Arg(512)
    ->Arg(1024)
    ->UseRealTime()
    ->Unit(benchmark::kSecond);

}  // namespace
