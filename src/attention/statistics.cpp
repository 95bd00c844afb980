#include "tsdiag/attention.hpp"

namespace tsdiag {

RowBlock RowBlock::of_heads(Index head, Index count) const {
    if (count == p.batch()) return *this;
    RowBlock out = *this;
    out.p = p.batch_range(head, count);
    if (slope.defined()) out.slope = slope.batch_range(head, count);
    out.totals.reset();
    return out;
}

RowStatistics row_statistics(const RowBlock& block) {
    return row_statistics(block.p, block.slope, block.divided, block.memory + block.first,
                          block.visible);
}

Later<RowStatistics> row_totals_later(const RowBlock& block) {
    return row_totals_later(block.p, block.slope, block.divided, block.memory + block.first,
                            block.visible);
}

RowStatistics of_heads(const RowStatistics& all, Index head, Index count) {
    RowStatistics out;
    out.folded = all.folded;
    out.heads = count;
    out.rows = all.rows;
    out.first = all.first;
    out.n = all.n;
    const auto take = [&](auto& to, const auto& from, Index each) {
        if (!from.empty())
            to.assign(from.begin() + head * each, from.begin() + (head + count) * each);
    };
    for (const auto field :
         {&RowStatistics::sum, &RowStatistics::modulus, &RowStatistics::negative,
          &RowStatistics::entropy, &RowStatistics::max_modulus, &RowStatistics::jacobian_max})
        take(out.*field, all.*field, all.numbers());
    take(out.squares, all.squares, all.numbers());
    take(out.jacobian, all.jacobian, all.numbers());
    take(out.diagonal, all.diagonal, all.rows);
    take(out.window, all.window, all.n);
    return out;
}

}  // namespace tsdiag
