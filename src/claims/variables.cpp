#include "variables.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag::claim {

namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

std::vector<double> row_major(const Matrix& a) {
    std::vector<double> values(std::size_t(a.size()));
    Eigen::Map<RowMajor>(values.data(), a.rows(), a.cols()) = a;
    return values;
}

}  // namespace

void Variables::set(std::string name, Matrix value) {
    const auto at = std::ranges::find(entries_, name, &Entry::name);
    if (at == entries_.end())
        entries_.push_back({std::move(name), std::move(value)});
    else
        at->value = std::move(value);
}

const Matrix& Variables::operator()(std::string_view name) const {
    const auto at = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& e) { return e.name == name; });
    check(at != entries_.end(), "a claim asks for a variable that it has not drawn");
    return at->value;
}

Index Variables::count() const {
    Index total = 0;
    for (const Entry& e : entries_) total += e.value.size();
    return total;
}

std::vector<double> Variables::flat() const {
    std::vector<double> all;
    for (const Entry& e : entries_) {
        const std::vector<double> part = row_major(e.value);
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

void Variables::assign(const std::vector<double>& flat) {
    check(Index(flat.size()) == count(), "variables keep their sizes");
    const double* next = flat.data();
    for (Entry& e : entries_) {
        e.value = Eigen::Map<const RowMajor>(next, e.value.rows(), e.value.cols());
        next += e.value.size();
    }
}

std::vector<NamedMatrix> Variables::named() const {
    std::vector<NamedMatrix> all;
    for (const Entry& e : entries_) all.push_back(claim::named(e.name, e.value));
    return all;
}

NamedMatrix named(std::string name, const Matrix& value) {
    return {std::move(name), value.rows(), value.cols(), row_major(value)};
}

Matrix draw(const Rng& rng, std::string_view stream, Index rows, Index cols,
            Distribution distribution, double variance) {
    std::vector<double> values(std::size_t(rows * cols));
    const Rng part = rng.fork(stream);
    const double deviation = std::sqrt(variance);
    switch (distribution) {
        case Distribution::gaussian:
            part.fill_normal(values, 0, deviation);
            break;
        case Distribution::rademacher:
            part.fill_uniform(values, -1, 1);
            for (double& v : values) v = v < 0 ? -deviation : deviation;
            break;
        default:
            part.fill_uniform(values, -std::sqrt(3) * deviation, std::sqrt(3) * deviation);
    }
    return Eigen::Map<const RowMajor>(values.data(), rows, cols);
}

double weight_variance(Distribution distribution, Index fan_in, Index fan_out, double asked) {
    if (distribution == Distribution::torch) return 1 / (3 * double(fan_in));
    if (distribution == Distribution::xavier) return 2 / double(fan_in + fan_out);
    return asked;
}

Matrix draw_weights(const Rng& rng, std::string_view stream, Index fan_in, Index fan_out,
                    Distribution distribution, double asked) {
    return draw(rng, stream, fan_in, fan_out, distribution,
                weight_variance(distribution, fan_in, fan_out, asked));
}

Matrix softmax(const Matrix& logits) {
    Matrix p = (logits.colwise() - logits.rowwise().maxCoeff()).array().exp().matrix();
    const Vector sums = p.rowwise().sum();
    p.array().colwise() /= sums.array();
    return p;
}

Matrix mean_part(const Matrix& x) { return Vector::Ones(x.rows()) * x.colwise().mean(); }

Matrix centred(const Matrix& x) { return x.rowwise() - x.colwise().mean(); }

double largest_row(const Matrix& x) { return x.rowwise().norm().maxCoeff(); }

double spectral_norm(const Matrix& a) {
    const double scale = a.size() == 0 ? 0 : a.cwiseAbs().maxCoeff();
    if (!(scale > 0)) return scale;
    // The largest eigenvalue of the smaller Gram matrix: its rounding error is relative.
    const Matrix b = a / scale;
    const Matrix gram = a.rows() < a.cols() ? Matrix(b * b.transpose()) : Matrix(b.transpose() * b);
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(gram, Eigen::EigenvaluesOnly);
    return scale * std::sqrt(std::max(solver.eigenvalues().maxCoeff(), 0.0));
}

}  // namespace tsdiag::claim
