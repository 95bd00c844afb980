#pragma once
#include <vector>

#include "options.hpp"

/// The polynomial of [POLY], c S^p entry by entry: its options, its power and its scale.
namespace tsdiag::variants {

inline constexpr AttentionOption power_option = whole_option("p", "3", "the power", 1, 6);
inline constexpr AttentionOption scale_option{
    .name = "scale",
    .fallback = "1/sqrt(N)",
    .words = "none 1/sqrt(N) learned",
    .numbers = true,
    .least = -1e6,
    .most = 1e6,
    .description =
        "c: none is 1, N the number of tokens, in windows that of a window, a number such as 1/14, "
        "or learned (\"dynamic\"): the parameter `scale`, one per layer or one per head"};
inline constexpr AttentionOption start_option{
    .name = "start",
    .fallback = "1/sqrt(N)",
    .words = "1/sqrt(N)",
    .numbers = true,
    .least = -1e6,
    .most = 1e6,
    .description =
        "initial value of a learned scale in a random model; N: the patches of its image, in "
        "windows those of a window, or its longest input"};

/// S^p, p >= 1.
Tensor power(const Tensor& s, Index p);
/// c, (1 or h, 1, 1).  Throws `UsageError` where it is to be learned and the model has none,
/// `ShapeError` where there is not one of all heads or one of each.
Tensor power_scale(const AttentionEntry& entry, const Options& options, const AttentionInput& in);
/// `AttentionEntry::learned` of `entry`, whose options are these.
std::vector<LearnedParameter> learned_scale(const AttentionEntry& entry,
                                            const AttentionOptions& given, const LearnedFor& model);

}  // namespace tsdiag::variants
