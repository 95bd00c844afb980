#include "data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::training {
namespace {

constexpr const char* kinds =
    "text:FILE, chars:FILE, images:DIR, patterns[:CLASSES], markov[:SYMBOLS], copy[:SYMBOLS] or "
    "reverse[:SYMBOLS]";

/// The number after the colon, or `fallback`.
Index number(const std::string& text, std::string_view rest, Index fallback, Index least,
             Index most) {
    if (rest.empty()) return fallback;
    Index value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || end != rest.data() + rest.size() || value < least || value > most)
        throw UsageError(fmt::format("--data {}: expected a number from {} to {} behind the colon.",
                                     text, least, most));
    return value;
}

}  // namespace

std::string digest_of_file(const std::string& data) {
    const std::filesystem::path file = data.substr(std::min(data.size(), data.find(':') + 1));
    std::error_code none;
    return std::filesystem::is_regular_file(file, none) ? contents_digest(file) : "";
}

std::unique_ptr<Data> open_data(const std::string& text, std::string& loss) {
    const std::size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon),
                      rest = colon == std::string::npos ? "" : text.substr(colon + 1);
    const bool images = kind == "images" || kind == "patterns";
    if (loss.empty()) loss = images ? "classify" : "lm";
    if (loss != "lm" && loss != "mlm" && loss != "classify")
        throw UsageError(
            fmt::format("--loss: '{}' is not known, expected lm, mlm or classify.", loss));
    if (images != (loss == "classify"))
        throw UsageError(fmt::format("--loss {}: {} is {}.", loss, text,
                                     images ? "learnt by classify" : "learnt by lm or mlm"));
    if ((kind == "text" || kind == "chars" || kind == "images") && rest.empty())
        throw UsageError(fmt::format("--data {}: expected {}:{}.", text, kind,
                                     kind == "images" ? "DIR" : "FILE"));
    if (kind == "text" || kind == "chars") return text_data(rest, kind == "chars", loss == "mlm");
    if (kind == "images") return image_data(rest);
    if (kind == "patterns") return pattern_data(number(text, rest, 10, 2, 1000));
    if (kind == "markov") return markov_data(number(text, rest, 32, 2, 10000), loss == "mlm");
    if (kind == "copy" || kind == "reverse") {
        if (loss == "mlm")
            throw UsageError(
                fmt::format("--loss mlm: {} is learnt from left to right; expected lm.", text));
        return sequence_data(kind == "reverse", number(text, rest, 16, 2, 100000));
    }
    throw UsageError(text.empty()
                         ? fmt::format("--data: is missing, expected {}.", kinds)
                         : fmt::format("--data: '{}' is not known, expected {}.", text, kinds));
}

void require_tokens(const Fit& fit, Index vocabulary, bool causal) {
    const ModelSpec& s = fit.spec;
    if (s.channels > 0 || s.vocabulary == 0)
        throw UsageError(
            fmt::format("{} takes no tokens; expected a model with a vocabulary, or "
                        "--data images:DIR or patterns for one of images.",
                        s.name));
    if (s.vocabulary < vocabulary)
        throw UsageError(
            fmt::format("{} has a vocabulary of {}, and the data need {}; give the "
                        "model vocab={}.",
                        s.name, s.vocabulary, vocabulary, vocabulary));
    if (s.hard_limit() > 0 && fit.tokens > s.hard_limit())
        throw UsageError(
            fmt::format("--tokens {}: {} takes at most {}.", fit.tokens, s.name, s.hard_limit()));
    if (causal &&
        !std::ranges::all_of(s.blocks, [](const BlockSpec& b) { return b.attention.causal; }))
        throw UsageError(fmt::format(
            "--loss lm: {} lets a token see the next one, which it would have to predict; give the "
            "model causal=1 where it takes it, or --loss mlm.",
            s.name));
}

Tensor image_tensor(const Fit& fit, std::span<const std::uint8_t> pixels, Index channels) {
    const ModelSpec& s = fit.spec;
    const Index area = s.image_height * s.image_width;
    const auto fill = [&](auto values) {
        using T = typename decltype(values)::value_type;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto at = channels == 1 ? i % std::size_t(area) : i;
            values[i] = T(pixels[at]) / T(127.5) - T(1);
        }
    };
    const Shape shape{s.channels, s.image_height, s.image_width};
    return fit.type == Type::f32
               ? Tensor::filled(fit.backend, shape, [&](std::span<float> v) { fill(v); })
               : Tensor::filled(fit.backend, shape, [&](std::span<double> v) { fill(v); });
}

}  // namespace tsdiag::training
