#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "support.hpp"

/// [DEVIL] section 3.1: gradients of attention as its scores tend to 0.
namespace tsdiag::experiment_list::devil_sec3 {
namespace {

constexpr std::array keys{
    whole_key("tokens", "6", "64", "256", "tokens n", 2),
    ExperimentKey{"d", "4", "64", "64", "columns of a head"},
    listed(real_key("scales", "1,1e-4", "10,1,0.1,1e-2,1e-3,1e-4,1e-5,1e-6,1e-7,1e-8",
                    "10,1,0.1,1e-2,1e-3,1e-4,1e-5,1e-6,1e-7,1e-8", "factors c of the scores", 1e-12,
                    100)),
    real_key("eps", "1e-5", "1e-5", "1e-5", "epsilon of the norm after NormAttention", 1e-12, 1),
    key_trials("20", "200")};

using Vector = std::vector<double>;

/// Scores, values and cotangents of one trial; rows of n or d.
struct Draw {
    Index n = 0, d = 0;
    Vector scores, values, cotangents;
    double c1 = 0, c2 = 0;  ///< largest row norm of the cotangents, of the values

    std::span<const double> value(Index j) const { return {values.data() + j * d, std::size_t(d)}; }
    std::span<const double> cotangent(Index i) const {
        return {cotangents.data() + i * d, std::size_t(d)};
    }
};

double dot(std::span<const double> a, std::span<const double> b) {
    double s = 0;
    for (std::size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
    return s;
}

/// Scores phi(q).phi(k)/d with phi = elu + 1 of Gaussian q and k: positive, of order 1.
Draw draw(const Rng& rng, Index n, Index d) {
    const auto rows = [&](const char* name) {
        Vector v(std::size_t(n * d));
        rng.fork(name).fill_normal(std::span<double>(v), 0, 1);
        return v;
    };
    Draw out{.n = n,
             .d = d,
             .scores = Vector(std::size_t(n * n)),
             .values = rows("v"),
             .cotangents = rows("g")};
    Vector q = rows("q"), k = rows("k");
    for (Vector* features : {&q, &k})
        for (double& x : *features) x = x > 0 ? x + 1 : std::exp(x);
    const auto row = [&](const Vector& v, Index i) {
        return std::span(v).subspan(std::size_t(i * d), std::size_t(d));
    };
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            out.scores[std::size_t(i * n + j)] = dot(row(q, i), row(k, j)) / double(d);
    for (Index i = 0; i < n; ++i) {
        out.c1 = std::max(out.c1, std::sqrt(dot(out.cotangent(i), out.cotangent(i))));
        out.c2 = std::max(out.c2, std::sqrt(dot(out.value(i), out.value(i))));
    }
    return out;
}

/// The largest absolute derivatives: dP_ij/dS_ik, and dL/dS_ij for cotangents dL/dO.
struct Largest {
    double entry = 0, loss = 0;
};

/// <g_i, v_j> for all j.
Vector products(const Draw& w, Index i) {
    Vector a(std::size_t(w.n));
    for (Index j = 0; j < w.n; ++j) a[std::size_t(j)] = dot(w.cotangent(i), w.value(j));
    return a;
}

/// P_ij = f(S_ij) / z_i with slope_j = f'(S_ij) / z_i: dP_ij/dS_ik = slope_k (1_jk - P_ij) and
/// dL/dS_ij = slope_j <g_i, v_j - o_i>.  [DEVIL] (7), (8), (10)
void add_row(const Draw& w, Index i, const Vector& p, const Vector& slope, Largest& most) {
    const Vector gv = products(w, i);
    const double go = dot(p, gv), greatest = *std::ranges::max_element(p);
    for (std::size_t j = 0; j < p.size(); ++j) {
        most.entry = std::max(most.entry, slope[j] * (1 - p[j]));
        const double other = p[j] == greatest ? 0 : greatest;  // the largest P_ij' with j' != j
        most.entry = std::max(most.entry, slope[j] * other);
        most.loss = std::max(most.loss, std::abs(slope[j] * (gv[j] - go)));
    }
}

Largest softmax(const Draw& w, double c) {
    Largest most;
    const auto n = std::size_t(w.n);
    for (std::size_t i = 0; i < n; ++i) {
        Vector p(w.scores.begin() + std::ptrdiff_t(i * n),
                 w.scores.begin() + std::ptrdiff_t((i + 1) * n));
        const double top = c * *std::ranges::max_element(p);
        double z = 0;
        for (double& x : p) z += x = std::exp(c * x - top);
        for (double& x : p) x /= z;
        add_row(w, Index(i), p, p, most);
    }
    return most;
}

Largest linear(const Draw& w, double c) {
    Largest most;
    const auto n = std::size_t(w.n);
    for (std::size_t i = 0; i < n; ++i) {
        Vector p(w.scores.begin() + std::ptrdiff_t(i * n),
                 w.scores.begin() + std::ptrdiff_t((i + 1) * n));
        double z = 0;
        for (const double x : p) z += x;
        for (double& x : p) x /= z;
        add_row(w, Index(i), p, Vector(n, 1 / (c * z)), most);
    }
    return most;
}

/// O = RMSNorm(c S V): dL/dS_ij = <R_i g_i, v_j>, R = (I - t t^T / (d v)) / sqrt v, v = |t|^2/d +
/// eps, t = row i of c S V; only t depends on c.  [DEVIL] (51), (58)
double norm_attention(const Draw& w, double c, double eps) {
    double most = 0;
    const auto d = std::size_t(w.d);
    for (Index i = 0; i < w.n; ++i) {
        Vector t(d);
        for (Index j = 0; j < w.n; ++j)
            for (std::size_t a = 0; a < d; ++a)
                t[a] += c * w.scores[std::size_t(i * w.n + j)] * w.value(j)[a];
        const double v = dot(t, t) / double(w.d) + eps,
                     along = dot(t, w.cotangent(i)) / (double(w.d) * v);
        Vector g(d);
        for (std::size_t a = 0; a < d; ++a)
            g[a] = (w.cotangent(i)[a] - along * t[a]) / std::sqrt(v);
        for (Index j = 0; j < w.n; ++j) most = std::max(most, std::abs(dot(g, w.value(j))));
    }
    return most;
}

constexpr const char* name = "scores phi(q).phi(k)/d";

RunResult measure(const ExperimentSetting& setting) {
    const Index n = setting.count("tokens"), d = setting.count("d");
    const double eps = setting.number("eps");
    const std::vector<double> scales = setting.numbers("scales");
    std::vector<double> ascending = scales;
    std::ranges::sort(ascending);
    const double low = ascending.front(),
                 next = ascending[std::min<std::size_t>(1, ascending.size() - 1)];
    RunResult result;
    result.table = Table(name);
    each_trial(
        setting.count("trials"), result.table,
        [&](Index trial, Sink& out) {
            const Draw w =
                draw(Rng(setting.seed()).fork("gradients").fork(std::uint64_t(trial)), n, d);
            const double unit = w.c1 * w.c2;
            const double least = *std::ranges::min_element(w.scores);
            for (const double c : scales) {
                const Largest soft = softmax(w, c), lin = linear(w, c);
                out.point({}, "dp_softmax", c, soft.entry);
                out.point({}, "dp_linear", c, lin.entry);
                out.point({}, "dp_linear_bound", c, 1 / (4 * c * least));
                out.point({}, "dp_linear_share", c, lin.entry * 4 * c * least);
                out.point({}, "dl_softmax", c, soft.loss / unit);
                out.point({}, "dl_linear", c, lin.loss / unit);
                out.point({}, "dl_norm", c, norm_attention(w, c, eps) / unit);
            }
            if (low == next) return;
            const auto slope = [&](double at_low, double at_next) {
                return std::log(at_next / at_low) / std::log(next / low);
            };
            out.scalar({}, "exponent_softmax", slope(softmax(w, low).loss, softmax(w, next).loss));
            out.scalar({}, "exponent_linear", slope(linear(w, low).loss, linear(w, next).loss));
            out.scalar({}, "exponent_norm",
                       slope(norm_attention(w, low, eps), norm_attention(w, next, eps)));
        },
        [&](double part) {
            if (setting.progress()) setting.progress()({.phase = "measure", .fraction = part});
        },
        setting.units());
    return result;
}

Findings find(const Table& table, const ExperimentSetting& setting) {
    const Numbers numbers(table);
    std::vector<double> scales = setting.numbers("scales");
    std::ranges::sort(scales);
    const double eps = setting.number("eps"), root = 1 / std::sqrt(eps);
    const double n = setting.number("tokens"), d = setting.number("d");
    const auto curve = [&](const char* which) { return numbers.curve(name, which); };
    const Axis c{.title = "factor c of the scores", .scale = Scale::log};
    Findings found;
    Plot entry{.title = "largest |dP_ij/dS_ik|",
               .x = c,
               .y = {.title = "largest derivative", .scale = Scale::log}};
    entry.series = {line("softmax", curve("dp_softmax"), true),
                    line("linear", curve("dp_linear"), true),
                    law("bound of softmax, 1/4", scales, [](double) { return 0.25; }),
                    line("bound of linear, 1/(4 c min s)", curve("dp_linear_bound"), true)};
    entry.series.back().dashed = true;
    entry.series.back().low.clear(), entry.series.back().high.clear();
    Plot loss{.title = "largest |dL/dS_ij| / (c1 c2)",
              .x = c,
              .y = {.title = "largest derivative", .scale = Scale::log}};
    loss.series = {line("softmax", curve("dl_softmax"), true),
                   line("linear", curve("dl_linear"), true),
                   line("NormAttention", curve("dl_norm"), true),
                   law("softmax, sharp: 1/2", scales, [](double) { return 0.5; }),
                   law("NormAttention, sharp: 1/sqrt(eps)", scales, [&](double) { return root; }),
                   law("NormAttention, printed: 3d/(2 sqrt(eps))", scales,
                       [&](double) { return 1.5 * d * root; })};
    Figure f{
        .name = "devil_sec3",
        .title = "Gradients as the scores shrink",
        .caption =
            "The scores are multiplied by c; derivatives are with respect to the scaled scores, in "
            "closed form. c1 is the longest row of dL/dO, c2 of V, both Gaussian. Linear attention "
            "divides by the sum of its scores, so its derivative is of degree -1 in c."};
    f.panels = {entry, loss};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));

