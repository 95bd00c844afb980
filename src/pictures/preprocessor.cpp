#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/pictures.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;
using Fit = Preprocessor::Fit;
using Triple = std::array<double, 3>;

constexpr Triple halves{0.5, 0.5, 0.5}, imagenet_mean{0.485, 0.456, 0.406},
    imagenet_deviation{0.229, 0.224, 0.225}, clip_mean{0.48145466, 0.4578275, 0.40821073},
    clip_deviation{0.26862954, 0.26130258, 0.27577711};
constexpr double per_byte = 1.0 / 255;
constexpr Index largest_side = 65535;

/// A processor of Hugging Face: what keys mean that its file lacks.
struct Processor {
    std::string_view name;  ///< before "ImageProcessor" or "FeatureExtractor"
    Index size;
    bool square;  ///< one number is the side of a square, not the shorter side
    Resampling filter;
    Index crop;  ///< 0: it does not crop
    Triple mean, deviation;
    double crop_pct;  ///< 0: it has no such key
};
constexpr std::array processors{
    Processor{"ViT", 224, true, Resampling::bilinear, 0, halves, halves, 0},
    Processor{"DeiT", 256, true, Resampling::bicubic, 224, halves, halves, 0},
    Processor{"Beit", 256, true, Resampling::bicubic, 224, halves, halves, 0},
    Processor{"Siglip", 224, true, Resampling::bicubic, 0, halves, halves, 0},
    Processor{"CLIP", 224, false, Resampling::bicubic, 224, clip_mean, clip_deviation, 0},
    Processor{"Bit", 224, false, Resampling::bicubic, 224, clip_mean, clip_deviation, 0},
    Processor{"ConvNext", 384, false, Resampling::bilinear, 0, halves, halves, 224.0 / 256},
};
/// The processor that a family's published files mean where they name none.
struct UsualProcessor {
    std::string_view family, processor;
};
constexpr std::array usual{UsualProcessor{"vit", "ViT"}, UsualProcessor{"deit", "DeiT"},
                           UsualProcessor{"swin", "ViT"}};

const Processor* processor_named(std::string_view name) {
    const auto* found = std::ranges::find(processors, name, &Processor::name);
    return found == processors.end() ? nullptr : found;
}

bool is(const Json& value, std::string_view word) {
    return value.is_string() && value.string() == word;
}

/// The keys of a JSON object, each of which must be taken or be known to change no pixel.
class Keys {
  public:
    Keys(const Json& object, std::string_view source) : object_(object), source_(source) {}

    [[noreturn]] void refuse(std::string_view key, std::string_view expected) const {
        throw FormatError(fmt::format("{}: {} is {}, expected {}.", source_, key,
                                      visible(shortened(object_[key].dump(), 60)), expected));
    }
    const Json& take(std::string_view key) {
        taken_.push_back(key);
        return object_[key];
    }
    /// null, where it is not there, is `fallback`.
    bool flag(std::string_view key, bool fallback) {
        const Json& said = take(key);
        if (said.is_null()) return fallback;
        if (!said.is_bool()) refuse(key, "true or false");
        return said.boolean();
    }
    /// From above `least` to `most`.
    std::optional<double> number(std::string_view key, double least, double most) {
        const Json& said = take(key);
        if (said.is_null()) return std::nullopt;
        if (!said.is_number() || !(said.number() > least) || !(said.number() <= most))
            refuse(key, fmt::format("a number above {} and at most {}", least, most));
        return said.number();
    }
    /// A number, or one a channel; empty: not there.
    std::vector<double> numbers(std::string_view key, bool positive) {
        const Json& said = take(key);
        std::vector<double> out;
        if (said.is_null()) return out;
        const Json::Array one{said};
        const Json::Array& all = said.is_array() ? said.array() : one;
        for (const Json& value : all) {
            constexpr double largest = 1e6;
            const double x = value.is_number() ? value.number() : largest + 1;
            if (std::abs(x) > largest || (positive && x < 1e-6))
                refuse(key,
                       positive ? "positive numbers, one a channel" : "numbers, one a channel");
            out.push_back(x);
        }
        if (out.empty()) refuse(key, "a number a channel");
        return out;
    }
    Index side(std::string_view key, const Json& value) const {
        const bool whole = value.is_integer() ||
                           (value.is_number() && std::floor(value.number()) == value.number() &&
                            std::abs(value.number()) <= double(largest_side));
        if (!whole || value.integer() < 1 || value.integer() > largest_side)
            refuse(key, fmt::format("pixels from 1 to {}", largest_side));
        return value.integer();
    }
    /// Refuses what was not taken, unless it is null, a switch that is off, or one of `harmless`.
    void end(std::span<const std::string_view> harmless) const {
        for (const auto& [key, value] : object_.object()) {
            const bool off = value.is_null() || (value.is_bool() && !value.boolean());
            if (off || std::ranges::find(taken_, key) != taken_.end() ||
                std::ranges::find(harmless, key) != harmless.end())
                continue;
            throw FormatError(fmt::format(
                "{}: has the key '{}' ({}), which is not supported; take it out if it changes no "
                "pixel, or pass prepared images with --input image:FILE.npy.",
                source_, visible(shortened(key, 60)), visible(shortened(value.dump(), 60))));
        }
    }
    std::string_view source() const { return source_; }
    const Json& object() const { return object_; }

