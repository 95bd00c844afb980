#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::training {
namespace {

constexpr double held_out_share = 0.1;  // the end of the file
constexpr double masked_share = 0.15;   // [BERT]

/// Decodes UTF-8; throws where it is malformed.
std::vector<char32_t> code_points(const std::string& text, const std::string& file) {
    std::vector<char32_t> out;
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t length = lead < 0x80       ? 1
                                   : lead >> 5 == 6  ? 2
                                   : lead >> 4 == 14 ? 3
                                   : lead >> 3 == 30 ? 4
                                                     : 0;
        bool good = length > 0 && i + length <= text.size();
        char32_t c = length == 1 ? lead : lead & (0xffU >> (length + 1));
        for (std::size_t k = 1; good && k < length; ++k) {
            const auto next = static_cast<unsigned char>(text[i + k]);
            good = next >> 6 == 2;
            c = c << 6 | (next & 0x3fU);
        }
        if (!good)
            throw FormatError(
                fmt::format("{}: byte {} is not UTF-8; text:{} reads it as bytes.", file, i, file));
        out.push_back(c);
        i += length;
    }
    return out;
}

/// The targets of the ids of `out`: the next ids, or 15 % of the ids, replaced by `mask`.
void next_tokens(Example& out) {
    out.loss.kind = Loss::Kind::tokens;
    for (Index i = 0; i + 1 < std::ssize(out.input.ids); ++i) {
        out.loss.rows.push_back(i);
        out.loss.targets.push_back(out.input.ids[std::size_t(i) + 1]);
    }
}
void masked_tokens(Example& out, Index mask, Rng rng) {
    out.loss.kind = Loss::Kind::tokens;
    const auto n = std::uint64_t(out.input.ids.size());
    std::vector<Index> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = Index(i);
    const auto count =
        std::max<std::uint64_t>(1, std::uint64_t(std::llround(masked_share * double(n))));
    for (std::uint64_t i = 0; i < count; ++i) std::swap(order[i], order[i + rng.below(n - i)]);
    order.resize(count);
    std::ranges::sort(order);
    for (const Index row : order) {
        Index& id = out.input.ids[std::size_t(row)];
        out.loss.rows.push_back(row);
        out.loss.targets.push_back(id);
        id = mask;
    }
}

/// Windows of one file; the last id is the mask where there is masking.
class TextData final : public Data {
  public:
    TextData(const std::string& file, bool characters, bool masked)
        : file_(file), characters_(characters), masked_(masked) {
        const std::string text = file_text(file, "a text", longest_data);
        if (characters) {
            const std::vector<char32_t> points = code_points(text, file);
            alphabet_ = points;
            std::ranges::sort(alphabet_);
            alphabet_.erase(std::ranges::unique(alphabet_).begin(), alphabet_.end());
            for (const char32_t c : points)
                ids_.push_back(
                    std::int32_t(std::ranges::lower_bound(alphabet_, c) - alphabet_.begin()));
        } else {
            for (const char c : text) ids_.push_back(static_cast<unsigned char>(c));
        }
        split_ = Index(double(ids_.size()) * (1 - held_out_share));
    }

    std::string description() const override {
        return fmt::format("{} {} of {}, the last tenth held out", ids_.size(),
                           characters_ ? fmt::format("characters ({} different)", alphabet_.size())
                                       : std::string("bytes"),
                           file_);
    }
    Index vocabulary() const override {
        return (characters_ ? std::ssize(alphabet_) : 256) + (masked_ ? 1 : 0);
    }
    Index held_out() const override { return std::ssize(ids_) - split_; }
    Json words() const override {
        if (!characters_) return {};
        Json::Array out;
        for (const char32_t c : alphabet_) out.emplace_back(utf8(c));
        Json json;
        json.set("characters", std::move(out));
        return json;
    }

    void require(const Fit& fit) const override {
        require_tokens(fit, vocabulary(), !masked_);
        if (std::ssize(ids_) - split_ < fit.tokens || split_ < fit.tokens)
            throw UsageError(
                fmt::format("{}: has {} tokens, of which a tenth is held out; a window of {} needs "
                            "{} at least.",
                            file_, ids_.size(), fit.tokens, 10 * fit.tokens));
        if (fit.tokens < 2)
            throw UsageError("--tokens 1: there is no next token to learn; expected 2 or more.");
    }
    Example training(const Fit& fit, const Rng& seed, Index i) const override {
        Rng rng = seed.fork(std::uint64_t(i));
        const auto first = Index(rng.below(std::uint64_t(split_ - fit.tokens + 1)));
        return window(fit, first, rng.fork("mask"));
    }
    Example held_out(const Fit& fit, const Rng& seed, Index i) const override {
        Rng rng = seed.fork("held out").fork(std::uint64_t(i));
        const Index places = std::ssize(ids_) - split_ - fit.tokens + 1;
        return window(fit, split_ + Index(rng.below(std::uint64_t(places))), rng.fork("mask"));
    }

