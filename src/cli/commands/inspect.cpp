#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>

#include "command.hpp"
#include "json_outputs.hpp"
#include "other_names.hpp"
#include "terminal.hpp"
#include "tsdiag/adapter.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/layouts.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

struct InspectCommand final : Command {
    explicit InspectCommand(CLI::App& app);
    int run() const override;

    SubjectOptions subject;
    std::uint64_t seed = 0;
};

/// A line of the listing: the summary of a tensor, or why it cannot be read.
struct Line {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::optional<TensorSummary> values;
    std::string why_not;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "(";
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
    return text + ")";
}

/// Tensors that share memory under several names are summarised once.
using Summaries = std::map<std::tuple<const std::byte*, std::int64_t, DType,
                                      std::vector<std::int64_t>, std::vector<std::int64_t>>,
                           TensorSummary>;

Line line_of(const Checkpoint& file, const std::string& name, Summaries& known) {
    const RawTensor tensor = file.tensor(name);
    const std::string dtype = tensor.dtype == DType::other || tensor.dtype == DType::blocks
                                  ? tensor.dtype_name
                                  : std::string(tsdiag::name(tensor.dtype));
    Line line{name, dtype, tensor.shape, {}, {}};
    const Summaries::key_type key{tensor.bytes.data(), tensor.offset, tensor.dtype, tensor.shape,
                                  tensor.strides};
    if (const auto found = known.find(key); found != known.end()) {
        line.values = found->second;
        return line;
    }
    try {
        line.values = summarise(tensor);
        known.emplace(key, *line.values);
    } catch (const NotAvailable& error) {
        line.why_not = error.what();
    }
    release_pages(tensor);
    return line;
}

/// The tensors of a random model, as `seed` draws them.
Line line_of(const Weights& weights, const Parameter& parameter) {
    const Tensor tensor = weights.get(parameter.name);
    const std::vector<float> values = tensor.to_host<float>();
    const auto owner = std::make_shared<std::vector<float>>(values);
    RawTensor raw;
    raw.dtype = DType::f32;
    raw.dtype_name = tsdiag::name(DType::f32);
    const Shape& s = parameter.shape;
    raw.shape = parameter.vector ? std::vector<std::int64_t>{s.count()}
                                 : std::vector<std::int64_t>{s.rows, s.cols};
    raw.strides =
        parameter.vector ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{s.cols, 1};
    raw.bytes = std::as_bytes(std::span(*owner));
    raw.owner = owner;
    return {parameter.name, raw.dtype_name, raw.shape, summarise(raw), {}};
}

/// Of a file with quantised tensors: bits over all its tensors, and the worst bound of rounding.
struct Quantised {
    std::size_t weights = 0;
    double bits = 0, rounding = 0;
};
Quantised quantised_in(const Checkpoint& file) {
    Quantised found;
    double bytes = 0, count = 0;
    const auto add = [&](const RawTensor& part) { bytes += double(part.bytes.size()); };
    for (const std::string& name : file.names()) {
        const RawTensor tensor = file.tensor(name);
        count += double(tensor.count());
        if (tensor.packed)
            std::ranges::for_each(tensor.packed->parts(), add);
        else
            add(tensor);
        const bool stored = tensor.blocks || (tensor.packed && tensor.packed->rounding() > 0);
        if (!stored) continue;
        ++found.weights;
        found.rounding = std::max(
            found.rounding, tensor.packed ? tensor.packed->rounding() : tensor.blocks->rounding);
    }
    found.bits = count > 0 ? 8 * bytes / count : 0;
    return found;
}
std::string as_text(const Quantised& found) {
    std::string text = fmt::format("{:.3f} bits per weight", found.bits);
    if (found.rounding > 0)
        text += fmt::format(
            "; rounding moved a weight by at most {} of what the values of its block span",
            as_percent(found.rounding));
    return text;
}

std::string name_cell(const std::string& name) { return printable(name, widest_cell); }

Json or_null(std::optional<double> value) { return value ? Json(*value) : Json(); }

/// Prints each tensor as soon as it is read, so that output for large files appears at once.
class Listing {
  public:
    explicit Listing(std::size_t name_width) : width_(name_width) {
        print(styled(row("tensor", "shape", "dtype", "sum", "norm", "min", "max"), Style::bold) +
              "\n");
    }
    void add(const Line& line) {
        if (prints_json()) {
            tensors_.push_back(as_json(line));
            return;
        }
        const TensorSummary none, &v = line.values ? *line.values : none;
        const auto of = [&](std::optional<double> value) {
            return line.values ? number_cell(value, 9) : "-";
        };
        std::string text = row(name_cell(line.name), shape_text(line.shape), printable(line.dtype),
                               of(v.sum), of(v.norm), of(v.minimum), of(v.maximum));
        if (v.nonfinite > 0) text += fmt::format("  {} not finite", v.nonfinite);
        print(text + "\n");
    }
    Json::Array take() { return std::move(tensors_); }

