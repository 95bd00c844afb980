#include "losses.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "arrays.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

constexpr Index usual_classes = 10;
constexpr Index most_classes = 1'000'000;  // each is a row of the classifier
constexpr double masked_share = 0.15;      // of the tokens, as in BERT

Tensor drawn(const Rng& rng, Shape shape, double deviation, const Backend& backend, Type type) {
    std::vector<double> values(std::size_t(shape.count()));
    rng.fill_normal(std::span<double>(values), 0, deviation);
    return Tensor::from_host(backend, shape, std::span<const double>(values), type);
}

/// Indices of the tokens that the mask keeps, of n.
std::vector<Index> kept_tokens(const Input& input, Index n) {
    std::vector<Index> out;
    for (Index i = 0; i < n; ++i)
        if (input.keep.empty() || input.keep[std::size_t(i)]) out.push_back(i);
    return out;
}

}  // namespace

NamedLoss parse_loss(const std::string& text) {
    const std::size_t colon = text.find(':');
    NamedLoss out{.name = text.substr(0, colon)};
    const std::vector<std::string_view> known = {"lm", "mlm", "classify", "square", "vjp"};
    if (std::ranges::find(known, out.name) == known.end()) {
        const std::string near = nearest(out.name, known);
        throw UsageError(
            fmt::format("--loss: unknown loss '{}', expected lm, mlm, classify, square or vjp{}",
                        text, near.empty() ? "." : fmt::format("; did you mean {}?", near)));
    }
    if (colon == std::string::npos) return out;
    const std::string_view rest = std::string_view(text).substr(colon + 1);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), out.number);
    const bool whole = error == std::errc() && end == rest.data() + rest.size();
    const Index least = out.name == "classify" ? 2 : 0,
                most = out.name == "classify" ? most_classes : out.number;
    if ((out.name != "mlm" && out.name != "classify") || !whole || out.number < least ||
        out.number > most)
        throw UsageError(
            fmt::format("--loss: '{}' is not valid, expected mlm:ID with the id of the mask token, "
                        "or classify:C with the number of classes, 2 to {}.",
                        text, most_classes));
    return out;
}

LossSource::LossSource(const RunOptions& options, const ModelSpec& spec, const InputSource& inputs,
                       const Backend& backend, Type type)
    : seed_(options.seed),
      vocabulary_(spec.embedding.vocabulary),
      width_(spec.last_width()),
      tokens_(inputs.tokens()),
      class_token_(spec.class_attention.layers > 0),
      memory_(spec.memory_tokens),
      special_(inputs.special_ids()),
      merges_(
          std::ranges::count_if(spec.blocks, [](const BlockSpec& b) { return b.merge.width > 0; })),
      backend_(backend),
      type_(type) {
    const NamedLoss loss = parse_loss(options.loss);
    name_ = loss.name;
    number_ = loss.number;
    if ((name_ == "lm" || name_ == "mlm") && !inputs.kind().starts_with("ids") &&
        inputs.kind() != "text")
        throw UsageError(
            fmt::format("--loss {}: predicts token ids, but the input is {}; expected --loss "
                        "classify, square or vjp.",
                        options.loss, inputs.kind()));
    if (name_ == "lm" && inputs.shortest() < 2)
        throw UsageError(
            "--loss lm: a sample has one token alone, but lm needs two tokens that its mask keeps; "
            "pass longer samples, or leave its line out.");
    if (name_ == "mlm" && number_ >= vocabulary_)
        throw UsageError(fmt::format("--loss {}: the vocabulary has the ids 0 to {}.", options.loss,
                                     vocabulary_ - 1));
    if (name_ != "classify") return;
    if (!options.labels.empty()) read_labels(options.labels);
    if (!labels_.empty() && std::ssize(labels_) != inputs.count())
        throw UsageError(fmt::format("--labels {}: contains {} labels for {} samples.",
                                     options.labels, labels_.size(), inputs.count()));
    const Index seen = labels_.empty() ? 0 : *std::ranges::max_element(labels_) + 1;
    if (number_ < 0) number_ = std::max(seen, labels_.empty() ? usual_classes : Index(2));
    if (seen > number_)
        throw UsageError(fmt::format("--labels {}: has the label {}, expected 0 to {}.",
                                     options.labels, seen - 1, number_ - 1));
    classifier_ = drawn(Rng(seed_).fork("loss").fork("classifier"), {1, number_, width_},
                        1 / std::sqrt(double(width_)), backend, type);
}

