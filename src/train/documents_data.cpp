#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "token_set.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

/// Texts of the Long-Range Arena by bytes: film reviews (IMDB), pairs of papers (AAN).
namespace tsdiag::training::data_list {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_text = 4000;  // bytes that the arena takes of a text [LRA]

/// The reviews of a folder by name, so that their order is the same everywhere.
void read_reviews(const fs::path& folder, Index label, TokenSet& set,
                  std::vector<TokenSet::Sample>& samples) {
    std::error_code failed;
    std::vector<fs::path> files;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
        if (at->path().extension() == ".txt") files.push_back(at->path());
    if (failed)
        throw FormatError(
            fmt::format("{}: cannot be read ({}), expected a folder of reviews, one per .txt file.",
                        folder.string(), failed.message()));
    std::ranges::sort(files);
    for (const fs::path& file : files) {
        samples.push_back({.text = std::ssize(set.texts), .label = label});
        set.texts.push_back(file_text(file, "a review").substr(0, longest_text));
    }
}

/// Each text once, however many pairs it is in.
class Texts {
  public:
    explicit Texts(TokenSet& set) : set_(set) {}
    Index add(std::string_view text) {
        const std::string kept(text.substr(0, longest_text));
        const auto [at, fresh] = known_.emplace(kept, std::ssize(set_.texts));
        if (fresh) set_.texts.push_back(kept);
        return at->second;
    }

  private:
    TokenSet& set_;
    std::unordered_map<std::string, Index> known_;
};

void read_pairs(const fs::path& file, Texts& texts, std::vector<TokenSet::Sample>& samples) {
    const std::string all = file_text(file, "AAN pairs", longest_data);
    for (Lines lines(all); lines.next();) {
        const std::string where = fmt::format("{}: line {}", file.string(), lines.number());
        const std::vector<std::string> cells = split(lines.line(), '\t');
        if (cells.size() != 5)
            throw FormatError(fmt::format(
                "{}: has {} cells, expected 5: label, two ids, two texts.", where, cells.size()));
        double label = -1;
        const char* end = cells[0].data() + cells[0].size();
        if (std::from_chars(cells[0].data(), end, label).ptr != end || (label != 0 && label != 1))
            throw FormatError(fmt::format("{}: the label is '{}', expected 0 or 1.", where,
                                          visible(shortened(cells[0], 40))));
        samples.push_back(
            {.text = texts.add(cells[3]), .second = texts.add(cells[4]), .label = Index(label)});
    }
}

}  // namespace

extern const DataEntry imdb = {
    .kind = {.name = "imdb",
             .argument = "DIR",
             .samples = "film reviews as bytes, positive or negative [IMDB], at most 4000 bytes",
             .held_out = "`test`",
             .layout = "`train/pos`, `train/neg`, `test/pos`, `test/neg`, one review per .txt file",
             .labelled = true},
    .holds =
        [](const fs::path& folder) {
            return fs::exists(folder / "train/pos") && fs::exists(folder / "train/neg");
        },
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        TokenSet set{.name = r.argument};
        const fs::path folder = r.argument;
        for (const Index label : {0, 1}) {
            const char* name = label == 1 ? "pos" : "neg";
            read_reviews(folder / "train" / name, label, set, set.training);
            read_reviews(folder / "test" / name, label, set, set.held_out);
        }
        return token_data(std::move(set));
    }};

extern const DataEntry aan = {
    .kind = {.name = "aan",
             .argument = "DIR",
             .samples = "pairs of papers as bytes, whether one cites the other [AAN]; the two pass "
                        "through the model separately, at most 4000 bytes each",
             .held_out = "`new_aan_pairs.test.tsv`",
             .layout = "`new_aan_pairs.train.tsv`, `new_aan_pairs.test.tsv`: label, two ids, two "
                       "texts, without a header [LRA]",
             .labelled = true},
    .holds = [](const fs::path& folder) { return fs::exists(folder / "new_aan_pairs.train.tsv"); },
    .open = [](const DataRequest& r) -> std::unique_ptr<Data> {
        TokenSet set{.name = r.argument, .pairs = true};
        Texts texts(set);
        read_pairs(fs::path(r.argument) / "new_aan_pairs.train.tsv", texts, set.training);
        read_pairs(fs::path(r.argument) / "new_aan_pairs.test.tsv", texts, set.held_out);
        return token_data(std::move(set));
    }};

}  // namespace tsdiag::training::data_list
