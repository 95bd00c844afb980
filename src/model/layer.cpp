#include "layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_parts.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {

LayerWeights load_layer(const Weights& weights, const ModelSpec& spec, Index layer) {
    const BlockSpec& b = spec.blocks[std::size_t(layer)];
    const std::string at = fmt::format("layer.{}.", b.shares < 0 ? layer : b.shares);
    const auto one = [&](std::string_view name) {
        return get_or_empty(weights, at + std::string(name));
    };
    const auto map = [&](std::string_view name) {
        return load_linear(weights, at + std::string(name));
    };
    const auto norm = [&](std::string_view name) {
        return load_norm(weights, at + std::string(name));
    };
    return {.norm1 = norm("norm1"),
            .norm2 = norm("norm2"),
            .attention = {.q = map("attn.q"),
                          .k = map("attn.k"),
                          .v = map("attn.v"),
                          .o = map("attn.o"),
                          .q_norm = norm("attn.q_norm"),
                          .k_norm = norm("attn.k_norm"),
                          .theta = one("attn.lrpe.theta"),
                          .mirror = one("attn.lrpe.v"),
                          .z = map("attn.z"),
                          .gate = map("attn.gate"),
                          .gamma = one("attn.offset.gamma"),
                          .beta = one("attn.offset.beta"),
                          .own =
                              [&weights, at](std::string_view name) {
                                  return get_or_empty(weights, at + "attn." + std::string(name));
                              }},
            .ffn = {.up = map("ffn.up"), .gate = map("ffn.gate"), .down = map("ffn.down")},
            .local = b.local.kernel == 0
                         ? LocalWeights()
                         : LocalWeights{.before = norm("norm3"),
                                        .conv1 = map("local.conv1"),
                                        .conv2 = map("local.conv2"),
                                        .norm = load_batch_norm(weights, at + "local.norm"),
                                        .scale = one("local.scale")},
            .scale1 = one("scale1"),
            .scale2 = one("scale2"),
            .tau = one("deesc.tau"),
            .merge = {norm("merge.norm"), map("merge.map")}};
}

double branch_gain(const BlockSpec& b, const LayerWeights& w) {
    const AttentionSpec& a = b.attention;
    if (a.gated_unit || a.channels) return std::numeric_limits<double>::quiet_NaN();
    Tensor v = w.attention.v.weight, o = w.attention.o.weight;
    const double d = double(v.cols());
    if (w.scale1.defined() && o.defined())
        o = multiply(o, w.scale1.reshape({1, w.scale1.cols(), 1}));
    if (w.scale1.defined() && !o.defined())
        v = multiply(v, w.scale1.reshape({1, w.scale1.cols(), 1}));
    const Index group = a.heads / a.kv_heads;
    if (!o.defined()) return b.alpha * b.alpha * double(group) * squared_norm(v) / d;
    const Tensor vh = contiguous(v).reshape({a.kv_heads, a.value_columns(), v.cols()});
    const Tensor oh = o.split_heads(a.heads);  // (h, d, value_columns)
    const Tensor gram_v = matmul(vh, vh, Transpose::second);
    const Tensor gram_o = matmul(oh, oh, Transpose::first);
    double sum = 0;
    for (Index k = 0; k < a.heads; ++k)
        sum += dot(gram_o.batch_range(k, 1), gram_v.batch_range(k / group, 1));
    return b.alpha * b.alpha * sum / d;
}

void require_finite(const Tensor& x, Index layer, std::string_view stage, bool allow) {
    if (allow) return;
    const Index bad = first_nonfinite(x);
    if (bad < 0) return;
    throw NonFiniteError(fmt::format(
        "layer {}, stage '{}': token {}, feature {} is NaN or infinite, although weights and input "
        "are finite: values leave the range of {}; pass {}--allow-nonfinite to continue",
        layer, stage, bad / x.cols() % x.rows(), bad % x.cols(),
        x.type() == Type::f32 ? "float32" : "float64",
        x.type() == Type::f32 ? "--dtype f64, or " : ""));
}

