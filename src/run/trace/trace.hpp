#pragma once
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "tsdiag/run.hpp"

namespace tsdiag {

/// What a file is that holds neither a model nor a trace that can be read, and what to do; empty
/// where it is nothing that is known.
std::string other_dump(const Checkpoint& file);

/// Whether the rows of an array are shares of 1, as those of maps are: of the first matrix.
bool has_rows_of_shares(RawTensor array);

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
    /// Layers of equally many tokens, up to where tokens merge.
    struct Part {
        Index tokens = 0, width = 0;
        std::string tokens_from = {}, width_from = {};  ///< the arrays that set them
    };

    /// Throws `ShapeError`, `FormatError` naming the array.  Reads the first rows of each.
    explicit SavedTrace(const Checkpoint& file);

    const Layers& states() const { return states_; }  ///< (n, d)
    /// By name, (n, d); `attention_inputs` is `norm1` of a pre-norm layer.
    const std::map<std::string_view, Layers>& stages() const { return stages_; }
    bool attention_inputs() const { return inputs_named_; }
    /// By name, "embed", "out", "merge", "class", "final_norm": states before and behind layers.
    const std::map<std::string_view, Layers>& outer() const { return outer_; }
    /// The array of a layer by that name; null where there is none.
    const Array* outer(std::string_view name, Index layer) const;
    /// What a layer returns: `out.L`, or `hidden_states.L+1` unless tokens merge before it.
    const Array* output(Index layer) const;
    /// What the next layer reads where tokens merge behind this one: `merge.L`, or
    /// `hidden_states.L+1`.
    const Array* merged(Index layer) const;
    bool merges_behind(Index layer) const { return layer >= 0 && parts_.contains(layer + 1); }
    const std::map<Index, Part>& parts() const { return parts_; }  ///< by their first layers
    const Layers& attentions() const { return attentions_; }       ///< (h, n, n)
    const Layers& queries() const { return queries_; }             ///< (h, n, w)
    const Layers& keys() const { return keys_; }                   ///< (h', n, w)
    const Layers& values() const { return values_; }               ///< (h', n, w')
    /// `attention_mask`: which tokens are kept; none where the file does not say.
    const std::optional<Array>& mask() const { return mask_; }
    const TraceSummary& summary() const { return summary_; }
    /// Names that are no part of a trace.
    const std::vector<std::string>& others() const { return others_; }
    /// Throws `FormatError` for numbers of tokens in `file`, that of this trace, one a sample,
    /// without a mask: the rest is padding.
    void refuse_unread_lengths(const Checkpoint& file) const;
    /// What was read in a way that its names do not say.
    const std::vector<std::string>& assumed() const { return assumed_; }
    /// What the trace seems to lack, and states that seem to be something else by the tokens that
    /// `masks` keep, one a sample, or else the mask of the trace.
    std::vector<std::string> gaps(const std::vector<std::vector<bool>>& masks) const;

  private:
    void sort(const Checkpoint& file);
    void add(Layers& layers, Index layer, Array array);
    bool sort_unnamed(const Checkpoint& file);
    void measure();
    void measure_layers();
    void find_parts();
    Part& part_of(Index layer) { return std::prev(parts_.upper_bound(layer))->second; }
    void check_states(Layers& layers, Index ahead = 0, bool class_token = false);
    void check_heads(Layers& layers);
    void check_axes(const Array& array, Index layer, bool queries);
    void check_samples(Array& array, std::size_t rank, Index layer, bool class_token = false);
    void check_outer();
    void check_pairs() const;
    void refuse_misplaced() const;
    void refuse_unread_maps(const Checkpoint& file) const;

    Layers states_, attentions_, queries_, keys_, values_;
    std::map<std::string_view, Layers> stages_, outer_;
    std::map<Index, Part> parts_;
    std::optional<Array> mask_;
    bool inputs_named_ = false;
    std::vector<std::string> others_, assumed_;
    TraceSummary summary_;
    std::string samples_from_;  ///< the array that sets them
};

}  // namespace tsdiag
