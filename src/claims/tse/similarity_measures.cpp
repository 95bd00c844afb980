#include <cmath>

#include "similarity.hpp"
#include "tokens.hpp"

/// Definitions of token similarity.  [TSE] Def. 1.1, (1)
namespace tsdiag::claim {
namespace {

// --- Def. 1.1

std::optional<BoundSides> whole(const Variables& v) {
    const Matrix& X = v("X");
    if (X.squaredNorm() == 0) return {};
    return BoundSides{t_sim(X) + t_div(X), 1, rounding_of(X)};
}

/// The first row in every row.
std::optional<BoundSides> repeated(const Variables& v) {
    const Matrix X = v("X").row(0).replicate(v("X").rows(), 1);
    if (X.squaredNorm() == 0) return {};
    return BoundSides{t_sim(X), 1, rounding_of(X)};
}

/// Diversity by distances of rows, over pairs with one of the first `rows` rows.
std::optional<BoundSides> distances(const Variables& v, Index rows) {
    const Matrix& X = v("X");
    if (X.squaredNorm() == 0) return {};
    double sum = 0;
    for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < X.rows(); ++j)
            sum += (X.row(i) - X.row(j)).squaredNorm() / (2 * double(X.rows()));
    const double whole = X.squaredNorm();
    return BoundSides{t_div(X) * whole, sum, rounding_of(X) * (sum + whole)};
}

std::optional<BoundSides> apart(const Variables& v) { return distances(v, v("X").rows()); }
std::optional<BoundSides> apart_from_first(const Variables& v) { return distances(v, 1); }

Bound distance_equation(std::optional<BoundSides> (*sides)(const Variables&)) {
    return token_equation("1 only for equal rows",
                          "t_div |X|_F^2 = sum_ij |x_i - x_j|^2/(2 n), 0 for equal rows alone",
                          sides);
}

std::optional<BoundSides> similarity_of(const Variables& v) {
    if (v("X").squaredNorm() == 0) return {};
    return BoundSides{t_sim(v("X")), 1};
}
std::optional<BoundSides> diversity_of(const Variables& v) {
    if (v("X").squaredNorm() == 0) return {};
    return BoundSides{t_div(v("X")), 1};
}

Bound at_most_one(bool similarity, std::optional<BoundSides> (*sides)(const Variables&)) {
    Bound b = token_equation(similarity ? "t_sim at most 1" : "t_div at most 1",
                             similarity ? "t_sim <= 1" : "t_div <= 1", sides);
    b.relation = Relation::at_most;
    b.search = {{2, 1}, {3, 2}};
    return b;
}

/// The mean of the rows with weights of 1, 2, ..., n, in every row.
Matrix weighted_part(const Matrix& X) {
    Vector weight = Vector::LinSpaced(X.rows(), 1, double(X.rows()));
    weight /= weight.sum();
    return Vector::Ones(X.rows()) * (weight.transpose() * X);
}

std::vector<Reading> check_definition(const Check& how) {
    return examine_bounds({token_equation("sum", "t_sim + t_div = 1", whole),
                           at_most_one(true, similarity_of), at_most_one(false, diversity_of),
                           token_equation("1 for equal rows", "t_sim(1 v^T) = 1", repeated),
                           distance_equation(apart)},
                          how);
}

Attained attain_definition() { return {t_sim(Matrix{{1.0, 2}, {1, 2}, {1, 2}}), 1, 1e-15}; }

/// A mean with unequal weights is not an orthogonal projection.
std::vector<Reading> violate_definition(const Check& how) {
    const auto weighted = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix &X = v("X"), part = weighted_part(X);
        const double sum = (part.squaredNorm() + (X - part).squaredNorm()) / X.squaredNorm();
        return BoundSides{sum, 1, rounding_of(X)};
    };
    Reading sum =
        examine_bound(token_equation("weighted mean", "t_sim + t_div = 1", weighted), how);
    sum.of = "sum";
    const auto different = [](const Variables& v) -> std::optional<BoundSides> {
        if (v("X").squaredNorm() == 0) return {};
        return BoundSides{t_sim(v("X")), 1, rounding_of(v("X"))};
    };
    Reading rows = examine_bound(token_equation("rows that differ", "t_sim = 1", different), how);
    rows.of = "1 for equal rows";
    const auto oblique = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& X = v("X");
        if (X.squaredNorm() == 0) return {};
        return BoundSides{weighted_part(X).squaredNorm() / X.squaredNorm(), 1};
    };
    const auto rest = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& X = v("X");
        if (X.squaredNorm() == 0) return {};
        return BoundSides{(X - weighted_part(X)).squaredNorm() / X.squaredNorm(), 1};
    };
    return {sum, rows, control(at_most_one(true, oblique), "weighted mean", how),
            control(at_most_one(false, rest), "weighted mean", how),
            control(distance_equation(apart_from_first), "pairs with the first row", how)};
}

// --- (1)

/// Mean cosine over the pairs of different rows.
double mean_cosine(const Matrix& x) {
    double sum = 0;
    for (Index i = 0; i < x.rows(); ++i)
        for (Index j = 0; j < i; ++j)
            sum += x.row(i).dot(x.row(j)) / (x.row(i).norm() * x.row(j).norm());
    return 2 * sum / double(x.rows() * (x.rows() - 1));
}

bool has_cosines(const Matrix& x) {
    return x.rows() > 1 && x.rowwise().squaredNorm().minCoeff() > 0;
}

double through_similarity(const Matrix& x) {
    const double n = double(x.rows());
    return (n * t_sim(x) - 1) / (n - 1);
}

