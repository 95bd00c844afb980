#include "projection_derivative.hpp"

#include <cmath>

#include "support.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::probe {
namespace {

Tensor on(const Backend& backend, Shape shape, const std::vector<double>& values) {
    return Tensor::from_host(backend, shape, std::span(values), Type::f64);
}

/// (h, b, c) -> (1, h b, c).
Tensor flat(const Tensor& a) { return contiguous(a).reshape({1, a.batch() * a.rows(), a.cols()}); }

Tensor square(const Tensor& a) { return multiply(a, a); }

/// q or k with the rotated columns times their magnitude once more: a derivative by the other
/// factor passes through the stretched rotation, m R = R m.
Tensor stretched(const Projections& p, const Tensor& x) {
    if (p.magnitude == 1) return x;
    std::vector<double> length(slot(x.cols()), 1.0);
    std::fill_n(length.begin(), 2 * p.frequency.size(), p.magnitude);
    return multiply(cast(x, Type::f64), on(x.backend(), {1, 1, x.cols()}, length));
}

/// 2^-e x in float64, with e added to `exponent`.
Tensor near_one(const Tensor& x, int& exponent) {
    const int e = exponent_of(x);
    exponent += e;
    return cast(without_exponent(x, e), Type::f64);
}

/// R_i v, in place.
void rotate_row(const LogitFactor& factor, Index row, double* v) {
    for (Index p = 0; p < factor.pairs; ++p) {
        const auto [a, b] = factor.columns(p);
        const double c = factor.cosine[slot(row * factor.pairs + p)];
        const double s = factor.sine[slot(row * factor.pairs + p)];
        const double u = v[a], t = v[b];
        v[a] = u * c - t * s;
        v[b] = t * c + u * s;
    }
}

void fill_norm(LogitFactor& factor, const Tensor& raw, double eps) {
    const std::vector<double> values = raw.to_host<double>();
    factor.unit = values;
    for (Index i = 0; i < factor.heads * factor.n; ++i) {
        double* u = factor.unit.data() + i * factor.w;
        double mean = 0;
        Wide squares = 0;
        for (Index c = 0; c < factor.w && factor.layer; ++c) mean += u[c] / double(factor.w);
        for (Index c = 0; c < factor.w; ++c) squares += Wide(u[c] - mean) * (u[c] - mean);
        const auto inverse = double(1 / std::sqrt(squares / double(factor.w) + eps));
        for (Index c = 0; c < factor.w; ++c) u[c] = (u[c] - mean) * inverse;
        factor.inverse.push_back(inverse);
    }
    if (const double top = *std::ranges::max_element(factor.inverse); std::isfinite(top)) {
        factor.exponent = std::ilogb(top);
        for (double& inverse : factor.inverse) inverse = std::ldexp(inverse, -factor.exponent);
    }
    factor.shadow = factor.unit;
    for (Index i = 0; i < factor.heads * factor.n; ++i) {
        double* v = factor.shadow.data() + i * factor.w;
        for (Index c = 0; c < factor.w; ++c) v[c] *= factor.gain[slot(c)];
        rotate_row(factor, i % factor.n, v);
    }
    for (Index i = 0; i < factor.heads * factor.n && factor.layer; ++i) {
        factor.ones.insert(factor.ones.end(), factor.gain.begin(), factor.gain.end());
        rotate_row(factor, i % factor.n, factor.ones.data() + i * factor.w);
    }
}

bool is_consecutive(const Projections& p, Index n) {
    bool found = !p.frequency.empty();
    for (Index i = 1; i < n && found; ++i)
        found = p.position[slot(i)] == p.position[slot(i - 1)] + 1;
    return found;
}

LogitFactor make_factor(const Projections& projections, const Tensor& raw, const Tensor& weight) {
    LogitFactor factor;
    factor.heads = raw.batch();
    factor.n = raw.rows();
    factor.w = raw.cols();
    factor.pairs = Index(projections.frequency.size());
    factor.interleaved = projections.interleaved;
    for (Index i = 0; i < factor.n && factor.pairs > 0; ++i)
        for (const double frequency : projections.frequency) {
            const double angle = projections.position[slot(i)] * frequency;
            factor.cosine.push_back(std::cos(angle));
            factor.sine.push_back(std::sin(angle));
        }
    factor.consecutive = is_consecutive(projections, factor.n);
    factor.normed = weight.defined();
    factor.layer = projections.norm_is_layer;
    if (!factor.normed) return factor;
    factor.gain = weight.to_host<double>();
    fill_norm(factor, raw, projections.norm_eps);
    return factor;
}

}  // namespace