  private:
    std::string row(std::string_view name, std::string_view shape, std::string_view dtype,
                    std::string_view sum, std::string_view norm, std::string_view minimum,
                    std::string_view maximum) const {
        return fmt::format("{:<{}}  {:<16}  {:<8}  {:>15}  {:>14}  {:>14}  {:>14}", name, width_,
                           shape, dtype, sum, norm, minimum, maximum);
    }
    static Json as_json(const Line& line) {
        Json::Array shape(line.shape.begin(), line.shape.end());
        Json entry;
        entry.set("name", line.name).set("shape", std::move(shape)).set("dtype", line.dtype);
        if (!line.values) return entry.set("unreadable", line.why_not);
        entry.set("sum", or_null(line.values->sum)).set("norm", or_null(line.values->norm));
        entry.set("minimum", or_null(line.values->minimum))
            .set("maximum", or_null(line.values->maximum));
        return entry.set("nonfinite", line.values->nonfinite);
    }
    std::size_t width_;
    Json::Array tensors_;
};

/// With the sizes of each layer, where they differ.
Json with_sizes(Json model, const std::vector<LayerSizes>& sizes) {
    const auto differ = [&](std::optional<Index> LayerSizes::*of) {
        std::set<Index> known;
        for (const LayerSizes& one : sizes)
            if (one.*of) known.insert(*(one.*of));
        return known.size() > 1;
    };
    if (!differ(&LayerSizes::tokens) && !differ(&LayerSizes::width) &&
        !differ(&LayerSizes::heads) && !differ(&LayerSizes::kv_heads))
        return model;
    Json::Array all;
    const auto count = [](std::optional<Index> value) { return value ? Json(*value) : Json(); };
    for (const LayerSizes& one : sizes) {
        Json of;
        of.set("layer", one.layer).set("tokens", count(one.tokens));
        of.set("width", count(one.width)).set("heads", count(one.heads));
        all.push_back(of.set("kv_heads", count(one.kv_heads)));
    }
    return model.set("sizes", std::move(all));
}

Json model_json(const Subject& subject) {
    if (!subject.is_trace()) return with_sizes(subject.spec().json(), layer_sizes(subject.spec()));
    Json json;
    TraceSummary trace;
    try {
        trace = summarise_trace(*subject.file);
    } catch (const Error& error) {
        return json.set("family", "trace").set("refused", error.what());
    }
    json.set("family", "trace").set("layers", trace.layers).set("samples", trace.samples);
    json.set("tokens", trace.tokens).set("width", trace.width).set("heads", trace.heads);
    return with_sizes(json.set("float64", trace.float64), trace.sizes);
}

std::string fact(std::string_view head, std::string_view text) {
    return styled(fmt::format("{:<11}", head), Style::dim) +
           wrapped(printable(text), terminal_width(), 11) + "\n";
}

std::string what_would_be_run(const Subject& subject) {
    if (subject.is_trace()) {
        TraceSummary t;
        try {
            t = summarise_trace(*subject.file);
        } catch (const Error& error) {
            return fact("refused", error.what());
        }
        const bool merges = t.last_tokens != t.tokens;
        const std::string tokens = counted(std::size_t(t.last_tokens), "token");
        return fact(
            "trace",
            fmt::format("{}, {} of {}, width {}, {}, {}", counted(std::size_t(t.layers), "layer"),
                        counted(std::size_t(t.samples), "sample"),
                        merges ? fmt::format("{} to {}", t.tokens, tokens) : tokens,
                        merges && t.last_width > 0 ? fmt::format("{} to {}", t.width, t.last_width)
                                                   : fmt::format("{}", t.width),
                        counted(std::size_t(t.heads), "head"), t.float64 ? "float64" : "float32"));
    }
    const ModelSpec& spec = subject.spec();
    std::string text = fact("family", spec.family) + fact("model", spec.name);
    if (!spec.blocks.empty()) {
        const BlockSpec& block = spec.blocks.front();
        std::string layers = fmt::format("{}, {}-norm, width {}, {} heads of {} columns",
                                         spec.blocks.size(), name(block.placement), spec.width,
                                         block.attention.heads, block.attention.head_dim);
        if (block.attention.kv_heads != block.attention.heads)
            layers += fmt::format(", {} of keys and values", block.attention.kv_heads);
        if (block.ffn.width > 0) layers += fmt::format(", feed-forward {}", block.ffn.width);
        text += fact("layers", layers);
    }
    if (spec.embedding.image.channels > 0)
        text +=
            fact("input", fmt::format("images of {} x {} x {}, patches of {} x {}",
                                      spec.embedding.image.channels, spec.embedding.image.height,
                                      spec.embedding.image.width, spec.embedding.image.patch_height,
                                      spec.embedding.image.patch_width));
    else
        text += fact("input",
                     spec.embedding.vocabulary > 0
                         ? fmt::format("ids below {}, at most {} tokens", spec.embedding.vocabulary,
                                       spec.embedding.max_tokens > 0
                                           ? fmt::format("{}", spec.embedding.max_tokens)
                                           : "any number of")
                         : "states drawn N(0, 1)");
    for (const std::string& line : spec.provenance.warnings) text += fact("warning", line);
    for (const std::string& line : subject.notes) text += fact("found", line);
    for (const std::string& line : spec.provenance.recognised) text += fact("recognised", line);
    for (const std::string& line : spec.provenance.ignored) text += fact("ignored", line);
    for (const std::string& line : spec.provenance.defaults) text += fact("assumed", line);
    return text;
}

}  // namespace

