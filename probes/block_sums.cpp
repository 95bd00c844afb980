#include "block_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "support.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::probe {
namespace block_sums {
namespace {

Tensor square(const Tensor& a) { return multiply(a, a); }

/// (h, b, c) -> (batches, h b / batches, c).
Tensor regrouped(const Tensor& a, Index batches) {
    if (a.batch() == batches) return a;
    return contiguous(a).reshape({batches, a.batch() * a.rows() / batches, a.cols()});
}

/// a op(b), whose batches divide those of a, as one product a batch of b.
Tensor product(const Tensor& a, const Tensor& b, Transpose t = Transpose::none) {
    return regrouped(matmul(regrouped(a, b.batch()), b, t), a.batch());
}

/// Each x in float64, divided by a power of two.
struct Near {
    Tensor x;
    std::vector<int> exponents;  ///< of each batch
    explicit Near(const Tensor& of) : exponents(exponents_of(of)) {
        x = cast(without_exponents(of.detached(), exponents), Type::f64);
    }
};

/// The columns of a rotated pair p at p and p + pairs.
Tensor in_halves(const Tensor& x, const Projections& p) {
    const auto pairs = Index(p.frequency.size());
    if (!p.interleaved || pairs == 0) return x;
    const Tensor both =
        contiguous(x.col_range(0, 2 * pairs)).reshape({x.batch(), x.rows() * pairs, 2});
    std::vector<Tensor> parts;
    for (const Index half : {0, 1})
        parts.push_back(contiguous(both.col_range(half, 1)).reshape({x.batch(), x.rows(), pairs}));
    if (const Index rest = x.cols() - 2 * pairs; rest > 0)
        parts.push_back(x.col_range(2 * pairs, rest));
    return concat_cols(parts);
}

/// q or k as the other factor's derivative meets it: the rotated columns times their magnitude once
/// more.
Tensor stretched(const Tensor& x, const Projections& p) {
    const Index columns = 2 * Index(p.frequency.size());
    if (p.magnitude == 1 || columns == 0) return x;
    std::vector<Tensor> parts{scale(x.col_range(0, columns), p.magnitude)};
    if (columns < x.cols()) parts.push_back(x.col_range(columns, x.cols() - columns));
    return concat_cols(parts);
}

/// A factor of the logits by its norm and rotation: see `LogitFactor`.
struct Factor {
    Index w = 0, pairs = 0;
    bool normed = false, layer = false;
    Tensor cosine, sine;   ///< (1, n, pairs)
    Tensor gain;           ///< (1, 1, w)
    Tensor unit, inverse;  ///< (h, n, w), (h, n, 1)
    Tensor shadow, ones;   ///< (h, n, w), (1, n, w)

