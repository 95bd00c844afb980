#include "derivatives.hpp"

/// The derivative of softmax written out by entries.  [POLY] (20) to (24)
namespace tsdiag::claim {
namespace {

/// The printed dF_ij/dx_ik, N x N, of one row F.
using Printed = Matrix (*)(const Matrix& F);

Matrix by_entries(const Matrix& F) {
    Matrix all = -F.transpose() * F;
    for (Index j = 0; j < F.cols(); ++j) all(j, j) = F(j) - F(j) * F(j);
    return all;
}
/// (24) has a square in its first entry, and no sign in its last.
Matrix with_first_entry(const Matrix& F) {
    Matrix all = by_entries(F);
    for (Index j = 1; j < F.cols(); ++j) all(j, 0) = -F(j) * F(0) * F(0);
    return all;
}
Matrix with_last_entry(const Matrix& F) {
    const Index last = F.cols() - 1;
    Matrix all = by_entries(F);
    for (Index j = 0; j < last; ++j) all(j, last) = F(j) * F(last);
    return all;
}

/// Of weights f(x_j)/sum f, or of f alone.
Bound gradient(std::string reading, std::string formula, Printed printed,
               ComplexRow (*weights)(const ComplexRow& x)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::equal,
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    return Variables{{"x", draw(rng, "x", 1, at.n, distribution)}};
                },
            .sides = [printed, weights](const Variables& v) -> std::optional<BoundSides> {
                const Matrix &x = v("x"), F = softmax(x);
                // rounding error: 1 - F cancels, and sums of N numbers are rounded
                const double room = double(4 * x.cols() + 32) * ulp;
                return worst_difference(complex_step(weights, x), printed(F),
                                        Matrix::Constant(x.cols(), x.cols(), room));
            },
            .search = {{2, 1}, {3, 1}}};
}

Bound entries(ComplexRow (*weights)(const ComplexRow& x)) {
    Bound b = gradient("(20), (21)",
                       "dF_ij/dx_ij = F_ij - F_ij^2 and dF_ij/dx_ik = -F_ij F_ik for k != j",
                       by_entries, weights);
    b.search.clear();
    return b;
}

std::vector<Reading> check_entries(const Check& how) {
    return examine_bounds({entries(softmax_weights.of),
                           gradient("(24), first entry", "dF_ij/dx_i1 = -F_ij F_i1^2 for j != 1",
                                    with_first_entry, softmax_weights.of),
                           gradient("(24), last entry", "dF_ij/dx_iN = F_ij F_iN for j != N",
                                    with_last_entry, softmax_weights.of)},
                          how);
}

/// Two equal numbers: 1/2 - 1/4.
Attained attain_entries() {
    const Matrix x = Matrix::Zero(1, 2);
    return {complex_step(softmax_weights.of, x)(0, 0), by_entries(softmax(x))(0, 0), 1e-14};
}

std::vector<Reading> violate_entries(const Check& how) {
    const auto alone = [](const ComplexRow& x) -> ComplexRow { return x.array().exp(); };
    return {control(entries(alone), "not normalised", how)};
}

}  // namespace

extern const Claim poly_eq24 = {
    .name = "poly.eq24",
    .statement =
        "The derivative of softmax, F_ij = exp(x_ij)/sum_k exp(x_ik), is dF_ij/dx_ij = F_ij - "
        "F_ij^2 and dF_ij/dx_ik = -F_ij F_ik, so that grad F_ij = (-F_ij F_i1^2, -F_ij F_i2, ..., "
        "F_ij - F_ij^2, ..., F_ij F_iN).",
    .words = "grad F_ij = [-F_ij F_i1^2  -F_ij F_i2  ...  F_ij - F_ij^2  ...  F_ij F_iN.] (24)",
    .source = "[POLY] (20) to (24)",
    .assumes = "N >= 2; for a single row; that other rows do not enter, (22), is not examined",
    .proof = "for (20) and (21): the quotient rule; for (22): softmax acts on each row separately.",
    .sharp = "The first entry is -F_ij F_i1, the last -F_ij F_iN; (26) uses these.",
    .d = 1,
    .least_n = 2,
    .check = check_entries,
    .tight = attain_entries,
    .violate = violate_entries};

}  // namespace tsdiag::claim
