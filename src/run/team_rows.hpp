#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tsdiag/attention.hpp"

namespace tsdiag {

/// The statistics of all rows of P for each member of a team that computes P together.
class TeamRows {
  public:
    using Use = std::function<void(const RowBlock& block, const RowStatistics& stats)>;
    /// A block of this process.  Where it ends a round: use(block, statistics) for each block that
    /// the members saw in the round, in the order of the rows.  Of `block` then, `first` is that of
    /// the block, all else that of one of this process.  Windows are summed by panels, and with the
    /// last block.
    void see(const RowBlock& block, const Use& use);

  private:
    std::string seen_;             ///< of this round
    std::vector<double> windows_;  ///< of this panel
    std::optional<TeamSum> sum_;
};

}  // namespace tsdiag
