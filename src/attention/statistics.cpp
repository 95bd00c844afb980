#include "tsdiag/attention.hpp"

namespace tsdiag {

RowStatistics row_statistics(const RowBlock& block) {
    return row_statistics(block.p, block.slope, block.divided, block.memory + block.first,
                          block.visible);
}

}  // namespace tsdiag
