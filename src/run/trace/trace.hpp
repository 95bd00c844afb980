#pragma once
#include <map>
#include <string>

#include "tsdiag/run.hpp"

namespace tsdiag {

/// The arrays of a saved trace by layer, their sizes checked against each other.
class SavedTrace {
  public:
    struct Array {
        std::string name;  ///< "trace.npz: array 'attentions.3'"
        RawTensor raw;
        bool by_sample = false;  ///< the first axis counts samples
        /// The array of sample `s`: a view of the same bytes.
        RawTensor sample(Index s) const;
    };
    using Layers = std::map<Index, Array>;

    /// Throws `ShapeError`, `FormatError` naming the array.  Reads no elements.
    explicit SavedTrace(const Checkpoint& file);

    const Layers& states() const { return states_; }          ///< (n, d)
    const Layers& inputs() const { return inputs_; }          ///< (n, d)
    const Layers& attentions() const { return attentions_; }  ///< (h, n, n)
    const Layers& queries() const { return queries_; }        ///< (h, n, w)
    const Layers& keys() const { return keys_; }              ///< (h', n, w)
    const Layers& values() const { return values_; }          ///< (h', n, w')
    const TraceSummary& summary() const { return summary_; }
    /// Names that are no part of a trace.
    const std::vector<std::string>& others() const { return others_; }

  private:
    void sort(const Checkpoint& file);
    void measure();
    void check_states(Layers& layers);
    void check_heads(Layers& layers);
    void check_samples(Array& array, std::size_t rank);
    void check_pairs() const;

    Layers states_, inputs_, attentions_, queries_, keys_, values_;
    std::vector<std::string> others_;
    TraceSummary summary_;
    std::string samples_from_, tokens_from_, width_from_;  ///< the arrays that set them
};

}  // namespace tsdiag