    Factor(const Projections& p, const Tensor& raw, const Tensor& weight)
        : w(raw.cols()),
          pairs(Index(p.frequency.size())),
          normed(weight.defined()),
          layer(p.norm_is_layer) {
        const Index n = raw.rows();
        const Backend& backend = raw.backend();
        const auto rotated = [&](const Tensor& x) {
            return pairs == 0 ? x
                              : rotate(x, std::span(p.position).first(slot(n)), p.frequency, false);
        };
        if (pairs > 0) {
            const Tensor one = expand(constant(backend, 1, Type::f64), {1, n, pairs});
            const Tensor turn =
                rotated(concat_cols(std::vector{one, zeros(backend, one.shape(), Type::f64)}));
            cosine = turn.col_range(0, pairs);
            sine = turn.col_range(pairs, pairs);
        }
        if (!normed) return;
        gain = in_halves(cast(weight, Type::f64), p);
        Tensor x = in_halves(cast(raw.detached(), Type::f64), p);
        if (layer) x = subtract(x, scale(row_sum(x), 1 / double(w)));
        const Tensor squares = affine(row_sum(square(x)), 1 / double(w), p.norm_eps);
        inverse = map(Unary::reciprocal, map(Unary::sqrt, squares));
        unit = multiply(x, inverse);
        shadow = rotated(multiply(unit, gain));
        if (layer) ones = rotated(expand(gain, {1, n, w}));
    }
};

/// x_c y_c of each column c, and (x_a y_b + x_b y_a) / 2 of each rotated pair.
Tensor joint(const Tensor& x, const Tensor& y, Index pairs) {
    Tensor same = multiply(x, y);
    if (pairs == 0) return same;
    const auto crossed = [&](const Tensor& s, const Tensor& t) {
        return multiply(s.col_range(0, pairs), t.col_range(pairs, pairs));
    };
    return concat_cols(std::vector{same, scale(add(crossed(x, y), crossed(y, x)), 0.5)});
}

/// What `Factor::gain` weighs `joint` with under a rotation, (1, n, w + pairs): R diag(g^2) R^T has
/// blocks of 2 x 2.
Tensor weights_of(const Factor& f, Index n) {
    const Tensor squares = square(f.gain);
    if (f.pairs == 0) return expand(squares, {1, n, f.w});
    const Tensor a = squares.col_range(0, f.pairs), b = squares.col_range(f.pairs, f.pairs);
    const Tensor c = square(f.cosine), s = square(f.sine);
    std::vector<Tensor> parts{add(multiply(c, a), multiply(s, b)),
                              add(multiply(s, a), multiply(c, b))};
    if (const Index rest = f.w - 2 * f.pairs; rest > 0)
        parts.push_back(expand(squares.col_range(2 * f.pairs, rest), {1, n, rest}));
    parts.push_back(scale(multiply(multiply(f.cosine, f.sine), subtract(a, b)), 2));
    return concat_cols(parts);
}

/// Of the rows of a block, summed: (samples, heads of a sample, 1).
struct Pair {
    Tensor value, gross;
};

bool is_softmax(const Rows& r) { return r.slope.view().data == r.p.view().data; }

class Query {
  public:
    explicit Query(const Attention& e)
        : factor_(*e.projections, e.projections->q_raw, e.projections->q_norm),
          k_(in_halves(e.projections->k, *e.projections)),
          input_(e.input),
          samples_(e.input.batch()) {
        const Projections& p = *e.projections;
        const Index n = e.input.rows();
        k_.x = stretched(k_.x, p);
        lengths_ = scale(row_sum(square(input_.x)), p.scale * p.scale);
        if (!p.growth.empty())
            lengths_ =
                multiply(lengths_, square(Tensor::from_host(e.input.backend(), {1, n, 1},
                                                            std::span(p.growth), Type::f64)));
        lengths_ = lengths_.reshape({samples_, 1, n});
        if (!factor_.normed) {
            features_ = row_sum(square(k_.x));
            return;
        }
        const double w = double(factor_.w);
        features_ = joint(k_.x, k_.x, factor_.pairs);
        weights_ = weights_of(factor_, n);
        along_unit_ = affine(row_sum(square(factor_.unit)), 1 / (w * w), -2 / w);
    }

