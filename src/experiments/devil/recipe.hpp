#pragma once
#include "training.hpp"

/// Shared by the trainings of [DEVIL]: Table 13's recipe for masked models.
namespace tsdiag::experiment_list {

constexpr ExperimentKey key_devil_rate =
    key_rate("1e-3", "5e-4", "greatest learning rate: linear warm-up, then a linear fall to 0");
constexpr ExperimentKey key_warmup(std::string_view quick, std::string_view description) {
    return whole_key("warmup", "3", quick, "3000", description, 0, 1e7);
}
constexpr ExperimentKey key_devil_d = key_d("8", "64", "768");
constexpr ExperimentKey key_devil_heads = key_heads("2", "4", "12");
constexpr ExperimentKey key_devil_tokens(std::string_view tiny, double least,
                                         std::string_view description = "tokens n") {
    return whole_key("tokens", tiny, "64", "512", description, least, 4096);
}
constexpr ExperimentKey key_few_tokens = whole_key("tokens", "8", "32", "512", "tokens n", 8, 4096);
constexpr ExperimentKey key_block{"block", "4", "8", "64",
                                  "tokens of a block of TransNormer and of a group of FLASH"};
constexpr ExperimentKey key_loss =
    word_key("loss", "mlm", "lm", "mlm",
             "lm: a pre-norm decoder; mlm: a post-norm encoder, 15 % masked", "lm mlm");

/// The model family for the loss: bert-base, or gpt2 for lm.
std::string_view family(const ExperimentSetting& setting);
/// A training of random:FAMILY with the setting's sizes and `more` keys, ",key=value...".
TrainOptions devil_options(const ExperimentSetting& setting, std::string_view family,
                           const std::string& more);
/// `devil_options` without a loss.
TrainOptions devil_recipe(const ExperimentSetting& setting, std::string_view family,
                          const std::string& more);

/// Whether a model consists of gated attention units: FLASH, or FLASH-quad, which is `gau`.
bool is_gated_unit(std::string_view keys);
/// Of an encoder of so many layers, in its place: twice as many.  [DEVIL] 5.1
constexpr Index units_of_encoder(Index layers) { return 2 * layers; }
/// The model of Tables 4 and 5 by its label there, as of devil_recipe: TransNormer with the
/// setting's `block`, FLASH with groups of as many tokens, the others a GPT-2, or a BERT, with
/// their attention; a causal LS with windows of a quarter of the tokens.
std::string language_model(const ExperimentSetting& setting, std::string_view label, bool causal);

/// Which width of the GLU the paper's count of parameters is of, for a page: Table 13 has them the
/// other way round.
std::string note_on_glu(bool causal);

/// A table of scores in per cent, and the paper's beside it.
struct Scores {
    using Value = std::function<std::optional<double>(std::size_t row, std::size_t column)>;
    std::string table;  ///< "Table 6"
    std::vector<std::string> models = {}, columns = {}, paper_columns = {};
    Value here = {}, paper = {};
};
/// Both as cells with their numbers; `overall` in words: of each model, here and there.
Figure figure_of(Figure figure, const Scores& scores,
                 const std::function<std::pair<Number, double>(std::size_t row)>& overall);
/// final_test_loss of a model with its perplexity in a table, and whether its training diverged.
void add_loss(Findings& found, const Numbers& numbers, const std::string& model, int table,
              double perplexity);

}  // namespace tsdiag::experiment_list
