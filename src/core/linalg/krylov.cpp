#include <algorithm>
#include <cmath>
#include <vector>

#include "krylov_solvers.hpp"
#include "tensor/products.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/parallel.hpp"
#include "ulp.hpp"

namespace tsdiag::krylov {
namespace {

/// An orthonormal basis of a Krylov space, extended by one image at a time.
class Basis {
  public:
    explicit Basis(Index n) : n_(n), rows_(std::size_t(n)) {
        start_of(Search::first).fill_normal(rows_, 0, 1);
        normalise(rows_);
    }

    /// Begins anew: with this combination of its first vectors, and a start that is orthogonal to
    /// it.
    void deflate(std::span<const double> leader) {
        std::vector<double> x(std::size_t(n_), 0.0), start(x);
        add_transposed(rows(std::ssize(leader)), 1, leader, x);
        normalise(x);
        rows_ = std::move(x);
        size_ = 1;
        start_of(Search::beside_leader).fill_normal(start, 0, 1);
        double rest = 0;
        extend(start, rest);
    }

    Index size() const { return size_; }
    std::span<const double> last() const {
        return std::span(rows_).subspan(std::size_t((size_ - 1) * n_), std::size_t(n_));
    }

    /// Orthogonalises `image` against the basis, twice where much cancels; returns its
    /// coefficients.  The remainder, of norm `rest`, is the next vector, unless it is only
    /// rounding: then `rest` is 0 and the basis is unchanged.
    std::vector<double> extend(std::span<double> image, double& rest) {
        const View basis = rows(size_);
        std::vector<double> total(std::size_t(size_), 0.0), part(total);
        const double before = norm(image);
        double length = before;
        for (int pass = 0; pass < 2; ++pass) {
            multiply(basis, image, part);
            add_transposed(basis, -1, part, image);
            for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
            rest = norm(image);
            // Little cancelled: the remainder is orthogonal to rounding.
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
    View rows(Index count) { return {rows_.data(), {1, count, n_}, count * n_, n_, Type::f64}; }
    static void normalise(std::span<double> x) {
        const double length = norm(x);
        for (double& e : x) e /= length;
    }

    Index n_, size_ = 1;
    std::vector<double> rows_;
};

/// Solvers of equal maps, each with its basis.
template <class Solver>
class Together {
  public:
    Together(Index n, std::vector<Solver> solvers)
        : n_(std::size_t(n)),
          solvers_(std::move(solvers)),
          bases_(solvers_.size(), Basis(n)),
          x_(solvers_.size() * n_),
          y_(x_.size()) {}

    bool done() const { return std::ranges::all_of(solvers_, &Solver::done); }
    /// The vectors of the next products, one after the other.
    std::span<const double> vectors() {
        for (std::size_t i = 0; i < solvers_.size(); ++i)
            std::ranges::copy(bases_[i].last(), part(x_, i).begin());
        return x_;
    }
    std::span<double> images() { return y_; }
    /// Feeds each solver its image.
    void take() {
        for (std::size_t i = 0; i < solvers_.size(); ++i) {
            if (solvers_[i].done()) continue;
            double rest = 0;
            std::vector<double> coefficients = bases_[i].extend(part(y_, i), rest);
            solvers_[i].add(std::move(coefficients), rest);
            if (const std::vector<double> leader = solvers_[i].leader(); !leader.empty())
                bases_[i].deflate(leader);
        }
    }
    std::vector<Estimate> found() const { return estimates(solvers_); }

  private:
    std::span<double> part(std::vector<double>& v, std::size_t i) const {
        return std::span(v).subspan(i * n_, n_);
    }

    std::size_t n_;
    std::vector<Solver> solvers_;
    std::vector<Basis> bases_;
    std::vector<double> x_, y_;
};

template <class Solver, class Apply>
std::vector<Estimate> iterate(Index n, std::vector<Solver> solvers, const Apply& apply) {
    Together<Solver> all(n, std::move(solvers));
    while (!all.done()) {
        apply(all.vectors(), all.images());
        all.take();
    }
    return all.found();
}

/// Where all solvers have ended and some go on beside their leader: the leaders in the first
/// vectors of their bases, (count, 1, as many as any needs) of a backend, the first vector where
/// there is none.  Else undefined.  Later vectors of a basis may never have been written.
template <class Solver>
Tensor leaders_of(std::vector<Solver>& solvers, const Backend& backend) {
    std::vector<std::vector<double>> leaders;
    std::size_t size = 0;
    for (Solver& solver : solvers) {
        leaders.push_back(solver.leader());
        size = std::max(size, leaders.back().size());
    }
    if (size == 0) return {};
    std::vector<double> all;
    for (std::vector<double>& leader : leaders) {
        if (leader.empty()) leader = {1};
        leader.resize(size);
        all.insert(all.end(), leader.begin(), leader.end());
    }
    return Tensor::from_host(backend, {std::ssize(solvers), 1, Index(size)},
                             std::span<const double>(all), Type::f64);
}

/// A tensor of `shape` whose first rows are `rows`, which may be undefined: room for more.
Tensor with_room(const Backend& backend, const Shape& shape, const Tensor& rows) {
    const Tensor out = Tensor::empty(backend, shape, Type::f64);
    if (rows.defined())
        backend.unary(Unary::copy, out.row_range(0, rows.rows()).view(), rows.view());
    return out;
}

/// Orthonormal bases, of one size, of a stack of Krylov spaces on the backend of the maps.
class StackBasis {
  public:
    explicit StackBasis(const StackMap& map) : map_(map) {
        const Tensor x = start(Search::first);
        append(x, norms(x));
    }

    /// As `Basis::deflate`; `leaders` (count, 1, size).
    void deflate(const Tensor& leaders) {
        const Tensor x =
            matmul(leaders, rows_.row_range(0, leaders.cols())).reshape({map_.count, map_.n, 1});
        rows_ = {};
        size_ = 0;
        append(x, norms(x));
        std::vector<std::vector<double>> coefficients;
        std::vector<double> rest;
        take(start(Search::beside_leader), coefficients, rest);
    }

    /// The next images in the basis, and the norm of the remainder of each, 0 where it is only
    /// rounding.
    void extend(std::vector<std::vector<double>>& coefficients, std::vector<double>& rest) {
        take(map_.apply(last_), coefficients, rest);
    }

  private:
    Tensor start(Search search) const {
        std::vector<double> one(std::size_t(map_.n));
        start_of(search).fill_normal(one, 0, 1);  // as for one map
        const Tensor x = expand(Tensor::from_host(map_.backend, {1, map_.n, 1},
                                                  std::span<const double>(one), Type::f64),
                                {map_.count, map_.n, 1});
        return map_.centred ? subtract_column_mean(x) : x;
    }

    /// `extend` by any image.
    void take(Tensor image, std::vector<std::vector<double>>& coefficients,
              std::vector<double>& rest) {
        const std::vector<double> whole = norms(image);
        if (map_.centred) image = subtract_column_mean(image);
        const std::vector<double> before = norms(image);
        const Tensor basis = rows_.row_range(0, size_);
        Tensor total;
        for (int pass = 0; pass < 2; ++pass) {
            const Tensor part = matmul(basis, image);
            image = subtract(image, matmul(basis, part, Transpose::first));
            total = total.defined() ? add(total, part) : part;
        }
        rest = norms(image);
        const std::vector<double> all = total.to_host<double>();
        coefficients.clear();
        for (std::size_t i = 0; i < rest.size(); ++i) {
            const auto own = all.begin() + std::ptrdiff_t(i) * size_;
            coefficients.emplace_back(own, own + size_);
            const bool nothing = map_.centred && before[i] <= 4 * ulp * whole[i];
            if (nothing) std::ranges::fill(coefficients.back(), 0.0);
            if (nothing || rest[i] <= 8 * ulp * before[i] || size_ == map_.n) rest[i] = 0;
        }
        append(image, rest);
    }

    static std::vector<double> norms(const Tensor& x) {
        std::vector<double> all = column_sum(map(Unary::square, x)).to_host<double>();
        for (double& e : all) e = std::sqrt(e);
        return all;
    }

    /// Appends x divided by its norms, or 0 where they are 0.
    void append(const Tensor& x, std::vector<double> norms) {
        for (double& e : norms) e = e > 0 ? 1 / e : 0;
        last_ = multiply(x, Tensor::from_host(map_.backend, {map_.count, 1, 1},
                                              std::span<const double>(norms), Type::f64));
        if (!rows_.defined() || size_ == rows_.rows())
            rows_ = with_room(map_.backend,
                              {map_.count, std::max<Index>(16, size_ + size_ / 2), map_.n}, rows_);
        map_.backend.unary(Unary::copy, rows_.row_range(size_, 1).view(),
                           last_.reshape({map_.count, 1, map_.n}).view());
        ++size_;
    }

    const StackMap& map_;
    Index size_ = 0;
    Tensor rows_, last_;  // (count, capacity, n) and the last of them, (count, n, 1)
};

/// Finished maps continue with the others; their results are ignored.
template <class Solver>
std::vector<Estimate> iterate(const StackMap& map, const Solver& start) {
    check(map.count > 0 && map.n > 0, "a stack of maps");
    std::vector<Solver> solvers(std::size_t(map.count), start);
    StackBasis basis(map);
    std::vector<std::vector<double>> coefficients;
    std::vector<double> rest;
    for (;;) {
        while (!std::ranges::all_of(solvers, &Solver::done)) {
            basis.extend(coefficients, rest);
            for (std::size_t i = 0; i < solvers.size(); ++i)
                if (!solvers[i].done()) solvers[i].add(std::move(coefficients[i]), rest[i]);
        }
        const Tensor leaders = leaders_of(solvers, map.backend);
        if (!leaders.defined()) return estimates(solvers);
        basis.deflate(leaders);
    }
}

/// Bases of one size of Krylov spaces on a device that `fuses`, each step one product of all
/// matrices and one kernel for all bases; the coefficients stay there until they are read.
class FusedBases {
  public:
    static constexpr Index products_of_read = 8;

    FusedBases(const Tensor& a, const StackedSearch& search)
        : a_(a),
          count_(a.batch()),
          n_(a.cols()),
          radii_(search.radius_products > 0),
          norms_(search.norm_products > 0),
          centred_(search.centred && radii_ ? count_ : 0) {
        const Backend& backend = a.backend();
        if (norms_ && search.centred_norms)
            column_ =
                matvec(a, affine(zeros(backend, {count_, a.rows(), 1}, Type::f64), 0, 1), true)
                    .reshape({count_, 1, n_});
        else if (norms_)
            column_ = zeros(backend, {count_, 1, n_}, Type::f64);  // no mean is taken
        begin(Search::first, (Index(radii_) + Index(norms_)) * count_);
    }

    Index size() const { return size_; }

    /// As `Basis::deflate`, of the radii's bases, `leaders` (count, 1, size); the norms' end.
    void deflate(const Tensor& leaders) {
        const Tensor x = matmul(leaders, rows_.batch_range(0, count_).row_range(0, leaders.cols()));
        norms_ = false;
        size_ = 0;
        rows_ = {};
        images_ = x;
        extend(0, count_, Tensor::empty(a_.backend(), {count_, 1, 1}, Type::f64));
        begin(Search::beside_leader, count_);
    }

    /// `products` more products, of the radii's matrices, of the norms', or of both: the numbers of
    /// each basis that goes on, for each product its coefficients and the norm of the remainder.
    std::vector<double> advance(Index products, bool radii, bool norms) {
        const Index first = radii ? 0 : Index(radii_) * count_,
                    some = (Index(radii) + Index(norms)) * count_;
        stride_ = size_ + products;
        const Tensor numbers = Tensor::empty(a_.backend(), {some, products, stride_}, Type::f64);
        for (Index k = 0; k < products; ++k) {
            multiply(radii, norms);
            extend(first, some, numbers.row_range(k, 1).col_range(0, size_ + 1));
        }
        return numbers.to_host<double>();
    }
    /// From one product to the next in what `advance` has returned.
    Index stride() const { return stride_; }

  private:
    /// The next vector of `count` bases is what is left of a start.
    void begin(Search search, Index count) {
        images_ = expand(
            random_tensor(a_.backend(), {1, 1, n_}, Type::f64, Law::normal, start_of(search), 0, 1),
            {count, 1, n_});
        extend(0, count, Tensor::empty(a_.backend(), {count, 1, size_ + 1}, Type::f64));
    }
    void multiply(bool radii, bool norms) {
        const Tensor last = rows_.row_range(size_ - 1, 1);
        const Index of_norms = Index(radii_) * count_;
        const View x = last.batch_range(0, count_).view(), y = part(images_, 0);
        const View u = norms ? part(last, of_norms) : View(),
                   z = norms ? part(images_, of_norms) : View();
        a_.backend().krylov_products(radii ? &y : nullptr, norms ? &z : nullptr, a_.view(), x, u,
                                     norms ? column_.view() : View());
    }
    View part(const Tensor& t, Index first) const { return t.batch_range(first, count_).view(); }

    /// By the images of `some` bases from `first` on.
    void extend(Index first, Index some, const Tensor& column) {
        if (!rows_.defined() || size_ == rows_.rows())
            rows_ = with_room(
                a_.backend(),
                {images_.batch(), std::min(n_ + 1, std::max<Index>(48, 2 * size_)), n_}, rows_);
        a_.backend().extend_basis(rows_.batch_range(first, some).row_range(0, size_ + 1).view(),
                                  column.view(), images_.batch_range(first, some).view(),
                                  first == 0 ? std::min(centred_, some) : 0);
        ++size_;
    }

    Tensor a_;
    Index count_, n_;
    bool radii_, norms_;
    Index centred_;   ///< so many bases are, from the first on
    Index size_ = 0;  ///< vectors of each
    Index stride_ = 0;
    Tensor column_;         ///< 1^T A, or 0
    Tensor rows_, images_;  ///< those of the radii before those of the norms
};

/// Feeds solver i the numbers of basis first + i; on all threads, since small problems are solved.
template <class Solver>
void feed(std::vector<Solver>& solvers, const std::vector<double>& numbers, Index first, Index size,
          Index products, Index stride) {
    in_parallel(std::ssize(solvers), [&](Index i) {
        Solver& solver = solvers[std::size_t(i)];
        for (Index k = 0; k < products && !solver.done(); ++k) {
            const double* row = numbers.data() + ((first + i) * products + k) * stride;
            if (!std::all_of(row, row + size + k + 1, [](double e) { return std::isfinite(e); }))
                throw NonFiniteError("an iteration has met a number that is not finite");
            solver.add(std::vector<double>(row, row + size + k), row[size + k]);
        }
    });
}

}  // namespace
}  // namespace tsdiag::krylov

namespace tsdiag {

RadiiAndNorms radii_and_norms(const Tensor& stack, const StackedSearch& search) {
    const Index count = stack.batch(), n = stack.cols();
    const bool radii = search.radius_products > 0, norms = search.norm_products > 0;
    check(count > 0 && n > 0 && stack.rows() > 0 && (!radii || stack.rows() == n),
          "radii_and_norms: a stack of matrices, square ones for radii");
    auto radius =
        krylov::solvers_of<krylov::Arnoldi>(radii ? count : 0, search.rounding, search.tolerance,
                                            search.radius_products, search.rank, search.accuracy);
    auto norm = krylov::solvers_of<krylov::Lanczos>(norms ? count : 0, search.rounding,
                                                    search.tolerance, search.norm_products);
    krylov::FusedBases bases(stack, search);
    for (;;) {
        const bool first = !std::ranges::all_of(radius, &krylov::Arnoldi::done),
                   second = !std::ranges::all_of(norm, &krylov::Lanczos::done);
        const Index size = bases.size();
        if (!first && !second) {
            const Tensor leaders = krylov::leaders_of(radius, stack.backend());
            if (!leaders.defined()) return {krylov::estimates(radius), krylov::estimates(norm)};
            bases.deflate(leaders);
            continue;
        }
        const Index products = std::min(krylov::FusedBases::products_of_read, n + 1 - size);
        const std::vector<double> numbers = bases.advance(products, first, second);
        if (first) krylov::feed(radius, numbers, 0, size, products, bases.stride());
        if (second) krylov::feed(norm, numbers, first ? count : 0, size, products, bases.stride());
    }
}

std::vector<Estimate> spectral_radii(const LinearMap& a, Index count, double tolerance,
                                     Index max_products, Index rank, double accuracy) {
    check(a.rows == a.cols && count > 0 && a.rows > 0 && a.rows % count == 0 && max_products > 0,
          "spectral_radii: a square map for each");
    return krylov::iterate(a.rows / count,
                           krylov::solvers_of<krylov::Arnoldi>(count, a.rounding, tolerance,
                                                               max_products, rank, accuracy),
                           a.apply);
}

std::vector<Estimate> largest_singular_values(const LinearMap& a, Index count, double tolerance,
                                              Index max_products) {
    check(count > 0 && a.cols > 0 && a.cols % count == 0 && max_products > 0,
          "largest_singular_values: equal maps");
    const Index n = a.cols / count;
    const auto start =
        krylov::solvers_of<krylov::Lanczos>(count, a.rounding, tolerance, max_products);
    if (a.normal) return krylov::iterate(n, start, a.normal);
    std::vector<double> between(std::size_t(a.rows));
    return krylov::iterate(n, start, [&](std::span<const double> x, std::span<double> y) {
        a.apply(x, between);
        a.transpose(between, y);
    });
}

RadiiAndNorms radii_and_norms(const SharedPass& stack, Index count, double tolerance,
                              Index radius_products, Index norm_products, Index rank,
                              double accuracy) {
    const LinearMap &square = stack.square, &normal = stack.normal;
    check(square.rows == square.cols && square.rows == normal.cols && count > 0 &&
              square.rows > 0 && square.rows % count == 0 && radius_products > 0 &&
              norm_products > 0,
          "radii_and_norms: two square maps for each");
    const Index n = square.rows / count;
    krylov::Together radii(n, krylov::solvers_of<krylov::Arnoldi>(count, square.rounding, tolerance,
                                                                  radius_products, rank, accuracy));
    krylov::Together norms(
        n, krylov::solvers_of<krylov::Lanczos>(count, normal.rounding, tolerance, norm_products));
    while (!radii.done() || !norms.done()) {
        const bool first = !radii.done(), second = !norms.done();
        if (first && second)
            stack.both(radii.vectors(), radii.images(), norms.vectors(), norms.images());
        else if (first)
            square.apply(radii.vectors(), radii.images());
        else
            normal.normal(norms.vectors(), norms.images());
        if (first) radii.take();
        if (second) norms.take();
    }
    return {radii.found(), norms.found()};
}

std::vector<Estimate> spectral_radii(const StackMap& stack, double tolerance, Index max_products,
                                     Index rank, double accuracy) {
    return krylov::iterate(stack, krylov::Arnoldi(tolerance, max_products, rank, accuracy, 0));
}

std::vector<Estimate> largest_singular_values(const StackMap& stack, double tolerance,
                                              Index max_products) {
    return krylov::iterate(stack, krylov::Lanczos(tolerance, max_products, 0));
}

Estimate spectral_radius(const LinearMap& a, double tolerance, Index max_products, Index rank,
                         double accuracy) {
    return spectral_radii(a, 1, tolerance, max_products, rank, accuracy).front();
}

Estimate largest_singular_value(const LinearMap& a, double tolerance, Index max_products) {
    return largest_singular_values(a, 1, tolerance, max_products).front();
}

}  // namespace tsdiag