std::pair<Index, Index> LogitFactor::columns(Index pair) const {
    return interleaved ? std::pair(2 * pair, 2 * pair + 1) : std::pair(pair, pair + pairs);
}

std::pair<Index, bool> LogitFactor::pair_of(Index column) const {
    if (column >= 2 * pairs) return {-1, false};
    return interleaved ? std::pair(column / 2, column % 2 == 1)
                       : std::pair(column % pairs, column >= pairs);
}

LogitFactor query_factor(const Projections& p) { return make_factor(p, p.q_raw, p.q_norm); }
LogitFactor key_factor(const Projections& p) { return make_factor(p, p.k_raw, p.k_norm); }

bool uses_gram(const Projections& p, Index n, Index d) {
    return n < 2 * d || (is_consecutive(p, n) && !p.k_norm.defined() && n <= most_distances);
}

double query_work(const Projections& p, Index heads, Index n) {
    const double products = p.q_norm.defined() ? 6.5 : 3;
    return products * 2 * double(heads) * double(n) * double(p.q_raw.cols());
}

double key_work(const Projections& p, Index heads, Index n, Index d) {
    constexpr double reads = 6;  // the cost of a memory-bound multiplication, in flops
    const bool gram = uses_gram(p, n, d), normed = p.k_norm.defined();
    if (is_consecutive(p, n) && !normed && gram)
        return reads * double(n) * double(n) * double(heads);
    const auto pairs = Index(p.frequency.size());
    const double row = gram ? 2 * double(n) * double(n) : 4 * double(n) * double(d);
    const double classes = gram ? double(pairs + 1) : double(2 * pairs + 1);
    return row * double(heads) * (normed ? double(p.k_raw.cols()) : classes);
}

Rows rows_of(const AttentionOperator& op, Index first, Index count) {
    const RowBlock block = op.rows(first, count);
    const Visible& visible = block.visible;
    const Index cols =
        visible.everything()
            ? block.p.cols()
            : std::max<Index>(1, *std::max_element(visible.last.begin(), visible.last.end()));
    const auto cut = [&](const Tensor& t) { return contiguous(t.col_range(0, cols)); };
    const Tensor own = cut(block.p), p = cast(own, Type::f64);
    const bool same = block.slope.view().data == block.p.view().data;  // softmax: the slope is P
    const Tensor slope = same ? own : cut(block.slope);
    Rows rows{first, count, cols, p, same ? p : cast(slope, Type::f64), block.divided, {}};
    rows.exponents = exponents_of(slope);
    rows.slope = without_exponents(rows.slope, rows.exponents);
    return rows;
}

QueryDerivative::QueryDerivative(const Tensor& input, const Projections& projections)
    : factor_(query_factor(projections)), scale_(projections.scale), exponent_(factor_.exponent) {
    const Backend& backend = input.backend();
    k_ = near_one(stretched(projections, projections.k), exponent_);
    input_squares_ = row_sum(square(near_one(input, exponent_))).to_host<double>();
    for (std::size_t i = 0; i < projections.growth.size(); ++i)
        input_squares_[i] *= projections.growth[i] * projections.growth[i];
    if (factor_.normed) {
        const Shape shape{factor_.heads, factor_.n, factor_.w};
        shadow_ = on(backend, shape, factor_.shadow);
        if (factor_.layer) ones_ = on(backend, shape, factor_.ones);
    }
    // k_c^2, and k_a k_b of each rotated pair: a rotation mixes the columns that the norm's weight
    // tells apart.
    const std::vector<double> k = k_.to_host<double>();
    const Index pairs = factor_.normed ? factor_.pairs : 0;
    std::vector<double> features;
    for (Index i = 0; i < k_.batch() * k_.rows(); ++i) {
        const double* row = k.data() + i * factor_.w;
        for (Index c = 0; c < factor_.w; ++c) features.push_back(row[c] * row[c]);
        for (Index p = 0; p < pairs; ++p) {
            const auto [a, b] = factor_.columns(p);
            features.push_back(row[a] * row[b]);
        }
    }
    features_ = on(backend, {k_.batch(), k_.rows(), factor_.w + pairs}, features);
}