namespace {

/// The names that Python's unpickler would have imported and called.
std::string called(const Json& names) {
    std::string text;
    for (const Json& name : names.array()) text += (text.empty() ? "" : ", ") + name.string();
    return text + " (named by the file; none of them is called)";
}

}  // namespace

InspectCommand::InspectCommand(CLI::App& app) {
    add_subject(app, subject);
    value(app, "--seed", "K", "random seed of a random model (default 0)",
          [&](const std::string& t) { seed = parse_seed(t, "--seed"); });
}

int InspectCommand::run() const {
    const std::string& model = subject.model;
    refuse_names_of_others("probe", {model});
    const bool is_random = model.starts_with("random:");
    std::optional<Subject> opened;
    std::string unknown;
    bool asks = false;  // for an option: the names are known
    std::unique_ptr<Checkpoint> file;
    if (!is_random) file = open_file(model);
    try {
        opened = open_subject(subject);
    } catch (const Error& error) {
        if (!file) throw;  // the tensors cannot be read either
        unknown = error.what();
        asks = dynamic_cast<const UsageError*>(&error) != nullptr;
    }

    Json json;
    json.set("argument", model);
    if (file)
        json.set("format", file->format())
            .set("digest", header_digest(opened ? *opened->file : *file));  // as in run.json
    const Quantised quantised = !file ? Quantised() : quantised_in(opened ? *opened->file : *file);
    if (quantised.weights > 0)
        json.set("bits_a_weight", quantised.bits)
            .set("quantised_weights", quantised.weights)
            .set("rounding", quantised.rounding > 0 ? Json(quantised.rounding) : Json());
    if (opened) json.set("model", model_json(*opened));
    const bool mappable = !unknown.empty() && !asks && file && subject.map.empty() &&
                          !file->names().empty() && !file->format().starts_with("gguf") &&
                          !adapter_files(local_model(model));
    const std::string draft = mappable ? draft_map(*unwrap(open_file(model), nullptr)) : "";
    if (!unknown.empty()) json.set("unknown", unknown);
    if (!draft.empty()) json.set("draft", draft);
    const Json callables = file ? file->metadata()["__callables__"] : Json();
    if (callables.is_array()) json.set("callables", callables);
    if (!prints_json()) {
        std::string head = fact("argument", model);
        if (file) head += fact("format", file->format());
        if (quantised.weights > 0) head += fact("quantised", as_text(quantised));
        if (callables.is_array()) head += fact("callables", called(callables));
        head += opened ? what_would_be_run(*opened) : fact("unknown", unknown);
        if (!draft.empty())
            head +=
                fact("draft", "of a map of names for --map FILE (docs/checkpoints.md):") + draft;
        print(head + "\n");
    }

    std::size_t width = 6;
    if (file) {
        for (const std::string& name : file->names())
            width = std::max(width, name_cell(name).size());
        Listing listing(width);
        Summaries known;
        for (const std::string& name : file->names()) listing.add(line_of(*file, name, known));
        json.set("tensors", listing.take());
    } else {
        const auto weights = random_weights(opened->random, weights_rng(seed, 0), cpu(), Type::f32);
        const std::vector<Parameter> all = parameters(opened->spec());
        for (const Parameter& parameter : all) width = std::max(width, parameter.name.size());
        Listing listing(width);
        for (const Parameter& parameter : all) {
            listing.add(line_of(*weights, parameter));
            weights->release();
        }
        json.set("tensors", listing.take());
    }
    print_json("inspect", json);
    require_unchanged_files();
    return 0;
}

extern const CommandEntry inspect_command = {
    .name = "inspect",
    .about = "list the tensors of a file, and what would be run",
    .examples = R"(Examples:
  tsdiag inspect model.safetensors
  tsdiag inspect checkpoint.pt --json > checkpoint.json
  tsdiag inspect random:gpt2,layers=2)",
    .make = made<InspectCommand>,
    .names = random_models,
    .has_settings = true};

}  // namespace tsdiag::cli
