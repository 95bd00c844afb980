#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "adapted_model.hpp"
#include "inputs.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"
#include "tsdiag/tokenizer.hpp"

/// Samples from a text, by the tokenizer of the checkpoint.
namespace tsdiag {
namespace {

constexpr std::uint64_t largest_text = std::uint64_t{256} << 20;

/// A GGUF file, or a folder whose checkpoint is one.
bool is_gguf(const std::filesystem::path& path) {
    std::error_code failed;
    if (std::filesystem::is_directory(path, failed)) {
        const std::filesystem::directory_iterator entries(path);
        return std::any_of(begin(entries), end(entries),
                           [](const auto& entry) { return entry.path().extension() == ".gguf"; }) &&
               open_checkpoint(path)->format().starts_with("gguf");
    }
    constexpr std::string_view magic = "GGUF";
    std::string head(magic.size(), '\0');
    std::ifstream(path, std::ios::binary).read(head.data(), std::streamsize(head.size()));
    return head == magic;
}

Tokenizer tokenizer_in(const std::filesystem::path& path) {
    if (!is_gguf(path)) return open_tokenizer(path);
    const std::unique_ptr<Checkpoint> file = open_checkpoint(path);
    return gguf_tokenizer(
        file->metadata(), [&](std::string_view key) { return file->whole_list(key); },
        file->source());
}

/// sentence-transformers may put a text in lower case before its tokenizer sees it.
void require_own_case(const std::filesystem::path& folder) {
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        const std::string name = at->path().filename().string();
        if (!name.starts_with("sentence_") || !name.ends_with("_config.json")) continue;
        const Json config = file_json(at->path(), "a configuration");
        if (const Json& lower = config["do_lower_case"];
            !lower.is_null() && !(lower.is_bool() && !lower.boolean()))
            throw FormatError(
                fmt::format("{}: says do_lower_case = {}, which is not supported; name a tokenizer "
                            "with --tokenizer FILE, or pass ids with --input ids:FILE.",
                            at->path().string(), lower.dump()));
    }
}

/// More than a configuration of one.
bool has_tokenizer(const std::filesystem::path& place) {
    return std::ranges::any_of(tokenizer_files(place), [](const std::filesystem::path& file) {
        return file.filename() == "tokenizer.json" || file.filename() == "tokenizer.model" ||
               file.filename().string().starts_with("vocab.");
    });
}

Tokenizer tokenizer_of(const RunOptions& options) {
    if (!options.tokenizer.empty()) return tokenizer_in(options.tokenizer);
    if (options.subject.model.starts_with("random:"))
        throw UsageError(
            fmt::format("{}: a random model has no tokenizer; name one with --tokenizer FILE.",
                        options.subject.model));
    std::filesystem::path place;
    for (const std::filesystem::path& one : places_beside(options.subject)) {
        place = one;
        if (has_tokenizer(one)) break;
    }
    require_own_case(place);
    return tokenizer_in(place);
}

RunRecord::Text described_text(const Tokenizer& tokenizer, std::string_view text,
                               std::size_t tokens, const std::vector<Index>& first) {
    RunRecord::Text out{.sha256 = sha256(text),
                        .tokenizer = std::string(tokenizer.kind()),
                        .bytes = Index(text.size()),
                        .tokens = Index(tokens),
                        .tokenizer_files = tokenizer.notes(),
                        .ids = first};
    for (const Index id : first) out.pieces.push_back(tokenizer.shown(id));
    return out;
}

/// Ids of a text, without those that are put around it.  `place` names it in messages.
std::vector<Index> ids_of(std::string_view text, const Tokenizer& tokenizer, Index vocabulary,
                          const std::string& place) {
    std::vector<Index> all;
    try {
        all = tokenizer.encode(text);
    } catch (const FormatError& e) {
        throw FormatError(fmt::format("{}: {}", place, e.what()));
    }
    for (const Index id : tokenizer.wrapped(all))
        if (id >= vocabulary)
            throw FormatError(fmt::format(
                "{}: the token '{}' has the id {}, but the vocabulary of the model has {}; is this "
                "the tokenizer of the model?",
                place, tokenizer.shown(id), id, vocabulary));
    return all;
}

Index around_a_text(const Tokenizer& tokenizer) {
    return std::ssize(tokenizer.before()) + std::ssize(tokenizer.after());
}

/// The next line of `rest`, which loses it.
std::string_view next_line(std::string_view& rest) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

}  // namespace