  private:
    const Json& object_;
    std::string_view source_;
    std::vector<std::string_view> taken_;
};

/// Values that a file lacks, from its processor, with a line for each.
class Defaults {
  public:
    Defaults(const Processor* processor, std::string_view source, std::vector<std::string>& taken)
        : processor_(processor), source_(source), taken_(taken) {}

    template <class Of>
    auto of(std::string_view key, Of&& value) {
        if (!processor_)
            throw FormatError(fmt::format(
                "{}: says neither {} nor which processor it is of (image_processor_type).", source_,
                key));
        const auto out = value(*processor_);
        taken_.push_back(fmt::format("{}: that of {}ImageProcessor", key, processor_->name));
        return out;
    }
    std::vector<double> triple(std::string_view key, Triple Processor::*of_it) {
        const Triple& values = of(key, [&](const Processor& p) { return p.*of_it; });
        return {values.begin(), values.end()};
    }
    const Processor* processor() const { return processor_; }

  private:
    const Processor* processor_;
    std::string_view source_;
    std::vector<std::string>& taken_;
};

/// "ViT" of "ViTFeatureExtractor", "ViTImageProcessor" and "ViTImageProcessorFast".
const Processor* processor_of(Keys& keys, std::string_view family) {
    for (const std::string_view key : {"image_processor_type", "feature_extractor_type"}) {
        const Json& said = keys.take(key);
        if (said.is_null()) continue;
        if (!said.is_string()) keys.refuse(key, "the name of a processor");
        std::string_view name = said.string();
        for (const std::string_view end : {"Fast", "ImageProcessor", "FeatureExtractor"})
            if (name.ends_with(end)) name.remove_suffix(end.size());
        if (const Processor* found = processor_named(name)) return found;
        std::string known;
        for (const Processor& p : processors)
            known += fmt::format("{}{}", known.empty() ? "" : ", ", p.name);
        keys.refuse(key, fmt::format("the image processor of {}", known));
    }
    const auto* found = std::ranges::find(usual, family, &UsualProcessor::family);
    return found == usual.end() ? nullptr : processor_named(found->processor);
}

Resampling filter_of(Keys& keys, Defaults& defaults) {
    const Json& said = keys.take("resample");
    if (said.is_null()) return defaults.of("resample", [](const Processor& p) { return p.filter; });
    constexpr Index most = Index(Resampling::hamming);
    const bool known = said.is_number() && said.number() >= 0 && said.number() <= double(most) &&
                       std::floor(said.number()) == said.number();
    if (!known) keys.refuse("resample", fmt::format("a filter of Pillow, 0 to {}", most));
    return Resampling(int(said.number()));
}

