#include "on_device.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "centred.hpp"
#include "route.hpp"
#include "stored.hpp"
#include "tsdiag/error.hpp"
#include "visible.hpp"

namespace tsdiag::on_device {
namespace {

using one_matrix::arnoldi_products, one_matrix::lanczos_products, one_matrix::residual_for;

/// out += part on its first rows.
void add_to(const Tensor& out, const Tensor& part) {
    const View rows = out.row_range(0, part.rows()).view();
    out.backend().binary(Binary::add, rows, rows, part.view());
}

RowStatistics statistics(const Tensor& rows, Index first) {
    return row_statistics(rows, Tensor(), false, first, Visible());
}

/// P x of a square P, and P^T Pi2 P x, of all heads; x (h, m + n, 1) in float64.
class Products {
  public:
    Products(const AttentionOperator& p, double memory)
        : p_(p), block_(p.rows_at_once(memory)), kept_(stored::fits(p, memory)) {}

    Tensor multiply(const Tensor& x) {
        const Tensor y = Tensor::empty(p_.backend(), x.shape(), Type::f64);
        each_block([&](const RowBlock& rows, const Tensor& p) {
            const Tensor part = matvec(p, x.row_range(0, p.cols()));
            p_.backend().unary(Unary::copy, y.row_range(rows.first, p.rows()).view(), part.view());
        });
        return y;
    }

    /// As `normal_product`: the mean of P x beforehand, its rounding error afterwards.
    Tensor normal(const Tensor& x) {
        const double n = double(p_.tokens());
        sum_columns();
        const Tensor mean = scale(column_sum(tsdiag::multiply(column_, x)), 1 / n);
        Tensor y = zeros(p_.backend(), x.shape(), Type::f64), left;
        each_block([&](const RowBlock&, const Tensor& p) {
            const Tensor u = subtract(matvec(p, x.row_range(0, p.cols())), mean);
            const Tensor sum = column_sum(u);
            left = left.defined() ? add(left, sum) : sum;
            add_to(y, matvec(p, u, true));
        });
        return subtract(y, tsdiag::multiply(column_, scale(left, 1 / n)));
    }

    /// Of each head an upper bound of |Pi2 P|_2, or of |P|_2: the Frobenius norm.
    std::vector<double> norm_bounds(bool centred) {
        sum_columns();
        std::vector<double> squares(std::size_t(p_.heads()), 0.0);
        each_block([&](const RowBlock& rows, const Tensor& p) {
            const std::vector<Wide> of_row = statistics(p, rows.first).squares;
            for (std::size_t i = 0; i < of_row.size(); ++i)
                squares[i / std::size_t(p.rows())] += of_row[i];
        });
        const std::vector<double> column =
            column_sum(map(Unary::square, column_)).to_host<double>();
        const auto n = double(p_.tokens());
        constexpr double ulp = std::numeric_limits<double>::epsilon();
        for (std::size_t k = 0; k < squares.size(); ++k) {
            const double means = centred ? column[k] / n : 0;
            // The difference may cancel.
            const double left = std::max(0.0, squares[k] - means) + 8 * n * ulp * squares[k];
            squares[k] = stored::norm_bound(left, means, p_.tokens(), p_.columns());
        }
        return squares;
    }

    /// use(rows, their columns that are not all hidden)
    void each_block(const std::function<void(const RowBlock&, const Tensor&)>& use) {
        if (kept_) {
            RowBlock all;
            all.p = p_.matrix();
            if (!finite_) stored::require_finite(all.p, 0);
            finite_ = true;
            return use(all, all.p);
        }
        const Index n = p_.tokens();
        for (Index first = 0; first < n;) {
            const Index count = std::min(block_, n - first);
            RowBlock rows;
            try {
                rows = p_.rows(first, count);
            } catch (const OutOfMemory&) {
                if (count == 1) throw;
                block_ = (count + 1) / 2;
                note_shortage("blocks of rows of P were halved");
                continue;
            }
            if (!finite_) stored::require_finite(rows.p, first);
            use(rows, rows.p.col_range(0, visibility::end(rows.visible, p_.columns())));
            first += count;
        }
        finite_ = true;
    }

