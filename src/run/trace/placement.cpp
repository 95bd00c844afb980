#include "placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

/// Rows of a state of one sample, in float64; without rows where the trace does not have it.
struct State {
    std::string name;   ///< "hidden_states.3"
    std::string array;  ///< as messages begin: "trace.npz: array 'hidden_states.3'"
    Index rows = 0, cols = 0;
    double rounding = 0;  ///< relative, of its elements
    std::vector<double> x = {};
    explicit operator bool() const { return rows > 0; }
    std::span<const double> row(Index i) const {
        return std::span(x).subspan(std::size_t(i * cols), std::size_t(cols));
    }
};

/// How far a state is from what is said of it, relative, and how far rounding takes it.
struct Fit {
    double off = 0, allowed = 0;
    bool holds() const { return off <= allowed; }
};
constexpr Fit refuted{.off = HUGE_VAL};  // by what no number says

/// What is said of two or three states; nothing where one is missing or has too few rows to tell.
using Claim = std::optional<Fit>;

bool shows(const Claim& claim) { return claim && claim->holds(); }

constexpr Index fewest_rows = 4;  // two numbers are fitted to each column

/// Are the squares of its elements in the range of float64?  Fits are made of squares.
bool is_squarable(const State& s) {
    constexpr double most = 1e150;
    double largest = 0;
    for (const double v : s.x) largest = std::max(largest, std::abs(v));
    return largest < most && largest > 1 / most;
}

/// What nine of ten elements of y are at most off c x + g_j b, g one number a column, relative to
/// the moduli of all three.  Allowed is what sums of such numbers are off, at least a thousandth:
/// arrays may come from two passes, of which the second adds in another order.
Fit apart(const State& y, double c, const State& x, const std::vector<double>& g, const State& b) {
    const double rounding = std::max({y.rounding, x.rounding, b.rounding});
    std::vector<double> off;
    for (Index i = 0; i < y.rows; ++i)
        for (std::size_t j = 0; j < g.size(); ++j) {
            const double first = c * x.row(i)[j], second = g[j] * b.row(i)[j], sum = y.row(i)[j];
            const double size = std::abs(first) + std::abs(second) + std::abs(sum);
            const double relative = size > 0 ? std::abs(sum - (first + second)) / size : 0;
            off.push_back(std::isfinite(relative) ? relative : HUGE_VAL);
        }
    const auto tenth = off.begin() + std::ssize(off) / 10;
    std::ranges::nth_element(off, tenth, std::greater<>());
    return {*tenth, std::max(4 * rounding, 1e-3)};
}

Claim is_same(const State& y, const State& x) {
    if (!y || !x) return std::nullopt;
    return apart(y, 1, x, std::vector<double>(std::size_t(y.cols), 0.0), x);
}

/// Is y = x + g_j b, g the factors of LayerScale or 1, or y = c x + g b, as of DeepNorm?  Each row
/// counts alike in the fit.  Where it is none of them, y is as far as from x + b.  One row, to
/// which some factors always fit, tells of a sum only that it is one.
Claim is_sum(const State& y, const State& x, const State& b) {
    if (!y || !x || !b) return std::nullopt;
    const auto width = std::size_t(y.cols);
    const Fit plain = apart(y, 1, x, std::vector<double>(width, 1.0), b);
    if (plain.holds() || shows(is_same(y, b))) return plain;
    if (y.rows < 2) return std::nullopt;
    if (!is_squarable(y) || !is_squarable(x) || !is_squarable(b)) return plain;
    std::vector<double> yb(width), bb(width);
    double sum_xx = 0, sum_xb = 0, sum_bb = 0, sum_xy = 0, sum_by = 0;
    for (Index i = 0; i < y.rows; ++i) {
        double squares = 0;
        for (const double v : x.row(i)) squares += v * v;
        if (squares == 0) continue;
        for (std::size_t j = 0; j < width; ++j) {
            const double p = x.row(i)[j], q = b.row(i)[j], r = y.row(i)[j];
            yb[j] += (r - p) * q / squares, bb[j] += q * q / squares;
            sum_xx += p * p / squares, sum_xb += p * q / squares, sum_bb += q * q / squares;
            sum_xy += p * r / squares, sum_by += q * r / squares;
        }
    }
    std::vector<double> g(width);
    for (std::size_t j = 0; j < width; ++j) g[j] = bb[j] > 0 ? yb[j] / bb[j] : 0;
    if (const Fit scaled = apart(y, 1, x, g, b); scaled.holds()) return scaled;
    const double determinant = sum_xx * sum_bb - sum_xb * sum_xb;
    if (!(determinant > 0)) return plain;
    const double c = (sum_xy * sum_bb - sum_by * sum_xb) / determinant,
                 factor = (sum_by * sum_xx - sum_xy * sum_xb) / determinant;
    constexpr double least = 0.1;  // less of x is the branch alone
    if (!(c > least)) return plain;
    const Fit both = apart(y, c, x, std::vector<double>(width, factor), b);
    return both.holds() ? both : plain;
}