std::optional<BoundSides> cosine_identity(const Variables& v) {
    const Matrix& X = v("X");
    if (!has_cosines(X)) return {};
    return BoundSides{mean_cosine(X), through_similarity(X.rowwise().normalized()),
                      2 * rounding_of(X) * double(X.rows())};
}

/// Twice the sum over j > i, divided by n^2 - n, against the average over all pairs i != j.
std::optional<BoundSides> pairs_average(const Variables& v) {
    const Matrix& X = v("X");
    if (!has_cosines(X)) return {};
    const Matrix unit = X.rowwise().normalized(), cosines = unit * unit.transpose();
    const double n = double(X.rows());
    double sum = 0;
    for (Index i = 0; i < X.rows(); ++i)
        for (Index j = 0; j < X.rows(); ++j) sum += i == j ? 0 : cosines(i, j);
    return BoundSides{mean_cosine(X), sum / (n * (n - 1)),
                      4 * ulp * (n * n + n * double(X.cols()))};
}

/// The average of <x_i, x_j> over the pairs: the mean cosine of rows of norm 1.
double mean_product(const Matrix& x) {
    const double n = double(x.rows());
    return (x.colwise().sum().squaredNorm() - x.squaredNorm()) / (n * (n - 1));
}

Bound cosine_range(double (*mean)(const Matrix& X)) {
    Bound range = token_equation("range", "t_cos >= -1/(n-1)", nullptr);
    range.sides = [mean](const Variables& v) -> std::optional<BoundSides> {
        if (!has_cosines(v("X"))) return {};
        return BoundSides{1 + mean(v("X")), 1 - 1 / double(v("X").rows() - 1)};
    };
    range.role = Role::sharper;  // derived here
    range.relation = Relation::at_least;
    range.accuracy = 1e-9;  // attained, by searches that end within rounding of it
    range.search = {{3, 1}, {3, 2}};
    return range;
}

std::vector<Reading> check_cosine(const Check& how) {
    Bound equal =
        token_equation("identity", "t_cos = (n t_sim(X/|rows|) - 1)/(n - 1)", cosine_identity);
    equal.role = Role::sharper;  // derived here
    return examine_bounds(
        {token_equation("average over pairs",
                        "(1) is the average of <x_i, x_j>/(|x_i| |x_j|) over i != j",
                        pairs_average),
         equal, cosine_range(mean_cosine)},
        how);
}

/// Three unit vectors at 120 degrees.
Attained attain_cosine() {
    const double h = std::sqrt(3.0) / 2;
    return {mean_cosine(Matrix{{1.0, 0}, {-0.5, h}, {-0.5, -h}}), -0.5, 1e-14};
}

std::vector<Reading> violate_cosine(const Check& how) {
    const auto unnormalised = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix& X = v("X");
        Matrix stretched = X;  // rows of different length, for any distribution
        for (Index i = 0; i < X.rows(); ++i) stretched.row(i) *= double(i + 1);
        if (!has_cosines(stretched)) return {};
        return BoundSides{mean_cosine(stretched), through_similarity(stretched),
                          2 * rounding_of(X) * double(X.rows())};
    };
    Reading any = examine_bound(
        token_equation("rows of any length", "t_cos = (n t_sim - 1)/(n - 1)", unnormalised), how);
    any.of = "identity";
    const auto inner = [](const Variables& v) -> std::optional<BoundSides> {
        const Matrix X = 2 * v("X");
        if (!has_cosines(X)) return {};
        return BoundSides{mean_cosine(X), mean_product(X), rounding_of(X)};
    };
    Reading products =
        examine_bound(token_equation("inner products", "(1) without the norms", inner), how);
    products.of = "average over pairs";
    return {products, any, control(cosine_range(mean_product), "without the norms", how)};
}

}  // namespace

extern const Claim tse_def11 = {
    .name = "tse.def1.1",
    .statement =
        "Similarity t_sim = |Pi1 X|_F^2/|X|_F^2 and diversity t_div = |Pi2 X|_F^2/|X|_F^2 "
        "of the rows of X lie in [0, 1] and sum to 1; t_sim = 1 only for equal rows.",
    .words =
        "t_sim(X) = 1, or t_div(X) = 0, if and only if X = 1 v^T for some v [...]; that is, "
        "all rows of X are the same",
    .source = "[TSE] Def. 1.1 and the text after it",
    .assumes = "X != 0; Pi1 = 1 1^T/n, Pi2 = I - Pi1",
    .proof = "Pi1 and Pi2 = I - Pi1 are orthogonal projections.",
    .n = 16,
    .d = 8,
    .check = check_definition,
    .tight = attain_definition,
    .violate = violate_definition};

extern const Claim tse_eq1 = {
    .name = "tse.eq1",
    .statement =
        "(1) is the average cosine over pairs of rows.  Derived here: it is (n t_sim(Xhat) - 1)/(n "
        "- 1), Xhat the rows of X divided by their norms, and at least -1/(n - 1).",
    .words =
        "cosine similarity [11] calculates the average cosine similarity between all pairs of "
        "tokens, (1)",
    .source = "[TSE] (1)",
    .assumes = "n >= 2, no zero row",
    .proof = "|sum_i xhat_i|^2 = n + sum over i != j of the cosines, which is nonnegative.",
    .n = 16,
    .d = 8,
    .least_n = 2,
    .check = check_cosine,
    .tight = attain_cosine,
    .violate = violate_cosine};

}  // namespace tsdiag::claim