namespace {

/// sum_f weight_f A_f with A = sum_j v_j v_j^T, v_j = slope_j k_j - p_j m: from b = sum_j slope_j^2
/// k_j k_j^T (by features), m = sum_j slope_j k_j, u = sum_j slope_j p_j k_j and s2 = sum_j p_j^2.
struct Moments {
    const double *b, *m, *u;
    double s2;
    double diagonal(Index c) const { return b[c] - 2 * m[c] * u[c] + s2 * m[c] * m[c]; }
    double mixed(Index w, Index pair, Index x, Index y) const {
        return b[w + pair] - m[x] * u[y] - m[y] * u[x] + s2 * m[x] * m[y];
    }
};

/// tr(diag(g)^2 R_i^T A R_i), by pairs: R diag(g^2) R^T has blocks of 2 x 2.
std::pair<double, double> weighted_trace(const LogitFactor& factor, Index row, const Moments& a) {
    double sum = 0, gross = 0;
    const auto add = [&](Index c, double weight) {
        sum += weight * a.diagonal(c);
        gross += weight * a.b[c];
    };
    const auto gain2 = [&](Index c) {
        return factor.normed ? factor.gain[slot(c)] * factor.gain[slot(c)] : 1.0;
    };
    const Index rotated =
        factor.normed ? factor.pairs : 0;  // without a norm R is orthogonal and drops out
    for (Index p = 0; p < rotated; ++p) {
        const auto [x, y] = factor.columns(p);
        const double c = factor.cosine[slot(row * factor.pairs + p)];
        const double s = factor.sine[slot(row * factor.pairs + p)];
        add(x, c * c * gain2(x) + s * s * gain2(y));
        add(y, s * s * gain2(x) + c * c * gain2(y));
        sum += 2 * c * s * (gain2(x) - gain2(y)) * a.mixed(factor.w, p, x, y);
    }
    for (Index c = 2 * rotated; c < factor.w; ++c) add(c, gain2(c));
    return {sum, gross};
}

}  // namespace

RowNorms QueryDerivative::norms(const Rows& r) const {
    const Tensor k = k_.row_range(0, r.cols), slope_p = multiply(r.slope, r.p);
    const std::vector<double> b =
        matmul(square(r.slope), features_.row_range(0, r.cols)).to_host<double>();
    std::vector<double> m(slot(r.p.batch() * r.count * factor_.w), 0.0), u = m;
    std::vector<double> s2(slot(r.p.batch() * r.count), 0.0);
    if (r.divided) {
        m = matmul(r.slope, k).to_host<double>();
        u = matmul(slope_p, k).to_host<double>();
        s2 = row_sum(square(r.p)).to_host<double>();
    }
    // sum_j (z_i . v_j)^2 for one vector z_i per row.
    const auto along = [&](const Tensor& z) {
        const Tensor t = multiply(r.slope, matmul(z, k, Transpose::second));
        const Tensor v = r.divided ? subtract(t, multiply(r.p, row_sum(t))) : t;
        return row_sum(square(v)).to_host<double>();
    };
    std::vector<double> along_unit, along_ones;
    if (factor_.normed) along_unit = along(shadow_.row_range(r.first, r.count));
    if (factor_.normed && factor_.layer) along_ones = along(ones_.row_range(r.first, r.count));

    RowNorms out;
    const Index f = features_.cols(), w = factor_.w;
    for (Index i = 0; i < r.p.batch() * r.count; ++i) {
        const Index head = i / r.count, row = r.first + i % r.count;
        const Moments a{b.data() + i * f, m.data() + i * w, u.data() + i * w, s2[slot(i)]};
        auto [sum, gross] = weighted_trace(factor_, row, a);
        double factor = scale_ * scale_ * input_squares_[slot(row)];
        if (factor_.normed) {
            const double inverse = factor_.inverse[slot(head * factor_.n + row)];
            const double* unit = factor_.unit.data() + (head * factor_.n + row) * w;
            double length = 0;
            for (Index c = 0; c < w; ++c) length += unit[c] * unit[c];
            sum -= (2 - length / double(w)) / double(w) * along_unit[slot(i)];
            if (factor_.layer) sum -= along_ones[slot(i)] / double(w);
            factor *= inverse * inverse;
        }
        const int exponent = 2 * (exponent_ + r.exponents[slot(head)]);
        out.value.push_back(std::ldexp(Wide(factor * sum), exponent));
        out.gross.push_back(std::ldexp(Wide(factor * gross), exponent));
    }
    return out;
}

