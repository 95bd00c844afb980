#include "factored.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "spectra/factors.hpp"
#include "stored.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/gradient.hpp"
#include "visible.hpp"

namespace tsdiag::variants {
namespace {

constexpr Index chunk_rows = 256;    // of a causal product: a chunk's triangle is formed
constexpr Index sum_rows = 1 << 12;  // rows held in double at once

/// z of one head, in double: left_i . (floor + sum_j right_j) over all j, or over j <= i.
std::vector<double> row_sums(const Tensor& left, const Tensor& right, bool causal, double floor) {
    const Index n = left.rows(), m = left.cols();
    std::vector<double> sum(std::size_t(m), floor), z;
    z.reserve(std::size_t(n));
    const auto add_row = [&](const double* row) {
        for (Index c = 0; c < m; ++c) sum[std::size_t(c)] += row[c];
    };
    const auto chunk = [&](const Tensor& x, Index first) {
        return x.row_range(first, std::min(sum_rows, n - first)).to_host<double>();
    };
    if (!causal)
        for (Index first = 0; first < n; first += sum_rows) {
            const std::vector<double> r = chunk(right, first);
            for (std::size_t at = 0; at < r.size(); at += sum.size()) add_row(r.data() + at);
        }
    for (Index first = 0; first < n; first += sum_rows) {
        const std::vector<double> l = chunk(left, first);
        const std::vector<double> r = causal ? chunk(right, first) : std::vector<double>();
        for (std::size_t at = 0; at < l.size(); at += sum.size()) {
            if (causal) add_row(r.data() + at);
            double total = 0;
            for (std::size_t c = 0; c < sum.size(); ++c) total += l[at + c] * sum[c];
            z.push_back(total);
        }
    }
    return z;
}

class FactoredAttention final : public AttentionOperator {
  public:
    FactoredAttention(const AttentionEntry& entry, Tensor left, Tensor right, bool causal,
                      const FactorRule& rule)
        : rule_(rule) {
        known_.causal = causal;
        right = repeat_batches(right, left.batch() / right.batch());
        known_.row_stochastic = rule_.divide && rule_.nonnegative && rule_.floor == 0;
        if (rule_.divide) left = divided(entry, left, right);
        known_.factors = Factors{std::move(left), std::move(right)};
    }

    RowBlock rows(Index first, Index count) const override {
        RowBlock block;
        block.first = first;
        block.divided = rule_.divide;
        if (known_.causal) block.visible = visibility::lower(first, count);
        const Tensor p = matmul(left().row_range(first, count), right(), Transpose::second);
        block.why_no_slope = rule_.why_no_slope;
        if (rule_.why_no_slope.empty()) {
            const Tensor slope = affine(p, 0, rule_.divide ? 0 : 1);
            block.slope = hide(rule_.divide ? add(slope, inverse_.row_range(first, count)) : slope,
                               block.visible);
        }
        block.p = hide(p, block.visible);
        return block;
    }
    Structure structure() const override { return known_; }
    std::optional<RowTotals> row_totals() const override {
        const bool slope = rule_.why_no_slope.empty();
        return factors::row_totals(*known_.factors, known_.causal, slope, inverse_);
    }
    Index heads() const override { return left().batch(); }
    Index tokens() const override { return left().rows(); }
    Type type() const override { return left().type(); }
    const Backend& backend() const override { return left().backend(); }

  protected:
    Tensor product(const Tensor& v) const override {
        if (!known_.causal) return matmul(left(), matmul(right(), v, Transpose::first));
        const Index n = tokens();
        std::vector<Tensor> parts;
        Tensor sum;  // right^T v of earlier chunks, (h, m, c)
        for (Index first = 0; first < n; first += chunk_rows) {
            const Index count = std::min(chunk_rows, n - first);
            const Tensor l = left().row_range(first, count), r = right().row_range(first, count),
                         x = v.row_range(first, count);
            Tensor y = matmul(triangle(l, r), x);
            if (sum.defined()) y = add(y, matmul(l, sum));
            parts.push_back(std::move(y));
            const Tensor part = matmul(r, x, Transpose::first);
            sum = sum.defined() ? add(sum, part) : part;
        }
        return concat_rows(parts);
    }

