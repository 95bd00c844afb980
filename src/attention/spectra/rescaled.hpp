#pragma once
#include <memory>
#include <vector>

#include "tsdiag/attention.hpp"

namespace tsdiag {

/// Head k of P times 2^-exponents[k], so that solvers may square its entries.
class Rescaled final : public AttentionOperator {
  public:
    /// Null where P needs no scaling: in float32, whose squares fit double; where rows sum to 1 and
    /// P has no factors; where its entries, or those of its factors, can be squared.  Cost: one
    /// pass over P or its factors.
    static std::unique_ptr<Rescaled> where_needed(const AttentionOperator& p, double memory);

    RowBlock rows(Index first, Index count) const override;
    Structure structure() const override { return known_; }
    Index heads() const override { return p_.heads(); }
    Index tokens() const override { return p_.tokens(); }
    Index columns() const override { return p_.columns(); }
    Type type() const override { return p_.type(); }
    const Backend& backend() const override { return p_.backend(); }
    std::optional<RowTotals> row_totals() const override;

    /// Rescales moduli or norms of its heads to those of P.
    std::vector<Estimate> restore(std::vector<Estimate> found) const;

  private:
    Rescaled(const AttentionOperator& p, Structure known, std::vector<int> exponents)
        : p_(p), known_(std::move(known)), exponents_(std::move(exponents)) {
        share(p.team());
    }

    const AttentionOperator& p_;
    Structure known_;
    std::vector<int> exponents_;
};

}  // namespace tsdiag
