#pragma once
#include <string>
#include <vector>

#include "tsdiag/run.hpp"

/// An upper bound on the memory of a run, known before it starts.
namespace tsdiag {

inline constexpr double mib = 1 << 20;  ///< bytes of a MiB

/// The sizes that determine the bound.
struct RunSizes {
    Index tokens = 1, width = 0, samples = 1, trials = 1, layers = 1, heads = 1, bytes = 4,
          maps = 0;
    Index channels = 0;       ///< of a head whose P is over channels; 0: P is over tokens
    Index pixels = 0;         ///< numbers that the largest convolution of an image gathers
    Index columns = 0;        ///< of the queries of all heads
    Index inner = 0;          ///< numbers per token that the steps of a layer hold
    double pairs = 0;         ///< numbers per pair of tokens that they hold
    double terms = 0;         ///< AttentionCost::bytes_of_entry
    Index layer_weights = 0;  ///< elements of the largest layer
    Index all_weights = 0;
    Index file_pages = 0;  ///< bytes of mapped file pages in addition to the weights
    Index table = 0;       ///< elements of the largest table that is read whole, before the layers
    Index head_rows = 0;   ///< of the output head of a loss
    bool rotated = false, normed = false, gradients = false;
    bool dense = false;  ///< spectra by the dense method, whatever the size
    std::vector<std::string> metrics = {};
};
/// Rows of P.
inline double side_of(const RunSizes& s) { return double(s.channels > 0 ? s.channels : s.tokens); }
/// The sizes given by the model.
RunSizes sizes_of(const Subject& subject, Type type);
RunSizes sizes_of(const ModelSpec& spec, Type type);

/// Bytes by purpose.  Row blocks, and P where it is kept, share the remaining memory.
struct MemoryNeeds {
    double weights = 0, states = 0, metrics = 0, blocks = 0;
    double total() const { return weights + states + metrics + blocks; }
};
MemoryNeeds needs_of(const RunSizes& sizes);

/// What remains of `memory` for row blocks and P.  P is kept only where the workspace of `threads`
/// threads fits as well, on a device that of its solver for one head: it is asked where that
/// decides.
double left_for_rows(const RunSizes& sizes, const MemoryNeeds& needs, double memory, Index threads,
                     const Backend& backend);

/// The batch size, and what then remains of `memory` for row blocks and P of one sample: `wanted`,
/// or, if that is 0, enough samples for efficient products; fewer where their P, layer states and,
/// on a device, what metrics hold of all of them at once do not fit into a quarter of the memory.
struct BatchPlan {
    Index samples = 1;
    double memory = 0;
};
BatchPlan batch_plan(const RunSizes& sizes, Index wanted, double memory, bool device);

/// Bytes of this process, with its libraries, when the first run begins, and what the libraries
/// will allocate later.  Cost: one small product, once.
double program_bytes();

}  // namespace tsdiag
