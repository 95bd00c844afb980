#include <benchmark/benchmark.h>

#include <vector>

#include "tsdiag/ops.hpp"
#include "tsdiag/random.hpp"

/// The kernels that decide the time of a run, at the sizes of BERT-base, in float32.
/// `flops` and `bytes` are rates; entries are those of P.
namespace {

using namespace tsdiag;

Tensor drawn(Shape shape) {
    std::vector<float> values(std::size_t(shape.count()));
    Rng(1).fill_normal(values, 0, 1);
    return Tensor::from_host(cpu(), shape, values, Type::f32);
}

/// C = A B^T for `batch` heads: batch, rows, columns, inner extent.
void product(benchmark::State& state) {
    const Index h = state.range(0), m = state.range(1), n = state.range(2), k = state.range(3);
    const Tensor a = drawn({h, m, k}), b = drawn({h, n, k});
    for (auto _ : state) benchmark::DoNotOptimize(matmul(a, b, Transpose::second));
    state.counters["flops"] = benchmark::Counter(double(2 * h * m * n * k),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(product)
    ->ArgNames({"heads", "m", "n", "k"})
    ->Args({1, 512, 768, 768})   // a projection
    ->Args({1, 512, 3072, 768})  // feed-forward, up
    ->Args({1, 512, 768, 3072})  // feed-forward, down
    ->Args({12, 512, 512, 64})   // Q K^T
    ->Args({12, 1024, 1024, 64})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void softmax(benchmark::State& state) {
    const Index n = state.range(0);
    const Tensor logits = drawn({12, n, n});
    for (auto _ : state) benchmark::DoNotOptimize(softmax_rows(logits, {}));
    state.counters["entries"] =
        benchmark::Counter(double(12 * n * n), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(softmax)->Arg(512)->Arg(1024)->UseRealTime()->Unit(benchmark::kMillisecond);

void statistics(benchmark::State& state) {
    const Index n = state.range(0);
    const Tensor p = softmax_rows(drawn({12, n, n}), {});
    for (auto _ : state) benchmark::DoNotOptimize(row_statistics(p, p, true, 0, {}));
    state.counters["entries"] =
        benchmark::Counter(double(12 * n * n), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(statistics)->Arg(512)->Arg(1024)->UseRealTime()->Unit(benchmark::kMillisecond);

void moments(benchmark::State& state) {
    const Tensor x = drawn({1, state.range(0), 768});
    for (auto _ : state) benchmark::DoNotOptimize(state_moments(x));
    state.SetBytesProcessed(state.iterations() * x.shape().count() * 4);
}
BENCHMARK(moments)->Arg(512)->UseRealTime()->Unit(benchmark::kMicrosecond);

void normal_numbers(benchmark::State& state) {
    std::vector<float> values(std::size_t(state.range(0)));
    for (auto _ : state) Rng(1).fill_normal(values, 0, 0.02);
    state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(normal_numbers)->Arg(768 * 3072)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
