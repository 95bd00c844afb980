#include "tsdiag/random.hpp"

#include <algorithm>

#include "cpu_kernels.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/formulas.hpp"

namespace tsdiag {
namespace {

std::uint64_t mix(std::uint64_t x) {  // SplitMix64's finaliser: a bijection that spreads every bit
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

/// Offset of single draws in a stream, far beyond the blocks of whole arrays.
constexpr std::uint64_t single_draws = std::uint64_t{1} << 62;

using Fill = void (*)(std::uint64_t, std::uint64_t, std::uint64_t, Index, double*);

template <class T>
void fill(Fill draw, std::uint64_t seed, std::uint64_t stream, std::span<T> out, double offset,
          double factor) {
    constexpr Index chunk = 2048;  // blocks
    const Index count = Index(out.size());
    const Index blocks = (count + 1) / 2;
#pragma omp parallel for schedule(static) if (blocks > 8 * chunk)  // else waking threads costs more
    for (Index first = 0; first < blocks; first += chunk) {
        double buffer[2 * chunk];
        const Index here = std::min(chunk, blocks - first);
        draw(seed, stream, std::uint64_t(first), here, buffer);
        const Index end = std::min(count, 2 * (first + here));
        for (Index i = 2 * first; i < end; ++i)
            out[std::size_t(i)] = T(offset + factor * buffer[i - 2 * first]);
    }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c,
                                    std::array<std::uint32_t, 2> k) {
    philox_block(c[0], c[1], c[2], c[3], k[0], k[1]);
    return c;
}

Rng Rng::fork(std::uint64_t part) const { return Rng(seed_, mix(mix(stream_) ^ part)); }

Rng Rng::fork(std::string_view part) const {
    std::uint64_t h = 0xCBF29CE484222325U;  // FNV-1a
    for (const char c : part) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    return fork(h);
}

double Rng::uniform() {
    double pair[2];
    kernels::table().uniform(seed_, stream_, single_draws + position_ / 2, 1, pair);
    return pair[position_++ % 2];
}

double Rng::normal() {
    double pair[2];
    kernels::table().normal(seed_, stream_, 2 * single_draws + position_ / 2, 1, pair);
    return pair[position_++ % 2];
}

std::uint64_t Rng::below(std::uint64_t n) {
    check(n > 0, "Rng::below(0)");
    const std::uint64_t limit =
        UINT64_MAX - UINT64_MAX % n;  // values from here on would favour small results
    for (;;) {
        const std::uint64_t block = 3 * single_draws + position_++;
        const auto word = philox({std::uint32_t(block), std::uint32_t(block >> 32),
                                  std::uint32_t(stream_), std::uint32_t(stream_ >> 32)},
                                 {std::uint32_t(seed_), std::uint32_t(seed_ >> 32)});
        const std::uint64_t x = std::uint64_t{word[1]} << 32 | word[0];
        if (x < limit) return x % n;
    }
}

void Rng::fill_uniform(std::span<float> out, double low, double high) const {
    fill(kernels::table().uniform, seed_, stream_, out, low, high - low);
}
void Rng::fill_uniform(std::span<double> out, double low, double high) const {
    fill(kernels::table().uniform, seed_, stream_, out, low, high - low);
}
void Rng::fill_normal(std::span<float> out, double mean, double deviation) const {
    fill(kernels::table().normal, seed_, stream_, out, mean, deviation);
}
void Rng::fill_normal(std::span<double> out, double mean, double deviation) const {
    fill(kernels::table().normal, seed_, stream_, out, mean, deviation);
}

}  // namespace tsdiag