/// x + c b, where both are there.  Its elements are less than the terms that were rounded, where
/// these cancel.
State sum_of(const State& x, const State& b, double c = 1) {
    if (!x || !b) return {};
    State out = x;
    double terms = 0, own = 0;
    for (std::size_t i = 0; i < out.x.size(); ++i) {
        out.x[i] += c * b.x[i];
        terms += x.x[i] * x.x[i];
        own += out.x[i] * out.x[i];
    }
    out.rounding = std::max(x.rounding, b.rounding) * (own < terms ? std::sqrt(terms / own) : 1);
    return out;
}

/// The rows of `s` less their means, where `centres`, over the root of their mean square + eps.
struct Normed {
    std::vector<double> z;
    std::vector<double> means = {};  ///< over these roots, of rows
    double least = HUGE_VAL;         ///< of these mean squares
};
Normed normed(const State& s, bool centres, double eps) {
    Normed out{s.x};
    for (Index i = 0; i < s.rows; ++i) {
        const auto row = std::span(out.z).subspan(std::size_t(i * s.cols), std::size_t(s.cols));
        double mean = 0, square = 0;
        if (centres)
            for (const double v : row) mean += v / double(s.cols);
        for (const double v : row) square += (v - mean) * (v - mean) / double(s.cols);
        out.least = std::min(out.least, square);
        const double root = std::sqrt(square + eps);
        for (double& v : row) v = root > 0 ? (v - mean) / root : 0;
        out.means.push_back(root > 0 ? mean / root : 0);
    }
    return out;
}

/// Of y by columns: |y - fit|^2, |y - its fit by a constant row|^2, and |y|^2 with what a mean adds
/// to the numbers that were rounded before they were normed.
struct Misfit {
    double left = 0, spread = 0, whole = 0;
};
/// The fit is g_j z_j + b_j by least squares, b = 0 unless `shifts`.
Misfit misfit(const State& y, const Normed& x, bool shifts) {
    constexpr Index columns = 256;  // of more, every so many is looked at
    Misfit out;
    const double n = double(y.rows);
    for (Index j = 0; j < y.cols; j += (y.cols - 1) / columns + 1) {
        double my = 0, mz = 0, yy = 0, zz = 0, yz = 0;
        const auto at = [&](Index i) { return std::size_t(i * y.cols + j); };
        for (Index i = 0; i < y.rows; ++i) my += y.x[at(i)] / n, mz += x.z[at(i)] / n;
        for (Index i = 0; i < y.rows; ++i) {
            out.spread += (y.x[at(i)] - my) * (y.x[at(i)] - my);
            out.whole += y.x[at(i)] * y.x[at(i)];
        }
        if (!shifts) my = mz = 0;
        for (Index i = 0; i < y.rows; ++i) {
            const double a = y.x[at(i)] - my, b = x.z[at(i)] - mz;
            yy += a * a, zz += b * b, yz += a * b;
        }
        const double g = zz > 0 ? yz / zz : 0;
        out.left += std::max(0.0, yy - g * yz);
        for (const double mean : x.means) out.whole += g * mean * g * mean;
    }
    return out;
}

/// What a norm rounds, several times.
double norm_allowed(double rounding) { return std::max(5 * rounding, 0.003); }

/// Is y a norm of x?  Tokens too equal for the rounding of their numbers tell nothing.
Claim is_norm_of(const State& y, const State& x) {
    constexpr Index fewest_columns = 3;
    if (!y || !x || y.rows < fewest_rows || y.cols < fewest_columns) return std::nullopt;
    if (!is_squarable(y) || !is_squarable(x)) return std::nullopt;
    const double rounding = 4 * std::max(y.rounding, x.rounding);
    Fit nearest{.off = HUGE_VAL, .allowed = norm_allowed(std::max(y.rounding, x.rounding))};
    for (const bool centres : {true, false})
        for (const double eps : {0.0, 1e-6, 1e-5}) {
            const Normed of_x = normed(x, centres, eps);
            const Misfit off = misfit(y, of_x, centres);
            const double noise = rounding * rounding * off.whole;
            if (noise >= 0.1 * off.spread) return std::nullopt;
            const double own = std::sqrt(std::max(0.0, off.left - noise) / off.spread);
            nearest.off = std::min(nearest.off, own);
            if (nearest.holds()) return nearest;
            if (of_x.least > 1e3 * 1e-5) break;  // then eps matters less than what is allowed
        }
    return nearest;
}