    Pair of(const Rows& r) const {
        const Tensor k = k_.x.row_range(0, r.cols), squares = square(r.slope);
        const auto own = [&](const Tensor& t) { return t.row_range(r.first, r.count); };
        const Tensor b = product(squares, features_.row_range(0, r.cols));
        const auto weighed = [&](const Tensor& t) {
            return factor_.normed ? multiply(t, own(weights_)) : t;
        };
        const Tensor terms = weighed(b);
        Tensor gross = row_sum(factor_.normed ? terms.col_range(0, factor_.w) : terms);
        Tensor sum = factor_.normed ? row_sum(terms) : gross;
        if (r.divided) {  // with m and u as in `QueryDerivative`: - 2 m u + s2 m m
            const bool same = is_softmax(r);
            const Tensor m = product(r.slope, k);
            const Tensor u = product(same ? squares : multiply(r.slope, r.p), k);
            const Tensor s2 = row_sum(same ? squares : square(r.p));
            const Tensor rest = subtract(multiply(m, s2), scale(u, 2));
            sum = add(sum, row_sum(weighed(joint(m, rest, factor_.normed ? factor_.pairs : 0))));
        }
        if (factor_.normed) {
            sum = add(sum, multiply(along(r, k, own(factor_.shadow)), own(along_unit_)));
            if (factor_.layer) {
                const Tensor ones = expand(own(factor_.ones), {r.p.batch(), r.count, factor_.w});
                sum = subtract(sum, scale(along(r, k, ones), 1 / double(factor_.w)));
            }
            const Tensor inverse = square(own(factor_.inverse));
            sum = multiply(sum, inverse);
            gross = multiply(gross, inverse);
        }
        return {of_heads(sum, r), of_heads(gross, r)};
    }

    int exponent(Index head, Index heads) const {
        const auto of = [&](const Near& x) {
            return x.exponents[slot(head * x.x.batch() / heads)];
        };
        return of(k_) + of(input_);
    }

  private:
    /// sum_j (z_i . v_j)^2 for one vector z_i a row.
    static Tensor along(const Rows& r, const Tensor& k, const Tensor& z) {
        const Tensor t = multiply(r.slope, product(z, k, Transpose::second));
        return row_sum(square(r.divided ? subtract(t, multiply(r.p, row_sum(t))) : t));
    }
    /// Times scale^2 |x_i|^2.
    Tensor of_heads(const Tensor& sum, const Rows& r) const {
        const Tensor rows = sum.reshape({samples_, sum.batch() / samples_, r.count});
        return row_sum(multiply(rows, lengths_.col_range(r.first, r.count)));
    }

    Factor factor_;
    Near k_, input_;
    Index samples_;
    Tensor lengths_;  ///< scale^2 |x_i|^2, (samples, 1, n)
    Tensor features_, weights_, along_unit_;
};

class Key {
  public:
    explicit Key(const Attention& e)
        : factor_(*e.projections, e.projections->k_raw, e.projections->k_norm),
          q_(in_halves(e.projections->q, *e.projections)),
          input_(e.input),
          scale_(e.projections->scale) {
        const Index n = e.input.rows(), pairs = factor_.pairs, rest = factor_.w - 2 * pairs;
        q_.x = stretched(q_.x, *e.projections);
        squares_ = row_sum(square(input_.x));
        if (uses_gram(*e.projections, n, e.input.cols()))
            gram_ = matmul(input_.x, input_.x, Transpose::second);
        if (factor_.normed) {
            prepare_columns(n);
            return;
        }
        const Tensor q = square(q_.x);
        lengths_ = row_sum(q);
        std::vector<Tensor> classes;
        if (pairs > 0) classes.push_back(add(q.col_range(0, pairs), q.col_range(pairs, pairs)));
        if (rest > 0) classes.push_back(row_sum(q.col_range(2 * pairs, rest)));
        classes_ = concat_cols(classes);
        if (pairs > 0) turns_ = transpose(concat_cols(std::vector{factor_.cosine, factor_.sine}));
    }

    Pair of(const Rows& r) const { return factor_.normed ? with_norm(r) : without_norm(r); }

    int exponent(Index head, Index heads) const {
        return q_.exponents[slot(head)] + input_.exponents[slot(head * input_.x.batch() / heads)];
    }

  private:
    static Tensor weight(const Rows& r) { return add(affine(r.p, -2), row_sum(square(r.p))); }
    Tensor own_gram(Index cols) const { return gram_.row_range(0, cols).col_range(0, cols); }

