#pragma once
#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tsdiag/json.hpp"
#include "vocabulary.hpp"

/// The parts of a tokenizer, as its file describes them.
namespace tsdiag::tokenizer {

/// Throws `FormatError` where a text has grown beyond 64 times its length and 16 MiB, or 1 GiB:
/// ICU counts in 32 bits.
class Growth {
  public:
    explicit Growth(std::size_t bytes)
        : most_(std::min<std::size_t>(bytes * 64 + (16U << 20), std::size_t{1} << 30)) {}
    void require(std::size_t bytes) const;

  private:
    std::size_t most_;
};

struct Limits {
    Deadline deadline;
    Growth growth;
    explicit Limits(std::size_t bytes) : deadline(bytes), growth(bytes) {}
};

using Normalizer = std::function<void(std::string& text, const Limits& limits)>;

/// The parts of a text between two added tokens.
struct Pieces {
    struct Piece {
        std::string_view text;
        bool first = false;  ///< begins where the whole text does
    };
    std::vector<Piece> list;
    std::deque<std::string> made;  ///< texts that the pieces are parts of
    const Limits* limits = nullptr;
    std::size_t bytes = 0;  ///< of `made`
    std::string_view keep(std::string text);
};
using PreTokenizer = std::function<void(Pieces& pieces)>;

/// A token that is found in the text before the model sees it.
struct AddedToken {
    std::string content;  ///< as it is searched for
    Id id = none;
    bool single_word = false, left_strip = false, right_strip = false;
};

/// Added tokens that are searched for together: the leftmost match, of those the longest.
class AddedTokens {
  public:
    void add(AddedToken token);
    bool empty() const { return tokens_.empty(); }
    const std::vector<AddedToken>& all() const { return tokens_; }
    /// The parts of `text`; those with an id are tokens.
    struct Part {
        Id id = none;
        std::size_t begin = 0, end = 0;
    };
    std::vector<Part> divide(std::string_view text, const Deadline& deadline) const;
    void finish();

  private:
    std::vector<AddedToken> tokens_;  ///< sorted by content
    Vocabulary order_;                ///< content -> index in tokens_
    PrefixIndex index_;
};

struct Parts {
    std::string source;
    Normalizer normalizer;  ///< may be empty
    Normalizer inside;      ///< of what is behind an added token; empty: `normalizer`
    PreTokenizer pre_tokenizer;
    std::unique_ptr<Model> model;
    AddedTokens raw, normalised;  ///< found before and after normalisation
    std::unordered_map<Id, std::string> added;
    std::unordered_set<Id> ordinary;  ///< of these, the ones that are not special
    std::vector<Id> before, after;
    bool byte_level = false;  ///< tokens are written in the characters of bytes
    Id size = 0;
    std::vector<std::string> notes;
    std::string assumption;  ///< in which another library differs; empty: none
};

// reading.cpp
/// Members of a component of a file.
class Component {
  public:
    Component(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}
    const Json& json() const { return json_; }
    const std::string& where() const { return where_; }
    std::string type() const;
    /// Throws `FormatError` naming a key that is none of these ("type" is always known).
    void require_keys(std::initializer_list<std::string_view> keys) const;
    bool flag(std::string_view key, bool otherwise) const;
    std::string text(std::string_view key) const;
    std::string text(std::string_view key, std::string_view otherwise) const;
    Component member(std::string_view key) const;
    std::vector<Component> list(std::string_view key) const;
    [[noreturn]] void refuse() const;  ///< "'type' is not supported"
    [[noreturn]] void refuse_value(std::string_view key) const;

