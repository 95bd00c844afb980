#pragma once
#include "models.hpp"
#include "parts.hpp"

/// The models of SentencePiece.
namespace tsdiag::tokenizer {

/// As SentencePiece numbers them, and GGUF.
enum class Piece { normal = 1, unknown, control, user_defined, unused, byte };

struct SentencePieces {
    std::vector<std::string> tokens;
    std::vector<Piece> types;
    std::vector<double> scores;
    bool unigram = false;  ///< else BPE
    Id unknown = 0;
    bool space_before = true;   ///< of a text that is not empty
    bool single_spaces = true;  ///< spaces at both ends go, those inside become one
    std::string charsmap;       ///< the bytes of the rules of normalisation; empty: none
};

/// Model, normaliser and pre-tokenizer.  BPE: of all neighbours that together are a piece those of
/// the highest score are joined first, of equal ones the leftmost.  Unigram: the greatest sum of
/// scores.  Tokens that are found in a text are left to the caller.
void read_sentence_pieces(const SentencePieces& pieces, const std::string& source, Parts& parts);

/// Makes each way to divide a piece in two a merge, whose rank is that of its score.
void add_joins(Bpe& model, const SentencePieces& pieces, const std::string& source);

/// A token that is found in a text, raw or normalised.
void add_token(Parts& parts, AddedTokens& where, const std::string& content, Id id);

Normalizer normalizer_of(const Json& json);
/// The rules of the model and what it makes of spaces.
Normalizer normalizer_of(const SentencePieces& pieces, const std::string& source);

}  // namespace tsdiag::tokenizer
