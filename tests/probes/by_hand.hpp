#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/naive.hpp"
#include "support/near.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/probe.hpp"
#include "tsdiag/random.hpp"

/// Runs probes on synthetic matrices and operators.
namespace tsdiag::test {

using naive::Matrix;

inline Tensor tensor(const Matrix& m, Type type = Type::f64) {
    return Tensor::from_host(cpu(), {1, m.rows, m.cols}, std::span<const double>(m.a), type);
}

inline Tensor tensor(const std::vector<Matrix>& heads, Type type = Type::f64) {
    std::vector<double> all;
    for (const Matrix& m : heads) all.insert(all.end(), m.a.begin(), m.a.end());
    return Tensor::from_host(cpu(), {Index(heads.size()), heads[0].rows, heads[0].cols},
                             std::span<const double>(all), type);
}

inline double squared(const Matrix& x) { return std::pow(naive::frobenius(x), 2); }

inline Matrix gaussian(Index rows, Index cols, std::uint64_t seed, double mean = 0) {
    Matrix m(rows, cols);
    Rng(seed).fill_normal(m.a, mean, 1);
    return m;
}

/// The value of a metric that is expected to be there; NaN and a failure otherwise.
inline double value(const Table& table, const Place& at, std::string_view metric) {
    const auto row = table.find(at, metric);
    if (!row || !row->value) {
        ADD_FAILURE() << metric << " has no value" << (row ? ": " + row->note : "");
        return NAN;
    }
    return *row->value;
}

/// The reason of a metric that is expected to be undefined.
inline std::string reason(const Table& table, const Place& at, std::string_view metric) {
    const auto row = table.find(at, metric);
    if (!row) return "(no row)";
    if (row->value) return "(defined)";
    return row->note;
}

inline Place state(std::string stage, Index layer = 0) {
    return {.step = -1, .layer = layer, .stage = std::move(stage), .head = -1, .tensor = {}};
}
inline Place head(Index k = -1, Index layer = 0) {
    return {.step = -1, .layer = layer, .stage = "attn", .head = k, .tensor = {}};
}

/// h given matrices as an attention; with `logits` their derivative is that of a softmax.
class Made final : public AttentionOperator {
  public:
    explicit Made(std::vector<Matrix> heads, bool logits = true, Type type = Type::f64)
        : p_(tensor(heads, type)), logits_(logits) {}
    RowBlock rows(Index first, Index count) const override {
        const Tensor p = contiguous(p_.row_range(first, count));
        return {.first = first,
                .p = p,
                .slope = logits_ ? p : Tensor(),
                .divided = logits_,
                .visible = {},
                .memory = memory()};
    }
    Structure structure() const override { return declared; }
    Index heads() const override { return p_.batch(); }
    Index tokens() const override { return p_.rows(); }
    Index columns() const override { return p_.cols(); }
    Type type() const override { return p_.type(); }
    const Backend& backend() const override { return cpu(); }

    Structure declared;