    const double low = scales.front();
    const auto at = [&](const char* which, double x) {
        const auto all = curve(which);
        const auto number = all.find(x);
        return number == all.end() ? Number{.note = "not in the table"} : number->second;
    };
    using Kind = Comparison::Kind;
    for (const auto& [which, label, says, expected] :
         {std::tuple{"exponent_linear", "linear",
                     "[DEVIL] (60): unbounded; of degree -1 in c by (10)", -1.0},
          std::tuple{"exponent_softmax", "softmax",
                     "[DEVIL] (59): bounded, constant as c tends to 0", 0.0},
          std::tuple{"exponent_norm", "NormAttention",
                     "[DEVIL] (61): bounded, constant as c tends to 0", 0.0}})
        found.comparisons.push_back(resolved(
            compare(fmt::format("exponent in c of the largest |dL/dS|, at the least c, {}", label),
                    says, expected, numbers.at(name, which)),
            0.001));
    found.comparisons.push_back(
        compare(fmt::format("largest |dP/dS|, softmax, c = {}", scales.back()),
                "[DEVIL] (9): at most 1/4", 0.25, at("dp_softmax", scales.back()), Kind::at_most));
    found.comparisons.push_back(
        compare(fmt::format("largest |dP/dS| over 1/(4 c min s), linear, c = {:g}", low),
                "[DEVIL] (11): at most 1", 1.0, at("dp_linear_share", low), Kind::at_most));
    found.comparisons.push_back(
        compare(fmt::format("largest |dL/dS| / (c1 c2), softmax, c = {}", scales.back()),
                "[DEVIL] (59): at most sqrt(n)/4; 1/2 is sharp", std::sqrt(n) / 4,
                at("dl_softmax", scales.back()), Kind::at_most));
    found.comparisons.push_back(compare(
        fmt::format("largest |dL/dS| / (c1 c2), NormAttention, c = {:g}", low),
        fmt::format("[DEVIL] (15), (61): at most 3d/(2 sqrt eps); 1/sqrt(eps) = {:.3g} is sharp",
                    root),
        1.5 * d * root, at("dl_norm", low), Kind::at_most));
    found.notes.push_back(
        "Linear attention's gradient grows only where the whole row sum shrinks: a single small "
        "score does not make it large, although the printed bound 1/(4|s|) does.");
    return found;
}

}  // namespace

