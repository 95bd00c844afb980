#include "team_rows.hpp"

#include "tsdiag/units.hpp"

namespace tsdiag {
namespace {

constexpr const char* other_rank = "the rows of another rank";

void write(RecordWriter& out, const std::vector<Wide>& all) {
    out.text({reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Wide)});
}

std::string record_of(const RowStatistics& s) {
    RecordWriter out;
    for (const Index n : {s.heads, s.rows, s.first, s.n}) out.index(n);
    for (const std::vector<double>* all : {&s.sum, &s.modulus, &s.negative, &s.entropy,
                                           &s.max_modulus, &s.diagonal, &s.jacobian_max})
        out.reals(*all);
    write(out, s.squares);
    write(out, s.jacobian);
    return out.take();
}

RowStatistics statistics_of(RecordReader& in) {
    RowStatistics s;
    for (Index* n : {&s.heads, &s.rows, &s.first, &s.n}) *n = in.index();
    for (std::vector<double>* all : {&s.sum, &s.modulus, &s.negative, &s.entropy, &s.max_modulus,
                                     &s.diagonal, &s.jacobian_max})
        *all = in.reals();
    s.squares = values_of_bytes<Wide>(in.text());
    s.jacobian = values_of_bytes<Wide>(in.text());
    return s;
}

}  // namespace

void TeamRows::see(const RowBlock& block, const Use& use) {
    const Team& team = *block.team;
    const bool own = block.members == 0 || team.rank() < block.members;
    const auto size = std::size_t(block.p.batch() * block.p.cols());
    windows_.resize(size, 0.0);
    if (own) {
        const RowStatistics stats = row_statistics(block);
        seen_ += record_of(stats);
        for (std::size_t i = 0; i < size; ++i) windows_[i] += stats.window[i];
    }
    if (block.members == 0) return;
    if (!sum_) sum_.emplace(&team, size);
    sum_->add(windows_, block.members);
    windows_.clear();
    std::vector<RowStatistics> all;
    for (const std::string& bytes : team.gather(seen_))
        for (RecordReader in(bytes, other_rank); !in.done();) all.push_back(statistics_of(in));
    seen_.clear();
    if (block.ends_rounds) {
        all.back().window = sum_->total();
        sum_.reset();
    }
    RowBlock shown = block;
    for (const RowStatistics& stats : all) {
        shown.first = stats.first - block.memory;
        use(shown, stats);
    }
}

}  // namespace tsdiag
