#include "krylov_solvers.hpp"

#include <algorithm>
#include <cmath>

#include "tensor/products.hpp"
#include "tridiagonal.hpp"
#include "ulp.hpp"

namespace tsdiag::krylov {

double norm(std::span<const double> x) {
    return std::sqrt(products::dot(x.data(), x.data(), Index(x.size())));
}

Rng start_of(Search search) {
    constexpr std::uint64_t seed = 0x6b72796c6f76;
    return Rng(seed, std::uint64_t(search));
}

Arnoldi::Arnoldi(double tolerance, Index limit, Index rank, double accuracy, double rounding)
    : tolerance_(tolerance), accuracy_(accuracy), rounding_(rounding), limit_(limit), rank_(rank) {}

void Arnoldi::add(std::vector<double> coefficients, double rest) {
    if (first_) {
        coupling_.push_back(coefficients.front());
        coefficients.erase(coefficients.begin());
    }
    columns_.push_back(std::move(coefficients));
    below_.push_back(rest);
    const Index m = Index(columns_.size());
    const double before = std::abs(leader_);  // at the last check
    if (rest == 0 || m >= check_ || m >= limit_) {
        check_ = m < 64 ? 64 : 4 * m;
        look_ = m + step;
        examine(m, rest, before);
    } else if (m >= look_ && look_ > 0 && promises(m, rest)) {
        look_ = m + std::max(step, m / 8);
        examine(m, rest, before);
    }
}

std::vector<double> Arnoldi::leader() {
    if (!done_ || rank_ == 1) return {};
    const double top = std::abs(found_.first);
    const bool known = out_.converged || below_.back() == 0,
               equal = out_.converged && top - out_.value <= accuracy_ * top;
    if (!known || equal || found_.first.imag() != 0 || found_.first_radius > accuracy_ * top)
        return {};
    const Index m = Index(columns_.size());
    const std::vector<double> h = matrix(m);
    rounding_ += ulp * norm(h);  // products are with A, whatever is left of them
    first_ = out_;
    columns_.clear();
    below_.clear();
    rank_ = 1, check_ = first_check, look_ = 0, leader_ = 0, done_ = false;
    std::vector<double> out;
    for (const std::complex<double> e : hessenberg::right_vector(h, m, found_.first))
        out.push_back(e.real());
    return out;
}

void Arnoldi::examine(Index m, double rest, double before) {
    const std::vector<double> h = matrix(m);
    const double noise = ulp * norm(h) + rounding_;
    const hessenberg::Leading found =
        hessenberg::leading_eigenvalue(h, m, rank_, rest, noise, accuracy_);
    if (!first_) found_ = found;
    const bool invariant = rest == 0;
    const bool stable = std::abs(found.modulus - before) <= 1e-4 * found.modulus;
    out_ = {
        .value = found.modulus, .method = "arnoldi", .residual = found.residual, .iterations = m};
    const bool settled =
        invariant || (stable && found.residual <= tolerance_ * std::max(found.modulus, noise));
    out_.converged = found.certain && settled && (!first_ || certain_beside(h, m, found));
    const bool drowned = rounding_ > accuracy_ * found.modulus;  // whatever the condition
    done_ = out_.converged || invariant || (settled && drowned) || m >= limit_;
    leader_ = found.value;
    if (!out_.converged) out_.low = 0;
}

bool Arnoldi::certain_beside(const std::vector<double>& h, Index m,
                             const hessenberg::Leading& found) const {
    const std::vector<std::complex<double>> u = hessenberg::right_vector(h, m, found.value);
    std::complex<double> b = 0;
    for (std::size_t i = 0; i < u.size(); ++i) b += coupling_[i] * u[i];
    const double error = found.radius + found_.first_radius, moved = error * std::abs(b);
    const double gap = std::abs(found_.first - found.value);
    return error + std::min(std::sqrt(moved), moved / gap) <= 2 * accuracy_ * found.modulus;
}

Estimate Arnoldi::joined() const {
    Estimate out = *first_;
    const double top = std::abs(found_.first), allowed = 2 * accuracy_;
    const double from_second = std::abs(out_.value - out.value),
                 from_top = std::abs(out_.value - top);
    const bool again = from_top < from_second;
    out.converged = out_.converged && (again ? from_top <= allowed * top
                                             : out.converged && from_second <= allowed * out.value);
    if (again) out.value = out_.value;
    out.residual = std::max(out.residual, out_.residual);
    out.iterations += out_.iterations;
    out.low.reset();
    if (!out.converged) out.low = 0;
    return out;
}

bool Arnoldi::promises(Index m, double rest) {
    const hessenberg::Certificate c = hessenberg::certify(matrix(m), m, leader_);
    leader_ = c.value;
    const double residual = rest * c.last, allowed = tolerance_ * std::abs(leader_);
    look_ = m + (residual > 1e3 * allowed ? 2 * step : step);
    return residual <= allowed &&
           c.sensitivity.condition * (residual + rounding_) <= accuracy_ * std::abs(leader_);
}

std::vector<double> Arnoldi::matrix(Index m) const {
    std::vector<double> h(std::size_t(m * m), 0.0);
    for (Index j = 0; j < m; ++j) {
        const auto& column = columns_[std::size_t(j)];
        for (std::size_t i = 0; i < column.size(); ++i)
            h[i * std::size_t(m) + std::size_t(j)] = column[i];
        if (j + 1 < m) h[std::size_t((j + 1) * m + j)] = below_[std::size_t(j)];
    }
    return h;
}

Lanczos::Lanczos(double tolerance, Index limit, double rounding)
    : tolerance_(tolerance), rounding_(rounding), limit_(limit), check_(16) {}

void Lanczos::add(const std::vector<double>& coefficients, double rest) {
    diagonal_.push_back(coefficients.back());
    const Index m = Index(diagonal_.size());
    if (rest == 0 || m >= check_ || m >= limit_) {
        check_ = m + 8;
        examine(m, rest);
    }
    off_.push_back(rest);
}

void Lanczos::examine(Index m, double rest) {
    const double top = std::max(0.0, tridiagonal::eigenvalue(diagonal_, off_, 0));
    const double residual = rest * tridiagonal::last_component(diagonal_, off_, top);
    out_ = {.value = std::sqrt(top), .method = "golub-kahan", .iterations = m};
    out_.residual = top > 0 ? residual / out_.value : residual;
    // A residual far below the gap to the next Ritz value would promise more (Kato and Temple),
    // but Ritz values of a cluster part late.
    const bool settled = rest == 0 || residual <= 2 * tolerance_ * top;
    const double error = 2 * rounding_;  // of both products
    out_.converged = settled && error <= tolerance_ * out_.value;
    done_ = settled || m >= limit_;
    constexpr double of_sums = 1e-12;
    if (!out_.converged) out_.low = std::max(0.0, out_.value * (1 - of_sums) - error);
}

}  // namespace tsdiag::krylov
