#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tsdiag/model.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag::training {

/// A sample with what is to be learnt of it.  A class label has no classifier yet.
struct Example {
    Input input;
    Loss loss;
};

/// How a model can be used for data.
struct Fit {
    const ModelSpec& spec;
    const Backend& backend;
    Type type;
    Index tokens = 0;  ///< of a sample of text
};

/// Where samples come from.  Sample i of a run is a pure function of the seed and i, so that a
/// resumed run sees what an uninterrupted one would.
class Data {
  public:
    virtual ~Data() = default;
    virtual std::string description() const = 0;
    virtual Index vocabulary() const { return 0; }  ///< 0: no tokens
    virtual Index classes() const { return 0; }     ///< 0: no labels
    virtual Index held_out() const = 0;             ///< samples that training never sees
    /// What the ids stand for, for a file beside the model; null where they are bytes or nothing.
    virtual Json words() const { return {}; }
    /// Throws `UsageError` where the model cannot take the data.
    virtual void require(const Fit& fit) const = 0;
    virtual Example training(const Fit& fit, const Rng& seed, Index i) const = 0;
    virtual Example held_out(const Fit& fit, const Rng& seed, Index i) const = 0;
};

/// `text` as `TrainOptions::data` has it, `loss` as in `TrainOptions::loss`, settled here where it
/// is empty.  Throws `UsageError` for what is not known, `FormatError` for files that cannot be
/// read.
std::unique_ptr<Data> open_data(const std::string& text, std::string& loss);

/// Of the file in "text:FILE"; empty where there is none.
std::string digest_of_file(const std::string& data);

// The kinds, each in a file of its own.
std::unique_ptr<Data> text_data(const std::string& file, bool characters, bool masked);
std::unique_ptr<Data> markov_data(Index symbols, bool masked);
std::unique_ptr<Data> sequence_data(bool reversed, Index symbols);
std::unique_ptr<Data> image_data(const std::string& directory);
std::unique_ptr<Data> pattern_data(Index classes);

/// Bytes that a file of samples may have.
inline constexpr std::uint64_t longest_data = std::uint64_t{1} << 40;
/// Throws `UsageError` where the model has no such vocabulary, or, for lm, a token sees the next.
void require_tokens(const Fit& fit, Index vocabulary, bool causal);
/// (channels, height, width) from bytes of that order, in [-1, 1]; one channel is repeated.
Tensor image_tensor(const Fit& fit, std::span<const std::uint8_t> pixels, Index channels);

}  // namespace tsdiag::training