    /// sum_kl a_ik G_kl b_il of each row i; `gram` empty: G = X X^T.
    Tensor form(const Tensor& a, const Tensor& b, const Tensor& gram) const {
        if (gram.defined()) return row_sum(multiply(product(a, gram), b));
        const Tensor x = input_.x.row_range(0, a.cols());
        return row_sum(multiply(product(a, x), product(b, x)));
    }

    /// The form with (X X^T)_kl cos(angle_k - angle_l) of a rotated pair.
    Tensor turned_form(const Tensor& a, const Tensor& b, Index pair) const {
        const Index cols = a.cols();
        const Tensor c = turns_.row_range(pair, 1).col_range(0, cols),
                     s = turns_.row_range(pair + factor_.pairs, 1).col_range(0, cols);
        if (!gram_.defined())
            return add(form(multiply(a, c), multiply(b, c), {}),
                       form(multiply(a, s), multiply(b, s), {}));
        const Tensor turn = concat_rows({c, s});
        const Tensor cosines = matmul(turn, turn, Transpose::first);
        return form(a, b, multiply(own_gram(cols), cosines));
    }

    Pair without_norm(const Rows& r) const {
        const auto own = [&](const Tensor& t) { return t.row_range(r.first, r.count); };
        const Tensor first = product(square(r.slope), squares_.row_range(0, r.cols));
        const Tensor gross = multiply(own(lengths_), first);
        if (!r.divided) {
            const Tensor sum = of_heads(gross);
            return {sum, sum};
        }
        const Tensor weighed = multiply(r.slope, weight(r));
        std::vector<Tensor> forms;
        for (Index p = 0; p < factor_.pairs; ++p) forms.push_back(turned_form(r.slope, weighed, p));
        if (2 * factor_.pairs < factor_.w)
            forms.push_back(form(r.slope, weighed, gram_.defined() ? own_gram(r.cols) : gram_));
        const Tensor sum = add(gross, row_sum(multiply(concat_cols(forms), own(classes_))));
        return {of_heads(sum), of_heads(gross)};
    }

    /// The coefficients of `KeyDerivative::column`, of column c in row c: (h', w, n).
    void prepare_columns(Index n) {
        const Index heads = factor_.unit.batch(), pairs = factor_.pairs, w = factor_.w;
        const Tensor gain = multiply(expand(factor_.gain, {heads, n, w}), factor_.inverse);
        const Tensor unit = scale(multiply(factor_.unit, factor_.inverse), 1 / double(w));
        unit_ = transpose(unit);
        if (factor_.layer) inverse_ = scale(transpose(factor_.inverse), 1 / double(w));
        if (pairs == 0) {
            straight_ = transpose(gain);
            return;
        }
        const Tensor a = gain.col_range(0, pairs), b = gain.col_range(pairs, pairs);
        std::vector<Tensor> straight{multiply(a, factor_.cosine), multiply(b, factor_.cosine)};
        if (2 * pairs < w) straight.push_back(gain.col_range(2 * pairs, w - 2 * pairs));
        straight_ = transpose(concat_cols(straight));
        crossed_ = transpose(concat_cols(
            std::vector{multiply(a, factor_.sine), scale(multiply(b, factor_.sine), -1)}));
    }

