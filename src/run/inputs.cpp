#include "inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "arrays.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag {
namespace {

bool takes_images(const ModelSpec& spec) { return spec.embedding.image.channels > 0; }

Index image_tokens(const ModelSpec& spec) {
    return spec.embedding.image.patches() + spec.embedding.prefix_tokens;
}

Tensor gaussian(const Rng& rng, Shape shape, const Backend& backend, Type type) {
    // Drawn in double, so that float32 and float64 get the same numbers.
    std::vector<double> values(std::size_t(shape.count()));
    rng.fill_normal(std::span<double>(values), 0, 1);
    return Tensor::from_host(backend, shape, std::span<const double>(values), type);
}

}  // namespace

NamedInput parse_input(const RunOptions& options) {
    std::vector<std::string_view> given;
    for (const auto& [option, value] : {std::pair{"--images", &options.images},
                                        {"--text", &options.text},
                                        {"--text-file", &options.text_file},
                                        {"--text-lines", &options.text_lines},
                                        {"--input", &options.input}})
        if (!value->empty()) given.emplace_back(option);
    if (given.size() > 1)
        throw UsageError(fmt::format("{}: expected one of them.", fmt::join(given, " and ")));
    if (!options.images.empty()) return {"pictures", options.images};
    if (!options.text.empty()) return {"text", "--text"};
    if (!options.text_file.empty()) return {"text", options.text_file};
    if (!options.text_lines.empty()) return {"text", options.text_lines};
    const std::string& text = options.input;
    if (text.empty() || text == "gaussian" || text == "ids:random") return {text, ""};
    const std::size_t colon = text.find(':');
    const std::string head = text.substr(0, colon),
                      file = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (head == "ids" && !file.empty()) return {"ids:file", file};
    if ((head == "embeddings" || head == "hidden" || head == "image") && !file.empty())
        return {head, file};
    throw UsageError(
        fmt::format("--input: unknown input '{}', expected gaussian, ids:random, ids:FILE, "
                    "embeddings:FILE.npy, hidden:FILE.npy or image:FILE.npy.",
                    text));
}

InputSource::InputSource(const RunOptions& options, const ModelSpec& spec, const Backend& backend,
                         Type type)
    : options_(options), spec_(spec), backend_(backend), type_(type) {
    choose_kind();
    if (own())
        settle_own();
    else if (kind_ == "ids:file")
        read_ids();
    else if (kind_ == "text")
        read_text();
    else if (kind_ == "embeddings" || kind_ == "hidden")
        read_rows();
    else if (kind_ == "image")
        read_images();
    else if (kind_ == "pictures")
        read_pictures();
    else if (takes_images(spec_))
        settle_images();
    else
        settle_tokens();
    if (file_.empty() && !own()) count_ = std::max<Index>(options_.samples, 1);
    if (options_.mask.empty()) return;
    if (takes_images(spec_) && kind_ != "hidden")
        throw UsageError(
            "--mask: hides tokens, but this model takes images; pass its tokens as --input "
            "hidden:FILE.npy.");
    if (shortest() < tokens_)
        throw UsageError(
            fmt::format("--mask: is of samples of one length, but the lines of {} have up to {} "
                        "tokens, each its own number, and none is padded; omit --mask.",
                        file_, tokens_));
    masks_ = read_masks(options_.mask, count_, tokens_);
}

void InputSource::choose_kind() {
    const std::string& text = options_.input;
    const bool has_ids = spec_.embedding.vocabulary > 0 && !takes_images(spec_);
    const NamedInput named = parse_input(options_);
    kind_ = named.kind;
    file_ = named.file;
    if (own()) {
        kind_ = options_.own_input->kind;
        defaults_.push_back(fmt::format("input: {}", options_.own_input->origin));
        return;
    }
    if (kind_.empty()) {
        kind_ = has_ids ? "ids:random" : "gaussian";
        defaults_.push_back(fmt::format("input: {}", kind_));
        return;
    }
    if (kind_ == "pictures") require_pictures();
    if (kind_ == "text" && !has_ids)
        throw UsageError(fmt::format("{}: this model has no token embedding, so it takes no text.",
                                     options_.text_option()));
    if (kind_.starts_with("ids") && !has_ids)
        throw UsageError(
            fmt::format("--input {}: this model has no token embedding, expected {}.", text,
                        takes_images(spec_) ? "gaussian, image:FILE.npy or hidden:FILE.npy"
                                            : "gaussian or hidden:FILE.npy"));
    if (kind_ == "embeddings" && !has_ids && !spec_.embedding.map)
        throw UsageError(fmt::format(
            "--input {}: this model has no token embedding, expected hidden:FILE.npy.", text));
    if (kind_ == "image" && !takes_images(spec_))
        throw UsageError(fmt::format("--input {}: this model takes tokens, not images.", text));
}