/// One number: a square, or the shorter side.
void read_size(Keys& keys, Defaults& defaults, Preprocessor& out) {
    const Json& said = keys.take("size");
    const bool told_square = keys.object()["default_to_square"].is_bool();
    bool square = keys.flag("default_to_square", true);
    const auto by_one = [&](Index side) {
        if (!told_square && !defaults.processor())
            defaults.of("what a size of one number means", [](const Processor&) { return true; });
        if (!told_square) square = defaults.processor()->square;
        out.fit = square ? Fit::exact : Fit::shortest;
        out.height = out.width = square ? side : 0;
        out.side = square ? 0 : side;
    };
    if (said.is_null())
        return by_one(defaults.of("size", [](const Processor& p) { return p.size; }));
    if (said.is_number()) return by_one(keys.side("size", said));
    const bool list = said.is_array() && said.array().size() == 2;
    if (list) {  // which of the two is the height, libraries disagree
        out.fit = Fit::exact;
        out.height = keys.side("size", said.array()[0]);
        out.width = keys.side("size", said.array()[1]);
        if (out.height == out.width) return;
        keys.refuse("size", "names for two different sides, {\"height\": H, \"width\": W}");
    }
    if (!said.is_object())
        keys.refuse("size", "pixels, or an object with height and width or shortest_edge");
    const auto named = [&](std::string_view key) {
        return said[key].is_null() ? Index{0} : keys.side("size", said[key]);
    };
    for (const auto& [key, value] : said.object())
        if (!value.is_null() && key != "height" && key != "width" && key != "shortest_edge" &&
            key != "longest_edge")
            keys.refuse("size", "no other keys than height, width, shortest_edge, longest_edge");
    out.height = named("height"), out.width = named("width");
    const Index shortest = named("shortest_edge"), longest = named("longest_edge");
    const bool exact = out.height > 0 && out.width > 0,
               by_edge = (shortest > 0 || longest > 0) && out.height == 0 && out.width == 0;
    if (exact == by_edge || (exact && shortest + longest > 0))
        keys.refuse("size", "height and width, or shortest_edge, or longest_edge");
    out.fit = exact ? Fit::exact : shortest > 0 ? Fit::shortest : Fit::longest;
    out.side = shortest > 0 ? shortest : longest;
    out.within = shortest > 0 ? longest : 0;
}

void read_crop(Keys& keys, Defaults& defaults, Preprocessor& out) {
    const Json& said = keys.take("crop_size");
    const auto both = [&](Index side) { out.crop_height = out.crop_width = side; };
    if (said.is_null()) {
        both(defaults.of("crop_size", [](const Processor& p) { return p.crop; }));
        if (out.crop_height == 0) keys.refuse("crop_size", "the size of the crop");
    } else if (said.is_number()) {
        both(keys.side("crop_size", said));
    } else if (said.is_object() && said.object().size() == 2) {
        out.crop_height = keys.side("crop_size", said["height"]);
        out.crop_width = keys.side("crop_size", said["width"]);
    } else {
        keys.refuse("crop_size", "pixels, or {\"height\": H, \"width\": W}");
    }
}

/// ConvNext's: below 384 pixels the picture is resized to side / crop_pct and cropped to the side.
void read_share(Keys& keys, Defaults& defaults, Preprocessor& out) {
    if (!defaults.processor() || defaults.processor()->crop_pct == 0) return;
    constexpr Index warped_from = 384;
    std::optional<double> share = keys.number("crop_pct", 0, 1);
    if (out.fit != Fit::shortest || out.within > 0)
        keys.refuse("size", "shortest_edge alone, as ConvNextImageProcessor has it");
    const Index side = out.side;
    if (side >= warped_from) {
        out.fit = Fit::exact;
        out.height = out.width = side;
        out.side = 0;
        return;
    }
    if (!share) share = defaults.of("crop_pct", [](const Processor& p) { return p.crop_pct; });
    out.side = Index(double(side) / *share);
    out.crop_height = out.crop_width = side;
}