namespace {

/// The part of a batched tensor that belongs to one sample.
Tensor of_sample(const Tensor& x, Index sample, Index samples) {
    if (samples == 1 || !x.defined()) return x;
    const Index each = x.batch() / samples;
    return x.batch_range(sample * each, each);
}

/// The attention inputs of one sample.
AttentionParts of_sample(const AttentionParts& all, Index sample, Index samples) {
    AttentionParts one = all;
    for (Tensor* t :
         {&one.input.q, &one.input.k, &one.input.q2, &one.input.k2, &one.v, &one.projections.q,
          &one.projections.k, &one.projections.q_raw, &one.projections.k_raw, &one.x})
        *t = of_sample(*t, sample, samples);
    one.input.samples = 1;
    return one;
}

/// An attention of the layer: the only one, or of half of its heads.
struct Side {
    AttentionSpec spec;
    AttentionWeights weights;
};

std::vector<Side> sides_of(const AttentionSpec& a, const AttentionWeights& w) {
    if (!a.second) return {{a, w}};
    std::vector<Side> out;
    for (const Index half : {0, 1}) {
        Side side{a, w};
        AttentionSpec& spec = side.spec;
        spec.second.reset();
        spec.heads /= 2;
        spec.kv_heads /= 2;
        if (half == 1) {
            spec.variant = a.second->variant;
            spec.options = a.second->options;
            spec.output_norm = a.second->output_norm;
            spec.qk_activation = a.second->qk_activation;
        }
        for (Linear* map : {&side.weights.q, &side.weights.k, &side.weights.v}) {
            const Index rows = map->weight.rows() / 2;
            map->weight = map->weight.row_range(half * rows, rows);
            if (map->bias.defined()) map->bias = map->bias.col_range(half * rows, rows);
        }
        out.push_back(std::move(side));
    }
    return out;
}

/// Heads of one sample, those of the first attention before those of the second.
Tensor stacked(const std::vector<Tensor>& parts) {
    return parts.size() == 1 ? parts.front() : concat_batches(parts);
}
Projections stacked(const std::vector<AttentionParts>& sides) {
    Projections out = sides.front().projections;
    if (sides.size() == 1) return out;
    const Projections& other = sides.back().projections;
    for (Tensor Projections::*part :
         {&Projections::q, &Projections::k, &Projections::q_raw, &Projections::k_raw})
        out.*part = concat_batches(std::vector{out.*part, other.*part});
    return out;
}
Tensor values_of(const std::vector<AttentionParts>& sides) {
    std::vector<Tensor> all;
    for (const AttentionParts& side : sides) all.push_back(side.v);
    return stacked(all);
}

/// Row i: the mean of rows 0 .. i.
Tensor means_so_far(const Tensor& x) {
    const Index n = x.rows();
    std::vector<double> shares(std::size_t(n * n), 0.0);
    for (Index i = 0; i < n; ++i) std::fill_n(shares.begin() + i * n, i + 1, 1 / double(i + 1));
    const Tensor triangle =
        Tensor::from_host(x.backend(), {1, n, n}, std::span<const double>(shares), x.type());
    return matmul(repeat_batches(triangle, x.batch()), x);
}

/// One layer on one batch.
class Pass {
  public:
    Pass(const LayerRun& run, const Batch& batch)
        : run_(run),
          b_(run.block),
          w_(run.weights),
          batch_(batch),
          samples_(batch.x.batch()),
          sides_(sides_of(run.block.attention, run.weights.attention)) {}

    Tensor run() {
        const Tensor& x = batch_.x;
        emit("in", "", x);
        Tensor y = b_.placement == NormPlacement::post  ? post_norm(x)
                   : b_.placement == NormPlacement::pre ? pre_norm(x)
                                                        : parallel(x);
        if (!b_.deesc.before_ffn) y = deescalated(y);
        if (run_.observer) tell_states(*run_.observer, run_.first, {run_.layer, "out", "", y});
        if (b_.merge.width > 0) {
            y = merged(y, b_.merge, w_.merge, batch_.grid, run_.layer);
            emit("merge", "", y);
        }
        for (Told& told : told_) tell_attention(told);
        return y;
    }

  private:
    /// An attention to be emitted when the layer is done.
    struct Told {
        Index sample;
        std::unique_ptr<AttentionOperator> op;
        Projections projections;
        Tensor input, residual;
    };

    void emit(std::string_view stage, std::string_view pred, const Tensor& x) {
        require_finite(x, run_.layer, stage, run_.allow_nonfinite);
        if (run_.observer) tell_states(*run_.observer, run_.first, {run_.layer, stage, pred, x});
        last_ = stage;
    }

    Tensor norm(const Tensor& x, const Norm& parameters) const {
        return normed(b_.norm.kind, x, parameters, b_.norm.eps);
    }
    bool norms() const { return b_.norm.kind != NormKind::none; }

