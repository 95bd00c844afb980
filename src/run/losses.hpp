#pragma once
#include <string>
#include <vector>

#include "inputs.hpp"
#include "tsdiag/input.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

/// `--loss`: "lm", "mlm:103".
struct NamedLoss {
    std::string name;
    Index number = -1;  ///< after the colon; -1: none
};
/// Throws `UsageError` for an unknown loss.
NamedLoss parse_loss(const std::string& text);

/// The losses of a run's samples: `--loss`.
class LossSource {
  public:
    /// Throws `UsageError` for an unknown loss, or one that model and input do not allow.
    LossSource(const RunOptions& options, const ModelSpec& spec, const InputSource& inputs,
               const Backend& backend, Type type);

    /// One loss per sample.  Random numbers come from
    /// Rng(seed).fork("loss").fork(trial).fork(sample); `mlm` replaces ids of `inputs`.  Throws
    /// `UsageError` where a sample has none that it may replace.
    std::vector<Loss> losses(Index trial, std::vector<Input>& inputs) const;

    RunRecord::Loss described() const;

  private:
    void read_labels(const std::string& file);
    Loss next_token(const Input& input) const;
    Loss masked_tokens(Rng rng, Index sample, Input& input) const;
    Loss classes(Rng rng, Index sample) const;
    Loss product(Rng rng, Index rows) const;
    /// Of a sample; those of ids may differ in length.
    Index tokens(const Input& input) const {
        return input.ids.empty() ? tokens_ : Index(std::ssize(input.ids));
    }

    std::string name_;
    Index number_ = -1;  ///< after the colon; -1: none
    std::uint64_t seed_;
    Index vocabulary_, width_, tokens_;
    bool class_token_;            ///< the last state that a loss sees is one row
    Index memory_;                ///< tokens before those of a sample
    std::vector<Index> special_;  ///< ids that mlm does not predict
    Index merges_;                ///< patch mergings, each of which leaves a quarter of the tokens
    const Backend& backend_;
    Type type_;
    Tensor classifier_;
    std::vector<Index> labels_;
};

}  // namespace tsdiag
