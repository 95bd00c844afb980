#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::training::data_list {
namespace {

namespace fs = std::filesystem;

constexpr double held_out_share = 0.1;  // the end of the file
constexpr double masked_share = 0.15;   // [BERT]

/// Decodes UTF-8; throws where it is malformed.
std::vector<char32_t> code_points(std::string_view text, const std::string& file) {
    std::vector<char32_t> out;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = utf8_length(text.substr(i, 4));
        if (length == 0)
            throw FormatError(
                fmt::format("{}: byte {} is not UTF-8; text:{} reads it as bytes.", file, i, file));
        out.push_back(code_point(text.substr(i, length)));
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

/// Ids of a file, or of two: what is trained on, and behind it what is held out.
struct Text {
    std::string name;
    std::string bytes = {};              ///< the ids, where they are bytes
    std::vector<std::int32_t> ids = {};  ///< the ids, where they are characters
    std::vector<char32_t> alphabet = {};
    Index split = 0;    ///< where the held-out part begins
    bool tenth = true;  ///< the end of one file

    bool characters() const { return !alphabet.empty(); }
    Index size() const { return characters() ? std::ssize(ids) : std::ssize(bytes); }
    Index id(Index i) const {
        return characters() ? ids[std::size_t(i)]
                            : static_cast<unsigned char>(bytes[std::size_t(i)]);
    }

    static Text of_file(const std::string& file, bool characters) {
        Text out{.name = file, .bytes = file_text(file, "a text", longest_data)};
        if (characters) {
            const std::vector<char32_t> points = code_points(out.bytes, file);
            out.alphabet = points;
            std::ranges::sort(out.alphabet);
            out.alphabet.erase(std::ranges::unique(out.alphabet).begin(), out.alphabet.end());
            for (const char32_t c : points)
                out.ids.push_back(
                    std::int32_t(std::ranges::lower_bound(out.alphabet, c) - out.alphabet.begin()));
            out.bytes.clear();
        }
        out.split = Index(double(out.size()) * (1 - held_out_share));
        return out;
    }
    static Text of_files(const std::string& folder, const char* trained, const char* held_out) {
        Text out{.name = folder};
        out.bytes = file_text(fs::path(folder) / trained, "a text", longest_data);
        out.split = std::ssize(out.bytes);
        out.bytes += file_text(fs::path(folder) / held_out, "a text", longest_data);
        out.tenth = false;
        return out;
    }
};

/// Windows of a text; the last id is the mask where there is masking.
class TextData final : public Data {
  public:
    TextData(Text text, bool masked) : text_(std::move(text)), masked_(masked) {}

    std::string description() const override {
        return fmt::format(
            "{} {} of {}, {} held out", text_.size(),
            text_.characters() ? fmt::format("characters ({} different)", text_.alphabet.size())
                               : std::string("bytes"),
            text_.name,
            text_.tenth ? std::string("the last tenth") : fmt::format("the last {}", held_out()));
    }
    Index vocabulary() const override {
        return (text_.characters() ? std::ssize(text_.alphabet) : 256) + (masked_ ? 1 : 0);
    }
    Index held_out() const override { return text_.size() - text_.split; }
    Json words(const ModelSpec& spec) const override {
        if (!text_.characters()) return {};
        Json::Array out(std::size_t(ids_of(spec, std::ssize(text_.alphabet))), "");
        for (Index i = 0; i < std::ssize(text_.alphabet); ++i)
            out[std::size_t(symbol_id(spec, i))] = utf8(text_.alphabet[std::size_t(i)]);
        Json json;
        json.set("characters", std::move(out));
        return json;
    }

    void require(const Fit& fit) const override {
        require_tokens(fit, vocabulary(), !masked_);
        if (held_out() < fit.tokens || text_.split < fit.tokens)
            throw UsageError(
                text_.tenth ? fmt::format("{}: has {} tokens, of which a tenth is held out; a "
                                          "window of {} needs at least {}.",
                                          text_.name, text_.size(), fit.tokens, 10 * fit.tokens)
                            : fmt::format("{}: has {} training bytes and {} held-out bytes, "
                                          "expected at least a window of {} in each.",
                                          text_.name, text_.split, held_out(), fit.tokens));
        if (fit.tokens < 2)
            throw UsageError("--tokens 1: there is no next token to predict; expected 2 or more.");
    }

  private:
    Example training_sample(const Fit& fit, const Rng& seed, Index i) const override {
        Rng rng = seed.fork(std::uint64_t(i));
        const auto first = Index(rng.below(std::uint64_t(text_.split - fit.tokens + 1)));
        return window(fit, first, rng.fork("mask"));
    }
    Example held_out_sample(const Fit& fit, const Rng& seed, Index i) const override {
        Rng rng = seed.fork("held out").fork(std::uint64_t(i));
        const Index places = held_out() - fit.tokens + 1;
        return window(fit, text_.split + Index(rng.below(std::uint64_t(places))), rng.fork("mask"));
    }
    Example window(const Fit& fit, Index first, Rng rng) const {
        Example out;
        for (Index i = first; i < first + fit.tokens; ++i) out.input.ids.push_back(text_.id(i));
        if (masked_)
            masked_tokens(out, vocabulary() - 1, rng);
        else
            next_tokens(out);
        return out;
    }

    Text text_;
    bool masked_;
};

/// Symbols, a separator, and the symbols again: those after the separator are the targets.
class SequenceData final : public DrawnData {
  public:
    SequenceData(bool reversed, Index symbols) : reversed_(reversed), symbols_(symbols) {}

    std::string description() const override {
        return fmt::format("sequences of {} symbols, {}", symbols_,
                           reversed_ ? "to be reversed" : "to be copied");
    }
    Index vocabulary() const override { return symbols_ + 1; }
    void require(const Fit& fit) const override {
        require_tokens(fit, vocabulary(), true);
        if (fit.tokens < 3)
            throw UsageError(fmt::format(
                "--tokens {}: a symbol, a separator and its copy are 3; expected 3 or more.",
                fit.tokens));
    }

  private:
    Example drawn(const Fit& fit, const Rng&, Rng rng) const override {
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

/// `count` symbols of a chain of second order: of the three that may follow a pair the first is
/// likeliest.  The chain is a function of `seed`.
std::vector<Index> chain(Index symbols, Index count, const Rng& seed, Rng& rng) {
    constexpr std::array<double, 2> likely = {0.7, 0.2};  // and 0.1
    const auto any = std::uint64_t(symbols);
    std::vector<Index> ids;
    while (std::ssize(ids) < count) {
        if (ids.size() < 2) {
            ids.push_back(Index(rng.below(any)));
            continue;
        }
        const auto pair = std::uint64_t(ids[ids.size() - 2] * symbols + ids[ids.size() - 1]);
        Rng choices = seed.fork("chain").fork(pair);
        const double u = rng.uniform();
        const int which = u < likely[0] ? 0 : u < likely[0] + likely[1] ? 1 : 2;
        for (int k = 0; k < which; ++k) choices.below(any);
        ids.push_back(Index(choices.below(any)));
    }
    return ids;
}

/// A second-order Markov chain: three symbols may follow each pair, drawn once per pair.
class MarkovData final : public DrawnData {
  public:
    MarkovData(Index symbols, bool masked) : symbols_(symbols), masked_(masked) {}

    std::string description() const override {
        return fmt::format("a second-order Markov chain over {} symbols", symbols_);
    }
    Index vocabulary() const override { return symbols_ + (masked_ ? 1 : 0); }
    void require(const Fit& fit) const override {
        require_tokens(fit, vocabulary(), !masked_);
        if (fit.tokens < 2)
            throw UsageError("--tokens 1: there is no next token to predict; expected 2 or more.");
    }

  private:
    Example drawn(const Fit& fit, const Rng& seed, Rng rng) const override {
        Example out;
        out.input.ids = chain(symbols_, fit.tokens, seed, rng);
        if (masked_)
            masked_tokens(out, symbols_, rng.fork("mask"));
        else
            next_tokens(out);
        return out;
    }

    Index symbols_;
    bool masked_;
};

/// Samples of the chain, half of them with some symbols in place of which any others stand.
class JudgedData final : public DrawnData {
  public:
    explicit JudgedData(Index symbols) : symbols_(symbols) {}

    std::string description() const override {
        return fmt::format("samples of a Markov chain over {} symbols, half of them with errors",
                           symbols_);
    }
    Index vocabulary() const override { return symbols_; }
    Index classes() const override { return 2; }
    void require(const Fit& fit) const override {
        require_tokens(fit, vocabulary(), false);
        if (fit.tokens < 3)
            throw UsageError(
                "--tokens: a symbol depends on the two before it; expected 3 or more.");
    }

  private:
    static constexpr double error_share = 0.2;
    Example drawn(const Fit& fit, const Rng& seed, Rng rng) const override {
        Input input;
        input.ids = chain(symbols_, fit.tokens, seed, rng);
        Rng errors = rng.fork("errors");
        const bool good = errors.below(2) == 1;
        for (Index& id : input.ids)
            if (!good && errors.uniform() < error_share)
                id = (id + 1 + Index(errors.below(std::uint64_t(symbols_ - 1)))) % symbols_;
        return labelled(std::move(input), good ? 1 : 0);
    }

    Index symbols_;
};

}  // namespace

extern const DataEntry text = {
    .kind = {.name = "text",
             .argument = "FILE",
             .samples = "windows of bytes, at random positions in each step",
             .held_out = "the last tenth of the file",
             .layout = ""},
    .holds = nullptr,
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        return std::make_unique<TextData>(Text::of_file(r.argument, false), r.masked);
    }};
extern const DataEntry chars = {.kind = {.name = "chars",
                                         .argument = "FILE",
                                         .samples = "windows of characters (Unicode code points); "
                                                    "`characters.json` maps ids to characters",
                                         .held_out = "the same",
                                         .layout = ""},
                                .holds = nullptr,
                                .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
                                    return std::make_unique<TextData>(
                                        Text::of_file(r.argument, true), r.masked);
                                }};
extern const DataEntry wikitext = {
    .kind = {.name = "wikitext",
             .argument = "DIR",
             .samples = "WikiText-103, raw: windows of bytes, as for a text",
             .held_out = "`wiki.valid.raw`",
             .layout = "`wiki.train.raw`, `wiki.valid.raw` [WIKITEXT]"},
    .holds = [](const fs::path& folder) { return fs::exists(folder / "wiki.train.raw"); },
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        return std::make_unique<TextData>(
            Text::of_files(r.argument, "wiki.train.raw", "wiki.valid.raw"), r.masked);
    }};
