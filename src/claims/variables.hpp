#pragma once
#include <Eigen/Core>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/claim.hpp"

/// Variables of claims: small named matrices in float64.
namespace tsdiag::claim {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

/// The spacing of float64 at 1, twice the largest relative error of one rounding.
inline constexpr double ulp = std::numeric_limits<double>::epsilon();

struct Sizes {
    Index n = 0, d = 0;
};

/// The free variables of a statement, by name.
class Variables {
  public:
    struct Entry {
        std::string name;
        Matrix value;
    };
    Variables() = default;
    /// Names are distinct.
    Variables(std::initializer_list<Entry> entries) : entries_(entries) {}
    /// Replaces the variable of that name, if any.
    void set(std::string name, Matrix value);
    /// Throws `Error` where there is none of that name.
    const Matrix& operator()(std::string_view name) const;
    Index count() const;  ///< of numbers
    /// All entries, concatenated row-major, and back.
    std::vector<double> flat() const;
    void assign(const std::vector<double>& flat);
    std::vector<NamedMatrix> named() const;

  private:
    std::vector<Entry> entries_;
};

NamedMatrix named(std::string name, const Matrix& value);

/// Entries with mean 0 and the given variance: Gaussian, uniform or Rademacher.  The frameworks'
/// distributions are uniform here.
Matrix draw(const Rng& rng, std::string_view stream, Index rows, Index cols,
            Distribution distribution, double variance = 1);
/// The variance of an entry of a weight matrix: that of the distribution (torch: 1/(3 fan_in),
/// Xavier: 2/(fan_in + fan_out)), or `asked`.
double weight_variance(Distribution distribution, Index fan_in, Index fan_out, double asked);
/// A weight matrix: `draw` with `weight_variance`.
Matrix draw_weights(const Rng& rng, std::string_view stream, Index fan_in, Index fan_out,
                    Distribution distribution, double asked);

/// Row-wise softmax.
Matrix softmax(const Matrix& logits);
/// Pi1 X: the mean row in every row; Pi2 X = X - Pi1 X.
Matrix mean_part(const Matrix& x);
Matrix centred(const Matrix& x);
/// The largest norm of a row.
double largest_row(const Matrix& x);
/// The largest singular value.
double spectral_norm(const Matrix& a);

}  // namespace tsdiag::claim