/// 0: no limit. Neither inputs at layer 0's `in` nor rotary positions have one.
Index InputSource::longest() const {
    const bool enters_late = kind_ == "hidden" || (kind_ == "gaussian" && !takes_images(spec_));
    return enters_late ? 0 : spec_.embedding.hard_limit();
}

Index InputSource::shortest() const {
    Index least = tokens_;
    for (const std::vector<Index>& ids : ids_) least = std::min(least, Index(std::ssize(ids)));
    return least;
}

/// Those of a training may differ in length, and are made for this: where an attention may remark.
Index InputSource::fewest_tokens() const {
    Index least = shortest();
    if (own() && !remarks_on_attention(spec_, 1).empty())
        for (const Input& sample : samples(0)) least = std::min(least, tokens_of(spec_, sample));
    return least;
}

RunRecord::Input InputSource::described() const {
    return {.kind = kind_,
            .tokens = tokens_,
            .samples = count_,
            .trials = options_.trials,
            .least_tokens = shortest() < tokens_ ? std::optional(shortest()) : std::nullopt,
            .digest = digest(),
            .defaults = defaults_,
            .text = text_,
            .pictures = pictures_json_};
}

std::string InputSource::digest() const {
    std::string facts = fmt::format("{} {} {} {}", kind_, tokens_, count_, options_.trials);
    const auto& image = spec_.embedding.image;
    if (file_.empty() && !own())
        facts += fmt::format(" {} {} {} {} {} {}", options_.seed, options_.redraw.empty(),
                             spec_.width, image.channels, image.height, image.width);
    const auto add_bytes = [&](const auto& values) {
        const auto bytes = std::as_bytes(std::span(values));
        facts += "\n" + sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
    for (Index s = 0; s < count_; ++s) {
        if (!masks_.empty())
            for (const bool keeps : masks_[std::size_t(s)]) facts += keeps ? '1' : '0';
        if (kind_ == "gaussian" && !own()) continue;  // a function of what is named above
        const Input sample = sample_of(0, s);
        add_bytes(sample.ids);
        for (const Tensor* x : {&sample.embeddings, &sample.hidden, &sample.image})
            if (x->defined()) add_bytes(x->to_host<float>());
    }
    return sha256(facts);
}

std::vector<std::string> InputSource::warnings() const {
    std::vector<std::string> out;
    if (!assumption_.empty()) out.push_back(assumption_);
    if (!unprocessed_.empty()) out.push_back(unprocessed_);
    for (std::string& line : remarks_on_attention(spec_, fewest_tokens()))
        out.push_back(std::move(line));
    const bool within = tokens_ <= spec_.embedding.max_tokens || spec_.embedding.max_tokens == 0;
    if (within || spec_.embedding.hard_limit() > 0 ||
        spec_.blocks.front().attention.rotary.columns == 0)
        return out;
    out.push_back(fmt::format(
        "the samples have {} tokens, but the model was built for {}: its rotary positions are "
        "extrapolated{}",
        tokens_, spec_.embedding.max_tokens,
        spec_.blocks.front().attention.rotary.scaling == "dynamic"
            ? " with a growing base (dynamic NTK)"
            : ""));
    return out;
}

void InputSource::settle_tokens(Index usual) {
    if (options_.tokens > 0 || usual > 0) {
        tokens_ = options_.tokens > 0 ? options_.tokens : usual;
        if (longest() > 0 && tokens_ > longest())
            throw UsageError(fmt::format("--tokens {}: this model takes at most {} tokens.",
                                         tokens_, longest()));
        if (options_.tokens == 0) defaults_.push_back(fmt::format("tokens: {}", tokens_));
        return;
    }
    tokens_ = fitting_tokens(spec_, usual_tokens);
    defaults_.push_back(fmt::format("tokens: {}", tokens_));
}

void InputSource::settle_images() {
    tokens_ = image_tokens(spec_);
    if (options_.tokens > 0 && options_.tokens != tokens_)
        throw UsageError(fmt::format(
            "--tokens {}: an image of {} x {} pixels gives {} tokens; omit --tokens.",
            options_.tokens, spec_.embedding.image.height, spec_.embedding.image.width, tokens_));
}

void InputSource::settle_samples(Index held) {
    if (options_.samples > held)
        throw UsageError(
            fmt::format("--samples {}: {} contains {}.", options_.samples, file_, held));
    count_ = options_.samples > 0 ? options_.samples : held;
}

void InputSource::settle_own() {
    const OwnInput& given = *options_.own_input;
    if (options_.samples > given.most)
        throw UsageError(fmt::format("--samples {}: there are only {}: {}.", options_.samples,
                                     given.most, given.origin));
    count_ = options_.samples > 0 ? options_.samples : given.samples;
    if (takes_images(spec_)) return settle_images();
    settle_tokens(given.tokens);
}

void InputSource::read_ids() {
    std::vector<std::vector<Index>> lines;
    if (std::filesystem::path(file_).extension() == ".npy") {
        const RawTensor array = open_array(file_);
        if ((array.shape.size() != 1 && array.shape.size() != 2) || array.count() == 0)
            throw ShapeError(
                fmt::format("{}: the ids are {}, expected (tokens) or (samples, tokens).", file_,
                            shape_text(array.shape)));
        if (array.dtype == DType::boolean)
            throw FormatError(fmt::format(
                "{}: holds booleans, as a mask, expected ids; pass a mask by --mask.", file_));
        const std::vector<Index> all = integers(array, file_);
        const Index n = array.shape.back();
        for (auto row = all.begin(); row != all.end(); row += n) lines.emplace_back(row, row + n);
    } else {
        lines = read_text_ids(file_);
    }
    for (const std::vector<Index>& line : lines)
        for (std::size_t i = 0; i < line.size(); ++i)
            if (line[i] < 0 || line[i] >= spec_.embedding.vocabulary)
                throw FormatError(fmt::format(
                    "{}: id {} of sample {} is {}, expected 0 to {} (the vocabulary of the model).",
                    file_, i, &line - lines.data(), line[i], spec_.embedding.vocabulary - 1));
    const Index held = Index(lines.front().size());
    if (lines.size() > 1) {
        tokens_ = held;
        settle_samples(Index(lines.size()));
    } else {
        // One long sequence is cut into consecutive samples.
        count_ = std::max<Index>(options_.samples, 1);
        tokens_ = fitting_tokens(spec_, std::min(held / count_, usual_tokens));
    }
    if (options_.tokens > 0) tokens_ = options_.tokens;
    const Index needed = lines.size() > 1 ? tokens_ : tokens_ * count_;
    if (needed > held || tokens_ < 1)
        throw FormatError(fmt::format("{}: contains {} ids, expected {} samples of {} tokens.",
                                      file_, held, lines.size() > 1 ? 1 : count_,
                                      std::max<Index>(tokens_, 1)));
    if (longest() > 0 && tokens_ > longest())
        throw FormatError(
            fmt::format("{}: {} tokens per sample, but this model takes at most {}; pass --tokens "
                        "{} to use the first.",
                        file_, tokens_, longest(), longest()));
    if (needed < held && options_.tokens == 0)
        defaults_.push_back(fmt::format("tokens: the first {} of {} ids", needed, held));
    for (Index s = 0; s < count_; ++s) {
        const std::vector<Index>& line = lines.size() > 1 ? lines[std::size_t(s)] : lines.front();
        const auto begin = line.begin() + (lines.size() > 1 ? 0 : s * tokens_);
        ids_.emplace_back(begin, begin + tokens_);
    }
}

void InputSource::read_rows() {
    const Index width =
        kind_ == "hidden" || spec_.embedding.width == 0 ? spec_.width : spec_.embedding.width;
    array_ = open_array(file_);
    const std::vector<std::int64_t>& shape = array_->shape;
    if ((shape.size() != 2 && shape.size() != 3) || shape.back() != width || array_->count() == 0)
        throw ShapeError(fmt::format("{}: is {}, expected (tokens, {}) or (samples, tokens, {}).",
                                     file_, shape_text(shape), width, width));
    by_sample_ = shape.size() == 3;
    settle_samples(by_sample_ ? shape[0] : 1);
    const Index held = shape[shape.size() - 2];
    tokens_ = options_.tokens > 0 ? options_.tokens : held;
    if (tokens_ > held)
        throw UsageError(fmt::format("--tokens {}: {} contains {} tokens.", tokens_, file_, held));
    if (longest() > 0 && tokens_ > longest())
        throw FormatError(fmt::format(
            "{}: {} tokens, but this model takes at most {}; pass --tokens {} to use the first.",
            file_, tokens_, longest(), longest()));
    array_ = head_of(*array_, shape.size() - 2, tokens_);
}

namespace {

/// What says that images were not preprocessed, in words; empty: nothing.
std::string unprocessed(const RawTensor& images, bool by_sample) {
    constexpr double largest = 16;  // of what is divided by a deviation of 0.2, or not
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (Index i = 0; i < (by_sample ? images.shape[0] : 1); ++i) {
        const RawTensor image = by_sample ? element(images, i) : images;
        std::vector<double> values(std::size_t(image.count()));
        widen<double>(image, values);
        for (const double v : values) least = std::min(least, v), most = std::max(most, v);
    }
    if (most > largest)
        return fmt::format("numbers up to {:.4g}, as pictures before the model's preprocessing",
                           most);
    if (least >= 0 && most <= 1 && least < most)
        return fmt::format(
            "numbers from {:.4g} to {:.4g} alone, as pictures before the model's "
            "preprocessing takes their mean off",
            least, most);
    return {};
}

}  // namespace

void InputSource::read_images() {
    settle_images();
    array_ = open_array(file_);
    if (array_->dtype == DType::u8)
        throw FormatError(
            fmt::format("{}: holds bytes, expected what the model's preprocessing makes of them; "
                        "pass the pictures by --images.",
                        file_));
    const std::vector<std::int64_t>& shape = array_->shape;
    const std::array<Index, 3> one{spec_.embedding.image.channels, spec_.embedding.image.height,
                                   spec_.embedding.image.width};
    by_sample_ = shape.size() == 4;
    const bool fits = (shape.size() == 3 || by_sample_) && array_->count() > 0 &&
                      std::equal(one.begin(), one.end(), shape.end() - 3);
    if (!fits)
        throw ShapeError(fmt::format(
            "{}: is {}, expected ({}, {}, {}) or (samples, {}, {}, {}): channels, height, width.",
            file_, shape_text(shape), one[0], one[1], one[2], one[0], one[1], one[2]));
    settle_samples(by_sample_ ? shape[0] : 1);
    unprocessed_ = unprocessed(*array_, by_sample_);
    if (!unprocessed_.empty())
        unprocessed_ = fmt::format("{} has {}; pass pictures by --images", file_, unprocessed_);
}

Index symbol_id(const ModelSpec& spec, Index symbol) {
    return spec.embedding.padding_id >= 0 && symbol >= spec.embedding.padding_id ? symbol + 1
                                                                                 : symbol;
}

Input InputSource::drawn(Index trial, Index sample) const {
    Rng rng =
        Rng(options_.seed).fork("input").fork(std::uint64_t(trial)).fork(std::uint64_t(sample));
    Input input;
    if (kind_ == "ids:random") {
        const bool skips = spec_.embedding.padding_id >= 0 &&
                           spec_.embedding.padding_id < spec_.embedding.vocabulary;
        const Index choices = std::max<Index>(spec_.embedding.vocabulary - (skips ? 1 : 0), 1);
        for (Index i = 0; i < tokens_; ++i)
            input.ids.push_back(symbol_id(spec_, Index(rng.below(std::uint64_t(choices)))));
    } else if (takes_images(spec_)) {
        input.image = gaussian(rng,
                               {spec_.embedding.image.channels, spec_.embedding.image.height,
                                spec_.embedding.image.width},
                               backend_, type_);
    } else {
        input.hidden = gaussian(rng, {1, tokens_, spec_.width}, backend_, type_);
    }
    return input;
}

Input InputSource::read(Index sample) const {
    Input input;
    if (kind_ == "ids:file" || kind_ == "text") {
        input.ids = ids_[std::size_t(sample)];
        return input;
    }
    if (kind_ == "pictures") {
        input.image = image_of(pictures_[std::size_t(sample)]);
        return input;
    }
    const RawTensor part = by_sample_ ? element(*array_, sample) : *array_;
    const bool image = kind_ == "image";
    const Shape shape = image ? Shape{part.shape[0], part.shape[1], part.shape[2]}
                              : Shape{1, part.shape[0], part.shape[1]};
    const std::string source = by_sample_ ? fmt::format("{}: sample {}", file_, sample) : file_;
    const Tensor x = to_tensor(part, shape, backend_, type_, source, options_.allow_nonfinite);
    (image ? input.image : kind_ == "hidden" ? input.hidden : input.embeddings) = x;
    return input;
}

Input InputSource::sample_of(Index trial, Index sample) const {
    if (own()) return options_.own_input->make(sample, tokens_, spec_, backend_, type_);
    return file_.empty() ? drawn(trial, sample) : read(sample);
}

std::vector<Input> InputSource::samples(Index trial) const {
    std::vector<Input> inputs;
    for (Index s = 0; s < count_; ++s) {
        inputs.push_back(sample_of(trial, s));
        if (!masks_.empty()) inputs.back().keep = masks_[std::size_t(s)];
    }
    return inputs;
}

}  // namespace tsdiag
