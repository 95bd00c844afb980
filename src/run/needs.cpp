#include "needs.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "tsdiag/attention.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

constexpr double wide = sizeof(double);

/// Elements of the parameters of the largest layer.
Index largest_layer(const std::vector<Parameter>& all) {
    std::map<std::string, Index> layers;
    Index largest = 0;
    for (const Parameter& parameter : all) {
        if (!parameter.name.starts_with("layer.")) continue;
        const std::string layer = parameter.name.substr(0, parameter.name.find('.', 6));
        largest = std::max(largest, layers[layer] += parameter.shape.count());
    }
    return largest;
}

/// Are the weights used in place, in the mapped file?
bool read_in_place(const Subject& subject, Type type) {
    return type == Type::f32 &&
           std::ranges::all_of(subject.architecture.tensors, [&](const auto& entry) {
               const TensorSource& source = entry.second;
               return !source.transposed && source.concat.empty() && source.groups <= 1 &&
                      source.paired_head == 0 && source.plus == 0 &&
                      subject.file->tensor(source.file_name).dtype == DType::f32;
           });
}

/// Bytes of a row of P of all heads with its logits and slope over those that an operator counts,
/// which adds nothing to them.
double with_terms(const RunSizes& s) {
    return 1 + s.terms / (3 * double(s.heads) * double(s.bytes));
}

/// The greatest bytes of the metrics, of each kind.
MetricBytes bytes_of_metrics(const RunSizes& s) {
    const double side = side_of(s), element = double(s.bytes), heads = double(s.heads);
    MetricSizes sizes{.tokens = double(s.tokens),
                      .side = side,
                      .width = double(s.width),
                      .heads = heads,
                      .columns = double(s.columns),
                      .element = element,
                      .rotated = s.rotated,
                      .normed = s.normed};
    // Rows of P, by the sizes alone, with logits and slope (AttentionOperator::rows_at_once).
    sizes.rows = std::max(8 * mib, 64 * 3 * heads * side * element) * with_terms(s);
    MetricBytes most{.work = sizes.rows};
    for (const std::string& name : s.metrics) {
        const Metric* metric = find_metric(name);
        if (!metric || !metric->bytes) continue;
        const MetricBytes one = metric->bytes(sizes);
        most.work = std::max(most.work, one.work);
        most.shared = std::max(most.shared, one.shared);
        most.of_sample = std::max(most.of_sample, one.of_sample);
        most.vectors = std::max(most.vectors, one.vectors);
    }
    return most;
}

/// Bytes of the reverse sweep of one sample.
double sweep(const RunSizes& s) {
    const double n = double(s.tokens), d = double(s.width), b = double(s.bytes);
    const double p = double(s.heads) * side_of(s) * side_of(s);
    return b * (double(s.layer_weights) + double(s.layers) * n * d + 8 * p +
                n * (12 * d + 12 * double(s.columns) + 6 * (double(s.inner) + n * s.pairs)) +
                3 * double(s.head_rows) * d + 5 * double(s.head_rows) * n);
}

/// Bytes for one sample.
double states_of_a_layer(const RunSizes& s) {
    const auto n = double(s.tokens);
    return n * (8 * double(s.width) + 8 * double(s.columns) + double(s.inner) + n * s.pairs) *
           double(s.bytes);
}

double resident_bytes_now() {
    std::ifstream in("/proc/self/statm");
    double whole = 0, resident = 0;
    in >> whole >> resident;
    return resident * double(sysconf(_SC_PAGESIZE));
}

}  // namespace

RunSizes sizes_of(const ModelSpec& spec, Type type) {
    const std::vector<Parameter> all = parameters(spec);
    RunSizes s;
    s.width = spec.width;
    s.layers = Index(spec.blocks.size());
    s.bytes = Index(bytes_of(type));
    s.layer_weights = largest_layer(all);
    for (const Parameter& p : all) {
        s.all_weights += p.shape.count();
        if (!p.name.starts_with("layer.") && p.name != "embed.token")
            s.table = std::max(s.table, p.shape.count());
    }
    Index in = spec.embedding.image.channels;
    for (Index left = spec.embedding.image.convolutions; left > 0; --left) {
        const Index places = spec.embedding.image.patches() << 2 * (left - 1),
                    out = spec.width >> (left - 1);
        s.pixels = std::max(s.pixels, places * (9 * in + out));
        in = out;
    }
    Index fewer = 1;  // tokens of the layer, a part of the first one's
    for (const BlockSpec& b : spec.blocks) {
        if (b.attention.channels) s.channels = std::max(s.channels, b.attention.head_dim);
        const Index columns =
            b.attention.heads * std::max(b.attention.head_dim, b.attention.value_columns());
        const HeldNumbers held = held_numbers(b, spec.width);
        s.heads = std::max(s.heads, b.attention.heads / (fewer * fewer));
        s.columns = std::max(s.columns, columns / fewer);
        s.inner = std::max(s.inner, Index(held.of_token) / fewer);
        s.pairs = std::max(s.pairs, held.of_pair / double(fewer * fewer));
        if (b.merge.width > 0) fewer *= 4;
        s.rotated = s.rotated || b.attention.rotary.columns > 0;
        s.normed = s.normed || b.attention.qk_norm;
        const AttentionCost cost = attention_cost(b.attention, spec.width, 1, type);
        s.terms = std::max(s.terms, cost.bytes_of_entry);
    }
    return s;
}