    /// Vectors that some minutes of work and a third of the device's memory allow.
    Index affordable(Index most) const {
        constexpr double largest_work = 2e13;  // entries of P that are recomputed
        const double vectors =
            double(p_.backend().memory()) / 3 / (8 * double(p_.heads()) * double(p_.columns()));
        const double products = kept_ ? double(most) : largest_work / (p_.bytes() / 4);
        return std::clamp<Index>(Index(std::min(vectors, products)), 8, most);
    }

  private:
    void sum_columns() {
        if (column_.defined()) return;
        const Shape shape{p_.heads(), p_.columns(), 1};
        const Tensor ones = affine(zeros(p_.backend(), shape, Type::f64), 0, 1),
                     sum = zeros(p_.backend(), shape, Type::f64);
        each_block([&](const RowBlock&, const Tensor& p) {
            add_to(sum, matvec(p, ones.row_range(0, p.rows()), true));
        });
        column_ = sum;  // a device that was full on the way begins anew
    }

    const AttentionOperator& p_;
    Index block_;
    bool kept_, finite_ = false;
    Tensor column_;  ///< P^T 1
};

/// find(most), with half as many vectors where a device runs out of memory.
template <class Find>
auto with_vectors(Index most, const Find& find) {
    constexpr Index fewest = 8;
    for (;; most = std::max(fewest, most / 2)) try {
            return find(most);
        } catch (const OutOfMemory&) {
            if (most <= fewest) throw;
            note_shortage("the vectors of an iteration were halved");
        }
}

}  // namespace

std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory, bool stochastic,
                                        double accuracy) {
    Products products(p, memory);
    const StackMap map{.backend = p.backend(),
                       .count = p.heads(),
                       .n = p.tokens(),
                       .apply = [&](const Tensor& x) { return products.multiply(x); },
                       .centred = stochastic};
    std::vector<Estimate> out =
        with_vectors(products.affordable(arnoldi_products), [&](Index most) {
            return spectral_radii(map, residual_for(accuracy), most, stochastic ? 1 : 2, accuracy);
        });
    if (std::ranges::all_of(out, &Estimate::converged)) return out;
    const std::vector<double> bounds =
        stochastic
            ? std::vector<double>(out.size(), one_matrix::largest_row_sum(p.type(), p.columns()))
            : products.norm_bounds(false);
    for (std::size_t k = 0; k < out.size(); ++k)
        if (!out[k].converged) out[k].high = bounds[k];
    return out;
}

std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory, double accuracy) {
    Products products(p, memory);
    const StackMap map{.backend = p.backend(),
                       .count = p.heads(),
                       .n = p.columns(),
                       .apply = [&](const Tensor& x) { return products.normal(x); }};
    std::vector<Estimate> out = with_vectors(
        products.affordable(lanczos_products),
        [&](Index most) { return largest_singular_values(map, residual_for(accuracy), most); });
    if (std::ranges::all_of(out, &Estimate::converged)) return out;
    const std::vector<double> bounds = products.norm_bounds(true);
    for (std::size_t k = 0; k < out.size(); ++k)
        if (!out[k].converged) out[k].high = bounds[k];
    return out;
}

namespace {

/// As many heads at once as fit into memory; fewer vectors only for a single one.
RadiiAndNorms in_groups(const Tensor& p, const StackedSearch& search) {
    if (p.batch() == 1)
        return with_vectors(std::max(search.radius_products, search.norm_products),
                            [&](Index most) {
                                StackedSearch fewer = search;
                                fewer.radius_products = std::min(most, search.radius_products);
                                fewer.norm_products = std::min(most, search.norm_products);
                                return radii_and_norms(p, fewer);
                            });
    try {
        return radii_and_norms(p, search);
    } catch (const OutOfMemory&) {
        note_shortage("the heads of a spectrum were processed in halves");
    }
    const Index half = p.batch() / 2;
    const auto part = [&](Index first, Index count) {
        StackedSearch own = search;
        own.rounding = search.rounding.subspan(std::size_t(first), std::size_t(count));
        return in_groups(p.batch_range(first, count), own);
    };
    RadiiAndNorms out = part(0, half), rest = part(half, p.batch() - half);
    std::ranges::move(rest.radii, std::back_inserter(out.radii));
    std::ranges::move(rest.norms, std::back_inserter(out.norms));
    return out;
}

}  // namespace

