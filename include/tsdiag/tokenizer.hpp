#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/json.hpp"

/// Ids of a text, by the files that a checkpoint has for it.
///
///     const Tokenizer tokenizer = open_tokenizer("bert-base-uncased");
///     std::vector<std::int64_t> ids = tokenizer.wrapped(tokenizer.encode("A text."));
namespace tsdiag {

namespace tokenizer {
struct Parts;
}

/// A tokenizer: normaliser, pre-tokenizer, model, added tokens, post-processor.  A component or a
/// key that is not implemented is refused by name when the file is read, so ids are either those of
/// the file or none.  It may be used by several threads.
class Tokenizer {
  public:
    explicit Tokenizer(std::shared_ptr<const tokenizer::Parts> parts);

    /// The ids of a text, without those that the post-processor adds.  Cost: O(n log n) time and
    /// O(n) memory in the bytes of the text, also where it is a single word.  Throws `FormatError`
    /// where the text is not UTF-8 (with the byte), where a regular expression of the file takes
    /// longer than three seconds and a second per 200 KB, or where a part of the text is unknown
    /// and the file has no token for that; `NotAvailable` where this build has no ICU and the text
    /// needs it.
    std::vector<std::int64_t> encode(std::string_view text) const;

    /// Ids that the post-processor puts before and after a single text.
    std::span<const std::int64_t> before() const;
    std::span<const std::int64_t> after() const;
    /// before(), ids, after().
    std::vector<std::int64_t> wrapped(std::span<const std::int64_t> ids) const;

    /// Is it a mark rather than text: put around one, or special by the files (a mask, padding)?
    bool special(std::int64_t id) const;

    /// The token as its file writes it; empty where there is none of that id.
    std::string piece(std::int64_t id) const;
    /// The token for readers: bytes as the characters that they are where they are whole ones, else
    /// as \xHH; a space as U+2581, control characters spelled.
    std::string shown(std::int64_t id) const;

    std::int64_t size() const;        ///< the largest id + 1
    const std::string& kind() const;  ///< "BPE", "WordPiece", "Unigram", "WordLevel"
    /// Files that were read, with their SHA-256 as "NAME DIGEST", and what was assumed.
    const std::vector<std::string>& notes() const;
    /// A warning of what was assumed though another library does otherwise; empty: none.
    const std::string& assumption() const;

  private:
    std::shared_ptr<const tokenizer::Parts> parts_;
};

/// Reads the tokenizer of a checkpoint: `path` is its folder, a file in that folder, or a
/// tokenizer.json.  Without a tokenizer.json: vocab.txt (BERT; lower case as tokenizer_config.json
/// says, else as the vocabulary is), vocab.json and merges.txt (of a config.json of gpt2 or
/// roberta), or tokenizer.model of SentencePiece (of LLaMA, Mistral, Gemma; a FILE.model that is
/// named puts nothing around a text).  Throws `FormatError` where there is none, or where it is not
/// understood.
Tokenizer open_tokenizer(const std::filesystem::path& path);

/// The files that decide what `open_tokenizer(path)` gives, those of them that are there.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& path);

/// The tokenizer of a tokenizer.json; `source` names it in messages.
Tokenizer parse_tokenizer(std::string_view text, std::string_view source);

/// The tokenizer in the metadata of a GGUF file (`tokenizer.ggml.*`): byte-level BPE where its
/// `pre` is known, SentencePiece's BPE and Unigram, WordPiece.  `list(KEY)` gives an array of the
/// metadata whole; `source` names the file in messages.  Throws `FormatError` where there is none,
/// or where a key of it is not understood.
Tokenizer gguf_tokenizer(const Json& metadata,
                         const std::function<Json(std::string_view key)>& list,
                         std::string_view source);

}  // namespace tsdiag
