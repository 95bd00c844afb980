#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data.hpp"

namespace tsdiag::training {

/// The id that fills a sample up; in a text the byte 0.
inline constexpr Index padding_id = 0;
/// The first `fit.tokens` ids; behind them the padding id, `filled`: up to `fit.tokens`, else up to
/// a length that the model's attentions accept, where they accept multiples only.
Input cropped(const Fit& fit, std::string_view ids, bool filled);
/// Throws `UsageError` where the model takes no such tokens, or so few that none is left.
void require_labelled_tokens(const Fit& fit, Index vocabulary);

/// Labelled sequences in memory, each with up to 256 different ids, a byte an id.
struct TokenSet {
    struct Sample {
        Index text = 0, second = -1;  ///< indices of `texts`; second: of a pair
        Index label = 0;
    };
    std::string name;  ///< for messages
    Index vocabulary = 256, classes = 2;
    Index length = 0;  ///< of every sequence; 0: they differ
    bool pairs = false;
    bool filled = true;  ///< up to the tokens of a sample
    std::vector<std::string> texts = {};
    std::vector<Sample> training = {}, held_out = {};
};
/// Throws `FormatError` where a part is empty.
std::unique_ptr<Data> token_data(TokenSet set);

/// Lines of a text, without their ends: \n, or \r\n.
class Lines {
  public:
    explicit Lines(std::string_view text) : rest_(text) {}
    bool next();
    std::string_view line() const { return line_; }
    Index number() const { return number_; }  ///< from 1

  private:
    std::string_view rest_, line_;
    Index number_ = 0;
};

}  // namespace tsdiag::training