  private:
    const Json& json_;
    std::string where_;
};

// byte_level.cpp
/// The text with each byte as the character that stands for it in GPT-2's vocabulary.
std::string byte_characters(std::string_view bytes);
/// The bytes of such characters; other characters stay as they are.
std::string bytes_of_characters(std::string_view text);
/// The regular expression that divides words for GPT-2.
extern const std::string_view gpt2_words;

Normalizer read_normalizer(const Component& component);
Pattern read_pattern(const Component& holder);
PreTokenizer read_pre_tokenizer(const Component& component, bool& byte_level, bool first = true);
std::unique_ptr<Model> read_model(const Component& component);
/// Adds what a single text is put between to `before` and `after`.
void read_post_processor(const Component& component, Parts& parts);
/// Throws `FormatError` naming `where`.
std::string bytes_of_base64(std::string_view text, const std::string& where);
/// By the rules of SentencePiece, `charsmap` as its models hold them.
Normalizer precompiled(std::string_view charsmap, const std::string& where);
/// BertNormalizer.
Normalizer bert_normalizer(bool clean, bool chinese, bool strip_accents, bool lower);
PreTokenizer bert_words();
PreTokenizer byte_level_words(bool prefix_space, bool divide);

std::shared_ptr<Parts> read_tokenizer_json(const Json& json, const std::string& source);
/// The tokenizer of vocab.txt, or of vocab.json and merges.txt, in `folder`; null: there is none.
/// tokenizer_config.json and config.json decide what they leave open.
std::shared_ptr<Parts> read_vocabulary_files(const std::filesystem::path& folder);

/// The tokenizer of a SentencePiece model.  `alone`: it was named itself, and nothing is put around
/// a text; else `config` and `tokenizer_config` (objects, or null) say what is.
std::shared_ptr<Parts> read_sentence_model(const std::filesystem::path& file, const Json& config,
                                           const Json& tokenizer_config, bool alone);

/// Whether a .model has ranks of tiktoken, as Meta's has from Llama 3 on, and the tokenizer of
/// these; `alone` and the configurations as above.
bool holds_ranks(std::string_view text);
std::shared_ptr<Parts> read_meta_ranks(const std::filesystem::path& file, const std::string& text,
                                       const Json& config, const Json& tokenizer_config,
                                       bool alone);

/// The tokenizer of the ranks of tiktoken, NAME.tiktoken; the name tells how words are divided.
std::shared_ptr<Parts> read_tiktoken(const std::filesystem::path& file);

/// The JSON file of that name in `folder`; null where there is none.
Json json_beside(const std::filesystem::path& folder, const char* name);

// declared_tokens.cpp
/// What becomes of a declared token that the tokenizer does not have.
enum class Missing {
    added,     ///< it gets the next id, behind all of the vocabulary: beside vocab.txt, vocab.json
    appended,  ///< it gets the next id, which the one that is said must be: tokenizer.json
    refused,   ///< tokenizer.model
};
/// Adds the tokens of added_tokens.json, special_tokens_map.json and tokenizer_config.json in
/// `folder`
/// (`added_tokens_decoder`, `additional_special_tokens`, `bos_token`, ...) to `parts`, ready to be
/// searched for.  `own`: tokens of the tokenizer beyond its vocabulary and added tokens.
/// Throws `FormatError` where a token has two ids, or is otherwise (`lstrip`, `rstrip`,
/// `single_word`) in a tokenizer.json, and for `split_special_tokens`.
void add_declared_tokens(const std::filesystem::path& folder, Parts& parts, Missing missing,
                         std::unordered_map<std::string, Id> own = {});
/// The tokens that these files give a role.
class DeclaredNames {
  public:
    explicit DeclaredNames(std::filesystem::path folder);
    /// That of the role `key` ("unk_token"); `otherwise` where there is none.  Throws `FormatError`
    /// where the files differ.
    std::string of(const char* key, const std::string& otherwise) const;

  private:
    std::filesystem::path folder_;
    std::vector<std::pair<const char*, Json>> files_;
};

/// Refuses a tokenizer_config.json in `folder` that says otherwise than `json`, a tokenizer.json,
/// on lower case, accents, Chinese characters or the space before a text: which of the two
/// Transformers obeys depends on the class.  Compared is what has an effect: accents that are null
/// go with capitals.
void require_same_flags(const std::filesystem::path& folder, const Json& json);
/// Refuses a tokenizer_config.json in `folder` whose `add_bos_token` or `add_eos_token` says
/// otherwise than the tokenizer: libraries differ on which of the two is obeyed.
void require_agreement(const std::filesystem::path& folder, const Parts& parts);
/// Notes a tokenizer_class of another kind than the tokenizer.json beside it, which Transformers
/// follows.
void note_class(const std::filesystem::path& folder, Parts& parts);
/// Warns of a vocab.txt, or of a vocab.json and a merges.txt, in `folder` that give a token of
/// `json`, a tokenizer.json, another id, or have other merges.
void note_other_vocabulary(const std::filesystem::path& folder, const Json& json, Parts& parts);
/// Warns of a tokenizer_config.json in `folder` whose `cls_token` and `bos_token`, or `sep_token`
/// and `eos_token`, are none of those that a tokenizer.json puts around a text.
void note_other_names(const std::filesystem::path& folder, Parts& parts);

}  // namespace tsdiag::tokenizer
