#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "hessenberg.hpp"
#include "products.hpp"
#include "tridiagonal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag {
namespace {

constexpr double ulp = std::numeric_limits<double>::epsilon();

double norm(std::span<const double> x) {
    return std::sqrt(products::dot(x.data(), x.data(), static_cast<Index>(x.size())));
}

/// An orthonormal basis of a Krylov space that grows by one image at a time.
class Basis {
  public:
    explicit Basis(Index n) : n_(n), rows_(std::size_t(n)) {
        Rng(0x6b72796c6f76, 0).fill_normal(rows_, 0, 1);  // the same start for every map
        const double length = norm(rows_);
        for (double& e : rows_) e /= length;
    }

    Index size() const { return size_; }
    std::span<const double> last() const {
        return std::span(rows_).subspan(std::size_t((size_ - 1) * n_), std::size_t(n_));
    }

    /// Orthogonalises `image` against the basis, once more where much of it went; its coefficients.
    /// What remains, of norm `rest`, is the next vector, unless it is nothing but rounding: then
    /// `rest` is 0 and the basis stays.
    std::vector<double> extend(std::span<double> image, double& rest) {
        const View basis{rows_.data(), {1, size_, n_}, size_ * n_, n_, Type::f64};
        std::vector<double> total(std::size_t(size_), 0.0), part(total);
        const double before = norm(image);
        double length = before;
        for (int pass = 0; pass < 2; ++pass) {
            multiply(basis, image, part);
            add_transposed(basis, -1, part, image);
            for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
            rest = norm(image);
            // What is long still is orthogonal to rounding: nothing cancelled.
            if (rest > 0.7 * length) break;
            length = rest;
        }
        if (rest <= 8 * ulp * before || size_ == n_) {
            rest = 0;
            return total;
        }
        rows_.reserve(rows_.size() + 64 * std::size_t(n_) * (size_ % 64 == 1));
        for (double e : image) rows_.push_back(e / rest);
        ++size_;
        return total;
    }

  private:
    Index n_, size_ = 1;
    std::vector<double> rows_;
};

class Arnoldi {
    static constexpr Index step = 8;  // between two looks at what leads

  public:
    Arnoldi(Index n, double tolerance, Index limit, Index rank)
        : basis_(n), tolerance_(tolerance), limit_(limit), rank_(rank) {}

    bool done() const { return done_; }
    std::span<const double> direction() const { return basis_.last(); }

    void advance(std::span<double> image) {
        double rest = 0;
        columns_.push_back(basis_.extend(image, rest));
        below_.push_back(rest);
        const Index m = static_cast<Index>(columns_.size());
        const double before = std::abs(leader_);  // at the last look
        if (rest == 0 || m >= check_ || m >= limit_) {
            check_ = m < 64 ? 64 : 4 * m;
            look_ = m + step;
            examine(m, rest, before);
        } else if (m >= look_ && look_ > 0 && promises(m, rest)) {
            look_ = m + std::max(step, m / 8);
            examine(m, rest, before);
        }
    }

    Estimate estimate() const { return out_; }

  private:
    void examine(Index m, double rest, double before) {
        const std::vector<double> h = matrix(m);
        const double noise = ulp * norm(h);
        const hessenberg::Leading found = hessenberg::leading_eigenvalue(h, m, rank_, rest, noise);
        const bool invariant = rest == 0;
        const bool stable = std::abs(found.modulus - before) <= 1e-4 * found.modulus;
        out_ = {.value = found.modulus,
                .method = "arnoldi",
                .residual = found.residual,
                .iterations = m};
        out_.converged = found.certain &&
                         (invariant || (stable && found.residual <=
                                                      tolerance_ * std::max(found.modulus, noise)));
        done_ = out_.converged || invariant || m >= limit_;
        leader_ = found.value;
        if (!out_.converged) {
            out_.low = std::max(0.0, found.modulus - found.radius);
            out_.high = found.modulus + found.radius;
        }
    }

    /// The small problem costs m^3, following what led when it was last solved m^2: has its
    /// residual fallen far enough to solve it again?
    bool promises(Index m, double rest) {
        const hessenberg::Certificate c = hessenberg::certify(matrix(m), m, leader_);
        leader_ = c.value;
        const double residual = rest * c.last, allowed = tolerance_ * std::abs(leader_);
        look_ = m + (residual > 1e3 * allowed ? 2 * step : step);
        return residual <= allowed && c.condition * residual <= 1e-6 * std::abs(leader_);
    }

    std::vector<double> matrix(Index m) const {
        std::vector<double> h(std::size_t(m * m), 0.0);
        for (Index j = 0; j < m; ++j) {
            const auto& column = columns_[std::size_t(j)];
            for (std::size_t i = 0; i < column.size(); ++i)
                h[i * std::size_t(m) + std::size_t(j)] = column[i];
            if (j + 1 < m) h[std::size_t((j + 1) * m + j)] = below_[std::size_t(j)];
        }
        return h;
    }