Preprocessor of_hugging_face(const Json& object, std::string_view source, std::string_view family) {
    Preprocessor out;
    Keys keys(object, source);
    const Processor* processor = processor_of(keys, family);
    Defaults defaults(processor, source, out.taken);
    if (keys.flag("do_resize", true)) {
        out.filter = filter_of(keys, defaults);
        read_size(keys, defaults, out);
        read_share(keys, defaults, out);
    }
    if (keys.flag("do_center_crop", processor && processor->crop > 0))
        read_crop(keys, defaults, out);
    if (keys.flag("do_rescale", true))
        out.factor = keys.number("rescale_factor", 0, 1e6).value_or(per_byte);
    if (keys.flag("do_normalize", true)) {
        out.mean = keys.numbers("image_mean", false);
        out.deviation = keys.numbers("image_std", true);
        if (out.mean.empty()) out.mean = defaults.triple("image_mean", &Processor::mean);
        if (out.deviation.empty())
            out.deviation = defaults.triple("image_std", &Processor::deviation);
    }
    const Json& converts = object["do_convert_rgb"];
    out.needs_rgb = !keys.flag("do_convert_rgb", true) && converts.is_bool();
    // Reviewed: names, labels, the order of axes, and values of steps that are off.
    constexpr std::array<std::string_view, 16> harmless{
        "processor_class",   "_valid_processor_keys",
        "do_reduce_labels",  "reduce_labels",
        "return_tensors",    "data_format",
        "input_data_format", "device",
        "disable_grouping",  "size",
        "resample",          "crop_size",
        "rescale_factor",    "image_mean",
        "image_std",         "default_to_square"};
    keys.end(harmless);
    return out;
}

/// timm's evaluation: the shorter side becomes floor(side / crop_pct), then the middle is cropped.
Preprocessor of_timm(const Json& object, std::string_view source) {
    Preprocessor out;
    Keys keys(object, source);
    const Json& input = keys.take("input_size");
    if (!input.is_array() || input.array().size() != 3)
        keys.refuse("input_size", "[channels, height, width]");
    out.crop_height = keys.side("input_size", input.array()[1]);
    out.crop_width = keys.side("input_size", input.array()[2]);
    const std::optional<double> told_share = keys.number("crop_pct", 0, 1);
    const double share = told_share.value_or(0.875);
    if (!told_share) out.taken.emplace_back("crop_pct: 0.875, that of timm");
    const Index height = Index(std::floor(double(out.crop_height) / share)),
                width = Index(std::floor(double(out.crop_width) / share));
    const Json& mode = keys.take("crop_mode");
    if (mode.is_null() || is(mode, "center")) {
        if (height == width) {
            out.fit = Fit::shortest;
            out.side = height;
        } else {
            keys.refuse("input_size", "a square, unless crop_mode is squash");
        }
    } else if (is(mode, "squash")) {
        out.fit = Fit::exact;
        out.height = height, out.width = width;
    } else {
        keys.refuse("crop_mode", "center or squash");
    }
    out.rounds_crop = true;
    const Json& told_filter = keys.take("interpolation");
    out.filter = Resampling::bicubic;
    if (told_filter.is_null()) {
        out.taken.emplace_back("interpolation: bicubic, that of timm");
    } else {
        int number = 0;
        while (number <= int(Resampling::hamming) && !is(told_filter, name(Resampling(number))))
            ++number;
        if (number > int(Resampling::hamming))
            keys.refuse("interpolation", "nearest, lanczos, bilinear, bicubic, box or hamming");
        out.filter = Resampling(number);
    }
    out.factor = per_byte;
    out.mean = keys.numbers("mean", false);
    out.deviation = keys.numbers("std", true);
    if (out.mean.empty() || out.deviation.empty())
        out.taken.emplace_back("mean, std: ImageNet's, those of timm");
    if (out.mean.empty()) out.mean.assign(imagenet_mean.begin(), imagenet_mean.end());
    if (out.deviation.empty())
        out.deviation.assign(imagenet_deviation.begin(), imagenet_deviation.end());
    // Reviewed.
    constexpr std::array<std::string_view, 27> harmless{
        // Where the weights come from.
        "tag", "custom_load", "url", "file", "hf_hub_id", "hf_hub_filename", "source",
        "architecture", "origin_url", "license", "paper_name", "paper_ids", "notes",
        // The classifier.
        "classifier", "first_conv", "num_classes", "num_features", "pool_size", "global_pool",
        // Sizes for other uses, and labels.
        "fixed_input_size", "min_input_size", "test_input_size", "test_crop_pct", "label_offset",
        "label_names", "label_descriptions", "state_dict"};
    keys.end(harmless);
    return out;
}