namespace {

/// P = softmax(S) in float32 on the host.
bool is_softmax(const Attention& e) {
    if (!RowSpread::fits(e.op)) return false;
    const RowBlock row = e.op.rows(0, 1);
    return row.divided && row.slope.defined() && row.slope.view().data == row.p.view().data;
}

std::vector<RowSpread::Sum> scaled(std::vector<RowSpread::Sum> sums, double factor, int exponent) {
    for (RowSpread::Sum& sum : sums)
        for (Wide* part : {&sum.value, &sum.gross})
            *part = std::ldexp(*part * factor, 2 * exponent);
    return sums;
}

}  // namespace

/// |dP_i/dW_Q|^2 = scale^2 |x_i|^2 times the spread of the keys, since R_i is orthogonal.
std::optional<std::vector<RowSpread::Sum>> QueryDerivative::sums(const Attention& e) const {
    if (factor_.normed || !is_softmax(e)) return std::nullopt;
    return scaled(RowSpread(e.op, k_).sums(e.op, input_squares_), scale_ * scale_, exponent_);
}

/// |dP_i/dW_K|^2 = scale^2 |q_i|^2 times the spread of the tokens.
std::optional<std::vector<RowSpread::Sum>> KeyDerivative::sums(const Attention& e) const {
    if (factor_.normed || factor_.pairs > 0 || !has_token_spread(e) || !is_softmax(e))
        return std::nullopt;
    const std::vector<double> lengths = row_sum(square(q_)).to_host<double>();
    return scaled(token_spread(e).spread.sums(e.op, lengths), scale_ * scale_, exponent_);
}

KeyDerivative::KeyDerivative(const Tensor& input, const Projections& projections)
    : factor_(key_factor(projections)), scale_(projections.scale), exponent_(factor_.exponent) {
    const Backend& backend = input.backend();
    q_ = near_one(stretched(projections, projections.q), exponent_);
    x_ = near_one(input, exponent_);
    const Index n = x_.rows();
    has_gram_ = uses_gram(projections, n, x_.cols());
    input_squares_ = row_sum(square(x_)).reshape({1, 1, n});
    if (factor_.normed) {
        shadow_ = on(backend, {factor_.heads, n, factor_.w}, factor_.shadow);
        if (factor_.layer) ones_ = on(backend, {factor_.heads, n, factor_.w}, factor_.ones);
    }
}

const Tensor& KeyDerivative::gram() const {
    if (!gram_made_.defined()) gram_made_ = matmul(x_, x_, Transpose::second);
    return gram_made_;
}

/// Does y_ik . y_il depend on the distance of k and l only?
bool KeyDerivative::by_distance() const {
    return factor_.consecutive && !factor_.normed && has_gram_;
}

Tensor KeyDerivative::host_row(const std::vector<double>& values) const {
    return on(x_.backend(), {1, 1, Index(values.size())}, values);
}

/// Row i: sum_kl a_ik (X X^T)_kl a_il weight_il.
Tensor KeyDerivative::quadratic(const Tensor& a, const Tensor& weight) const {
    const Index cols = a.cols();
    const Tensor b = multiply(a, weight);
    if (has_gram_)
        return row_sum(multiply(matmul(a, gram().row_range(0, cols).col_range(0, cols)), b));
    const Tensor x = x_.row_range(0, cols);
    return row_sum(multiply(matmul(a, x), matmul(b, x)));
}

/// The quadratic form with (X X^T)_kl cos(angle_k - angle_l) in place of X X^T, the angles those of
/// the rotated pair `pair` at each position.
Tensor KeyDerivative::quadratic(const Tensor& a, const Tensor& weight, Index pair) const {
    const Index cols = a.cols();
    std::vector<double> c, s, both;
    for (Index j = 0; j < cols; ++j) {
        c.push_back(factor_.cosine[slot(j * factor_.pairs + pair)]);
        s.push_back(factor_.sine[slot(j * factor_.pairs + pair)]);
        both.insert(both.end(), {c.back(), s.back()});
    }
    if (!has_gram_)
        return add(quadratic(multiply(a, host_row(c)), weight),
                   quadratic(multiply(a, host_row(s)), weight));
    const Tensor turn = on(x_.backend(), {1, cols, 2}, both);
    const Tensor turned = multiply(gram().row_range(0, cols).col_range(0, cols),
                                   matmul(turn, turn, Transpose::second));
    return row_sum(multiply(matmul(a, turned), multiply(a, weight)));
}