    Tensor deescalated(const Tensor& y) {
        if (!b_.deesc.there()) return y;
        const Tensor mean = b_.deesc.past ? means_so_far(y) : column_mean(y);
        Tensor out =
            subtract(y, b_.deesc.learned ? multiply(mean, w_.tau) : scale(mean, b_.deesc.tau));
        emit("deesc", last_, out);
        return out;
    }
    Tensor ffn_input(const Tensor& y) { return b_.deesc.before_ffn ? deescalated(y) : y; }

    /// [TSE] Algorithm 1: Y = LN(X + alpha SA(X)), then LN(Y + FFN(Y)).
    Tensor post_norm(const Tensor& x) {
        Tensor y = plus_attention(x, attend(x, x));
        emit("attn", "in", y);
        if (norms()) {
            y = norm(y, w_.norm1);
            emit("norm1", "attn", y);
        }
        if (b_.ffn.width == 0) return y;
        y = ffn_input(y);
        const std::string_view before = last_;
        y = add(y, feed_forward(y));
        emit("ffn", before, y);
        if (norms()) {
            y = norm(y, w_.norm2);
            emit("norm2", "ffn", y);
        }
        return y;
    }

    /// [TSE] (19): Y = X + alpha SA(LN(X)), then Y + FFN(LN(Y)); [XCIT] with Y + LPI(LN(Y))
    /// between.
    Tensor pre_norm(const Tensor& x) {
        Tensor y = plus_attention(x, attend(normed1(x), x));
        emit("attn", "in", y);
        if (b_.local.kernel > 0) {
            const Tensor normed3 = norm(y, w_.local.before);
            emit("norm3", "", normed3);
            y = add(y, interact(normed3));
            emit("local", "attn", y);
        }
        if (b_.ffn.width == 0) return y;
        y = ffn_input(y);
        const std::string_view before = last_;
        y = add(y, feed_forward(normed2(y)));
        emit("ffn", before, y);
        return y;
    }

    /// X + alpha SA(LN(X)) + FFN(LN'(X)).
    Tensor parallel(const Tensor& x) {
        Tensor y = plus_attention(x, attend(normed1(x), x));
        if (b_.ffn.width > 0) y = add(y, feed_forward(normed2(x)));
        emit("ffn", "in", y);
        return y;
    }

    Tensor normed1(const Tensor& x) {
        if (!norms()) return x;
        Tensor out = norm(x, w_.norm1);
        emit("norm1", "", out);
        return out;
    }
    Tensor normed2(const Tensor& x) {
        if (!norms()) return x;
        Tensor out = norm(x, w_.norm2);
        emit("norm2", "", out);
        return out;
    }

    Tensor dropped(const Tensor& branch, std::string_view stage) const {
        return run_.dropout ? run_.dropout(branch, stage) : branch;
    }
    Tensor plus_attention(const Tensor& x, const Tensor& given) const {
        const Tensor branch = dropped(given, "sa");
        return add(x, b_.alpha == 1 ? branch : scale(branch, b_.alpha));
    }

    /// Local patch interaction.
    Tensor interact(const Tensor& x) const {
        const LocalWeights& w = w_.local;
        const Grid& grid = batch_.grid;
        const Tensor inner =
            map(b_.local.activation, convolve_channels(x, w.conv1.weight, w.conv1.bias, grid));
        const Tensor out = convolve_channels(batch_norm(inner, w.norm, b_.local.eps),
                                             w.conv2.weight, w.conv2.bias, grid);
        return dropped(w.scale.defined() ? multiply(out, w.scale) : out, "local");
    }

    Tensor feed_forward(const Tensor& x) const {
        Tensor inner = w_.ffn.up(x);
        inner = b_.ffn.gated ? multiply(map(b_.ffn.activation, w_.ffn.gate(x)), inner)
                             : map(b_.ffn.activation, inner);
        const Tensor out = w_.ffn.down(inner);
        return dropped(w_.scale2.defined() ? multiply(out, w_.scale2) : out, "ffn");
    }

    /// The attention branch of `x`, to be added to `residual`.
    Tensor attend(const Tensor& x, const Tensor& residual) {
        if (b_.attention.windows.side == 0) return attended(x, residual, {});
        const Partition windows = partition(b_.attention.windows, batch_.grid, run_.layer);
        return attended(rows_of_each(x, windows.order), rows_of_each(residual, windows.order),
                        windows);
    }