/// Is y, by columns, x scaled and shifted, as a norm over tokens or samples leaves it?
bool is_norm_over_tokens_of(const State& y, const State& x) {
    const Misfit off = misfit(y, Normed{x.x}, true);
    const double allowed = norm_allowed(std::max(y.rounding, x.rounding));
    return off.left <= allowed * allowed * off.spread;
}

/// Are its rows, normed, on one line, as of two tokens?  Then fits by columns show it as a norm of
/// each such state.
bool is_on_a_line(const State& x) {
    std::vector<double> off = normed(x, true, 0).z, squares(std::size_t(x.rows));
    const auto row = [&](Index i) {
        return std::span(off).subspan(std::size_t(i * x.cols), std::size_t(x.cols));
    };
    const auto product = [](std::span<const double> a, std::span<const double> b) {
        return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    for (Index i = x.rows - 1; i >= 0; --i) {  // from the first row
        for (std::size_t j = 0; j < row(i).size(); ++j) row(i)[j] -= row(0)[j];
        squares[std::size_t(i)] = product(row(i), row(i));
    }
    const auto farthest = std::ranges::max_element(squares);
    const std::span<const double> line = row(farthest - squares.begin());
    double aside = 0, all = 0;
    for (Index i = 0; i < x.rows; ++i) {
        const double along = product(row(i), line), own = squares[std::size_t(i)];
        aside += own - along * along / *farthest;
        all += own;
    }
    const double allowed = norm_allowed(x.rounding);
    return !(aside > allowed * allowed * all);
}

/// Is y a norm of x, by tokens that would tell if it were none?
bool is_surely_norm_of(const State& y, const State& x) {
    return shows(is_norm_of(y, x)) && !is_on_a_line(x);
}

/// The claims of one placement about the layers of a trace.
struct Evidence {
    NormPlacement placement = NormPlacement::post;
    Index holds = 0, fails = 0;
    std::string first;  ///< the first that fails, in words
    Fit first_fit;
    bool fits() const { return fails == 0; }
    template <class Words>
    void add(const Claim& claim, Words words) {
        if (!claim) return;
        ++(claim->holds() ? holds : fails);
        if (claim->holds() || !first.empty()) return;
        first = words();
        first_fit = *claim;
    }
};

/// The states of one layer, of a few rows of one sample.
struct Layer {
    State in, next, sa, attn, norm1, norm3, local, ffn, norm2;
    std::vector<State> changed;  ///< by de-escalation and further steps, which are there
    State input;                 ///< `attention_inputs`, which is then not `norm1`
    Index number = 0;
    bool last = false;
};

/// Of rows that are zeros in one of two states alone: `before`, what they look like, `behind`.
/// Empty where there are none.
std::string said_of_zeros(const State& y, const State& x, std::string_view before,
                          std::string_view behind = "") {
    const auto is_zero = [](const State& s, Index i) {
        return std::ranges::all_of(s.row(i), [](double v) { return v == 0; });
    };
    for (Index i = 0; i < std::min(y.rows, x.rows); ++i)
        if (is_zero(y, i) != is_zero(x, i))
            return fmt::format(
                "{}rows of zeros in {} look like padding, which --mask FILE, or attention_mask in "
                "the file, leaves out{}",
                before, (is_zero(y, i) ? y : x).name, behind);
    return {};
}

std::string no_norm(const State& y, const State& x) {
    return fmt::format("{} is not a norm of {}{}", y.array, x.name, said_of_zeros(y, x, " (", ")"));
}

std::string no_sum(const State& y, const State& x, const State& b) {
    const bool branch = shows(is_same(y, b));
    return fmt::format("{} is not {} + {}{}", y.array, x.name, b.name,
                       branch ? fmt::format(" (the branch alone? save it as {} only)", b.name)
                              : said_of_zeros(y, x, " (", ")"));
}

/// Is the output of the layer `end` or one of those that change it, or, of the last layer, a norm
/// of one?
void add_output(Evidence& out, const Layer& l, const State& end, const State& before) {
    if (!l.next) return;
    const auto is_output = [&](const State& one) {
        const Claim same = is_same(l.next, one);
        return l.last && !shows(same) ? is_norm_of(l.next, one) : same;
    };
    Claim claim = is_output(end);
    for (const State& one : l.changed)  // which may stand before the feed-forward step instead
        if (!shows(claim) && shows(is_output(one))) claim = Fit();
    out.add(claim, [&] {
        const bool branch = shows(is_sum(l.next, before, end));
        return fmt::format("{} is not the output of its layer, {}{}", end.array, l.next.name,
                           branch ? " (the branch alone? add what it is added to)"
                                  : said_of_zeros(l.next, end, " (", ")"));
    });
}

/// Is y the norm of the sum of `in` and `sa`, in a layer without `attn`?  `sa` may be missing, or
/// be not what is added (LayerScale, a norm of its own); so only a norm of `in` itself is none of
/// that sum.
Claim is_norm_of_sum(const State& y, const Layer& l) {
    if (shows(is_norm_of(y, sum_of(l.in, l.sa)))) return Fit();
    return is_surely_norm_of(y, l.in) ? Claim(refuted) : std::nullopt;
}

/// `claim`, or, where it does not hold, whether y is the norm of one of `states`.
Claim or_norm_of_one(Claim claim, const State& y, const std::vector<State>& states) {
    for (const State& one : states)
        if (!shows(claim) && shows(is_norm_of(y, one))) claim = Fit();
    return claim;
}

std::string norm_of_input(const State& y, const State& in) {
    return fmt::format("{} is a norm of {}, without what attention adds to it", y.array, in.name);
}

/// Without a norm before attention its input is that of the layer.
void add_plain_input(Evidence& out, const Layer& l) {
    if (!l.input) return;
    out.add(is_same(l.input, l.in).value_or(refuted), [&] {
        return fmt::format("{} is not hidden_states.{}, as where no norm stands before attention",
                           l.input.array, l.number);
    });
}

void add_post(Evidence& out, const Layer& l) {
    out.add(is_sum(l.attn, l.in, l.sa), [&] { return no_sum(l.attn, l.in, l.sa); });
    add_plain_input(out, l);
    out.add(l.attn ? is_norm_of(l.norm1, l.attn) : is_norm_of_sum(l.norm1, l),
            [&] { return l.attn ? no_norm(l.norm1, l.attn) : norm_of_input(l.norm1, l.in); });
    out.add(is_norm_of(l.norm2, l.ffn), [&] { return no_norm(l.norm2, l.ffn); });
    if (l.norm2 || !l.changed.empty()) return add_output(out, l, l.norm2, l.ffn);
    const bool equal = shows(is_same(l.next, l.ffn));
    out.add(equal ? Claim(refuted) : is_norm_of(l.next, l.ffn),
            [&] { return no_norm(l.next, l.ffn); });
}

/// Of the layouts that end with the sum: `norm2` is then not the output.
void add_sum_output(Evidence& out, const Layer& l) {
    add_output(out, l, l.ffn, l.local ? l.local : l.attn);
    if (!l.ffn && shows(is_same(l.next, l.norm2)))
        out.add(refuted,
                [&] { return fmt::format("{} is the output of its layer", l.norm2.array); });
}

/// That attention reads a norm of `in`.
void add_input(Evidence& out, const Layer& l) {
    const State& normed = l.input ? l.input : l.norm1;
    const bool equal = l.input && shows(is_same(normed, l.in));
    out.add(equal ? Claim(refuted) : is_norm_of(normed, l.in), [&] {
        return equal ? fmt::format("{} is {} itself", normed.array, l.in.name)
                     : no_norm(normed, l.in);
    });
}

void add_pre(Evidence& out, const Layer& l) {
    out.add(is_sum(l.attn, l.in, l.sa), [&] { return no_sum(l.attn, l.in, l.sa); });
    add_input(out, l);
    out.add(is_norm_of(l.norm3, l.attn), [&] { return no_norm(l.norm3, l.attn); });
    const State& before = l.local ? l.local : l.attn;       // the feed-forward step
    const Claim claim = l.norm3 && !l.local ? std::nullopt  // of a sum that was not saved
                        : before            ? is_norm_of(l.norm2, before)
                                            : is_norm_of_sum(l.norm2, l);
    out.add(or_norm_of_one(claim, l.norm2, l.changed),
            [&] { return before ? no_norm(l.norm2, before) : norm_of_input(l.norm2, l.in); });
    add_sum_output(out, l);
}

void add_parallel(Evidence& out, const Layer& l) {
    if (l.attn)
        out.add(refuted, [&] {
            return fmt::format("{} is a stage that parallel layers do not have", l.attn.array);
        });
    add_input(out, l);
    out.add(is_norm_of(l.norm2, l.in), [&] { return no_norm(l.norm2, l.in); });
    add_sum_output(out, l);
}

void add_branch(Evidence& out, const Layer& l) {
    add_plain_input(out, l);
    const State& added = l.norm1 ? l.norm1 : l.sa;
    Claim sum = is_sum(l.attn, l.in, added);
    if (!l.norm1 && sum && !sum->holds()) sum = is_norm_of(sum_of(l.attn, l.in, -1), l.sa);
    out.add(sum, [&] { return no_sum(l.attn, l.in, added); });
    out.add(is_norm_of(l.norm1, l.sa), [&] { return no_norm(l.norm1, l.sa); });
    out.add(is_sum(l.ffn, l.attn, l.norm2), [&] { return no_sum(l.ffn, l.attn, l.norm2); });
    const std::pair<const State*, const State*> before[] = {
        {&l.norm1, &l.in}, {&l.norm2, &l.in}, {&l.norm2, &l.attn}};
    for (const auto& [norm, from] : before)
        if (is_surely_norm_of(*norm, *from))
            out.add(refuted, [&] {
                return fmt::format("{} is a norm of {}, before a step and not behind it",
                                   norm->array, from->name);
            });
    add_sum_output(out, l);
}

State state_of(const SavedTrace::Array& array, std::string name, const SampleTokens& sample) {
    constexpr Index most_rows = 32;
    const RawTensor raw = array.sample(sample.number);
    if (raw.dtype <= DType::i64) return {};  // refused where it is measured
    State out{std::move(name), array.name};
    out.cols = raw.shape[1];
    out.rounding = sample.rounding;
    const std::span<const Index> tokens = sample.of(raw.shape[0]);
    const Index every = (std::ssize(tokens) - 1) / most_rows + 1;
    for (Index i = 0; i < std::ssize(tokens); i += every) {
        const RawTensor row = element(raw, tokens[std::size_t(i)]);
        out.x.resize(out.x.size() + std::size_t(out.cols));
        widen<double>(row, std::span(out.x).last(std::size_t(out.cols)));
        ++out.rows;
    }
    return out;
}

State state_of(const SavedTrace::Layers& layers, std::string_view kind, Index layer,
               const SampleTokens& sample) {
    const auto found = layers.find(layer);
    return found == layers.end()
               ? State()
               : state_of(found->second, fmt::format("{}.{}", kind, layer), sample);
}

/// What a layer returns.
State output_of(const SavedTrace& trace, Index layer, const SampleTokens& sample) {
    const SavedTrace::Array* array = trace.output(layer);
    if (!array) return {};
    const bool own = trace.outer("out", layer) != nullptr;
    return state_of(*array,
                    own ? fmt::format("out.{}", layer) : fmt::format("hidden_states.{}", layer + 1),
                    sample);
}

/// Leaves out the rows that are not finite in one of the states.
void keep_finite(std::span<State* const> states) {
    std::set<Index, std::greater<>> bad;
    for (const State* one : states)
        for (Index i = 0; i < one->rows; ++i)
            if (!std::ranges::all_of(one->row(i), [](double v) { return std::isfinite(v); }))
                bad.insert(i);
    for (State* one : states)
        for (const Index i : bad) {
            if (!*one) break;
            const auto first = one->x.begin() + i * one->cols;
            one->x.erase(first, first + one->cols);
            --one->rows;
        }
}

/// The steps that may stand before the feed-forward step or at the end of the layer.
std::vector<std::string_view> movable_steps() {
    std::vector<std::string_view> out = {"deesc"};
    for (const StepEntry* entry : further_steps()) out.push_back(entry->name);
    return out;
}

Layer layer_of(const SavedTrace& trace, Index i, const SampleTokens& sample) {
    const auto stage = [&](std::string_view name, std::string_view kind) {
        const auto found = trace.stages().find(name);
        return found == trace.stages().end() ? State() : state_of(found->second, kind, i, sample);
    };
    Layer l;
    l.in = state_of(trace.states(), "hidden_states", i, sample);
    l.next = output_of(trace, i, sample);
    for (const auto& [state, name] : {std::pair(&l.sa, "sa"),
                                      {&l.attn, "attn"},
                                      {&l.norm3, "norm3"},
                                      {&l.local, "local"},
                                      {&l.ffn, "ffn"},
                                      {&l.norm2, "norm2"}})
        *state = stage(name, name);
    for (const std::string_view name : movable_steps())
        if (State found = stage(name, name)) l.changed.push_back(std::move(found));
    if (trace.attention_inputs())
        l.input = stage("norm1", "attention_inputs");
    else
        l.norm1 = stage("norm1", "norm1");
    l.number = i;
    l.last = i + 1 == trace.summary().layers;
    std::vector<State*> states = {&l.in,    &l.next,  &l.sa,  &l.attn,  &l.norm1,
                                  &l.norm3, &l.local, &l.ffn, &l.norm2, &l.input};
    for (State& changed : l.changed) states.push_back(&changed);
    keep_finite(states);
    return l;
}

/// What each placement says, without evidence.
std::vector<Evidence> placements() {
    std::vector<Evidence> out(4);
    out[0].placement = NormPlacement::post;
    out[1].placement = NormPlacement::pre;
    out[2].placement = NormPlacement::parallel;
    out[3].placement = NormPlacement::branch;
    return out;
}

void add_layer(Evidence& out, const Layer& l) {
    switch (out.placement) {
        case NormPlacement::post:
            return add_post(out, l);
        case NormPlacement::pre:
            return add_pre(out, l);
        case NormPlacement::parallel:
            return add_parallel(out, l);
        case NormPlacement::branch:
            return add_branch(out, l);
    }
}

std::vector<Evidence> evidence(const SavedTrace& trace,
                               const std::vector<std::vector<bool>>& masks) {
    std::vector<Evidence> out = placements();
    const SampleTokens sample = sample_of(trace, masks);
    for (Index i = 0; i < trace.summary().layers; ++i) {
        require_same_states(trace, i, sample, sample.number);
        const Layer l = layer_of(trace, i, sample);
        for (Evidence& one : out) add_layer(one, l);
    }
    return out;
}

/// What the numbers depend on: the stages that the trace has with what each is measured from, and
/// what attention reads.
std::set<std::string> numbers_of(const SavedTrace& trace, NormPlacement placement) {
    std::set<std::string> out;
    std::set<std::string_view> present;
    if (!trace.states().empty()) present.insert("in");
    const StepNames before_ffn = steps_before_ffn({&trace, 1});
    for (const auto& [stage, pred] : stages_of(trace, placement, before_ffn)) {
        if (!trace.stages().contains(stage)) continue;
        if (stage == "norm1" && trace.attention_inputs() && !normed_first(placement)) continue;
        present.insert(stage);
        out.insert(fmt::format("{} {}", stage, present.contains(pred) ? pred : ""));
    }
    // Post-norm layers are said to be such, whatever is measured.
    const bool said = trace.summary().has_attention || placement == NormPlacement::post;
    if (said) out.emplace(normed_first(placement) ? "norm1" : name(placement));
    return out;
}

/// "post, pre or branch"
std::string joined(const std::vector<Evidence>& all) {
    std::string out;
    for (std::size_t i = 0; i < all.size(); ++i)
        out += fmt::format("{}{}",
                           i == 0                ? ""
                           : i + 1 == all.size() ? " or "
                                                 : ", ",
                           name(all[i].placement));
    return out;
}

/// Is a step of a layer its output?
Claim is_output(const SavedTrace& trace, std::string_view step, Index layer,
                const SampleTokens& sample) {
    const auto found = trace.stages().find(step);
    if (found == trace.stages().end()) return std::nullopt;
    State out = output_of(trace, layer, sample), own = state_of(found->second, step, layer, sample);
    const std::array<State*, 2> both = {&out, &own};
    keep_finite(both);
    return is_same(out, own);
}

/// A step that is the output of its layer may then stand before the feed-forward step, too.
bool ffn_may_add_nothing(const SavedTrace& trace, Index layer, const SampleTokens& sample) {
    const Claim last = is_output(trace, "ffn", layer, sample);
    return !last || last->holds();
}

/// ", in sample 1, layer 2 (relative error 0.5, expected at most 0.001)"
std::string at_sample(Index number, Index layer, const Fit& fit) {
    return fmt::format(
        ", in sample {}, layer {}{}", number, layer,
        std::isfinite(fit.off)
            ? fmt::format(" (relative error {:.2g}, expected at most {:.2g})", fit.off, fit.allowed)
            : "");
}

/// Throws `UsageError` where `final_norm.L` is a norm of no state that layer L leaves, over columns
/// or tokens, nor the last state, which may have gone through it already.  Behind class attention
/// it is that of `class.L`.
void require_final_norm(const SavedTrace& trace, Index layer, const SampleTokens& sample,
                        Index number) {
    const SavedTrace::Array* own = trace.outer("final_norm", layer);
    if (!own) return;
    const auto next = trace.states().find(layer + 1);
    const SavedTrace::Array* last = next == trace.states().end() ? nullptr : &next->second;
    std::string of, zeros;
    Fit fit;
    for (const auto& [name, array] : {std::pair("class", trace.outer("class", layer)),
                                      {"out", trace.outer("out", layer)},
                                      {"merge", trace.outer("merge", layer)},
                                      {"hidden_states", last}}) {
        if (!array || array->sample(sample.number).shape != own->sample(sample.number).shape)
            continue;
        const Index number_of = array == last ? layer + 1 : layer;
        State y = state_of(*own, fmt::format("final_norm.{}", layer), sample),
              x = state_of(*array, fmt::format("{}.{}", name, number_of), sample);
        const std::array<State*, 2> both = {&x, &y};
        keep_finite(both);
        const Claim norm = is_norm_of(y, x);
        const bool same = shows(is_same(y, x));
        if (!norm || norm->holds() || (same ? array == last : is_norm_over_tokens_of(y, x))) return;
        of += fmt::format("{}{}", of.empty() ? "" : ", nor of ", x.name);
        fit = *norm;
        if (zeros.empty()) zeros = said_of_zeros(y, x, "; ");
    }
    if (of.empty()) return;
    throw UsageError(fmt::format(
        "{} is no norm of {}{}{}{}; correct one of them, or leave it or the sample out.", own->name,
        of, last ? ", nor the last state itself" : "", at_sample(number, layer, fit), zeros));
}

}  // namespace