    Tensor transposed_product(const Tensor& w) const override {
        if (!known_.causal) return matmul(right(), matmul(left(), w, Transpose::first));
        const Index n = tokens();
        const Tensor out = Tensor::empty(backend(), {heads(), n, w.cols()}, w.type());
        Tensor sum;  // left^T w of later chunks, (h, m, c)
        for (Index first = (n - 1) / chunk_rows * chunk_rows; first >= 0; first -= chunk_rows) {
            const Index count = std::min(chunk_rows, n - first);
            const Tensor l = left().row_range(first, count), r = right().row_range(first, count),
                         x = w.row_range(first, count);
            Tensor y = matmul(triangle(l, r), x, Transpose::first);
            if (sum.defined()) y = add(y, matmul(r, sum));
            backend().unary(Unary::copy, out.row_range(first, count).view(), y.view());
            const Tensor part = matmul(l, x, Transpose::first);
            sum = sum.defined() ? add(sum, part) : part;
        }
        return out;
    }

  private:
    const Tensor& left() const { return known_.factors->left; }
    const Tensor& right() const { return known_.factors->right; }

    static Tensor triangle(const Tensor& l, const Tensor& r) {
        return hide(matmul(l, r, Transpose::second), visibility::lower(0, l.rows()));
    }

    /// left with its rows divided by z; 1/z is kept for the slope.
    Tensor divided(const AttentionEntry& entry, const Tensor& left, const Tensor& right) {
        const Index h = left.batch(), n = left.rows();
        const auto sums = stored::for_each_head<std::vector<double>>(left, [&](Index k) {
            return row_sums(left.batch_range(k, 1), right.batch_range(k, 1), known_.causal,
                            rule_.floor);
        });
        std::vector<double> inverse;
        for (Index k = 0; k < h; ++k)
            for (Index i = 0; i < n; ++i)
                inverse.push_back(inverse_of(entry, sums[std::size_t(k)][std::size_t(i)], k, i));
        inverse_ = Tensor::from_host(left.backend(), {h, n, 1}, std::span<const double>(inverse),
                                     left.type());
        if (left.tracked() || right.tracked()) record_inverse(left, right);
        return multiply(left, inverse_);
    }

    /// 1/z with its derivative.  A row of zeros stays 0 whatever its factors.
    void record_inverse(const Tensor& left, const Tensor& right) {
        known_.factors = Factors{left, right};  // not divided yet
        const Tensor ones =
            affine(right.col_range(0, 1).batch_range(0, 1).detached(), 0, 1);  // (1, n, 1)
        Tensor z = product(repeat_batches(ones, left.batch()));
        if (rule_.floor != 0) z = add(z, scale(row_sum(left), rule_.floor));
        if (rule_.least > 0)
            z = zip(Binary::maximum, z, affine(z.detached(), 0, rule_.least));
        else  // 1 where z = 0
            z = add(z, affine(map(Unary::step, map(Unary::square, inverse_)), -1, 1));
        inverse_ = with_derivative(inverse_, map(Unary::reciprocal, z));
    }

    double inverse_of(const AttentionEntry& entry, double z, Index head, Index row) {
        if (rule_.least > 0 && z < rule_.least) {
            known_.row_stochastic = false;
            rule_.why_no_slope = "a row of P has a denominator that was clamped";
            return 1 / rule_.least;
        }
        if (z != 0 && std::isfinite(1 / z)) return 1 / z;
        if (!rule_.nonnegative || z != 0)
            throw NonFiniteError(
                fmt::format("attention '{}': the features of row {} of head {} sum to {}, so the "
                            "row cannot be divided by its sum; use a positive feature map",
                            entry.name, row, head, z));
        known_.row_stochastic = false;
        rule_.why_no_slope = "a row of P is 0: its denominator is 0";
        return 0;
    }

    FactorRule rule_;
    Structure known_;
    Tensor inverse_;  ///< (h, n, 1)
};

}  // namespace

std::unique_ptr<AttentionOperator> factored_attention(const AttentionEntry& entry, Tensor left,
                                                      Tensor right, bool causal,
                                                      const FactorRule& rule) {
    check(left.rows() == right.rows() && left.cols() == right.cols() && right.batch() > 0 &&
              left.batch() % right.batch() == 0,
          "factors that fit together");
    return std::make_unique<FactoredAttention>(entry, std::move(left), std::move(right), causal,
                                               rule);
}

}  // namespace tsdiag::variants