void InputSource::read_text() {
    const bool in_file = options_.text.empty();
    const std::string text = in_file ? file_text(file_, "a text", largest_text) : options_.text;
    const Tokenizer tokenizer = tokenizer_of(options_);
    std::size_t held = 0;
    if (!options_.text_lines.empty()) {
        held = std::size_t(read_lines(tokenizer, text));
    } else {
        const std::vector<Index> all = ids_of(text, tokenizer, spec_.embedding.vocabulary, file_);
        held = all.size();
        read_parts(tokenizer, all);
    }
    if (longest() > 0 && tokens_ > longest())
        throw UsageError(
            fmt::format("--tokens {}: this model takes at most {} tokens.", tokens_, longest()));
    find_special(tokenizer);
    assumption_ = tokenizer.assumption();
    text_ = described_text(tokenizer, text, held, ids_.front());
}

void InputSource::find_special(const Tokenizer& tokenizer) {
    std::set<Index> ids;
    for (const std::vector<Index>& sample : ids_) ids.insert(sample.begin(), sample.end());
    std::ranges::copy_if(ids, std::back_inserter(special_),
                         [&](Index id) { return tokenizer.special(id); });
}

/// Consecutive parts of one text, of equal length.
void InputSource::read_parts(const Tokenizer& tokenizer, const std::vector<Index>& all) {
    const Index around = around_a_text(tokenizer), held = std::ssize(all);
    count_ = std::max<Index>(options_.samples, 1);
    // each sample begins and ends with what the tokenizer puts around a text
    const Index fitting = std::min(held / count_ + around, usual_tokens);
    tokens_ = options_.tokens > 0 ? options_.tokens : fitting_tokens(spec_, fitting);
    const Index each = tokens_ - around;
    const bool enough = each >= 0 && (each > 0 || (held == 0 && count_ == 1)) && tokens_ > 0;
    if (!enough || each > held / count_)
        throw FormatError(fmt::format(
            "{}: is {}, expected {} of {}, of which {} are put around each.", file_,
            counted(std::size_t(held), "token"), counted(std::size_t(count_), "sample"),
            counted(std::size_t(std::max<Index>(tokens_, around + 1)), "token"), around));
    if (each * count_ < held && options_.tokens == 0)
        defaults_.push_back(
            fmt::format("tokens: the first {} of {} of the text", each * count_, held));
    for (Index s = 0; s < count_; ++s)
        ids_.push_back(tokenizer.wrapped(
            std::span<const Index>(all).subspan(std::size_t(s * each), std::size_t(each))));
}

/// Each line is a sample of its own length: what a library hides of a padded batch is not there.
/// Returns the number of tokens of the lines that were taken, also of what was cut off.
Index InputSource::read_lines(const Tokenizer& tokenizer, std::string_view text) {
    const Index around = around_a_text(tokenizer);
    const Index most = options_.tokens > 0 ? options_.tokens : fitting_tokens(spec_, usual_tokens);
    if (most <= around)
        throw UsageError(
            fmt::format("--tokens {}: {} are put around each text; pass more.", most, around));
    Index number = 0, held = 0, fewest = most;
    std::size_t blank = 0, cut = 0;
    for (std::string_view rest = text; !rest.empty();) {
        if (options_.samples > 0 && std::ssize(ids_) == options_.samples) break;
        number += 1;
        const std::string_view line = next_line(rest);
        std::vector<Index> ids;
        if (line.find_first_not_of(" \t") != std::string_view::npos)
            ids = ids_of(line, tokenizer, spec_.embedding.vocabulary,
                         fmt::format("{}: line {}", file_, number));
        if (ids.empty()) {  // also of other kinds of space, of which a tokenizer may make nothing
            blank += 1;
            continue;
        }
        held += std::ssize(ids);
        if (std::ssize(ids) > most - around) {
            cut += 1;
            ids.resize(std::size_t(most - around));
        }
        ids_.push_back(tokenizer.wrapped(ids));
        const Index tokens = std::ssize(ids_.back());
        tokens_ = std::max(tokens_, tokens);
        fewest = std::min(fewest, tokens);
    }
    if (ids_.empty())
        throw FormatError(fmt::format("{}: has no text, expected one in each line.", file_));
    settle_samples(std::ssize(ids_));
    if (blank > 0)
        defaults_.push_back(fmt::format("samples: without {}", counted(blank, "blank line")));
    if (cut > 0)
        defaults_.push_back(
            fmt::format("tokens: the first {} of {}", most - around, counted(cut, "longer line")));
    if (fewest < tokens_)
        defaults_.push_back(fmt::format("tokens: {} to {}, each sample its own number, none padded",
                                        fewest, tokens_));
    return held;
}

}  // namespace tsdiag
