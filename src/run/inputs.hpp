#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tsdiag/input.hpp"
#include "tsdiag/pictures.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/tokenizer.hpp"

namespace tsdiag {

constexpr Index usual_tokens = 512;    ///< of a sample, unless the model or its user says otherwise
constexpr Index usual_pictures = 256;  ///< of a folder, at most, unless its user says otherwise

/// What the options say of the samples, whatever the model is.
struct NamedInput {
    std::string kind;  ///< as `InputSource::kind`; empty: by the model
    std::string file;  ///< to be read, or "--text"
};
/// Throws `UsageError` for an unknown kind, and where there are two.
NamedInput parse_input(const RunOptions& options);

/// Where a model's samples come from: drawn, or read once from a file.
class InputSource {
  public:
    /// Reads the file and determines tokens and samples.  Throws `UsageError` for a kind that the
    /// model cannot take, `FormatError` and `ShapeError` naming the file for invalid contents.
    InputSource(const RunOptions& options, const ModelSpec& spec, const Backend& backend,
                Type type);

    /// All samples of one trial, drawn from Rng(seed).fork("input").fork(trial).fork(sample).
    std::vector<Input> samples(Index trial) const;

    std::string_view kind() const {
        return kind_;
    }                                         ///< as in run.json: "gaussian", "ids:file", ...
    Index tokens() const { return tokens_; }  ///< of a sample; of the longest where they differ
    Index shortest() const;                   ///< tokens of the shortest sample of a file of texts
    Index count() const { return count_; }    ///< of samples
    /// Ids of the samples that are marks rather than text; none are known without a tokenizer.
    const std::vector<Index>& special_ids() const { return special_; }
    RunRecord::Input described() const;
    /// Sentences: samples longer than the model was made for, assumptions about pictures.
    std::vector<std::string> warnings() const;

  private:
    void choose_kind();
    void require_pictures() const;
    void settle_tokens(Index usual = 0);  ///< 0: as the model says
    void settle_images();
    void read_ids();
    void read_text();
    void read_parts(const Tokenizer& tokenizer, const std::vector<Index>& all);
    Index read_lines(const Tokenizer& tokenizer, std::string_view text);
    void find_special(const Tokenizer& tokenizer);
    void read_rows();
    void read_images();
    void read_pictures();
    Preprocessor choose_preprocessor();
    void settle_samples(Index held);
    void settle_own();
    bool own() const { return !options_.has_input() && options_.own_input; }
    Index longest() const;
    Index fewest_tokens() const;  ///< of a sample
    /// SHA-256 of what determines the samples of all trials, as float32; equal where they are.
    std::string digest() const;
    Input sample_of(Index trial, Index sample) const;  ///< without its mask
    Input drawn(Index trial, Index sample) const;
    Input read(Index sample) const;
    Tensor image_of(const Picture& picture) const;

    const RunOptions& options_;
    const ModelSpec& spec_;
    const Backend& backend_;
    Type type_;
    std::string kind_, file_;
    Index tokens_ = 0, count_ = 1;
    std::vector<std::vector<Index>> ids_;  ///< of a file, one vector per sample
    std::vector<Index> special_;           ///< of these, by the tokenizer
    std::optional<RawTensor> array_;       ///< (S, ...) of a file
    bool by_sample_ = false;
    std::vector<std::vector<bool>> masks_;
    std::vector<std::string> defaults_;
    std::optional<RunRecord::Text> text_;
    std::vector<Picture> pictures_;  ///< resized and cropped, one per sample
    Preprocessor preprocessor_;
    std::string assumption_;        ///< about it, or of the tokenizer; empty: none
    std::string unprocessed_ = {};  ///< what an image looks like that was not preprocessed
    Json pictures_json_;            ///< the files with their digests, and what was done to them
};

/// Ids of a text file: one sample per line, or one id per line, separated by white space or commas.
std::vector<std::vector<Index>> read_text_ids(const std::string& file);

}  // namespace tsdiag