    /// The same, x and the residual in the order of `windows`, where there are any.
    Tensor attended(const Tensor& x, const Tensor& residual, const Partition& windows) {
        Tensor memory = batch_.memory;
        if (memory.defined() && b_.placement != NormPlacement::post)
            memory = norm(memory, w_.norm1);
        std::vector<AttentionParts> sides;
        for (const Side& side : sides_) {
            sides.push_back(attention_parts(side.spec, side.weights, batch_, x, memory));
            AttentionInput& input = sides.back().input;
            if (!windows.ends.empty()) {
                input.windows = {windows.ends, b_.attention.windows.side, windows.place,
                                 w_.attention.own("relative")};
                input.position = {};
            }
            input.rng = Rng(0)
                            .fork("attention")
                            .fork(std::uint64_t(b_.shares < 0 ? run_.layer : b_.shares));
        }
        // On the CPU samples are bitwise independent, unless a derivative is taken.
        const Tensor& v = sides.front().v;
        const bool together =
            !run_.observer && (x.tracked() || v.tracked() || !x.backend().host_memory());
        std::vector<Tensor> outputs;
        if (!together) outputs = one_by_one(sides, residual);
        for (std::size_t i = 0; together && i < sides.size(); ++i)
            outputs.push_back(applied({sides[i]}, i, nullptr));
        if (run_.tape) outputs = recorded(sides, outputs);
        std::vector<Tensor> branches;
        for (std::size_t i = 0; i < sides.size(); ++i)
            branches.push_back(output_norm(
                sides_[i].spec,
                merge_heads(b_.attention.channels ? transpose(outputs[i]) : outputs[i], samples_)));
        Tensor branch = branches.size() == 1 ? branches.front() : concat_cols(branches);
        if (run_.tape && sides.size() == 1 && b_.attention.output_norm != OutputNorm::none)
            run_.tape->normed = branch;
        if (const Tensor& gate = sides.front().gate; gate.defined())
            branch = multiply(branch, gate);
        if (!b_.attention.value_projection_only) branch = w_.attention.o(branch);
        if (w_.scale1.defined()) branch = multiply(branch, w_.scale1);
        if (!windows.ends.empty()) branch = rows_of_each(branch, windows.back);
        emit("sa", "", branch);
        return branch;
    }

    /// Fills the tape, of one sample, and returns the outputs as parts of its O.
    std::vector<Tensor> recorded(const std::vector<AttentionParts>& sides,
                                 const std::vector<Tensor>& outputs) {
        AttentionTape& tape = *run_.tape;
        for (const AttentionParts& side : sides) tape.inputs.push_back(side.input);
        tape.v = values_of(sides);
        tape.projections = stacked(sides);
        tape.output = stacked(outputs);
        return split(tape.output);
    }

    /// The heads of each side.
    std::vector<Tensor> split(const Tensor& heads) const {
        if (sides_.size() == 1) return {heads};
        const Index half = heads.batch() / 2;
        return {heads.batch_range(0, half), heads.batch_range(half, half)};
    }

    /// P V of all samples, each with its own operator, for each side.
    std::vector<Tensor> one_by_one(const std::vector<AttentionParts>& all, const Tensor& residual) {
        auto outputs = std::vector<std::vector<Tensor>>(sides_.size());
        for (Index s = 0; s < samples_; ++s) {
            if (run_.observer && samples_ > 1) run_.observer->begin_sample(run_.first + s);
            const bool tell = run_.observer && run_.observer->wants_attention(run_.layer);
            std::vector<AttentionParts> one;
            for (const AttentionParts& side : all) one.push_back(of_sample(side, s, samples_));
            std::unique_ptr<AttentionOperator> op;
            const std::vector<Tensor> found = split(applied(one, 0, tell ? &op : nullptr));
            for (std::size_t i = 0; i < found.size(); ++i) outputs[i].push_back(found[i]);
            if (tell)
                told_.push_back({s, std::move(op), stacked(one), std::move(one.front().x),
                                 of_sample(residual, s, samples_)});
        }
        std::vector<Tensor> out;
        for (const std::vector<Tensor>& side : outputs) out.push_back(concat_batches(side));
        return out;
    }

