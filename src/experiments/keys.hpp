#pragma once
#include <algorithm>
#include <array>
#include <string_view>

#include "tsdiag/experiment.hpp"

/// Keys that several experiments have, by their values at each scale.
namespace tsdiag::experiment_list {

/// Lists of keys, one after the other.
template <std::size_t... Counts>
constexpr std::array<ExperimentKey, (Counts + ...)> joined(
    const std::array<ExperimentKey, Counts>&... lists) {
    std::array<ExperimentKey, (Counts + ...)> out = {};
    auto at = out.begin();
    ((at = std::ranges::copy(lists, at).out), ...);
    return out;
}

// Kinds of keys.
constexpr ExperimentKey whole_key(std::string_view name, std::string_view tiny,
                                  std::string_view quick, std::string_view paper,
                                  std::string_view description, double least = 1,
                                  double most = ExperimentKey{}.most) {
    return {.name = name,
            .tiny = tiny,
            .quick = quick,
            .paper = paper,
            .description = description,
            .least = least,
            .most = most};
}
constexpr ExperimentKey real_key(std::string_view name, std::string_view tiny,
                                 std::string_view quick, std::string_view paper,
                                 std::string_view description, double least, double most) {
    ExperimentKey key = whole_key(name, tiny, quick, paper, description, least, most);
    key.whole = false;
    return key;
}
constexpr ExperimentKey word_key(std::string_view name, std::string_view tiny,
                                 std::string_view quick, std::string_view paper,
                                 std::string_view description, std::string_view words) {
    return {name, tiny, quick, paper, description, words, false};
}
/// `key` with several values, separated by commas.
constexpr ExperimentKey listed(ExperimentKey key) {
    key.list = true;
    return key;
}

constexpr ExperimentKey key_layers(std::string_view tiny, std::string_view quick,
                                   std::string_view paper) {
    return {"layers", tiny, quick, paper, "blocks"};
}
constexpr ExperimentKey key_d(std::string_view tiny, std::string_view quick,
                              std::string_view paper) {
    return {"d", tiny, quick, paper, "width"};
}
constexpr ExperimentKey key_heads(std::string_view tiny, std::string_view quick,
                                  std::string_view paper) {
    return {"heads", tiny, quick, paper, "heads, a divisor of d"};
}
constexpr ExperimentKey key_ffn(std::string_view tiny, std::string_view quick,
                                std::string_view paper) {
    return {"ffn", tiny, quick, paper, "inner width of the feed-forward step"};
}
constexpr ExperimentKey key_image(std::string_view tiny, std::string_view quick,
                                  std::string_view paper) {
    return {"image", tiny, quick, paper, "pixels of a side"};
}
constexpr ExperimentKey key_patch(std::string_view tiny, std::string_view quick,
                                  std::string_view paper) {
    return {"patch", tiny, quick, paper, "pixels of a patch"};
}
constexpr ExperimentKey key_trials(std::string_view quick, std::string_view paper) {
    return {"trials", "2", quick, paper, "independent draws"};
}

// Of trainings.
constexpr ExperimentKey key_steps(std::string_view quick, std::string_view paper) {
    return whole_key("steps", "12", quick, paper, "updates", 10, 1e7);
}
constexpr ExperimentKey key_batch(std::string_view quick, std::string_view paper) {
    return {"batch", "2", quick, paper, "samples per update"};
}
/// Updates and batch where many models, or large ones, are trained.
constexpr ExperimentKey key_few_steps(std::string_view tiny, std::string_view quick,
                                      std::string_view paper) {
    return whole_key("steps", tiny, quick, paper, "updates", 1, 1e7);
}
constexpr ExperimentKey key_few_samples(std::string_view quick, std::string_view paper) {
    return {"batch", "1", quick, paper, "samples per update"};
}
constexpr ExperimentKey key_dropout(std::string_view tiny) {
    return real_key("dropout", tiny, "0", "0.1", "of the embedding and of each branch", 0, 0.9);
}
constexpr ExperimentKey key_rate(
    std::string_view quick, std::string_view paper,
    std::string_view description = "greatest learning rate: warm-up over a tenth, then a cosine",
    std::string_view name = "rate") {
    return real_key(name, quick, quick, paper, description, 1e-8, 1);
}

}  // namespace tsdiag::experiment_list
