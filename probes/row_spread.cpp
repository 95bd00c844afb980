#include "row_spread.hpp"

#include <algorithm>
#include <cmath>

#include "mixing.hpp"
#include "support.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::probe {
namespace {

constexpr double rounding = 16 * 0x1p-24;

/// Whether t = P G costs less than (P X) X^T.
bool by_gram(Index n, Index columns) { return n < 2 * columns; }

/// a b, where `b` has one batch as one product of all batches.
Tensor product(const Tensor& a, const Tensor& b, Transpose t = Transpose::none) {
    if (b.batch() > 1) return matmul(a, b, t);
    const Tensor all = contiguous(a).reshape({1, a.batch() * a.rows(), a.cols()});
    const Tensor y = matmul(all, b, t);
    return y.reshape({a.batch(), a.rows(), y.cols()});
}

Tensor products_with(const Tensor& p, const Tensor& x) {
    return product(product(p, x), x, Transpose::second);
}

/// What the rounding of t may add to a row's sum, over `rounding`: that of t_j is |x_j| times the
/// root of sum_l e_l^2 |x_l|^2, also where e_l is the mean's and p_l is 0.
double of_products(const SpreadSums& row) {
    return (2 * std::sqrt(row.squares) + row.squares) * std::sqrt(row.size * row.first);
}

}  // namespace

bool RowSpread::fits(const AttentionOperator& op) {
    const Structure known = op.structure();
    return op.type() == Type::f32 && op.backend().host_memory() && op.memory() == 0 &&
           known.row_stochastic && !known.factors;
}

double RowSpread::work(Index heads, Index n, Index columns) {
    return 2 * double(heads) * double(n) * double(n) *
           double(by_gram(n, columns) ? n : 2 * columns);
}

RowSpread::RowSpread(const AttentionOperator& op, const Tensor& x, const Tensor& column_sums)
    : heads_(op.heads()), n_(op.tokens()), causal_(op.structure().causal) {
    wide_ = contiguous(subtract_column_mean(x));
    squares_ = row_sum(multiply(wide_, wide_)).reshape({wide_.batch(), 1, n_});
    narrow_ = cast(wide_, Type::f32);
    if (by_gram(n_, x.cols())) gram_ = matmul(narrow_, narrow_, Transpose::second);
    if (column_sums.defined()) remove_mean(column_sums);
    found_.resize(slot(heads_ * n_));
    each_row_block(op, block_rows(op), std::span(found_), [&](Index first, Index count) {
        const Index cols = causal_ ? first + count : n_;
        const std::vector<SpreadSums> sums =
            of_block(contiguous(op.entries(first, count).col_range(0, cols)));
        for (Index k = 0; k < heads_; ++k)
            std::copy_n(sums.begin() + k * count, count, found_.begin() + k * n_ + first);
    });
}

void RowSpread::remove_mean(const Tensor& column_sums) {
    const Tensor exact = scale(column_sums, 1 / double(n_)).reshape({heads_, 1, n_});
    mean_ = cast(exact, Type::f32);
    const Tensor mean = cast(mean_, Type::f64);
    shift_ = products_with(mean, wide_);
    const Tensor left = product(subtract(exact, mean), wide_);
    for (Index k = 0; k < heads_; ++k)
        mean_moved_.push_back(double(n_) * double(squared_norm(left.batch_range(k, 1))));
}

std::vector<SpreadSums> RowSpread::of_block(const Tensor& p) const {
    const Index cols = p.cols();
    const Tensor e = mean_.defined() ? subtract(p, mean_) : p;
    // G is symmetric: read by rows its products are up to twice as fast where n is a power of two.
    const Tensor u =
        gram_.defined() ? product(e, gram_.row_range(0, cols).col_range(0, cols), Transpose::second)
                        : products_with(e, narrow_.row_range(0, cols));
    return spread_sums(p.view(), e.view(), u.view(), squares_.view(),
                       shift_.defined() ? shift_.view() : View{});
}