RowNorms KeyDerivative::norms(const Rows& rows) const {
    RowNorms out = factor_.normed ? with_norm(rows) : without_norm(rows);
    for (std::vector<Wide>* squares : {&out.value, &out.gross})
        for (std::size_t i = 0; i < squares->size(); ++i) {
            const int own = rows.exponents[i / slot(rows.count)];
            (*squares)[i] = std::ldexp((*squares)[i], 2 * (exponent_ + own));
        }
    return out;
}

/// The rows of all heads, flat, and sum_j p_j^2 - 2 p_j where rows are divided.
struct KeyDerivative::Weighted {
    Tensor slope, weight, input_squares;
    Weighted(const Tensor& p, const Tensor& s, bool divided, const Tensor& squares)
        : slope(flat(s)), input_squares(squares.col_range(0, p.cols())) {
        if (!divided) return;
        const Tensor q = flat(p);
        weight = add(affine(q, -2), row_sum(square(q)));
    }
};

/// y_ik . y_il of each row i at the distances |k - l| = 0 .. cols - 1, (1, total, cols).
Tensor KeyDerivative::over_distances(const std::vector<double>& q, Index total, Index cols) const {
    const Index w = factor_.w, pairs = factor_.pairs, rest = 2 * pairs < w ? 1 : 0;
    std::vector<double> lengths(slot(total * (pairs + rest)), 0.0);
    for (Index i = 0; i < total; ++i) {
        double* length = lengths.data() + i * (pairs + rest);
        for (Index c = 0; c < w; ++c) {
            const Index pair = factor_.pair_of(c).first;
            length[pair < 0 ? pairs : pair] += q[slot(i * w + c)] * q[slot(i * w + c)];
        }
    }
    std::vector<double> turns;  // cos of the angle between positions 0 and t
    for (Index p = 0; p < pairs; ++p)
        for (Index t = 0; t < cols; ++t)
            turns.push_back(factor_.cosine[slot(t * pairs + p)] * factor_.cosine[slot(p)] +
                            factor_.sine[slot(t * pairs + p)] * factor_.sine[slot(p)]);
    turns.insert(turns.end(), slot(rest * cols), 1.0);
    const Backend& backend = x_.backend();
    return matmul(on(backend, {1, total, pairs + rest}, lengths),
                  on(backend, {1, pairs + rest, cols}, turns));
}

/// y_ij = R_j^T q_i: |y_ij| = |q_i|, and y_ik . y_il = sum over pairs of |q_i's pair|^2 cos(angle_k
/// - angle_l).
RowNorms KeyDerivative::without_norm(const Rows& r) const {
    const Weighted rows(r.p, r.slope, r.divided, input_squares_);
    const std::vector<double> q = flat(q_.row_range(r.first, r.count)).to_host<double>();
    const std::vector<double> first =
        row_sum(multiply(square(rows.slope), rows.input_squares)).to_host<double>();
    const Index w = factor_.w, total = Index(first.size());
    if (by_distance() && x_.backend().host_memory()) {
        const Tensor lengths = over_distances(q, total, r.cols);
        std::vector<double> form(slot(total), 0.0);
        if (r.divided)
            form = toeplitz_forms(gram().view(), rows.slope.view(),
                                  multiply(rows.slope, rows.weight).view(), lengths.view());
        const std::vector<double> whole = lengths.col_range(0, 1).to_host<double>();
        RowNorms out;
        for (Index i = 0; i < total; ++i) {
            const double gross = whole[slot(i)] * first[slot(i)];
            out.value.push_back((gross + form[slot(i)]) * scale_ * scale_);
            out.gross.push_back(gross * scale_ * scale_);
        }
        return out;
    }
    RowNorms out{std::vector<Wide>(slot(total), 0), std::vector<Wide>(slot(total), 0)};
    const auto add_class = [&](const std::vector<double>& length, const Tensor& form) {
        const std::vector<double> f =
            form.defined() ? form.to_host<double>() : std::vector<double>(slot(total), 0.0);
        for (Index i = 0; i < total; ++i) {
            out.value[slot(i)] += length[slot(i)] * (first[slot(i)] + f[slot(i)]) * scale_ * scale_;
            out.gross[slot(i)] += length[slot(i)] * first[slot(i)] * scale_ * scale_;
        }
    };
    std::vector<double> length(slot(total), 0.0);
    for (Index i = 0; i < total; ++i)
        for (Index c = 2 * factor_.pairs; c < w; ++c)
            length[slot(i)] += q[slot(i * w + c)] * q[slot(i * w + c)];
    if (2 * factor_.pairs < w)
        add_class(length, r.divided ? quadratic(rows.slope, rows.weight) : Tensor());
    for (Index p = 0; p < factor_.pairs; ++p) {
        const auto [a, b] = factor_.columns(p);
        for (Index i = 0; i < total; ++i)
            length[slot(i)] =
                q[slot(i * w + a)] * q[slot(i * w + a)] + q[slot(i * w + b)] * q[slot(i * w + b)];
        add_class(length, r.divided ? quadratic(rows.slope, rows.weight, p) : Tensor());
    }
    return out;
}

