#pragma once
#include <string>
#include <vector>

#include "tsdiag/run.hpp"

/// What a run takes at most, before it begins.
namespace tsdiag {

/// The sizes that decide it.
struct RunSizes {
    Index tokens = 1, width = 0, samples = 1, trials = 1, layers = 1, heads = 1, bytes = 4,
          maps = 0;
    Index columns = 0;        ///< of the queries of all heads
    Index inner = 0;          ///< what the feed-forward step holds of a token
    Index layer_weights = 0;  ///< elements of the largest layer
    Index all_weights = 0;
    Index file_pages = 0;  ///< bytes of a file that are read beside them
    Index table = 0;       ///< elements of the largest table that is read whole before the layers
    Index head_rows = 0;   ///< of the output head of a loss
    bool rotated = false, normed = false, gradients = false;
    bool dense = false;  ///< spectra by the dense method, whatever the size
    std::vector<std::string> metrics = {};
};
/// Those that are the model's own.
RunSizes sizes_of(const Subject& subject, Type type);
RunSizes sizes_of(const ModelSpec& spec, Type type);

/// Bytes, by what they are for.  Row blocks, and P where it is kept, share what is beyond.
struct MemoryNeeds {
    double weights = 0, states = 0, metrics = 0, blocks = 0;
    double total() const { return weights + states + metrics + blocks; }
};
MemoryNeeds needs_of(const RunSizes& sizes);

/// What is left of `memory` for row blocks and P.  P is kept only where the work on it, on so many
/// threads, fits beside it.
double left_for_rows(const RunSizes& sizes, const MemoryNeeds& needs, double memory, Index threads);

/// How many samples go through a layer together, and what is then left of `memory` for row blocks
/// and P of one: `wanted`, or, where that is 0, as many as make products worth their while; fewer
/// where P of each and the states of the layer do not fit into a quarter of the memory.
struct Together {
    Index samples = 1;
    double memory = 0;
};
Together samples_together(const RunSizes& sizes, Index wanted, double memory, bool device);

/// Bytes of this process when the first run begins, its libraries among them, and what they will
/// take on top whatever is measured.  Cost: once, a small product.
double program_bytes();

}  // namespace tsdiag