  private:
    Tensor p_;
    bool logits_;
};

/// One layer of one sample: states in order, then the attention.
struct Layer {
    struct State {
        std::string stage = {}, pred = {};
        Tensor x = {};
    };
    std::vector<State> states = {};
    std::shared_ptr<AttentionOperator> op = {};
    Tensor input = {}, residual = {};  ///< residual: the input where it is empty
    const Projections* projections = nullptr;
    double a2 = 1;
    bool pre_norm = false;
    double memory = 2e9;  ///< bytes of P that may be in memory at once
    /// Gradients of states, then of parameters (stage: empty, pred: the parameter's name).
    std::vector<State> gradients = {};
    Tensor v = {}, output = {},
           normed = {};  ///< of the attention's gradient; v empty: there is none
    Tensor p = {};       ///< of a routing; empty: there is none
    std::vector<Index> chosen = {};
    Index each = 1;
    OutputNorm norm = OutputNorm::none;
    double norm_eps = 0;
    Index block = 3;  ///< rows per block
    Index rows = -1;  ///< rows in total; -1: all
    Index layer = 0;
    AttentionOver over = {};
};

inline void drive(Probe& probe, Needs needs, const Layer& l, Sink& out) {
    for (const Layer::State& s : l.states)
        if (has(needs, Needs::hidden))
            probe.on_hidden({l.layer, s.stage, s.pred, s.x}, state_moments(s.x), out);
    if (l.p.defined() && has(needs, Needs::routing))
        probe.on_routing({l.layer, l.p, l.chosen, l.each}, out);
    if (l.op) {
        const Index n = l.rows < 0 ? l.op->tokens() : l.rows;
        for (Index first = 0; first < n && has(needs, Needs::rows); first += l.block) {
            RowBlock block = l.op->rows(first, std::min(l.block, n - first));
            block.over = l.over;
            const RowStatistics stats = row_statistics(block);
            probe.on_attention_rows({l.layer, block, stats}, out);
        }
        if (has(needs, Needs::attention))
            probe.on_attention({.layer = l.layer,
                                .op = *l.op,
                                .input = l.input,
                                .residual = l.residual.defined() ? l.residual : l.input,
                                .projections = l.projections,
                                .a2 = l.a2,
                                .memory = l.memory,
                                .pre_norm = l.pre_norm,
                                .why_no_estimate = l.over.channels ? "P is over channels" : nullptr,
                                .over = l.over},
                               out);
    }
    for (const Layer::State& s : l.gradients)
        if (has(needs, Needs::gradient)) probe.on_gradient({l.layer, s.stage, s.pred, s.x}, out);
    if (l.v.defined() && has(needs, Needs::attention_gradient))
        probe.on_attention_gradient({.layer = l.layer,
                                     .op = *l.op,
                                     .v = l.v,
                                     .output = l.output,
                                     .normed = l.normed,
                                     .projections = l.projections,
                                     .norm = l.norm,
                                     .norm_eps = l.norm_eps,
                                     .over = l.over},
                                    out);
    probe.finish_layer(l.layer, out);
}

inline const ProbeEntry& entry(std::string_view name) {
    for (const ProbeEntry* e : probes())
        if (e->name == name) return *e;
    throw std::runtime_error("no probe " + std::string(name));
}

inline Table measure(std::string_view probe, const Layer& layer, ProbeSettings settings = {}) {
    Table table;
    const std::unique_ptr<Probe> p = entry(probe).make(settings);
    drive(*p, entry(probe).needs, layer, table);
    return table;
}

/// The curve of a head.
inline std::vector<CurveRow> curve(const Table& table, Index k) {
    std::vector<CurveRow> rows;
    for (const CurveRow& row : table.curves())
        if (row.at == head(k)) rows.push_back(row);
    return rows;
}
inline std::vector<double> heights(const Table& table, Index k) {
    std::vector<double> y;
    for (const CurveRow& row : curve(table, k)) y.push_back(*row.y);
    return y;
}

inline std::vector<std::string> words(std::string_view text) {
    std::istringstream in{std::string(text)};
    std::vector<std::string> list;
    for (std::string word; in >> word;) list.push_back(word);
    return list;
}

/// Row-stochastic, from logits of standard deviation 1.
inline Matrix random_attention(Index n, std::uint64_t seed, bool causal = false) {
    return naive::softmax(gaussian(n, n, seed), causal);
}
/// s I + (1 - s) J / n: symmetric, lambda_2 = s.
inline Matrix lazy(Index n, double s) {
    Matrix p(n, n, (1 - s) / double(n));
    for (Index i = 0; i < n; ++i) p(i, i) += s;
    return p;
}
inline Matrix identity(Index n) { return lazy(n, 1); }
inline Matrix uniform(Index n) { return lazy(n, 0); }
inline Matrix causal_uniform(Index n) { return naive::softmax(Matrix(n, n), true); }

}  // namespace tsdiag::test
