#include "options.hpp"

#include <fmt/format.h>

#include <vector>

#include "tsdiag/error.hpp"

namespace tsdiag {

void check_options(const AttentionEntry& entry, const AttentionOptions& options) {
    check_options(fmt::format("attention '{}'", entry.name), entry.options, options,
                  "docs/attention.md");
}

AttentionCost cost_of(const AttentionEntry& entry, const AttentionOptions& options,
                      const AttentionSizes& sizes) {
    check_options(entry, options);
    return entry.cost ? entry.cost(options, sizes)
                      : AttentionCost{.flops = sizes.pairs(sizes.head_dim)};
}

namespace variants {

Options::Options(const AttentionEntry& entry, const AttentionOptions& given)
    : OptionValues(entry.options, given) {
    check_options(entry, given);
}

Rng Options::rng(const AttentionInput& input) const {
    const Rng first = input.rng.fork(std::uint64_t(count("seed")));
    const bool again = has(redraw_option) && count(redraw_option) > 0;
    const Index draws = again ? input.update / count(redraw_option) : 0;
    return draws > 0 ? first.fork(redraw_option).fork(std::uint64_t(draws)) : first;
}

Tensor parameter(const AttentionInput& input, std::string_view name) {
    return input.parameter ? input.parameter(name) : Tensor();
}

namespace {
std::string text(const Shape& s) { return fmt::format("({}, {}, {})", s.batch, s.rows, s.cols); }
}  // namespace

Tensor for_every_sample(const Tensor& by_head, const AttentionInput& in) {
    return concat_batches(std::vector<Tensor>(std::size_t(in.samples), by_head));
}

void require_fit(const AttentionInput& in, Memory memory) {
    check(in.q.defined() && in.k.defined(), "an attention has queries and keys");
    const Shape q = in.q.shape(), k = in.k.shape();
    check(in.samples > 0 && q.batch % in.samples == 0 && k.batch % in.samples == 0,
          "each sample has as many heads");
    const bool rows_fit = memory == Memory::allowed ? q.rows <= k.rows : q.rows == k.rows;
    if (!rows_fit || q.cols != k.cols || k.batch < 1 || q.batch % k.batch != 0)
        throw ShapeError(
            fmt::format("attention: queries {} and keys {} do not match; expected equal {}, and "
                        "key heads that divide the query heads",
                        text(q), text(k),
                        memory == Memory::allowed ? "columns, no fewer keys than queries"
                                                  : "rows and columns"));
    if (k.rows > q.rows && !in.causal)
        throw UsageError(
            fmt::format("attention: {} keys of a memory precede those of {} tokens, but the "
                        "attention is not causal; make it causal, or omit the memory",
                        k.rows - q.rows, q.rows));
    if (in.q.type() != in.k.type())
        throw ShapeError("attention: queries and keys have different types; cast one of them");
    if (in.bias.defined()) {
        const Shape b = in.bias.shape();
        if ((b.batch != 1 && b.batch != q.batch) || b.rows != q.rows || b.cols != k.rows)
            throw ShapeError(
                fmt::format("attention: a bias {} for {} heads of {} tokens, expected "
                            "(1 or {}, {}, {})",
                            text(b), q.batch, q.rows, q.batch, q.rows, k.rows));
        if (in.bias.type() != in.q.type())
            throw ShapeError(
                "attention: the bias and the queries have different types; cast the bias");
    }
    if (!in.position.empty() && Index(in.position.size()) != k.rows)
        throw ShapeError(
            fmt::format("attention: {} positions, expected one for each of the {} keys",
                        in.position.size(), k.rows));
    if (!std::is_sorted(in.position.begin(), in.position.end()))
        throw UsageError("attention: positions are not ascending; sort the tokens by position");
    if (const Windows& w = in.windows; !w.ends.empty()) {
        if (in.causal || in.window > 0 || memory == Memory::allowed)
            throw UsageError(
                "attention: windows of a grid allow neither a causal mask, nor a sliding window, "
                "nor a memory; omit it");
        check(std::ranges::is_sorted(w.ends) && w.ends.back() == q.rows &&
                  Index(w.place.size()) == q.rows && w.side > 0,
              "windows that cover the tokens");
        check(!w.bias.defined() || (w.bias.rows() == (2 * w.side - 1) * (2 * w.side - 1) &&
                                    w.bias.cols() == in.heads_of_a_sample()),
              "a bias of each offset in a window and of each head");
    }
    if (in.window < 0)
        throw UsageError(fmt::format(
            "attention: a window of {} positions; expected 0 (no window) or more", in.window));
}

void admit(const AttentionEntry& entry, const AttentionInput& in) {
    const AttentionFacts& facts = entry.facts;
    require_fit(in, facts.memory ? Memory::allowed : Memory::refused);
    if (in.causal && !facts.causal())
        throw UsageError(
            fmt::format("attention '{}' cannot be causal: {}", entry.name, facts.never_causal));
    if (in.window > 0 && !facts.window)
        throw UsageError(fmt::format("attention '{}' has no sliding window; omit it", entry.name));
    if (in.bias.defined() && facts.factors != Holds::never)
        throw UsageError(fmt::format("attention '{}' has no logits to add a bias to", entry.name));
}

}  // namespace variants
}  // namespace tsdiag
