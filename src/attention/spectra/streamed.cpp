#include "streamed.hpp"

#include <omp.h>

#include <algorithm>

#include "visible.hpp"

namespace tsdiag::streamed {
namespace {

template <class T>
std::span<T> of_head(std::span<T> x, Index head, Index n, Index first, Index count) {
    return x.subspan(std::size_t(head * n + first), std::size_t(count));
}

struct Nothing {};

/// Rows of a block of a P that is kept: two threads' shares of it stay in their caches between the
/// two uses.  A multiple of 4, as `add_normal_product` asks for.
Index rows_of_kept(const AttentionOperator& p) {
    constexpr double bytes = 8 << 20;
    return std::max<Index>(4, Index(bytes / (p.bytes() / double(p.tokens()))) / 4 * 4);
}

/// Whether `heads` are too few for all threads.
bool few(Index heads) { return heads < omp_get_max_threads() && !omp_in_parallel(); }

/// work(k) for each head: side by side, or one after the other.
template <class Work>
void each_head(Index heads, const Work& work) {
    const auto one = [&](Index k) {
        work(k);
        return Nothing{};
    };
    if (few(heads))
        for (Index k = 0; k < heads; ++k) one(k);
    else
        stored::for_each_head<Nothing>(heads, one);
}

View part_of(const View& a, Index row, Index rows, Index col, Index cols) {
    View part = a;
    part.shape = {1, rows, cols};
    part.data =
        static_cast<char*>(a.data) + std::size_t(row * a.row_stride + col) * bytes_of(a.type);
    return part;
}

/// `tsdiag::multiply` by rows on all threads.
void multiply_by_rows(const View& p, std::span<const double> x, std::span<double> y,
                      std::span<const double> also = {}, std::span<double> image = {}) {
    constexpr Index group = 4;
    const Index m = p.shape.rows;
#pragma omp parallel for schedule(static)
    for (Index first = 0; first < m; first += group) {
        const Index count = std::min(group, m - first);
        const auto at = std::size_t(first), size = std::size_t(count);
        tsdiag::multiply(part_of(p, first, count, 0, p.shape.cols), x, y.subspan(at, size), also,
                         also.empty() ? image : image.subspan(at, size));
    }
}

/// y += A^T u by columns on all threads, each of which adds the rows in their order.
void add_transposed_by_columns(const View& p, std::span<const double> u, std::span<double> y) {
    constexpr Index stripe = 1024;  // columns whose sums stay in the L1 cache
    const Index m = p.shape.rows, n = p.shape.cols;
#pragma omp parallel for schedule(static)
    for (Index first = 0; first < n; first += stripe) {
        const Index count = std::min(stripe, n - first);
        add_transposed(part_of(p, 0, m, first, count), 1, u,
                       y.subspan(std::size_t(first), std::size_t(count)));
    }
}

/// `add_normal_product` with weights 1 on all threads.
double add_normal_by_parts(const View& p, double mean, std::span<const double> x,
                           std::span<double> y, double sum, std::span<const double> also,
                           std::span<double> image) {
    std::vector<double> u(std::size_t(p.shape.rows), 0.0);
    multiply_by_rows(p, x, u, also, image);
    for (double& e : u) sum += e -= mean;
    add_transposed_by_columns(p, u, y);
    return sum;
}

}  // namespace

Rows::Rows(const AttentionOperator& p, double memory, bool kept)
    : p_(p),
      whole_(kept ? p.matrix() : Tensor()),
      block_(kept ? rows_of_kept(p) : p.rows_at_once(memory)) {
    if (kept) stored::require_finite(whole_, 0);
}

template <class Use>
void Rows::in_block(Index first, Index count, const Use& use) const {
    const auto with = [&](const stored::Heads& heads) {
        each_head(heads.count(), [&](Index k) { use(k, heads[k]); });
    };
    if (whole_.defined()) return with(stored::Heads::of_finite(whole_.row_range(first, count)));
    const RowBlock rows = p_.rows(first, count);
    with(
        stored::Heads(rows.p.col_range(0, visibility::columns(rows.visible, p_.columns())), first));
}

void Rows::multiply(std::span<const double> x, std::span<double> y) const {
    const Index n = p_.tokens();
    const bool divided = few(p_.heads());
    each_row_block(p_, block_, y, [&](Index first, Index count) {
        in_block(first, count, [&](Index k, const View& p) {
            const auto from = of_head(x, k, n, 0, p.shape.cols);
            const auto to = of_head(y, k, n, first, count);
            divided ? multiply_by_rows(p, from, to) : tsdiag::multiply(p, from, to);
        });
    });
}

void Rows::sum_columns() const {
    if (!column_.empty()) return;
    const Index n = p_.columns();
    const std::vector<double> ones(std::size_t(block_), 1.0);
    const bool divided = few(p_.heads());
    column_ = sum_over_rows(Panels(p_), block_, std::size_t(p_.heads() * n),
                            [&](Index first, Index count, std::span<double> sum) {
                                in_block(first, count, [&](Index k, const View& rows) {
                                    const auto weights = std::span(ones).first(std::size_t(count));
                                    const auto to = of_head(sum, k, n, 0, rows.shape.cols);
                                    divided ? add_transposed_by_columns(rows, weights, to)
                                            : add_transposed(rows, 1, weights, to);
                                });
                            });
}

std::vector<double> Rows::norm_bounds(bool centred) const {
    sum_columns();
    const Index n = p_.columns();
    const std::vector<double> none(std::size_t(centred ? 0 : p_.heads() * n), 0.0);
    const std::span<const double> column = centred ? column_ : none;
    std::vector<double> squares =
        sum_over_rows(Panels(p_), block_, std::size_t(p_.heads()),
                      [&](Index first, Index count, std::span<double> sum) {
                          in_block(first, count, [&](Index k, const View& rows) {
                              double& own = sum[std::size_t(k)];
                              own = stored::add_centred_squares(rows, of_head(column, k, n, 0, n),
                                                                p_.tokens(), own);
                          });
                      });
    for (std::size_t k = 0; k < squares.size(); ++k) {
        double means = 0;
        for (const double e : of_head(std::span<const double>(column_), Index(k), n, 0, n))
            means += e * e / double(p_.tokens());
        squares[k] = stored::norm_bound(squares[k], centred ? means : 0, p_.tokens(), n);
    }
    return squares;
}

void Rows::centred_normal(std::span<const double> x, std::span<double> y,
                          std::span<const double> also, std::span<double> image) const {
    const Index n = p_.columns(), h = p_.heads();
    const auto rows_of_p = double(p_.tokens());
    const std::vector<double> ones(std::size_t(block_), 1.0);
    sum_columns();
    // As in stored::centred_normal.
    std::vector<double> mean(std::size_t(h), 0.0);
    for (Index k = 0; k < h; ++k) {
        double& e = mean[std::size_t(k)];
        tsdiag::multiply({column_.data() + k * n, {1, 1, n}, n, n, Type::f64},
                         of_head(x, k, n, 0, n), std::span(&e, 1));
        e /= rows_of_p;
    }
    const bool divided = few(h);
    const std::vector<double> sums = sum_over_rows(  // y, then what is left of each head's mean
        Panels(p_), block_, y.size() + mean.size(),
        [&](Index first, Index count, std::span<double> sum) {
            in_block(first, count, [&](Index k, const View& rows) {
                const Index cols = rows.shape.cols;
                const double its_mean = mean[std::size_t(k)];
                const auto from = of_head(x, k, n, 0, cols);
                const auto to = of_head(sum, k, n, 0, cols);
                const auto other = also.empty() ? also : of_head(also, k, n, 0, cols);
                const auto its = also.empty() ? image : of_head(image, k, n, first, count);
                double& left = sum[y.size() + std::size_t(k)];
                left = divided ? add_normal_by_parts(rows, its_mean, from, to, left, other, its)
                               : add_normal_product(rows, std::span(ones).first(std::size_t(count)),
                                                    its_mean, from, to, left, other, its);
            });
        });
    if (!also.empty()) complete_rows(p_, image);
    for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = sums[i] - sums[y.size() + i / std::size_t(n)] / rows_of_p * column_[i];
}

std::vector<std::vector<double>> Rows::diagonals() const {
    const auto n = std::size_t(p_.tokens());
    std::vector<double> all(std::size_t(p_.heads()) * n);
    each_row_block(p_, block_, std::span(all), [&](Index first, Index count) {
        in_block(first, count, [&](Index k, const View& head) {
            for (Index i = 0; i < count; ++i)
                all[std::size_t(k) * n + std::size_t(first + i)] =
                    head.type == Type::f32 ? double(head.row<float>(0, i)[first + i])
                                           : head.row<double>(0, i)[first + i];
        });
    });
    std::vector<std::vector<double>> out;
    for (std::size_t k = 0; k < std::size_t(p_.heads()); ++k)
        out.emplace_back(all.begin() + Index(k * n), all.begin() + Index((k + 1) * n));
    return out;
}

}  // namespace tsdiag::streamed
