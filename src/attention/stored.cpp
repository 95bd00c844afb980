#include "stored.hpp"

#include <cmath>
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

Heads::Heads(const Tensor& rows, Index first) : rows_(rows), view_(rows.view()) {
    require_finite(rows, first);
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

std::vector<double> column_sums(const View& a) {
    const std::vector<double> ones(std::size_t(a.shape.rows), 1.0);
    std::vector<double> out(std::size_t(a.shape.cols), 0.0);
    add_transposed(a, 1, ones, out);
    return out;
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
    return std::sqrt(add_centred_squares(a, column_sums, a.shape.rows, 0));
}

}  // namespace tsdiag::stored
