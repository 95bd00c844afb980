#include "data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace training {

// clang-format off
#define TSDIAG_DATA(X) \
    X(text)            \
    X(chars)           \
    X(wikitext)        \
    X(images)          \
    X(pixels)          \
    X(listops)         \
    X(pathfinder)      \
    X(imdb)            \
    X(aan)             \
    X(glue)            \
    X(patterns)        \
    X(markov)          \
    X(judged)          \
    X(copy)            \
    X(reverse)
// clang-format on

namespace data_list {
#define TSDIAG_DECLARE(name) extern const DataEntry name;
TSDIAG_DATA(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace data_list

namespace {

namespace fs = std::filesystem;

#define TSDIAG_ADDRESS(name) &data_list::name,
constexpr std::array entries = {TSDIAG_DATA(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS

/// "text:FILE, chars:FILE, ... or reverse[:SYMBOLS]".
std::string all_kinds() {
    std::string out;
    for (const DataEntry* entry : entries) {
        const bool last = entry == entries.back();
        const std::string_view between = out.empty() ? "" : last ? " or " : ", ";
        const bool optional = entry->kind.argument.starts_with('[');
        out += fmt::format("{}{}{}{}", between, entry->kind.name, optional ? "" : ":",
                           entry->kind.argument);
    }
    return out;
}

/// The kind whose layout the folder has.
const DataEntry& kind_of(const std::string& folder) {
    for (const DataEntry* entry : entries)
        if (entry->holds && entry->holds(folder)) return *entry;
    std::string known;
    for (const DataEntry* entry : entries)
        if (entry->holds)
            known += fmt::format("{}{} ({})", known.empty() ? "" : "; ", entry->kind.name,
                                 entry->kind.layout);
    throw FormatError(fmt::format("{}: has no known layout, expected one of: {}.", folder, known));
}

const DataEntry& kind_named(const std::string& name, const std::string& text) {
    std::vector<std::string_view> known;
    for (const DataEntry* entry : entries) {
        if (entry->kind.name == name) return *entry;
        known.push_back(entry->kind.name);
    }
    if (text.empty())
        throw UsageError(
            fmt::format("--data: is required; expected {}, or a folder.", all_kinds()));
    const std::string near = nearest(name, known);
    throw UsageError(fmt::format("--data: unknown data '{}', expected {}, or a folder{}", text,
                                 all_kinds(),
                                 near.empty() ? "." : fmt::format("; did you mean {}?", near)));
}

std::string loss_for(const DataKind& kind, const std::string& text, const std::string& loss) {
    if (loss.empty()) return kind.labelled ? "classify" : "lm";
    if (loss != "lm" && loss != "mlm" && loss != "classify")
        throw UsageError(
            fmt::format("--loss: unknown loss '{}', expected lm, mlm or classify.", loss));
    if (kind.labelled != (loss == "classify"))
        throw UsageError(fmt::format("--loss {}: {} needs {}.", loss, text,
                                     kind.labelled ? "--loss classify" : "--loss lm or mlm"));
    return loss;
}

}  // namespace

Index DataRequest::number(Index fallback, Index least, Index most) const {
    if (argument.empty()) return fallback;
    Index value = 0;
    const char* last = argument.data() + argument.size();
    const auto [end, error] = std::from_chars(argument.data(), last, value);
    if (error != std::errc() || end != last || value < least || value > most)
        throw UsageError(fmt::format("--data {}: expected a number from {} to {} after the colon.",
                                     text, least, most));
    return value;
}

std::string digest_of_file(const std::string& data) {
    const fs::path file = data.substr(std::min(data.size(), data.find(':') + 1));
    std::error_code none;
    return fs::is_regular_file(file, none) ? contents_digest(file) : "";
}

std::unique_ptr<Data> open_data(const std::string& text, std::string& loss) {
    const std::size_t colon = text.find(':');
    std::error_code none;
    const bool folder = colon == std::string::npos && fs::is_directory(text, none) &&
                        std::ranges::none_of(entries, [&](const DataEntry* entry) {
                            return entry->kind.name == text;
                        });
    const DataEntry& entry = folder ? kind_of(text) : kind_named(text.substr(0, colon), text);
    loss = loss_for(entry.kind, text, loss);
    const DataRequest request{.text = text,
                              .argument = folder                       ? text
                                          : colon == std::string::npos ? ""
                                                                       : text.substr(colon + 1),
                              .masked = loss == "mlm"};
    if (request.argument.empty() && !entry.kind.argument.starts_with('['))
        throw UsageError(
            fmt::format("--data {}: expected {}:{}.", text, entry.kind.name, entry.kind.argument));
    return entry.open(request);
}

namespace {

Example with_ids(const ModelSpec& spec, Example example) {
    const auto to_ids = [&](std::vector<Index>& symbols) {
        for (Index& symbol : symbols) symbol = symbol_id(spec, symbol);
    };
    to_ids(example.input.ids);
    if (example.second) to_ids(example.second->ids);
    if (example.loss.kind == Loss::Kind::tokens) to_ids(example.loss.targets);
    return example;
}

}  // namespace

Example Data::training(const Fit& fit, const Rng& seed, Index i) const {
    return with_ids(fit.spec, training_sample(fit, seed, i));
}
Example Data::held_out(const Fit& fit, const Rng& seed, Index i) const {
    return with_ids(fit.spec, held_out_sample(fit, seed, i));
}

Index ids_of(const ModelSpec& spec, Index symbols) { return symbol_id(spec, symbols - 1) + 1; }

void require_tokens(const Fit& fit, Index symbols, bool causal) {
    const ModelSpec& s = fit.spec;
    const Index vocabulary = ids_of(s, symbols);
    if (s.embedding.image.channels > 0 || s.embedding.vocabulary == 0)
        throw UsageError(
            fmt::format("{} takes no tokens; expected a model with a vocabulary, or --data "
                        "images:DIR or patterns for an image model.",
                        s.name));
    if (s.embedding.vocabulary < vocabulary)
        throw UsageError(fmt::format(
            "{} has a vocabulary of {}, but the data needs {}; pass vocab={} to the model.", s.name,
            s.embedding.vocabulary, vocabulary, vocabulary));
    if (s.embedding.hard_limit() > 0 && fit.tokens > s.embedding.hard_limit())
        throw UsageError(fmt::format("--tokens {}: {} takes at most {}.", fit.tokens, s.name,
                                     s.embedding.hard_limit()));
    if (causal &&
        !std::ranges::all_of(s.blocks, [](const BlockSpec& b) { return b.attention.causal; }))
        throw UsageError(fmt::format(
            "--loss lm: {} is not causal; use --loss mlm, causal=1 if the model has it, or "
            "a causal model such as random:gpt2.",
            s.name));
}

void require_images(const Fit& fit, Index channels, Index height, Index width,
                    const std::string& what) {
    const ModelSpec& s = fit.spec;
    if (s.embedding.image.channels == 0)
        throw UsageError(fmt::format("{} takes tokens, but {} are images.", s.name, what));
    if (s.embedding.image.height != height || s.embedding.image.width != width ||
        (channels != 1 && channels != s.embedding.image.channels))
        throw UsageError(fmt::format(
            "{} takes images of {} x {} x {}, but {} are {} x {} x {}; pass image={} to the model.",
            s.name, s.embedding.image.channels, s.embedding.image.height, s.embedding.image.width,
            what, channels, height, width, height));
}

Tensor image_tensor(const Fit& fit, std::span<const std::uint8_t> pixels, Index channels) {
    const ModelSpec& s = fit.spec;
    const Index area = s.embedding.image.height * s.embedding.image.width;
    const auto fill = [&](auto values) {
        using T = typename decltype(values)::value_type;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto at = channels == 1 ? i % std::size_t(area) : i;
            values[i] = T(pixels[at]) / T(127.5) - T(1);
        }
    };
    const Shape shape{s.embedding.image.channels, s.embedding.image.height,
                      s.embedding.image.width};
    return fit.type == Type::f32
               ? Tensor::filled(fit.backend, shape, [&](std::span<float> v) { fill(v); })
               : Tensor::filled(fit.backend, shape, [&](std::span<double> v) { fill(v); });
}

Example labelled(Input input, Index label) {
    Example out;
    out.input = std::move(input);
    out.loss.kind = Loss::Kind::classes;
    out.loss.label = label;
    return out;
}

std::vector<Index> shuffled(Rng rng, Index count) {
    auto order = std::vector<Index>(std::size_t(count));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[rng.below(k)]);
    return order;
}

Index EpochOrder::at(const Rng& seed, Index count, Index i) const {
    const Index number = i / count;
    const std::lock_guard guard(lock_);
    const auto is_of = [&](const Epoch& e) {
        return e.number == number && e.seed == seed.seed() && e.stream == seed.stream();
    };
    if (is_of(before_)) std::swap(last_, before_);
    if (!is_of(last_)) {
        before_ = std::move(last_);
        Rng rng = seed.fork("epoch").fork(std::uint64_t(number));
        last_ = {number, seed.seed(), seed.stream(),
                 std::make_shared<std::vector<Index>>(shuffled(rng, count))};
    }
    return (*last_.order)[std::size_t(i % count)];
}

}  // namespace training

std::vector<DataKind> data_kinds() {
    std::vector<DataKind> out;
    for (const training::DataEntry* entry : training::entries) out.push_back(entry->kind);
    return out;
}

std::string data_markdown() {
    std::string out =
        "| `--data` | samples | held out | layout of the folder |\n|---|---|---|---|\n";
    for (const DataKind& kind : data_kinds()) {
        const bool optional = kind.argument.starts_with('[');
        out += fmt::format("| `{}{}{}` | {} | {} | {} |\n", kind.name, optional ? "" : ":",
                           kind.argument, kind.samples, kind.held_out, kind.layout);
    }
    return out;
}

}  // namespace tsdiag
