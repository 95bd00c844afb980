#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tsdiag/model.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag::training {

/// A sample with its targets.  For class labels the classifier is added later.
struct Example {
    Input input;
    Loss loss;
};

/// The model that the data are used with.
struct Fit {
    const ModelSpec& spec;
    const Backend& backend;
    Type type;
    Index tokens = 0;  ///< per sample of text
};

/// The source of samples.  Sample i of a run is a pure function of the seed and i, so that a
/// resumed run sees the same samples as an uninterrupted one.
class Data {
  public:
    virtual ~Data() = default;
    virtual std::string description() const = 0;
    virtual Index vocabulary() const { return 0; }  ///< 0: no tokens
    virtual Index classes() const { return 0; }     ///< 0: no labels
    virtual Index held_out() const = 0;             ///< samples not used for training
    /// The meaning of the ids, for a file beside the model; null where they are bytes or nothing.
    virtual Json words() const { return {}; }
    /// Throws `UsageError` where the model cannot take the data.
    virtual void require(const Fit& fit) const = 0;
    virtual Example training(const Fit& fit, const Rng& seed, Index i) const = 0;
    virtual Example held_out(const Fit& fit, const Rng& seed, Index i) const = 0;
};

/// `text` as in `TrainOptions::data`, `loss` as in `TrainOptions::loss`, set here if empty.  Throws
/// `UsageError` for unknown kinds, `FormatError` for files that cannot be read.
std::unique_ptr<Data> open_data(const std::string& text, std::string& loss);

/// The digest of the file in "text:FILE"; empty where there is none.
std::string digest_of_file(const std::string& data);

// The kinds of data, one file each.
std::unique_ptr<Data> text_data(const std::string& file, bool characters, bool masked);
std::unique_ptr<Data> markov_data(Index symbols, bool masked);
std::unique_ptr<Data> sequence_data(bool reversed, Index symbols);
std::unique_ptr<Data> image_data(const std::string& directory);
std::unique_ptr<Data> pattern_data(Index classes);

/// Largest size of a file of samples, in bytes.
inline constexpr std::uint64_t longest_data = std::uint64_t{1} << 40;
/// Throws `UsageError` for a vocabulary that does not fit, or, for lm, a model that is not causal.
void require_tokens(const Fit& fit, Index vocabulary, bool causal);
/// (channels, height, width) from bytes in that order, in [-1, 1]; one channel is repeated.
Tensor image_tensor(const Fit& fit, std::span<const std::uint8_t> pixels, Index channels);

}  // namespace tsdiag::training