/// The longer of two sides whose shorter one becomes `side`.
Index share_of(Index side, Index longer, Index shorter) {
    const double share = double(side) * double(longer) / double(shorter);
    return share < double(std::numeric_limits<Index>::max()) ? std::max(Index(share), Index(1)) : 0;
}

std::string list(const std::vector<double>& values) {
    std::string out;
    for (const double v : values) out += fmt::format("{}{}", out.empty() ? "" : ", ", v);
    return out;
}

Json json_list(const std::vector<double>& values) {
    Json::Array out;
    for (const double v : values) out.emplace_back(v);
    return out;
}

}  // namespace

Picture Preprocessor::apply(const Picture& picture) const {
    if (needs_rgb && !picture.rgb)
        throw FormatError(
            fmt::format("is stored as {}, but do_convert_rgb of {} is false: convert it to RGB of "
                        "8 bits.",
                        picture.stored, source));
    const Index longer = std::max(picture.height, picture.width),
                shorter = std::min(picture.height, picture.width);
    const bool upright_format = picture.height >= picture.width;
    const auto with_sides = [&](Index least, Index most) {
        return upright_format ? resized(picture, most, least, filter)
                              : resized(picture, least, most, filter);
    };
    Picture out;
    if (fit == Fit::none) {
        out = picture;
    } else if (fit == Fit::exact) {
        out = resized(picture, height, width, filter);
    } else if (fit == Fit::longest) {
        out = with_sides(std::max(Index(double(side) * double(shorter) / double(longer)), Index(1)),
                         side);
    } else if (within > 0 && double(longer) / double(shorter) * double(side) > double(within)) {
        // the shorter side that the longer one leaves, rounded half to even
        const double least = double(within) * double(shorter) / double(longer);
        out = with_sides(std::max(Index(std::nearbyint(least)), Index(1)),
                         std::max(Index(least * double(longer) / double(shorter)), Index(1)));
    } else {
        out = with_sides(side, share_of(side, longer, shorter));
    }
    if (crop_height == 0) return out;
    const auto margin = [&](Index has, Index wanted) {
        const double both = double(has - wanted) / 2;
        return Index(rounds_crop && both > 0 ? std::nearbyint(both) : std::floor(both));
    };
    const Index top = margin(out.height, crop_height), left = margin(out.width, crop_width);
    Picture cropped = out;
    cropped.height = crop_height, cropped.width = crop_width;
    const auto channels = std::size_t(out.channels);
    cropped.pixels.assign(std::size_t(crop_height * crop_width) * channels, 0);
    const Index first = std::max(left, Index(0)), last = std::min(left + crop_width, out.width);
    for (Index y = 0; y < crop_height; ++y) {
        const Index row = y + top;
        if (row < 0 || row >= out.height || last <= first) continue;
        std::copy_n(
            out.pixels.begin() + std::ptrdiff_t(row * out.width + first) * out.channels,
            std::size_t(last - first) * channels,
            cropped.pixels.begin() + std::ptrdiff_t(y * crop_width + first - left) * out.channels);
    }
    return cropped;
}

