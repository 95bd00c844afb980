#include <cmath>

#include "bound.hpp"

/// The largest norm of a row, h(X) = max_i |x_i|, and products.  [DEVIL] Prop. D.4, D.6
namespace tsdiag::claim {
namespace {

/// X and Y share the inner dimension; Y has one row more, so that the numbers of rows differ.
Variables draw_factors(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"X", draw(rng, "X", at.n, at.d, distribution)},
            {"Y", draw(rng, "Y", at.n + 1, at.d, distribution)}};
}

double product_norm(const Variables& v) { return largest_row(v("X") * v("Y").transpose()); }

/// sqrt(r) h(X) h(Y)
double product_bound(const Variables& v, Index r) {
    return std::sqrt(double(r)) * largest_row(v("X")) * largest_row(v("Y"));
}

Bound product() {
    return {.reading = "as printed",
            .formula = "h(X Y^T) <= sqrt(r) h(X) h(Y)",
            .draw = draw_factors,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                return BoundSides{product_norm(v), product_bound(v, v("Y").rows())};
            },
            .search = {{1, 1}, {1, 2}, {2, 2}}};
}

/// `size` of Y is its spectral norm.
Bound sharp_product(double (*size)(const Matrix& Y)) {
    Bound sharp = product();
    sharp.reading = "sharp";
    sharp.formula = "h(X Y^T) <= h(X) |Y|_2";
    sharp.role = Role::sharper;
    sharp.sides = [size](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{product_norm(v), largest_row(v("X")) * size(v("Y"))};
    };
    return sharp;
}

std::vector<Reading> check_product(const Check& how) {
    return examine_bounds({product(), sharp_product(spectral_norm)}, how);
}

Attained attain_product() {
    const Variables v{{"X", Matrix{{3.0, 4}}}, {"Y", Matrix{{3.0, 4}, {-3, -4}, {3, 4}}}};
    return {product_norm(v), product_bound(v, 3), 1e-14};
}

std::vector<Reading> violate_product(const Check& how) {
    Bound broken = product();
    broken.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{product_norm(v), product_bound(v, v("Y").cols())};
    };
    return {control(broken, "r taken as the inner dimension", how),
            control(sharp_product(largest_row), "h(Y) in place of |Y|_2", how)};
}

Variables draw_matrix(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"X", draw(rng, "X", at.n, at.d, distribution)}};
}

double spectral_bound(const Matrix& X, Index n) { return std::sqrt(double(n)) * largest_row(X); }

Bound spectral() {
    return {.reading = "as printed",
            .formula = "|X|_2 <= sqrt(n) h(X)",
            .draw = draw_matrix,
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                const Matrix& X = v("X");
                return BoundSides{spectral_norm(X), spectral_bound(X, X.rows())};
            },
            .search = {{1, 1}, {2, 1}, {2, 2}}};
}

/// `size` of X is h.
Bound from_below(double (*size)(const Matrix& X)) {
    Bound below = spectral();
    below.reading = "from below";
    below.formula = "|X|_2 >= h(X)";
    below.role = Role::sharper;
    below.relation = Relation::at_least;
    below.sides = [size](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{spectral_norm(v("X")), size(v("X"))};
    };
    return below;
}

std::vector<Reading> check_spectral(const Check& how) {
    return examine_bounds({spectral(), from_below(largest_row)}, how);
}

Attained attain_spectral() {
    const Matrix X = Matrix{{3.0, 4}}.replicate(5, 1);
    return {spectral_norm(X), spectral_bound(X, 5), 1e-13};
}

std::vector<Reading> violate_spectral(const Check& how) {
    Bound broken = spectral();
    broken.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{spectral_norm(v("X")), spectral_bound(v("X"), v("X").cols())};
    };
    return {control(broken, "n taken as the number of columns", how),
            control(from_below([](const Matrix& X) { return X.norm(); }), "|X|_F in place of h(X)",
                    how)};
}

}  // namespace

extern const Claim devil_propD4 = {
    .name = "devil.propD4",
    .statement =
        "With h(X) the largest norm of a row, h(X Y^T) <= sqrt(r) h(X) h(Y) for a Y of r rows.",
    .words = "For all X in R^(n x m), Y in R^(r x m), we have: h(X Y^T) <= sqrt(r) h(X) h(Y). (37)",
    .source = "[DEVIL] Prop. D.4, (37)",
    .assumes = "X and Y have equally many columns",
    .proof = "Cauchy and Schwarz for each of the r entries of a row.",
    .sharp = "h(X Y^T) <= h(X) |Y|_2.",
    .check = check_product,
    .tight = attain_product,
    .violate = violate_product};

extern const Claim devil_propD6 = {
    .name = "devil.propD6",
    .statement = "With h(X) the largest norm of a row, |X|_2 <= sqrt(n) h(X) for an X of n rows.",
    .words = "For all X in R^(n x m), we have: |X|_2 <= sqrt(n) h(X). (41)",
    .source = "[DEVIL] Prop. D.6, (41), (42)",
    .proof = "|X|_2 <= |X|_F.",
    .check = check_spectral,
    .tight = attain_spectral,
    .violate = violate_spectral};

}  // namespace tsdiag::claim
