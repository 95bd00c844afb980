#include "stored.hpp"

#include <cmath>

namespace tsdiag::stored {

Heads::Heads(const AttentionOperator& p) : view_(p.matrix().view()) {
    if (p.backend().host_memory()) return;
    const Index n = p.tokens();
    if (p.type() == Type::f32) {
        narrow_ = p.matrix().to_host<float>();
        view_.data = narrow_.data();
    } else {
        wide_ = p.matrix().to_host<double>();
        view_.data = wide_.data();
    }
    view_.row_stride = n;
    view_.batch_stride = n * n;
}

View Heads::operator[](Index head) const {
    View one = view_;
    one.shape.batch = 1;
    one.data = static_cast<char*>(view_.data) +
               static_cast<std::size_t>(head * view_.batch_stride) * bytes_of(view_.type);
    return one;
}

std::vector<double> column_sums(const View& a) {
    const std::vector<double> ones(static_cast<std::size_t>(a.shape.rows), 1.0);
    std::vector<double> out(static_cast<std::size_t>(a.shape.cols), 0.0);
    add_transposed(a, 1, ones, out);
    return out;
}

double centred_frobenius(const View& a, std::span<const double> column_sums) {
    const Index n = a.shape.rows;
    double sum = 0;
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < a.shape.cols; ++j) {
            const double p =
                a.type == Type::f32 ? double(a.row<float>(0, i)[j]) : a.row<double>(0, i)[j];
            const double c = p - column_sums[static_cast<std::size_t>(j)] / double(n);
            sum += c * c;
        }
    return std::sqrt(sum);
}

}  // namespace tsdiag::stored
