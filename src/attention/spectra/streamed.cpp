#include "streamed.hpp"

#include <algorithm>
#include <cmath>

#include "visible.hpp"

namespace tsdiag::streamed {
namespace {

template <class T>
std::span<T> of_head(std::span<T> x, Index head, Index n, Index first, Index count) {
    return x.subspan(std::size_t(head * n + first), std::size_t(count));
}

struct Nothing {};

}  // namespace

Rows::Rows(const AttentionOperator& p, double memory) : p_(p), block_(p.rows_at_once(memory)) {}

template <class Use>
void Rows::each_block(const Use& use) const {
    const Index n = p_.tokens(), keys = p_.columns();
    for (Index first = 0; first < n; first += block_) {
        const RowBlock rows = p_.rows(first, std::min(block_, n - first));
        use(rows,
            stored::Heads(rows.p.col_range(0, visibility::columns(rows.visible, keys)), first));
    }
}

void Rows::multiply(std::span<const double> x, std::span<double> y) const {
    const Index n = p_.tokens();
    each_block([&](const RowBlock& rows, const stored::Heads& heads) {
        const Index count = rows.p.rows();
        stored::for_each_head<Nothing>(heads.count(), [&](Index k) {
            const View p = heads[k];
            tsdiag::multiply(p, of_head(x, k, n, 0, p.shape.cols),
                             of_head(y, k, n, rows.first, count));
            return Nothing{};
        });
    });
}

void Rows::sum_columns() const {
    if (!column_.empty()) return;
    const Index n = p_.columns(), h = p_.heads();
    const std::vector<double> ones(std::size_t(block_), 1.0);
    column_.assign(std::size_t(h * n), 0.0);
    each_block([&](const RowBlock&, const stored::Heads& heads) {
        stored::for_each_head<Nothing>(h, [&](Index k) {
            const View rows = heads[k];
            add_transposed(rows, 1, std::span(ones).first(std::size_t(rows.shape.rows)),
                           of_head(std::span(column_), k, n, 0, rows.shape.cols));
            return Nothing{};
        });
    });
}

std::vector<double> Rows::centred_frobenius() const {
    sum_columns();
    const Index n = p_.columns(), h = p_.heads();
    std::vector<double> squares(std::size_t(h), 0.0);
    each_block([&](const RowBlock&, const stored::Heads& heads) {
        stored::for_each_head<Nothing>(h, [&](Index k) {
            double& sum = squares[std::size_t(k)];
            sum = stored::add_centred_squares(
                heads[k], of_head(std::span<const double>(column_), k, n, 0, n), p_.tokens(), sum);
            return Nothing{};
        });
    });
    for (double& e : squares) e = std::sqrt(e);
    return squares;
}

void Rows::centred_normal(std::span<const double> x, std::span<double> y) const {
    const Index n = p_.columns(), h = p_.heads();
    const auto rows_of_p = double(p_.tokens());
    const std::vector<double> ones(std::size_t(block_), 1.0);
    sum_columns();
    // As in normal_product: the mean beforehand, its rounding error afterwards.
    std::vector<double> mean(std::size_t(h), 0.0), left(mean);
    for (Index k = 0; k < h; ++k) {
        double& e = mean[std::size_t(k)];
        tsdiag::multiply({column_.data() + k * n, {1, 1, n}, n, n, Type::f64},
                         of_head(x, k, n, 0, n), std::span(&e, 1));
        e /= rows_of_p;
    }
    std::ranges::fill(y, 0.0);
    each_block([&](const RowBlock&, const stored::Heads& heads) {
        stored::for_each_head<Nothing>(h, [&](Index k) {
            const View rows = heads[k];
            double& sum = left[std::size_t(k)];
            sum = add_normal_product(rows, std::span(ones).first(std::size_t(rows.shape.rows)),
                                     mean[std::size_t(k)], of_head(x, k, n, 0, rows.shape.cols),
                                     of_head(y, k, n, 0, rows.shape.cols), sum);
            return Nothing{};
        });
    });
    for (std::size_t i = 0; i < y.size(); ++i)
        y[i] -= left[i / std::size_t(n)] / rows_of_p * column_[i];
}

std::vector<std::vector<double>> Rows::diagonals() const {
    std::vector<std::vector<double>> out(std::size_t(p_.heads()));
    each_block([&](const RowBlock& rows, const stored::Heads& heads) {
        for (Index k = 0; k < heads.count(); ++k) {
            const View head = heads[k];
            for (Index i = 0; i < head.shape.rows; ++i)
                out[std::size_t(k)].push_back(head.type == Type::f32
                                                  ? double(head.row<float>(0, i)[rows.first + i])
                                                  : head.row<double>(0, i)[rows.first + i]);
        }
    });
    return out;
}

}  // namespace tsdiag::streamed
