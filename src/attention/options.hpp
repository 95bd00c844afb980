#pragma once
#include <string_view>

#include "tsdiag/attention.hpp"

/// Options of a variant.
namespace tsdiag::variants {

/// The option of variants that draw again in a training.
inline constexpr std::string_view redraw_option = "redraw";

// Kinds of options.
constexpr AttentionOption whole_option(std::string_view name, std::string_view fallback,
                                       std::string_view description, double least = 0,
                                       double most = NamedOption{}.most) {
    return {.name = name,
            .fallback = fallback,
            .numbers = true,
            .whole = true,
            .least = least,
            .most = most,
            .description = description};
}
constexpr AttentionOption real_option(std::string_view name, std::string_view fallback,
                                      std::string_view description, double least = 0,
                                      double most = NamedOption{}.most) {
    AttentionOption option = whole_option(name, fallback, description, least, most);
    option.whole = false;
    return option;
}
/// `option`, a number, or one of these words.
constexpr AttentionOption or_word(std::string_view words, AttentionOption option) {
    option.words = words;
    return option;
}
constexpr AttentionOption word_option(std::string_view name, std::string_view fallback,
                                      std::string_view words, std::string_view description) {
    return {.name = name, .fallback = fallback, .words = words, .description = description};
}
constexpr AttentionOption switch_option(std::string_view name, std::string_view fallback,
                                        std::string_view description) {
    return word_option(name, fallback, "0 1", description);
}
constexpr AttentionOption seed_option(std::string_view description) {
    return whole_option("seed", "0", description);
}

/// The options of `entry`: as given, else their defaults.  Throws as `check_options`.
class Options : public OptionValues {
  public:
    Options(const AttentionEntry& entry, const AttentionOptions& given);
    /// The generator of what a variant draws, by its option `seed`; another one after every
    /// `redraw` updates of a training, where it has that option and it is not 0.
    Rng rng(const AttentionInput& input) const;
};

/// FLOPs of a product of matrices, (rows, inner) and (inner, cols).
constexpr double product_flops(Index rows, Index inner, Index cols) {
    return 2 * double(rows) * double(inner) * double(cols);
}

/// The variant's own parameter; empty where there is none.
Tensor parameter(const AttentionInput& input, std::string_view name);

/// A tensor given per head of a sample, (h, r, c), repeated for the heads of all samples.
Tensor for_every_sample(const Tensor& by_head, const AttentionInput& input);

/// Whether keys of a memory may come before those of the tokens.
enum class Memory { refused, allowed };
/// Throws `ShapeError` or `UsageError` where q, k, bias and positions do not fit together.
void require_fit(const AttentionInput& input, Memory memory = Memory::refused);
/// `require_fit`, and `UsageError` where `input` asks for what the variant's facts exclude.
void admit(const AttentionEntry& entry, const AttentionInput& input);

}  // namespace tsdiag::variants
