#pragma once
#include <optional>

#include "vocabulary.hpp"

/// The four kinds of models.  Each divides as the tokenizers library of Hugging Face does.
namespace tsdiag::tokenizer {

/// Merges pairs of symbols in the order of their ranks.  Cost: O(n log n) for n characters.
class Bpe final : public Model {
  public:
    std::optional<std::string> unknown;
    std::string continuing_prefix, end_suffix;
    bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
    /// Throws `FormatError` naming a token that is not in the vocabulary.
    void add_merge(const std::string& left, const std::string& right, std::int64_t rank,
                   std::string_view from);
    void finish();  ///< once all is set
    void append(std::string_view word, const Deadline& deadline,
                std::vector<Id>& out) const override;

  private:
    struct Merge {
        std::int64_t rank = 0;
        Id made = none;
    };
    struct Mix {
        std::size_t operator()(std::uint64_t k) const {
            k *= 0x9e3779b97f4a7c15U;
            return std::size_t(k ^ k >> 32);
        }
    };
    static std::uint64_t key(Id left, Id right) {
        return std::uint64_t(left) << 32 | std::uint64_t(right);
    }
    std::vector<Id> first_symbols(std::string_view word) const;

    std::unordered_map<std::uint64_t, Merge, Mix> merges_;
    Id unknown_id_ = none;
};

/// The longest token first, from the left.
class WordPiece final : public Model {
  public:
    std::string unknown, continuing_prefix;
    std::size_t longest_word = 100;  ///< characters; longer ones are unknown
    void finish();
    void append(std::string_view word, const Deadline& deadline,
                std::vector<Id>& out) const override;

  private:
    PrefixIndex index_;
};

/// Whole words.
class WordLevel final : public Model {
  public:
    std::string unknown;
    void append(std::string_view word, const Deadline& deadline,
                std::vector<Id>& out) const override;
};

/// The division with the greatest sum of scores (Viterbi).
class Unigram final : public Model {
  public:
    std::vector<double> scores;  ///< by id
    Id unknown = none;
    bool byte_fallback = false;
    void finish();
    void append(std::string_view word, const Deadline& deadline,
                std::vector<Id>& out) const override;

  private:
    PrefixIndex index_;
    double least_score_ = 0;
};

/// The ids of <0xHH> for each byte; nullopt where one is missing.
std::optional<std::vector<Id>> bytes_of(const Vocabulary& vocabulary, std::string_view text);

}  // namespace tsdiag::tokenizer