extern const DataEntry markov = {
    .kind = {.name = "markov",
             .argument = "[:S]",
             .samples = "a second-order Markov chain over S symbols: each pair has three "
                        "successors, with probabilities 0.7, 0.2 and 0.1",
             .held_out = "drawn separately",
             .layout = ""},
    .holds = nullptr,
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        return std::make_unique<MarkovData>(r.number(32, 2, 10000), r.masked);
    }};

extern const DataEntry judged = {
    .kind = {.name = "judged",
             .argument = "[:S]",
             .samples = "samples of the chain markov:S; those of class 0 have errors, other "
                        "symbols at a fifth of the positions",
             .held_out = "drawn separately",
             .layout = "",
             .labelled = true},
    .holds = nullptr,
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        return std::make_unique<JudgedData>(r.number(32, 2, 10000));
    }};

std::unique_ptr<Data> sequences(const DataRequest& r, bool reversed) {
    if (r.masked)
        throw UsageError(
            fmt::format("--loss mlm: {} is predicted from left to right; expected lm.", r.text));
    return std::make_unique<SequenceData>(reversed, r.number(16, 2, 100000));
}
extern const DataEntry copy = {
    .kind =
        {.name = "copy",
         .argument = "[:S]",
         .samples =
             "k symbols of S, a separator, and the symbols again; the loss is on the second half",
         .held_out = "drawn separately",
         .layout = ""},
    .holds = nullptr,
    .open = [](const DataRequest& r) { return sequences(r, false); }};
extern const DataEntry reverse = {.kind = {.name = "reverse",
                                           .argument = "[:S]",
                                           .samples = "the same, reversed after the separator",
                                           .held_out = "drawn separately",
                                           .layout = ""},
                                  .holds = nullptr,
                                  .open = [](const DataRequest& r) { return sequences(r, true); }};

}  // namespace tsdiag::training::data_list