/// The marked rows, by products in float64.
void RowSpread::again(const AttentionOperator& op, const std::vector<bool>& marked,
                      std::vector<SpreadSums>& sums) const {
    const Index block = block_rows(op), group = heads_ / wide_.batch();
    for (Index first = 0; first < n_; first += block) {
        const Index count = std::min(block, n_ - first);
        Tensor p;
        for (Index k = 0; k < heads_; ++k) {
            std::vector<Index> rows;
            for (Index i = 0; i < count; ++i)
                if (marked[slot(k * n_ + first + i)]) rows.push_back(i);
            if (rows.empty()) continue;
            if (!p.defined()) p = op.entries(first, count);
            const Tensor wide = cast(gather_rows(contiguous(p.batch_range(k, 1)), rows), Type::f64);
            const Tensor x = wide_.batch_range(k / group, 1);
            const Tensor t = products_with(wide, x);
            const std::vector<SpreadSums> exact =
                spread_sums(wide.view(), wide.view(), t.view(),
                            squares_.batch_range(k / group, 1).view(), View{});
            for (std::size_t i = 0; i < rows.size(); ++i)
                sums[slot(k * n_ + first + rows[i])] = exact[i];
        }
    }
}

std::vector<RowSpread::Sum> RowSpread::sums(const AttentionOperator& op,
                                            std::span<const double> weights) const {
    std::vector<SpreadSums> rows = found_;
    std::vector<bool> wide(rows.size(), false);
    const auto weight = [&](Index k, Index i) {
        return weights[slot((Index(weights.size()) == n_ ? 0 : k * n_) + i)];
    };
    auto out = std::vector<Sum>(slot(heads_));
    for (bool open = true; open;) {
        open = false;
        std::vector<bool> marked(rows.size(), false);
        for (Index k = 0; k < heads_; ++k) {
            Sum& sum = out[slot(k)];
            sum = {};
            double error = 0;
            std::vector<std::pair<double, Index>> errors;  // of the rows in float32
            for (Index i = k * n_; i < (k + 1) * n_; ++i) {
                const double a = weight(k, i - k * n_), gross = a * rows[slot(i)].gross();
                sum.value += a * rows[slot(i)].value();
                sum.gross += gross;
                if (wide[slot(i)] || gross == 0) continue;
                errors.emplace_back(rounding * (gross + a * of_products(rows[slot(i)])), i);
                error += errors.back().first;
            }
            if (!std::isfinite(error))  // all again: what is not finite then is so itself
                for (auto& one : errors) one.first = error = 1;
            std::ranges::sort(errors, std::greater());
            const double allowed = allowed_rounding * std::max(0.0, double(sum.value) - error);
            for (const auto& [own, i] : errors) {
                if (error <= allowed) break;
                error -= own;
                open = marked[slot(i)] = wide[slot(i)] = true;
            }
        }
        if (open) again(op, marked, rows);
    }
    return out;
}

std::vector<std::optional<Wide>> RowSpread::moved() const {
    check(mean_.defined(), "the mean row was given");
    std::vector<std::optional<Wide>> out;
    for (Index k = 0; k < heads_; ++k) {
        Wide sum = -mean_moved_[slot(k)], size = 0;
        for (Index i = k * n_; i < (k + 1) * n_; ++i) {
            sum += found_[slot(i)].moved;
            size += found_[slot(i)].size;
        }
        const bool certain = rounding * size <= allowed_rounding * sum || size == 0;
        out.push_back(certain ? std::optional(std::max<Wide>(0, sum)) : std::nullopt);
    }
    return out;
}

namespace {

constexpr double largest_work = 2e11;

}  // namespace

bool has_token_spread(const Attention& e) {
    return e.input.defined() && !e.over.channels && RowSpread::fits(e.op) &&
           RowSpread::work(e.op.heads(), e.op.tokens(), e.input.cols()) <= largest_work;
}

const TokenSpread& token_spread(const Attention& e) {
    return e.derived.of<TokenSpread>([&] {
        const int exponent = exponent_of(e.input);
        return TokenSpread{RowSpread(e.op, cast(without_exponent(e.input, exponent), Type::f64),
                                     e.op.structure().causal ? Tensor() : column_sums(e)),
                           exponent};
    });
}

double token_spread_bytes(const MetricSizes& s) {
    if (s.element != sizeof(float)) return 0;
    const double n = s.tokens, d = s.width;
    const double gram = n < 2 * d ? n * n * s.element : 0;
    return n * d * (sizeof(double) + s.element) + gram + 12 * s.heads * n * sizeof(double);
}

}  // namespace tsdiag::probe
