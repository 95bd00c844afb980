#include "token_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::training {
namespace {

class TokenData final : public Data {
  public:
    explicit TokenData(TokenSet set) : set_(std::move(set)) {
        if (set_.training.empty() || set_.held_out.empty())
            throw FormatError(fmt::format("{}: contains no samples {}.", set_.name,
                                          set_.training.empty() ? "for training" : "to hold out"));
    }

    std::string description() const override {
        return fmt::format("{} {} of {} classes in {}, {} held out", set_.training.size(),
                           set_.pairs ? "pairs" : "sequences", set_.classes, set_.name,
                           set_.held_out.size());
    }
    Index vocabulary() const override { return set_.vocabulary; }
    Index classes() const override { return set_.classes; }
    bool pairs() const override { return set_.pairs; }
    Index size() const override { return std::ssize(set_.training); }
    Index held_out() const override { return std::ssize(set_.held_out); }
    void require(const Fit& fit) const override {
        require_labelled_tokens(fit, vocabulary());
        if (set_.length > 0 && fit.tokens != set_.length)
            throw UsageError(fmt::format(
                "--tokens {}: each image of {} has {} pixels, one token per pixel; expected {}.",
                fit.tokens, set_.name, set_.length, set_.length));
    }
    Index fewest_tokens(const Fit& fit) const override {
        if (set_.filled) return fit.tokens;
        const auto text = std::ranges::min_element(set_.texts, {}, &std::string::size);
        return std::ssize(cropped(fit, *text, false).ids);
    }

  private:
    Example training_sample(const Fit& fit, const Rng& seed, Index i) const override {
        return example(fit, set_.training, training_order_.at(seed, std::ssize(set_.training), i));
    }
    Example held_out_sample(const Fit& fit, const Rng& seed, Index i) const override {
        return example(fit, set_.held_out,
                       held_out_order_.at(seed.fork("held out"), held_out(), i));
    }
    Example example(const Fit& fit, const std::vector<TokenSet::Sample>& from, Index i) const {
        const TokenSet::Sample& sample = from[std::size_t(i)];
        const auto input = [&](Index text) {
            return cropped(fit, set_.texts[std::size_t(text)], set_.filled);
        };
        Example out = labelled(input(sample.text), sample.label);
        if (!set_.pairs) return out;
        out.loss.kind = Loss::Kind::pairs;
        out.second = input(sample.second);
        return out;
    }

    TokenSet set_;
    EpochOrder training_order_, held_out_order_;
};

/// The number of tokens must be a multiple of it.
Index token_multiple(const ModelSpec& spec) {
    Index out = 1;
    for (const BlockSpec& b : spec.blocks)
        if (const auto multiple = attention(b.attention.variant).token_multiple)
            out = std::lcm(out, multiple(b.attention.options));
    return out;
}

}  // namespace

Input cropped(const Fit& fit, std::string_view ids, bool filled) {
    ids = ids.substr(0, std::size_t(fit.tokens));
    Input out;
    for (const char c : ids) out.ids.push_back(static_cast<unsigned char>(c));
    const Index step = token_multiple(fit.spec), size = std::max<Index>(std::ssize(ids), 1);
    const Index length = filled ? fit.tokens : (size + step - 1) / step * step;
    out.ids.resize(std::size_t(length), padding_id);
    return out;
}

void require_labelled_tokens(const Fit& fit, Index vocabulary) {
    require_tokens(fit, vocabulary, false);
    if (const Index step = token_multiple(fit.spec); fit.tokens % step != 0)
        throw UsageError(fmt::format("--tokens {}: {} needs a multiple of {}.", fit.tokens,
                                     fit.spec.name, step));
}

std::unique_ptr<Data> token_data(TokenSet set) {
    return std::make_unique<TokenData>(std::move(set));
}

bool Lines::next() {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    ++number_;
    return true;
}

}  // namespace tsdiag::training
