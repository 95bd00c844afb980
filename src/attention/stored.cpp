#include "stored.hpp"

#include <cmath>
#include <limits>
#include <string>

#include "tsdiag/error.hpp"

namespace tsdiag::stored {

void require_finite(const Tensor& rows, Index first) {
    const Index bad = first_nonfinite(rows), n = rows.cols();
    if (bad >= 0)
        throw NonFiniteError("attention matrix: row " +
                             std::to_string(first + bad / n % rows.rows()) + " of head " +
                             std::to_string(bad / n / rows.rows()) +
                             " has a non-finite entry, so its spectrum is undefined");
}

Heads::Heads(const Tensor& rows, Index first)
    : Heads((require_finite(rows, first), rows), Finite{}) {}

Heads Heads::of_finite(const Tensor& rows) { return {rows, Finite{}}; }

Heads::Heads(const Tensor& rows, Finite) : rows_(rows), view_(rows.view()) {
    const Index n = rows.cols();
    if (rows.backend().host_memory()) return;
    if (rows.type() == Type::f32) {
        narrow_ = rows.to_host<float>();
        view_.data = narrow_.data();
    } else {
        wide_ = rows.to_host<double>();
        view_.data = wide_.data();
    }
    view_.row_stride = n;
    view_.batch_stride = n * rows.rows();
}

View Heads::operator[](Index head) const {
    View one = view_;
    one.shape.batch = 1;
    one.data = static_cast<char*>(view_.data) +
               std::size_t(head * view_.batch_stride) * bytes_of(view_.type);
    return one;
}

View row_range(const View& a, Index first, Index count) {
    View rows = a;
    rows.shape.rows = count;
    rows.data = static_cast<char*>(a.data) + std::size_t(first * a.row_stride) * bytes_of(a.type);
    return rows;
}

std::vector<double> column_sums(const View& a) {
    const std::vector<double> ones(std::size_t(a.shape.rows), 1.0);
    return sum_over_rows(Panels(a.shape.rows), a.shape.rows, std::size_t(a.shape.cols),
                         [&](Index first, Index count, std::span<double> sum) {
                             add_transposed(row_range(a, first, count), 1,
                                            std::span(ones).first(std::size_t(count)), sum);
                         });
}

double add_centred_squares(const View& rows, std::span<const double> column_sums, Index n,
                           double sum) {
    const auto add = [&]<class T>(T) {
        for (Index i = 0; i < rows.shape.rows; ++i) {
            const T* row = rows.row<T>(0, i);
            for (std::size_t j = 0; j < column_sums.size(); ++j) {
                const double p = Index(j) < rows.shape.cols ? double(row[j]) : 0;
                const double c = p - column_sums[j] / double(n);
                sum += c * c;
            }
        }
    };
    rows.type == Type::f32 ? add(float{}) : add(double{});
    return sum;
}

double centred_frobenius(const View& a, std::span<const double> column_sums) {
    return std::sqrt(sum_over_rows(Panels(a.shape.rows), a.shape.rows, 1,
                                   [&](Index first, Index count, std::span<double> sum) {
                                       sum[0] =
                                           add_centred_squares(row_range(a, first, count),
                                                               column_sums, a.shape.rows, sum[0]);
                                   })
                         .front());
}

double norm_bound(double squares, double means, Index rows, Index cols) {
    constexpr double ulp = std::numeric_limits<double>::epsilon();
    // Of the sum, and of the means that were subtracted.
    return std::sqrt(squares) * (1 + double(rows) * double(cols) * ulp) +
           double(rows + 4) * ulp * std::sqrt(squares + means);
}

void centred_normal(const View& a, std::span<const double> column_sums, std::span<const double> x,
                    std::span<double> y, std::span<const double> also, std::span<double> image) {
    const Index n = a.shape.rows, m = a.shape.cols;
    const std::vector<double> ones(std::size_t(n), 1.0);
    double mean = 0;
    multiply({const_cast<double*>(column_sums.data()), {1, 1, m}, m, m, Type::f64}, x,
             std::span(&mean, 1));
    mean /= double(n);
    const std::vector<double> sums = sum_over_rows(
        Panels(n), n, y.size() + 1, [&](Index first, Index count, std::span<double> sum) {
            const auto rows = std::size_t(count);
            sum.back() =
                add_normal_product(row_range(a, first, count), std::span(ones).first(rows), mean, x,
                                   sum.first(y.size()), sum.back(), also,
                                   also.empty() ? image : image.subspan(std::size_t(first), rows));
        });
    const double left = sums.back() / double(n);
    for (std::size_t j = 0; j < y.size(); ++j) y[j] = sums[j] - left * column_sums[j];
}

}  // namespace tsdiag::stored
