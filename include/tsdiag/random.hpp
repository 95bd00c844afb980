#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

/// Counter-based random numbers: Philox4x32-10 [Salmon et al., SC 2011].  Element i of stream s of
/// seed k is a pure function of (k, s, i): results depend on no thread, order or device.
namespace tsdiag {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

class Rng {
  public:
    explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}
    /// An independent generator for a part of the work: a trial, a sample, a tensor by name.
    Rng fork(std::uint64_t part) const;
    Rng fork(std::string_view part) const;

    std::uint64_t seed() const { return seed_; }
    std::uint64_t stream() const { return stream_; }

    double uniform();                      ///< next number in (0, 1), 52 random bits
    double normal();                       ///< next standard normal (Box-Muller)
    std::uint64_t below(std::uint64_t n);  ///< next integer in [0, n), n > 0, unbiased

    // Whole arrays, from the beginning of this stream, in parallel.  They do not move the position
    // of `uniform`.
    void fill_uniform(std::span<float> out, double low, double high) const;
    void fill_uniform(std::span<double> out, double low, double high) const;
    void fill_normal(std::span<float> out, double mean, double deviation) const;
    void fill_normal(std::span<double> out, double mean, double deviation) const;

  private:
    std::uint64_t seed_, stream_, position_ = 0;
};

}  // namespace tsdiag