RunSizes sizes_of(const Subject& subject, Type type) {
    RunSizes s = sizes_of(subject.spec(), type);
    if (subject.file && !read_in_place(subject, type))
        s.file_pages = s.layer_weights * Index(bytes_of(Type::f32));
    return s;
}

MemoryNeeds needs_of(const RunSizes& s) {
    const double n = double(s.tokens), side = side_of(s), d = double(s.width);
    const double h = double(s.heads), b = double(s.bytes);
    MemoryNeeds needs;
    needs.weights = std::max(double(s.layer_weights), double(s.table)) * b + double(s.file_pages);
    constexpr double sample = 1024, trial = 32;  // bytes of overhead
    needs.states = double(s.samples) * (2 * n * d * b + n * wide + sample) +
                   double(s.trials) * trial + n * d * wide +
                   std::max(states_of_a_layer(s), 3 * double(s.pixels) * b);
    // Bytes of a row of the table, in memory and as text.
    constexpr double row = 1024;
    const MetricBytes metrics = bytes_of_metrics(s);
    needs.metrics = metrics.work + metrics.shared + double(s.maps) * side * side * wide +
                    double(s.layers) * (h + 8) * double(s.metrics.size()) * row;
    if (s.gradients) needs.metrics = std::max(needs.metrics, sweep(s));
    const double of_p = 3 * h * side * b;  // a row of all heads, with logits and slope
    needs.blocks = std::max(8 * mib, 2 * double(rows_of_a_product(of_p)) * of_p) * with_terms(s);
    needs.blocks = std::max(needs.blocks, metrics.vectors);
    return needs;
}

double left_for_rows(const RunSizes& s, const MemoryNeeds& needs, double memory, Index threads,
                     const Backend& backend) {
    constexpr double largest_dense = 2048, vectors = 640;  // as in src/attention
    const double n = side_of(s), matrix = n * n * wide;
    const double p = double(s.heads) * n * n * double(s.bytes);
    const double rest = memory - (needs.total() - needs.blocks);
    const bool host = backend.host_memory(), dense = s.dense || n <= largest_dense;
    const auto all_eigenvalues = [&] {
        return double(backend.dense_workspace(Index(n)).value_or(0));
    };
    // Of a head: of BDCSVD its copies and workspace, or of all eigenvalues.
    const double solver = !host || !dense ? 0 : s.dense ? all_eigenvalues() : 2 * matrix;
    double work = double(std::min(threads, s.heads)) * (solver + 2 * vectors * n * wide);
    const auto fits = [&](double more) { return p + work + more <= rest / 2; };
    constexpr double ample = 32;  // matrices
    if (!host && dense && fits(0) && !fits(ample * matrix))
        work += all_eigenvalues() + 2 * matrix;  // and P centred
    return (p <= rest / 2 && !fits(0) ? 2 * p - 1 : rest) / with_terms(s);
}

BatchPlan batch_plan(const RunSizes& s, Index wanted, double memory, bool device) {
    const double rows = device ? 16384 : 1024, share = 0.25;
    const double n = double(s.tokens), side = side_of(s);
    const double p = double(s.heads) * side * side * double(s.bytes);
    const double one = p + states_of_a_layer(s) + double(s.maps) * side * side * wide +
                       (device ? bytes_of_metrics(s).of_sample : 0);
    const double most = wanted > 0 ? double(wanted) : std::ceil(rows / n);
    BatchPlan out;
    out.samples =
        std::max<Index>(1, Index(std::min({most, share * memory / one, double(s.samples)})));
    out.memory = memory - double(out.samples - 1) * one;
    return out;
}

double program_bytes() {
    static const double bytes = [] {
        constexpr Index side = 512;
        const std::vector<double> ones(std::size_t(side * side), 1.0);
        const Tensor a =
            Tensor::from_host(cpu(), {1, side, side}, std::span<const double>(ones), Type::f32);
        matmul(a, a);
        constexpr double later = 8 * mib;  // thread heaps, tables, libraries loaded later
        return resident_bytes_now() + later;
    }();
    return bytes;
}

}  // namespace tsdiag