double Preprocessor::value(Index channel, std::uint8_t byte) const {
    const auto of = [&](const std::vector<double>& all) {
        return all[all.size() == 1 ? 0 : std::size_t(channel)];
    };
    const double x = double(byte) * factor;
    return mean.empty() ? x : (x - of(mean)) / of(deviation);
}

void Preprocessor::require_channels(Index channels) const {
    for (const auto& [key, values] : {std::pair("means", &mean), {"deviations", &deviation}})
        if (!values->empty() && values->size() != 1 && std::ssize(*values) != channels)
            throw FormatError(fmt::format("{}: has {} {}, but the model takes {} channels.", source,
                                          values->size(), key, channels));
}

std::vector<std::string> Preprocessor::steps() const {
    std::vector<std::string> out;
    if (fit == Fit::exact)
        out.push_back(fmt::format("resized to {} x {}, {}", height, width, name(filter)));
    if (fit == Fit::shortest)
        out.push_back(fmt::format("shorter side {}{}, {}", side,
                                  within > 0 ? fmt::format(", longer at most {}", within) : "",
                                  name(filter)));
    if (fit == Fit::longest) out.push_back(fmt::format("longer side {}, {}", side, name(filter)));
    if (crop_height > 0) out.push_back(fmt::format("middle {} x {}", crop_height, crop_width));
    if (factor != 1) out.push_back(fmt::format("bytes times {}", factor));
    if (!mean.empty())
        out.push_back(fmt::format("minus ({}), by ({})", list(mean), list(deviation)));
    return out;
}

Json Preprocessor::json() const {
    Json::Array words, lacked;
    for (const std::string& step : steps()) words.emplace_back(step);
    for (const std::string& line : taken) lacked.emplace_back(line);
    Json out;
    out.set("source", source).set("sha256", sha256.empty() ? Json() : Json(sha256));
    out.set("steps", std::move(words)).set("defaults", std::move(lacked));
    out.set("factor", factor).set("mean", json_list(mean));
    return out.set("deviation", json_list(deviation));
}

Preprocessor parse_preprocessor(std::string_view text, std::string_view source,
                                std::string_view family) {
    const Json json = Json::parse(text, source);
    if (!json.is_object())
        throw FormatError(
            fmt::format("{}: is not a JSON object, expected a preprocessor_config.json.", source));
    const Json& timm = json["pretrained_cfg"];
    Preprocessor out =
        timm.is_object() ? of_timm(timm, source) : of_hugging_face(json, source, family);
    out.source = source;
    out.sha256 = sha256(text);
    return out;
}

Preprocessor open_preprocessor(const fs::path& file, std::string_view family) {
    std::error_code failed;
    const fs::path path = fs::is_directory(file, failed) ? file / "preprocessor_config.json" : file;
    return parse_preprocessor(file_text(path, "a preprocessor_config.json", longest_json),
                              path.string(), family);
}

fs::path preprocessor_file(const fs::path& checkpoint) {
    std::error_code failed;
    const fs::path folder =
        fs::is_directory(checkpoint, failed) ? checkpoint : checkpoint.parent_path();
    fs::path own = folder / "preprocessor_config.json", config = folder / "config.json";
    if (fs::exists(own, failed)) return own;
    if (!fs::exists(config, failed)) return {};
    const Json json = file_json(config, "a config.json");
    return json["pretrained_cfg"].is_object() ? config : fs::path();
}

Preprocessor published_preprocessor(std::string_view family, Index height, Index width) {
    Preprocessor out;
    if (family != "vit") return out;
    const Processor& vit = *processor_named("ViT");
    out.fit = Fit::exact;
    out.height = height, out.width = width;
    out.filter = vit.filter;
    out.factor = per_byte;
    out.mean = {vit.mean[0]};
    out.deviation = {vit.deviation[0]};
    out.source = "the published default of ViT";
    return out;
}

}  // namespace tsdiag