std::span<const Index> SampleTokens::of(Index rows) const {
    const auto end = std::ranges::lower_bound(tokens, rows);
    return std::span(tokens).first(std::size_t(end - tokens.begin()));
}

std::vector<SampleTokens> kept_tokens(const SavedTrace& trace,
                                      std::vector<std::vector<bool>> masks) {
    const Index samples = trace.summary().samples, n = trace.summary().tokens;
    if (masks.empty() && trace.mask())
        masks = masks_of(trace.mask()->raw, trace.mask()->name, samples, n);
    if (masks.empty()) masks.assign(std::size_t(samples), std::vector<bool>(std::size_t(n), true));
    std::vector<SampleTokens> out;
    for (Index s = 0; s < std::min(samples, Index(std::ssize(masks))); ++s) {
        SampleTokens& own = out.emplace_back(s);
        own.rounding = trace.summary().state_rounding;
        for (Index i = 0; i < n; ++i)
            if (masks[std::size_t(s)][std::size_t(i)]) own.tokens.push_back(i);
    }
    return out;
}

SampleTokens sample_of(const SavedTrace& trace, const std::vector<std::vector<bool>>& masks) {
    const std::vector<SampleTokens> all = kept_tokens(trace, masks);
    return *std::ranges::max_element(all, {},
                                     [](const SampleTokens& s) { return s.tokens.size(); });
}

