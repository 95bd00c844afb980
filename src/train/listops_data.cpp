#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "token_set.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

/// ListOps of the Long-Range Arena [LRA]: nested lists of digits, "[MAX 4 3 [MIN 2 3 ] 1 ]", and
/// the digit that they come to.
namespace tsdiag::training::data_list {
namespace {

namespace fs = std::filesystem;

// Ids: the padding, the digits, the operators, the end of a list.
constexpr std::array<std::string_view, 16> symbols = {
    "", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]"};
constexpr Index first_digit = 1, first_operator = 11, end_of_list = 15;
enum class Operator { least, greatest, median, sum_modulo };

// The rules of the released generator.
constexpr double list_share = 0.25;  // of the places where a value may stand
constexpr Index deepest = 10, most_values = 10, fewest_values = 2;

Index value_of(Operator op, std::vector<Index> values) {
    switch (op) {
        case Operator::least:
            return std::ranges::min(values);
        case Operator::greatest:
            return std::ranges::max(values);
        case Operator::median: {
            std::ranges::sort(values);
            const std::size_t half = values.size() / 2;
            return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
        }
        case Operator::sum_modulo:
            break;
    }
    return std::accumulate(values.begin(), values.end(), Index{0}) % 10;
}

/// Draws a tree from its root on.
class Tree {
  public:
    Tree(Rng& rng, Index most) : rng_(rng), most_(most) { value_ = node(1); }
    const std::string& ids() const { return ids_; }
    Index value() const { return value_; }
    bool too_long() const { return std::ssize(ids_) >= most_; }

  private:
    Index node(Index depth) {
        if (too_long()) return 0;  // will be rejected
        if (depth >= deepest || rng_.uniform() > list_share) {
            const auto digit = Index(rng_.below(10));
            ids_ += char(first_digit + digit);
            return digit;
        }
        const Index count =
            fewest_values + Index(rng_.below(std::uint64_t(most_values - fewest_values + 1)));
        const auto op = Index(rng_.below(4));
        ids_ += char(first_operator + op);
        std::vector<Index> values;
        for (Index i = 0; i < count; ++i) values.push_back(node(depth + 1));
        ids_ += char(end_of_list);
        return value_of(Operator(op), std::move(values));
    }

    Rng& rng_;
    Index most_;
    std::string ids_;
    Index value_ = 0;
};

/// Drawn trees: at most 10 deep, lists of 2 to 10 values, a quarter of which are lists; of more
/// than a quarter of the sample's tokens, and fewer than all.
class DrawnListops final : public Data {
  public:
    std::string description() const override { return "ListOps, drawn by the rules of [LRA]"; }
    Index vocabulary() const override { return std::ssize(symbols); }
    Index classes() const override { return 10; }
    Index held_out() const override { return Index{1} << 20; }
    void require(const Fit& fit) const override {
        require_labelled_tokens(fit, vocabulary());
        if (fit.tokens < least_tokens)
            throw UsageError(fmt::format("--tokens {}: too few for ListOps, expected {} or more.",
                                         fit.tokens, least_tokens));
    }
    Example training(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed.fork(std::uint64_t(i)));
    }
    Example held_out(const Fit& fit, const Rng& seed, Index i) const override {
        return drawn(fit, seed.fork("held out").fork(std::uint64_t(i)));
    }

  private:
    static constexpr Index least_tokens = 8;
    static Example drawn(const Fit& fit, Rng rng) {
        for (;;) {
            const Tree tree(rng, fit.tokens);
            if (!tree.too_long() && std::ssize(tree.ids()) > fit.tokens / 4)
                return labelled(cropped(fit, tree.ids(), true), tree.value());
        }
    }
};

/// The ids of an expression as it is written, with its brackets of pairs, which say nothing.
std::string ids_of(std::string_view source, const std::string& where) {
    std::string out;
    for (const std::string& word : split(source, ' ')) {
        if (word.empty() || word == "(" || word == ")") continue;
        const auto at = std::ranges::find(symbols, word);
        if (at == symbols.end())
            throw FormatError(fmt::format("{}: '{}' is no symbol of ListOps.", where,
                                          visible(shortened(word, 40))));
        out += char(at - symbols.begin());
    }
    if (out.empty()) throw FormatError(fmt::format("{}: has no expression.", where));
    return out;
}

void read(const fs::path& file, TokenSet& set, std::vector<TokenSet::Sample>& samples) {
    const std::string text = file_text(file, "a table of ListOps", longest_data);
    Lines lines(text);
    if (!lines.next() || lines.line() != "Source\tTarget")
        throw FormatError(
            fmt::format("{}: line 1: expected the header 'Source' TAB 'Target'.", file.string()));
    while (lines.next()) {
        const std::string where = fmt::format("{}: line {}", file.string(), lines.number());
        const std::vector<std::string> cells = split(lines.line(), '\t');
        if (cells.size() != 2)
            throw FormatError(fmt::format("{}: has {} cells, expected 2.", where, cells.size()));
        Index label = -1;
        const char* end = cells[1].data() + cells[1].size();
        if (std::from_chars(cells[1].data(), end, label).ptr != end || cells[1].empty() ||
            label < 0 || label > 9)
            throw FormatError(fmt::format("{}: the label is '{}', expected 0 to 9.", where,
                                          visible(shortened(cells[1], 40))));
        samples.push_back({.text = std::ssize(set.texts), .label = label});
        set.texts.push_back(ids_of(cells[0], where));
    }
}

}  // namespace

extern const DataEntry listops = {
    .kind = {.name = "listops",
             .argument = "[:DIR]",
             .samples = "ListOps [LRA]: lists of digits and the digit that they come to; without a "
                        "folder drawn by its rules, n/4 to n tokens long",
             .held_out = "`basic_test.tsv`, or drawn apart",
             .layout = "`basic_train.tsv`, `basic_test.tsv` with the columns Source and Target",
             .labelled = true},
    .holds = [](const fs::path& folder) { return fs::exists(folder / "basic_train.tsv"); },
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        if (r.argument.empty()) return std::make_unique<DrawnListops>();
        TokenSet set{.name = r.argument, .vocabulary = std::ssize(symbols), .classes = 10};
        read(fs::path(r.argument) / "basic_train.tsv", set, set.training);
        read(fs::path(r.argument) / "basic_test.tsv", set, set.held_out);
        return token_data(std::move(set));
    }};

}  // namespace tsdiag::training::data_list