RadiiAndNorms in_step(const AttentionOperator& p, const InStep& sought, double memory,
                      double accuracy) {
    const Tensor some = spectra::chosen(p.matrix(), sought.heads);
    const Index stacks = Index(sought.second) + Index(sought.norm);
    const double vectors = double(p.backend().memory()) / 3 /
                           (8 * double(stacks * some.batch()) * double(p.columns()));
    const auto most = [&](Index products) {
        return std::clamp<Index>(Index(std::min(vectors, double(products))), 8, products);
    };
    RadiiAndNorms out;
    try {
        out = in_groups(some, {.radius_products = sought.second ? most(arnoldi_products) : 0,
                               .norm_products = sought.norm ? most(lanczos_products) : 0,
                               .centred = sought.which.deflated,
                               .rank = sought.which.rank,
                               .tolerance = residual_for(accuracy),
                               .accuracy = accuracy,
                               .rounding = sought.rounding});
    } catch (const NonFiniteError&) {
        stored::require_finite(p.matrix(), 0);  // names the entry
        throw;
    }
    const auto bound = [&](std::vector<Estimate>& found, bool centred, double most_possible) {
        if (std::ranges::all_of(found, &Estimate::converged)) return;
        const std::vector<double> bounds = Products(p, memory).norm_bounds(centred);
        for (std::size_t i = 0; i < found.size(); ++i)
            if (!found[i].converged)
                found[i].high = std::min(most_possible, bounds[std::size_t(sought.heads[i])]);
    };
    const double infinite = std::numeric_limits<double>::infinity();
    bound(out.radii, sought.which.deflated,
          sought.which.deflated ? one_matrix::largest_row_sum(p.type(), p.columns()) : infinite);
    bound(out.norms, true, infinite);
    return out;
}

std::vector<std::vector<double>> diagonals(const AttentionOperator& p, double memory) {
    std::vector<std::vector<double>> out(std::size_t(p.heads()));
    Products(p, memory).each_block([&](const RowBlock& rows, const Tensor&) {
        const std::vector<double> all = statistics(rows.p, rows.first).diagonal;
        const auto count = std::size_t(rows.p.rows());
        for (std::size_t i = 0; i < all.size(); ++i) out[i / count].push_back(all[i]);
    });
    return out;
}

double rounding_of_means(Index rows, Index cols, double squares) {
    constexpr double ulp = std::numeric_limits<double>::epsilon();
    return ulp * double(rows + cols + 8) * std::sqrt(squares);
}

namespace {

double rounding(const Tensor& p) {
    return rounding_of_means(p.rows(), p.cols(), double(squared_norm(p)));
}

}  // namespace

std::optional<Estimate> dense_second(const Tensor& p, const one_matrix::Which& which,
                                     double accuracy) {
    std::optional<Estimate> found =
        tsdiag::dense_eigenvalue(which.deflated ? centred::both(p) : cast(p, Type::f64), which.rank,
                                 accuracy, which.deflated ? rounding(p) : 0);
    if (found && !found->converged) {
        const double norm = std::sqrt(
            centred::squares(which.deflated ? centred::columns(p) : cast(p, Type::f64)).item());
        found->high =
            which.deflated ? std::min(one_matrix::largest_row_sum(p.type(), p.cols()), norm) : norm;
    }
    return found;
}

std::optional<Estimate> dense_norm(const Tensor& p, double accuracy) {
    return tsdiag::dense_norm(centred::columns(p), residual_for(accuracy), rounding(p));
}

}  // namespace tsdiag::on_device