  private:
    Example window(const Fit& fit, Index first, Rng rng) const {
        Example out;
        for (Index i = first; i < first + fit.tokens; ++i)
            out.input.ids.push_back(ids_[std::size_t(i)]);
        if (masked_)
            masked_tokens(out, vocabulary() - 1, rng);
        else
            next_tokens(out);
        return out;
    }

    std::string file_;
    bool characters_, masked_;
    std::vector<char32_t> alphabet_;
    std::vector<std::int32_t> ids_;
    Index split_ = 0;
};

/// Symbols, a separator, and the symbols again: those after the separator are the targets.
class SequenceData final : public Data {
  public:
    SequenceData(bool reversed, Index symbols) : reversed_(reversed), symbols_(symbols) {}

    std::string description() const override {
        return fmt::format("sequences of {} symbols, {}", symbols_,
                           reversed_ ? "to be reversed" : "to be copied");
    }
    Index vocabulary() const override { return symbols_ + 1; }
    Index held_out() const override { return Index{1} << 20; }
    void require(const Fit& fit) const override {
        require_tokens(fit, vocabulary(), true);
        if (fit.tokens < 3)
            throw UsageError(fmt::format(
                "--tokens {}: a symbol, a separator and its copy are 3; expected 3 or more.",
                fit.tokens));
    }
    Example training(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed.fork(std::uint64_t(i)));
    }
    Example held_out(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed.fork("held out").fork(std::uint64_t(i)));
    }

  private:
    Example drawn(const Fit& fit, Rng rng) const {
        const Index count = (fit.tokens - 1) / 2;
        Example out;
        std::vector<Index>& ids = out.input.ids;
        for (Index i = 0; i < count; ++i) ids.push_back(Index(rng.below(std::uint64_t(symbols_))));
        ids.push_back(symbols_);
        for (Index i = 0; i < count; ++i)
            ids.push_back(ids[std::size_t(reversed_ ? count - 1 - i : i)]);
        out.loss.kind = Loss::Kind::tokens;
        for (Index i = count; i < 2 * count; ++i) {
            out.loss.rows.push_back(i);
            out.loss.targets.push_back(ids[std::size_t(i) + 1]);
        }
        return out;
    }

    bool reversed_;
    Index symbols_;
};

/// A second-order Markov chain: three symbols may follow each pair, drawn once per pair.
class MarkovData final : public Data {
  public:
    MarkovData(Index symbols, bool masked) : symbols_(symbols), masked_(masked) {}

    std::string description() const override {
        return fmt::format("a Markov chain of second order over {} symbols", symbols_);
    }
    Index vocabulary() const override { return symbols_ + (masked_ ? 1 : 0); }
    Index held_out() const override { return Index{1} << 20; }
    void require(const Fit& fit) const override {
        require_tokens(fit, vocabulary(), !masked_);
        if (fit.tokens < 2)
            throw UsageError("--tokens 1: there is no next token to learn; expected 2 or more.");
    }
    Example training(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed, seed.fork(std::uint64_t(i)));
    }
    Example held_out(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed, seed.fork("held out").fork(std::uint64_t(i)));
    }

  private:
    Example drawn(const Fit& fit, const Rng& seed, Rng rng) const {
        const auto any = std::uint64_t(symbols_);
        Example out;
        std::vector<Index>& ids = out.input.ids;
        while (std::ssize(ids) < fit.tokens) {
            if (ids.size() < 2) {
                ids.push_back(Index(rng.below(any)));
                continue;
            }
            const auto pair = std::uint64_t(ids[ids.size() - 2] * symbols_ + ids[ids.size() - 1]);
            Rng choices = seed.fork("chain").fork(pair);
            const double u = rng.uniform();
            const int which = u < likely[0] ? 0 : u < likely[0] + likely[1] ? 1 : 2;
            for (int k = 0; k < which; ++k) choices.below(any);
            ids.push_back(Index(choices.below(any)));
        }
        if (masked_)
            masked_tokens(out, symbols_, rng.fork("mask"));
        else
            next_tokens(out);
        return out;
    }

    static constexpr std::array<double, 2> likely = {0.7, 0.2};  // and 0.1
    Index symbols_;
    bool masked_;
};

}  // namespace

std::unique_ptr<Data> text_data(const std::string& file, bool characters, bool masked) {
    return std::make_unique<TextData>(file, characters, masked);
}
std::unique_ptr<Data> markov_data(Index symbols, bool masked) {
    return std::make_unique<MarkovData>(symbols, masked);
}
std::unique_ptr<Data> sequence_data(bool reversed, Index symbols) {
    return std::make_unique<SequenceData>(reversed, symbols);
}

}  // namespace tsdiag::training
