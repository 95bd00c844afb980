#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tsdiag/input.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::training {

/// A sample with its targets.  For class labels the classifier is added later.
struct Example {
    Input input;
    Loss loss;
    std::optional<Input> second = {};  ///< of a pair
};

/// The model that the data are used with.
struct Fit {
    const ModelSpec& spec;
    const Backend& backend;
    Type type;
    Index tokens = 0;  ///< per sample of text
};

/// The source of samples.  Sample i of a run is a pure function of the seed and i, so that a
/// resumed run sees the same samples as an uninterrupted one.  Samples are made by several threads
/// at once.
class Data {
  public:
    virtual ~Data() = default;
    virtual std::string description() const = 0;
    virtual Index vocabulary() const { return 0; }  ///< different symbols; 0: no tokens
    virtual Index classes() const { return 0; }     ///< 0: no labels
    virtual bool pairs() const { return false; }    ///< a sample is two inputs with one label
    virtual Index size() const { return 0; }        ///< samples of an epoch; 0: without end
    virtual Index held_out() const = 0;             ///< samples not used for training
    /// Of a sample, for a model that takes the data.
    virtual Index fewest_tokens(const Fit& fit) const { return fit.tokens; }
    /// The meaning of the model's ids, for a file beside it; null where they are bytes or nothing.
    virtual Json words(const ModelSpec&) const { return {}; }
    /// Throws `UsageError` where the model cannot take the data.
    virtual void require(const Fit& fit) const = 0;
    /// Ids are those of the model (`symbol_id`).
    Example training(const Fit& fit, const Rng& seed, Index i) const;
    Example held_out(const Fit& fit, const Rng& seed, Index i) const;

  private:
    // ids from 0 to below `vocabulary()`
    virtual Example training_sample(const Fit& fit, const Rng& seed, Index i) const = 0;
    virtual Example held_out_sample(const Fit& fit, const Rng& seed, Index i) const = 0;
};

/// Samples that are drawn, without end.
class DrawnData : public Data {
  public:
    Index held_out() const final { return Index{1} << 20; }

  private:
    /// `seed`: of the whole set; `rng`: of the sample.
    virtual Example drawn(const Fit& fit, const Rng& seed, Rng rng) const = 0;
    Example training_sample(const Fit& fit, const Rng& seed, Index i) const final {
        return drawn(fit, seed, seed.fork(std::uint64_t(i)));
    }
    Example held_out_sample(const Fit& fit, const Rng& seed, Index i) const final {
        return drawn(fit, seed, seed.fork("held out").fork(std::uint64_t(i)));
    }
};

/// What is opened: "KIND:ARGUMENT", or a folder.
struct DataRequest {
    std::string text;      ///< as it was written, for messages
    std::string argument;  ///< behind the colon, or the folder; may be empty
    bool masked = false;   ///< learnt by mlm

    /// The number behind the colon, or `fallback`; throws `UsageError` beyond `least` and `most`.
    Index number(Index fallback, Index least, Index most) const;
};

/// A kind of data: one file or two kinds a file, one line in the list.
struct DataEntry {
    DataKind kind;
    /// Whether a folder has the kind's layout, by the names in it.  Null: a kind without a folder.
    bool (*holds)(const std::filesystem::path& folder);
    /// Throws `FormatError` naming the file where one is missing or is not what the layout says.
    std::unique_ptr<Data> (*open)(const DataRequest& request);
};

/// `text` as in `TrainOptions::data`, `loss` as in `TrainOptions::loss`, set here if empty.  Throws
/// `UsageError` for unknown kinds, `FormatError` for files that cannot be read.
std::unique_ptr<Data> open_data(const std::string& text, std::string& loss);

/// The digest of the file in "text:FILE"; empty where there is none.
std::string digest_of_file(const std::string& data);

/// Largest size of a file of samples, in bytes.
inline constexpr std::uint64_t longest_data = std::uint64_t{1} << 40;
/// Vocabulary of a model that takes so many symbols.
Index ids_of(const ModelSpec& spec, Index symbols);
/// Throws `UsageError` for a vocabulary that does not fit, or, for lm, a model that is not causal.
void require_tokens(const Fit& fit, Index symbols, bool causal);
/// Throws `UsageError` where the model takes tokens, or images of another size; one channel fits
/// any number.
void require_images(const Fit& fit, Index channels, Index height, Index width,
                    const std::string& what);
/// (channels, height, width) from bytes in that order, in [-1, 1]; one channel is repeated.
Tensor image_tensor(const Fit& fit, std::span<const std::uint8_t> pixels, Index channels);
/// A sample with a class label.
Example labelled(Input input, Index label);

/// The samples of a finite set in an order of its own for each epoch.
class EpochOrder {
  public:
    /// The index of sample i, of `count` an epoch.
    Index at(const Rng& seed, Index count, Index i) const;

  private:
    struct Epoch {
        Index number = -1;
        std::uint64_t seed = 0, stream = 0;
        std::shared_ptr<const std::vector<Index>> order = {};
    };
    mutable std::mutex lock_;
    mutable Epoch last_, before_;  // the samples of one step may be of two epochs
};
/// 0 .. count - 1 in random order.
std::vector<Index> shuffled(Rng rng, Index count);

}  // namespace tsdiag::training
