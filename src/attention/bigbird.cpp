#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "score.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array bigbird_options{
    whole_option("block", "64", "positions per block; the last block may be shorter", 1),
    whole_option("global", "1", "blocks at each end that attend to all and are attended by all"),
    whole_option("neighbours", "1",
                 "blocks on either side that a block attends to besides itself: "
                 "1 is a window of 3 blocks"),
    whole_option("random", "3",
                 "further random blocks that a block attends to, drawn per head; "
                 "all blocks if there are fewer"),
    word_option("choice", "drawn", "drawn first",
                "first: the first block is counted that many more times instead "
                "of drawn blocks, as in Hugging Face's code outside training"),
    whole_option("full", "0",
                 "full attention for samples of at most this many positions; in "
                 "Hugging Face's code (5 + 2 random) blocks"),
    seed_option("seed of the random blocks, which a training keeps, as the released code does")};

/// Blocks [first, last).
struct Blocks {
    Index first, last;
    Index count() const { return std::max<Index>(0, last - first); }
};

/// The sparsity pattern of blocks.
class Pattern {
  public:
    Pattern(const Options& options, const AttentionInput& in)
        : global_(options.count("global")),
          neighbours_(options.count("neighbours")),
          random_(options.count("random")),
          first_again_(options.is("choice", "first")),
          rng_(options.rng(in)) {
        const double size = double(options.count("block"));
        for (Index i = 0; i < in.q.rows(); ++i)
            block_of_.push_back(Index(std::floor(position(in, i) / size)));
        full_ = position(in, in.q.rows() - 1) < double(options.count("full"));
    }

    /// 0 where row i of a head sees a column, else minus infinity; log c where it counts c times.
    template <class T>
    void fill_row(Index head, Index i, std::span<T> row) const {
        std::ranges::fill(row, -std::numeric_limits<T>::infinity());
        const Index block = block_of(i);
        const auto fill = [&](const Blocks& blocks, T value) {
            std::fill(row.begin() + start(blocks.first), row.begin() + start(blocks.last), value);
        };
        for (const Blocks& blocks : seen(head, block)) fill(blocks, T(0));
        if (first_again_ && !sees_all(block)) {
            const bool seen_already = global_ > 0 || block <= neighbours_;
            fill({0, 1}, T(std::log(double(random_ + (seen_already ? 1 : 0)))));
        }
    }
    bool same_block(Index i, Index j) const { return block_of(i) == block_of(j); }

  private:
    Index block_of(Index i) const { return block_of_[std::size_t(i)]; }
    /// The first token that is in no block before this one.
    Index start(Index block) const {
        return std::ranges::lower_bound(block_of_, block) - block_of_.begin();
    }
    bool sees_all(Index block) const {
        return full_ || block < global_ || block > block_of_.back() - global_;
    }
    std::vector<Blocks> seen(Index head, Index block) const {
        const Index end = block_of_.back() + 1, tail = end - global_;
        if (sees_all(block)) return {{0, end}};
        const Blocks near{block - neighbours_, block + neighbours_ + 1};
        std::vector<Blocks> out{{0, global_}, near, {tail, end}};
        if (first_again_) return out;
        const Blocks before{global_, std::min(near.first, tail)},
            after{std::max(near.last, global_), tail};
        for (const Index at : drawn(head, block, before.count() + after.count())) {
            const Index other =
                at < before.count() ? before.first + at : after.first + at - before.count();
            out.push_back({other, other + 1});
        }
        return out;
    }
    /// Distinct numbers below `count`, every set of them equally likely (Floyd).
    std::vector<Index> drawn(Index head, Index block, Index count) const {
        Rng rng = rng_.fork(std::uint64_t(head)).fork(std::uint64_t(block));
        std::vector<Index> out;
        for (Index top = count - std::min(random_, count); top < count; ++top) {
            const Index one = Index(rng.below(std::uint64_t(top + 1)));
            out.push_back(std::ranges::find(out, one) == out.end() ? one : top);
        }
        return out;
    }

    Index global_, neighbours_, random_;
    bool first_again_, full_ = false;
    Rng rng_;
    std::vector<Index> block_of_;  ///< of each token, ascending
};

/// Added to rows [first, first + count) of the logits, (h, count, n).
template <class T>
Tensor mask(const Pattern& pattern, const AttentionInput& in, Index first, Index count) {
    const Index h = in.q.batch(), n = in.q.rows();
    const std::function<void(std::span<T>)> fill = [&](std::span<T> values) {
        const auto row = [&](Index head, Index i) {
            return values.subspan(std::size_t((head * count + i) * n), std::size_t(n));
        };
        for (Index head = 0; head < h; ++head)
            for (Index i = 0; i < count; ++i)
                if (i > 0 && pattern.same_block(first + i - 1, first + i))
                    std::ranges::copy(row(head, i - 1), row(head, i).begin());
                else
                    pattern.fill_row(head % in.heads_of_a_sample(), first + i, row(head, i));
    };
    return Tensor::filled(in.q.backend(), {h, count, n}, fill);
}

}  // namespace

extern const AttentionEntry bigbird = {
    .name = "bigbird",
    .description =
        "P = softmax(S) over the tokens that a row attends to, block by block: the first and the "
        "last block, which attend to all, its own block and its neighbours, and random blocks",
    .source = "[BIGBIRD] 2, ITC",
    .options = bigbird_options,
    .facts = {.row_stochastic = Holds::always},
    .make = [](AttentionInput in) {
        const Options options(bigbird, in.options);
        admit(bigbird, in);
        ScoreRule rule;
        rule.row_stochastic = true;
        rule.plain_logits = !options.is("choice", "first");
        rule.fill = [in, pattern = Pattern(options, in)](Logits logits, RowBlock& block) {
            const auto hidden = in.q.type() == Type::f32 ? mask<float> : mask<double>;
            const Tensor more = hidden(pattern, in, block.first, logits.s.rows());
            block.p = softmax_rows(add(std::move(logits).biased(), more), block.visible);
            block.slope = block.p;  // a' = a = exp
            block.divided = true;
        };
        return score_attention(in, std::move(rule));
    }};

}  // namespace tsdiag::variants