void LossSource::read_labels(const std::string& file) {
    if (std::filesystem::path(file).extension() == ".npy") {
        labels_ = integers(open_array(file), file);
    } else {
        for (const std::vector<Index>& line : read_text_ids(file))
            labels_.insert(labels_.end(), line.begin(), line.end());
    }
    for (const Index label : labels_)
        if (label < 0 || label >= most_classes)
            throw FormatError(fmt::format("{}: has the label {}, expected labels of 0 to {}.", file,
                                          label, most_classes - 1));
}

Loss LossSource::next_token(const Input& input) const {
    Loss loss{.kind = Loss::Kind::tokens};
    const std::vector<Index> kept = kept_tokens(input, std::ssize(input.ids));
    for (std::size_t k = 0; k + 1 < kept.size(); ++k) {
        loss.rows.push_back(Index(k));
        loss.targets.push_back(input.ids[std::size_t(kept[k + 1])]);
    }
    return loss;
}

Loss LossSource::masked_tokens(Rng rng, Index sample, Input& input) const {
    Loss loss{.kind = Loss::Kind::tokens};
    const std::vector<Index> kept = kept_tokens(input, std::ssize(input.ids));
    std::vector<Index> order;  // rows that may be asked for, as collators of Transformers choose
    for (std::size_t i = 0; i < kept.size(); ++i)
        if (!std::ranges::binary_search(special_, input.ids[std::size_t(kept[i])]))
            order.push_back(Index(i));
    if (order.empty())
        throw UsageError(
            fmt::format("--loss mlm: sample {} has special tokens alone ([CLS], [SEP]), which are "
                        "not predicted; pass a longer text, or leave its line out.",
                        sample));
    const Index count =
        std::max<Index>(1, Index(std::llround(masked_share * double(order.size()))));
    for (Index i = 0; i < count; ++i)  // the first `count` elements of a shuffle
        std::swap(order[std::size_t(i)],
                  order[std::size_t(i) + rng.below(order.size() - std::size_t(i))]);
    std::sort(order.begin(), order.begin() + count);
    for (Index i = 0; i < count; ++i) {
        const Index row = order[std::size_t(i)];
        Index& id = input.ids[std::size_t(kept[std::size_t(row)])];
        loss.rows.push_back(row);
        loss.targets.push_back(id);
        id = number_ >= 0 ? number_ : Index(rng.below(std::uint64_t(vocabulary_)));
    }
    return loss;
}

Loss LossSource::classes(Rng rng, Index sample) const {
    Loss loss{.kind = Loss::Kind::classes, .classifier = classifier_};
    loss.label =
        labels_.empty() ? Index(rng.below(std::uint64_t(number_))) : labels_[std::size_t(sample)];
    return loss;
}

Loss LossSource::product(Rng rng, Index rows) const {
    const Tensor u = drawn(rng, {1, rows, width_}, 1, backend_, type_);
    return {.kind = Loss::Kind::product, .cotangent = scale(u, 1 / std::sqrt(squared_norm(u)))};
}

std::vector<Loss> LossSource::losses(Index trial, std::vector<Input>& inputs) const {
    std::vector<Loss> out;
    for (Index s = 0; s < std::ssize(inputs); ++s) {
        Input& input = inputs[std::size_t(s)];
        const Rng rng = Rng(seed_).fork("loss").fork(std::uint64_t(trial)).fork(std::uint64_t(s));
        if (name_ == "lm")
            out.push_back(next_token(input));
        else if (name_ == "mlm")
            out.push_back(masked_tokens(rng, s, input));
        else if (name_ == "classify")
            out.push_back(classes(rng, s));
        else if (name_ == "vjp")
            out.push_back(product(
                rng, class_token_ ? 1
                                  : (std::ssize(kept_tokens(input, tokens(input))) - memory_) >>
                                        2 * merges_));
        else
            out.push_back({.kind = Loss::Kind::square});
    }
    return out;
}

RunRecord::Loss LossSource::described() const {
    RunRecord::Loss out{.name = name_};
    if (name_ == "classify") {
        out.classes = number_;
        out.labels = labels_.empty() ? "drawn" : "given";
    }
    if (name_ == "mlm" && number_ >= 0) out.mask_id = number_;
    return out;
}

}  // namespace tsdiag