    /// P V of these sides, the first of which is side `first`, heads of all samples of `sides` at
    /// once; `kept`: receives the operator, with P.
    Tensor applied(const std::vector<AttentionParts>& sides, std::size_t first,
                   std::unique_ptr<AttentionOperator>* kept) const {
        const auto made = [&](std::size_t i) {
            return attention(sides_[first + i].spec.variant).make(sides[i].input);
        };
        std::unique_ptr<AttentionOperator> op =
            sides.size() == 1 ? made(0) : side_by_side(made(0), made(1));
        const bool keep = kept && op->bytes() <= map_memory();
        op->keep_rows(keep);
        const double rest = run_.memory == 0 ? std::numeric_limits<double>::infinity()
                                             : double(run_.memory) - (keep ? op->bytes() : 0);
        RowVisitor visit;
        if (run_.observer && run_.observer->wants_rows(run_.layer))
            visit = [&](RowBlock block) {
                block.channels = b_.attention.channels;
                run_.observer->on_attention_rows(run_.layer, block);
            };
        // A derivative needs the whole P anyway.
        const Tensor v = values_of(sides);
        const Index block = v.tracked() ? v.rows() : op->rows_at_once(rest);
        Tensor output = op->apply(v, block, visit);
        if (kept) *kept = std::move(op);
        return output;
    }

    Tensor output_norm(const AttentionSpec& spec, const Tensor& y) const {
        switch (spec.output_norm) {
            case OutputNorm::none:
                return y;
            case OutputNorm::rms:
                return rms_norm(y, {}, b_.norm.eps);
            case OutputNorm::layer:
                return layer_norm(y, {}, {}, b_.norm.eps);
            case OutputNorm::simple_rms:
                return normed(NormKind::simple_rms, y, {}, 0);
        }
        return y;
    }

    /// Memory for a whole P: half of it, the rest is for the blocks.
    double map_memory() const {
        constexpr double most = 2e9;
        return run_.memory == 0 ? most : std::min(most, double(run_.memory) / 2);
    }

    const char* why_no_estimate() const {
        if (b_.attention.channels) return "P is over channels";
        if (b_.attention.gated_unit) return "P V is gated";
        const bool norm = std::ranges::any_of(
            sides_, [](const Side& s) { return s.spec.output_norm != OutputNorm::none; });
        return norm ? "P V is normalised" : nullptr;
    }

    void tell_attention(Told& told) {
        if (samples_ > 1) run_.observer->begin_sample(run_.first + told.sample);
        run_.observer->on_attention({.layer = run_.layer,
                                     .op = *told.op,
                                     .input = told.input,
                                     .residual = told.residual,
                                     .projections = b_.attention.gated_unit || b_.attention.channels
                                                        ? nullptr
                                                        : &told.projections,
                                     .a2 = run_.a2,
                                     .memory = map_memory(),
                                     .pre_norm = b_.placement != NormPlacement::post,
                                     .why_no_estimate = why_no_estimate(),
                                     .channels = b_.attention.channels});
        told = {};
    }

    const LayerRun& run_;
    const BlockSpec& b_;
    const LayerWeights& w_;
    const Batch& batch_;
    Index samples_;
    std::vector<Side> sides_;
    std::string_view last_;
    std::vector<Told> told_;
};

}  // namespace

Tensor apply_layer(const LayerRun& run, const Batch& batch) { return Pass(run, batch).run(); }

Tensor next_memory(const LayerRun& run, const Batch& batch) {
    if (!batch.memory.defined()) return {};
    Batch before;
    before.x = batch.memory;
    before.length = batch.memory.rows();
    before.position.assign(batch.position.begin(), batch.position.begin() + before.length);
    LayerRun silent{.layer = run.layer, .block = run.block, .weights = run.weights};
    silent.memory = run.memory;
    silent.allow_nonfinite = run.allow_nonfinite;
    return apply_layer(silent, before).detached();
}

Batch behind(const BlockSpec& block, Batch batch, Tensor y, Tensor memory) {
    batch.x = std::move(y);
    batch.memory = std::move(memory);
    if (block.merge.width == 0) return batch;
    batch.grid = halved(batch.grid);
    batch.length = batch.x.rows();
    batch.position.resize(std::size_t(batch.length));
    return batch;
}

void tell_states(Observer& observer, Index first, const Hidden& states) {
    const Index samples = states.x.batch();
    if (samples == 1) return observer.on_hidden(states);
    for (Index s = 0; s < samples; ++s) {
        observer.begin_sample(first + s);
        const Tensor x = states.x.batch_range(s, 1);
        observer.on_hidden({states.layer, states.stage, states.pred, x});
    }
}

}  // namespace tsdiag::model