/// Column c of y_ij for the queries (1, G b, w) of one key head: with z = R_j^T q_i,
/// y_ij = (g o z - u_j (shadow_j . q_i) / w [- 1 (R_j g . q_i) / w]) / s_j.
Tensor KeyDerivative::column(const Tensor& q, Index head, Index c, const Tensor& shadow,
                             const Tensor& mean, Index cols) const {
    const auto [pair, second] = factor_.pair_of(c);
    std::vector<double> straight, crossed, unit, inverse;
    for (Index j = 0; j < cols; ++j) {
        const double s = factor_.inverse[slot(head * factor_.n + j)], g = factor_.gain[slot(c)] * s;
        const double u = factor_.unit[slot((head * factor_.n + j) * factor_.w + c)];
        straight.push_back(pair < 0 ? g : g * factor_.cosine[slot(j * factor_.pairs + pair)]);
        if (pair >= 0)
            crossed.push_back((second ? -g : g) * factor_.sine[slot(j * factor_.pairs + pair)]);
        unit.push_back(u * s / double(factor_.w));
        inverse.push_back(s / double(factor_.w));
    }
    Tensor y = matmul(q.col_range(c, 1), host_row(straight));
    if (pair >= 0) {
        const auto [a, b] = factor_.columns(pair);
        y = add(y, matmul(q.col_range(second ? a : b, 1), host_row(crossed)));
    }
    y = subtract(y, multiply(shadow, host_row(unit)));
    return mean.defined() ? subtract(y, multiply(mean, host_row(inverse))) : y;
}

RowNorms KeyDerivative::with_norm(const Rows& r) const {
    RowNorms out;
    const Index group = r.p.batch() / factor_.heads;
    for (Index head = 0; head < factor_.heads; ++head) {
        const auto of_group = [&](const Tensor& t) { return t.batch_range(head * group, group); };
        const Weighted rows(of_group(r.p), of_group(r.slope), r.divided, input_squares_);
        const Tensor q = flat(of_group(q_).row_range(r.first, r.count));  // (1, group * count, w)
        const auto along = [&](const Tensor& z) {
            return matmul(q, z.batch_range(head, 1).row_range(0, r.cols), Transpose::second);
        };
        const Tensor shadow = along(shadow_), mean = factor_.layer ? along(ones_) : Tensor();
        std::vector<double> value(slot(group * r.count), 0.0), gross = value;
        for (Index c = 0; c < factor_.w; ++c) {
            const Tensor a = multiply(rows.slope, column(q, head, c, shadow, mean, r.cols));
            const std::vector<double> first =
                row_sum(multiply(square(a), rows.input_squares)).to_host<double>();
            const std::vector<double> form = r.divided ? quadratic(a, rows.weight).to_host<double>()
                                                       : std::vector<double>(first.size(), 0.0);
            for (std::size_t i = 0; i < first.size(); ++i) {
                value[i] += (first[i] + form[i]) * scale_ * scale_;
                gross[i] += first[i] * scale_ * scale_;
            }
        }
        out.value.insert(out.value.end(), value.begin(), value.end());
        out.gross.insert(out.gross.end(), gross.begin(), gross.end());
    }
    return out;
}

}  // namespace tsdiag::probe