std::vector<BatchSample> measured_samples(std::span<const SavedTrace> batches,
                                          const std::vector<std::vector<bool>>& masks) {
    std::vector<BatchSample> out;
    Index before = 0;
    for (const SavedTrace& batch : batches) {
        const auto first = masks.begin() + std::min(before, Index(std::ssize(masks)));
        if (!masks.empty() && first == masks.end()) break;
        for (SampleTokens& sample : kept_tokens(batch, {first, masks.end()}))
            if (!sample.tokens.empty()) {
                const Index number = before + sample.number;
                out.push_back({&batch, std::move(sample), number});
            }
        before += batch.summary().samples;
    }
    return out;
}

StepNames steps_before_ffn(std::span<const SavedTrace> batches,
                           const std::vector<std::vector<bool>>& masks) {
    StepNames out;
    for (const std::string_view step : movable_steps()) {
        if (std::ranges::none_of(
                batches, [&](const SavedTrace& one) { return one.stages().contains(step); }))
            continue;
        Claim last;
        for (const auto& [batch, sample, number] : measured_samples(batches, masks))
            for (Index i = 0; i + 1 < batch->summary().layers && !last; ++i) {
                last = is_output(*batch, step, i, sample);
                if (shows(last) && ffn_may_add_nothing(*batch, i, sample)) last.reset();
            }
        if (last && !last->holds()) out.insert(step);
    }
    return out;
}