    /// y_ij = (R_j DN_j)^T q_i column by column, of the heads of a key together.
    Pair with_norm(const Rows& r) const {
        const Index heads = factor_.unit.batch(), pairs = factor_.pairs;
        const Tensor q = regrouped(q_.x.row_range(r.first, r.count), heads);
        const Tensor slope = regrouped(r.slope, heads);
        const Tensor weights = r.divided ? regrouped(weight(r), heads) : Tensor();
        const auto seen = [&](const Tensor& t, Index c) {
            return t.row_range(c, 1).col_range(0, r.cols);
        };
        const Tensor shadow = matmul(q, factor_.shadow.row_range(0, r.cols), Transpose::second);
        Tensor mean;
        if (factor_.layer)
            mean = multiply(product(q, factor_.ones.row_range(0, r.cols), Transpose::second),
                            seen(inverse_, 0));
        const auto plus = [](Tensor& sum, const Tensor& more) {
            sum = sum.defined() ? add(sum, more) : more;
        };
        Tensor squares, forms;
        for (Index c = 0; c < factor_.w; ++c) {
            Tensor y = matmul(q.col_range(c, 1), seen(straight_, c));
            if (c < 2 * pairs) {
                const Index other = c < pairs ? c + pairs : c - pairs;
                y = add(y, matmul(q.col_range(other, 1), seen(crossed_, c)));
            }
            y = subtract(y, multiply(shadow, seen(unit_, c)));
            if (mean.defined()) y = subtract(y, mean);
            const Tensor a = multiply(slope, y);
            plus(squares, square(a));
            if (r.divided)
                plus(forms,
                     form(a, multiply(a, weights), gram_.defined() ? own_gram(r.cols) : gram_));
        }
        const Tensor first = product(squares, squares_.row_range(0, r.cols));
        const auto of_rows = [&](const Tensor& t) { return of_heads(regrouped(t, r.p.batch())); };
        return {of_rows(forms.defined() ? add(first, forms) : first), of_rows(first)};
    }

    /// Times scale^2.
    Tensor of_heads(const Tensor& rows) const {
        const Index samples = input_.x.batch();
        return scale(column_sum(rows), scale_ * scale_)
            .reshape({samples, rows.batch() / samples, 1});
    }

    Factor factor_;
    Near q_, input_;
    double scale_;
    Tensor squares_, gram_;                       ///< |x_j|^2 (samples, n, 1), (samples, n, n)
    Tensor lengths_, classes_, turns_;            ///< without a norm
    Tensor straight_, crossed_, unit_, inverse_;  ///< with one
};

/// Whether the squares of a norm's input are within the range of double.
bool has_safe_squares(const Tensor& raw, const Tensor& weight) {
    return !weight.defined() ||
           std::ranges::all_of(exponents_of(raw), [](int e) { return std::abs(e) <= 100; });
}

template <class Derivative>
BlockSums sums_later(const Attention& e, std::span<const RowRange> blocks) {
    const Derivative derivative(e);
    const Index heads = e.op.heads();
    std::vector<Tensor> found;
    std::vector<int> exponents(slot(heads * std::ssize(blocks)), 0);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const Rows rows = rows_of(e.op, blocks[b].first, blocks[b].count);
        const Pair sums = derivative.of(rows);
        found.insert(found.end(), {sums.value, sums.gross});
        for (Index k = 0; k < heads; ++k)
            exponents[slot(k) * blocks.size() + b] =
                2 * (derivative.exponent(k, heads) + rows.exponents[slot(k)]);
    }
    return {to_host_later(concat_cols(found)), std::move(exponents)};
}

}  // namespace
}  // namespace block_sums

RowSpread::Sum BlockSums::of(Index head, Index block, Index blocks) const {
    const Index at = head * blocks + block;
    const int exponent = exponents_[slot(at)];
    const std::vector<double>& all = numbers_.get();
    return {std::ldexp(Wide(all[slot(2 * at)]), exponent),
            std::ldexp(Wide(all[slot(2 * at + 1)]), exponent)};
}

std::optional<BlockSums> query_sums_later(const Attention& e, std::span<const RowRange> blocks) {
    if (!block_sums::has_safe_squares(e.projections->q_raw, e.projections->q_norm))
        return std::nullopt;
    return block_sums::sums_later<block_sums::Query>(e, blocks);
}

std::optional<BlockSums> key_sums_later(const Attention& e, std::span<const RowRange> blocks) {
    if (!block_sums::has_safe_squares(e.projections->k_raw, e.projections->k_norm))
        return std::nullopt;
    return block_sums::sums_later<block_sums::Key>(e, blocks);
}

}  // namespace tsdiag::probe