extern const ExperimentEntry devil_sec3 = {
    .name = "devil.sec3",
    .title = "Gradients of linear and softmax attention as scores shrink",
    .source = "[DEVIL] section 3.1 and appendix D",
    .claim =
        "dL/ds_ij \"is bounded in vanilla attention and NormAttention, while it's unbounded in "
        "linear attention\": |dp_ij/ds_ik| is at most 1/4 in vanilla and at most 1/(4|s_ik|) in "
        "linear attention, where 1/|s_ik| \"can be arbitrarily large\".",
    .method =
        "Positive scores of random features, multiplied by c; the largest derivatives from closed "
        "forms in double, over all entries, for random values and cotangents. The paper proves "
        "this without an experiment; the sizes are readings.",
    .table =
        "curves over c: dp_softmax, dp_linear: max |dP_ij/dS_ik|; dp_linear_bound = 1/(4 c min s) "
        "[DEVIL] (11), dp_linear_share: dp_linear divided by it; dl_softmax, dl_linear, dl_norm: "
        "max |dL/dS_ij| / (c1 c2); exponent_softmax, exponent_linear, exponent_norm: slope of log "
        "max |dL/dS_ij| between the two smallest c of a trial",
    .keys = keys,
    .on_host = true,
    .measure = measure,
    .find = find};

}  // namespace tsdiag::experiment_list::devil_sec3