std::vector<Stage> stages_of(const SavedTrace& trace, NormPlacement placement,
                             const StepNames& before_ffn) {
    BlockSpec block;  // with the steps of which the trace has a stage
    block.placement = placement;
    block.ffn.width = 1;
    block.local.kernel =
        trace.stages().contains("local") || trace.stages().contains("norm3") ? 1 : 0;
    const auto is_before_ffn = [&](std::string_view step) {
        return placement != NormPlacement::parallel && before_ffn.contains(step);
    };
    block.deesc.tau = trace.stages().contains("deesc") ? 1 : 0;
    block.deesc.before_ffn = is_before_ffn("deesc");
    for (const StepEntry* entry : further_steps())
        if (trace.stages().contains(entry->name))
            block.steps.push_back({.name = std::string(entry->name),
                                   .options = {},
                                   .before_ffn = is_before_ffn(entry->name)});
    std::vector<Stage> out;
    for (const Stage& stage : stages_of(block)) {
        if (stage.name == "in" || stage.name == "out") continue;
        // Of a branch and its norm a model emits what is added, a trace may hold both.
        if (placement == NormPlacement::branch && stage.name == "attn") out.push_back({"norm1"});
        if (placement == NormPlacement::branch && stage.name == "ffn") out.push_back({"norm2"});
        out.push_back(stage);
    }
    return out;
}