    Basis basis_;
    double tolerance_;
    Index limit_, rank_;
    Index check_ = 32, look_ = 0;  // when the small problem is solved, or followed, at the latest
    std::complex<double> leader_ = 0;  // the Ritz value that is followed
    std::vector<std::vector<double>> columns_;
    std::vector<double> below_;
    Estimate out_;
    bool done_ = false;
};

class Lanczos {
  public:
    Lanczos(Index n, double tolerance, Index limit)
        : basis_(n), tolerance_(tolerance), limit_(limit), check_(16) {}

    bool done() const { return done_; }
    std::span<const double> direction() const { return basis_.last(); }

    void advance(std::span<double> image) {
        double rest = 0;
        diagonal_.push_back(basis_.extend(image, rest).back());
        const Index m = static_cast<Index>(diagonal_.size());
        if (rest == 0 || m >= check_ || m >= limit_) {
            check_ = m + 8;
            examine(m, rest);
        }
        off_.push_back(rest);
    }

    Estimate estimate() const { return out_; }

  private:
    void examine(Index m, double rest) {
        const double top = std::max(0.0, tridiagonal::eigenvalue(diagonal_, off_, 0));
        const double residual = rest * tridiagonal::last_component(diagonal_, off_, top);
        double error = residual;
        if (m > 1) {
            const double gap = top - tridiagonal::eigenvalue(diagonal_, off_, 1) - residual;
            if (gap > residual) error = residual * (residual / gap);
        }
        out_ = {.value = std::sqrt(top), .method = "golub-kahan", .iterations = m};
        out_.residual = top > 0 ? residual / out_.value : residual;
        out_.converged = rest == 0 || error <= 2 * tolerance_ * top;
        done_ = out_.converged || m >= limit_;
        if (!out_.converged) {
            out_.low = out_.value;
            out_.high = std::sqrt(top + residual);
        }
    }

    Basis basis_;
    double tolerance_;
    Index limit_, check_;
    std::vector<double> diagonal_, off_;
    Estimate out_;
    bool done_ = false;
};

/// Gives each solver its images until all are done.
template <class Solver, class Apply>
std::vector<Estimate> iterate(Index n, Index count, const Solver& start, const Apply& apply) {
    std::vector<Solver> solvers(std::size_t(count), start);
    std::vector<double> x(std::size_t(count * n)), y(x.size());
    const auto part = [n](std::vector<double>& v, std::size_t i) {
        return std::span(v).subspan(i * std::size_t(n), std::size_t(n));
    };
    const auto busy = [](const Solver& s) { return !s.done(); };
    while (std::any_of(solvers.begin(), solvers.end(), busy)) {
        for (std::size_t i = 0; i < solvers.size(); ++i)
            std::ranges::copy(solvers[i].direction(), part(x, i).begin());
        apply(x, y);
        for (std::size_t i = 0; i < solvers.size(); ++i)
            if (busy(solvers[i])) solvers[i].advance(part(y, i));
    }
    std::vector<Estimate> out;
    for (const Solver& s : solvers) out.push_back(s.estimate());
    return out;
}

}  // namespace

std::vector<Estimate> spectral_radii(const LinearMap& a, Index count, double tolerance,
                                     Index max_products, Index rank) {
    check(a.rows == a.cols && count > 0 && a.rows > 0 && a.rows % count == 0 && max_products > 0,
          "spectral_radii: a square map for each");
    const Index n = a.rows / count;
    return iterate(n, count, Arnoldi(n, tolerance, max_products, rank), a.apply);
}

std::vector<Estimate> largest_singular_values(const LinearMap& a, Index count, double tolerance,
                                              Index max_products) {
    check(count > 0 && a.cols > 0 && a.cols % count == 0 && max_products > 0,
          "largest_singular_values: equal maps");
    const Index n = a.cols / count;
    const Lanczos start(n, tolerance, max_products);
    if (a.normal) return iterate(n, count, start, a.normal);
    std::vector<double> between(std::size_t(a.rows));
    return iterate(n, count, start, [&](std::span<const double> x, std::span<double> y) {
        a.apply(x, between);
        a.transpose(between, y);
    });
}

Estimate spectral_radius(const LinearMap& a, double tolerance, Index max_products, Index rank) {
    return spectral_radii(a, 1, tolerance, max_products, rank).front();
}

Estimate largest_singular_value(const LinearMap& a, double tolerance, Index max_products) {
    return largest_singular_values(a, 1, tolerance, max_products).front();
}

}  // namespace tsdiag