bool normed_first(NormPlacement placement) {
    return placement == NormPlacement::pre || placement == NormPlacement::parallel;
}

NormPlacement placement_of(const SavedTrace& trace, std::optional<NormPlacement> given,
                           const std::vector<std::vector<bool>>& masks) {
    if (trace.stages().empty()) return given.value_or(NormPlacement::post);
    const std::vector<Evidence> all = evidence(trace, masks);
    std::vector<Evidence> fit = all;
    std::erase_if(fit, [](const Evidence& one) { return !one.fits(); });
    if (given) {
        const Evidence& own = *std::ranges::find(all, *given, &Evidence::placement);
        if (own.fits()) return *given;
        throw UsageError(fmt::format(
            "--placement {}: {}{}.", name(*given), own.first,
            fit.empty()
                ? ", nor do the arrays fit another placement"
                : fmt::format("; the arrays are in the order of {}, by what is the norm or sum "
                              "of what",
                              joined(fit))));
    }
    if (fit.empty()) {
        const Evidence& nearest =
            *std::ranges::min_element(all, [](const Evidence& a, const Evidence& b) {
                return std::pair(a.fails, -a.holds) < std::pair(b.fails, -b.holds);
            });
        throw UsageError(fmt::format(
            "{}; the arrays fit no placement, {} the most; correct that array or leave it out.",
            nearest.first, name(nearest.placement)));
    }
    // Equal arrays are those of a post-norm layer, where no number of P depends on it.
    if (trace.attention_inputs() && !trace.summary().has_attention &&
        fit.front().placement == NormPlacement::post)
        return NormPlacement::post;
    const std::set<std::string> numbers = numbers_of(trace, fit.front().placement);
    const bool differ = std::ranges::any_of(
        fit, [&](const Evidence& one) { return numbers_of(trace, one.placement) != numbers; });
    if (!differ) return fit.front().placement;
    throw UsageError(
        fmt::format("{}: stages inside layers need --placement {}: the arrays fit each.",
                    trace.stages().begin()->second.begin()->second.name, joined(fit)));
}

void require_placement(const SavedTrace& trace, NormPlacement placement, Index layer,
                       const SampleTokens& sample, Index number) {
    const Layer l = layer_of(trace, layer, sample);
    std::vector<Evidence> all = placements();
    Evidence& own = *std::ranges::find(all, placement, &Evidence::placement);
    add_layer(own, l);
    if (own.fits()) return;
    // The first sample may have shown too little to tell this order from another one.
    const std::set<std::string> numbers = numbers_of(trace, placement);
    for (Evidence& other : all) {
        if (&other == &own || numbers_of(trace, other.placement) != numbers) continue;
        add_layer(other, l);
        if (other.fits()) return;
    }
    throw UsageError(
        fmt::format("{}{}; placement {} holds in other samples, expected in all: correct that "
                    "array, or leave it or the sample out.",
                    own.first, at_sample(number, layer, own.first_fit), name(placement)));
}

void require_steps(const SavedTrace& trace, const StepNames& before_ffn, Index layer,
                   const SampleTokens& sample, Index number) {
    if (layer + 1 == trace.summary().layers) return;
    for (const std::string_view step : movable_steps()) {
        const Claim last = is_output(trace, step, layer, sample);
        const bool before = before_ffn.contains(step);
        if (!last || last->holds() != before) continue;
        if (before && ffn_may_add_nothing(trace, layer, sample)) continue;
        throw UsageError(fmt::format(
            "{} is {}the output of its layer{}; in other samples or layers it is {}, expected the "
            "same in all: correct that array, or leave it or the sample out.",
            trace.stages().at(step).at(layer).name, before ? "" : "not ",
            before ? at_sample(number, layer, refuted) : at_sample(number, layer, *last),
            before ? "not" : "the output"));
    }
}

void require_same_states(const SavedTrace& trace, Index layer, const SampleTokens& sample,
                         Index number) {
    require_final_norm(trace, layer, sample, number);
    const auto next = trace.states().find(layer + 1);
    if (next == trace.states().end()) return;
    for (const char* stage : {"out", "merge"}) {
        const SavedTrace::Array* own = trace.outer(stage, layer);
        if (!own || (stage == std::string_view("out") && trace.merges_behind(layer))) continue;
        State x = state_of(*own, fmt::format("{}.{}", stage, layer), sample),
              y = state_of(next->second, fmt::format("hidden_states.{}", layer + 1), sample);
        const std::array<State*, 2> both = {&x, &y};
        keep_finite(both);
        const bool may_be_norm = layer + 1 == trace.states().rbegin()->first;
        Claim claim = is_same(x, y);
        if (may_be_norm && !shows(claim)) claim = is_norm_of(y, x);
        if (!claim || claim->holds()) continue;
        throw UsageError(fmt::format(
            "{} has other numbers than {}, which is the same state{}{}{}; correct one of both, or "
            "leave it or the sample out.",
            own->name, y.name, may_be_norm ? " or a norm of it" : "",
            at_sample(number, layer, *claim), said_of_zeros(y, x, "; ")));
    }
}

}  // namespace tsdiag
