#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "equal_steps.hpp"
#include "log_file.hpp"
#include "tsdiag/training_log.hpp"

/// The interface between the readers of logs and the series.
namespace tsdiag {

/// Collects the requested series, in the order in which their names first appear.
class LogRecords {
  public:
    LogRecords(std::string source, const LogOptions& options);

    /// Was the series of that name requested?  Remembers the name for messages.
    bool wants(std::string_view name);
    /// Adds a number; `place` is its position ("line 7", "the record at byte 120").
    void add(std::string_view name, Index step, double value, const std::string& place);
    /// Adds the text of a cell; an empty cell is no number.
    void add_text(std::string_view name, Index step, std::string_view text,
                  const std::string& place);

    void note(std::string text);
    /// Remembers where another column or key that may hold the step has another number, `text`.
    void compare_step(std::string_view name, Index step, std::string_view other,
                      std::string_view text);
    /// Sets the file of the records that follow.
    void enter(std::string source) {
        source_ = std::move(source);
        ++file_;
    }
    /// Begins a record, whose epoch and other keys follow.
    void enter_record() {
        epoch_.reset();
        keys_.begin();
    }
    void enter_epoch(std::optional<double> epoch) { epoch_ = epoch; }
    /// A key of the record that is no step, epoch or series, and its value.
    void enter_key(std::string_view key, std::string_view value) { keys_.put(key, value); }
    const std::string& source() const { return source_; }
    const LogOptions& options() const { return options_; }
    Index added() const { return added_; }  ///< numbers so far
    [[noreturn]] void fail(const std::string& place, const std::string& what) const;

    /// The series in order of their steps, of those asked for; notes replaced and missing steps.
    std::vector<LoggedSeries> finish();

  private:
    struct Gathered {
        std::string name;
        std::vector<LoggedNumber> numbers = {};  ///< in the order of the log
    };
    /// Why a number cannot be used.
    struct Complaint {
        Index source = 0;
        std::string place;
    };
    std::vector<LoggedSeries> finished(const Gathered& one) const;
    LoggedSeries finished(const Gathered& one, const SettledSeries& settled) const;
    [[noreturn]] void complain(const std::string& name, const LoggedNumber& number) const;
    [[noreturn]] void fail_empty() const;
    /// The names like gradient norms that are those of other numbers, with the words that say so.
    std::string left_out() const;
    Gathered& at(std::string_view name);

    std::string source_;
    std::vector<std::string> sources_;  ///< of complaints
    LogOptions options_;
    std::vector<std::string> known_, notes_;
    std::string other_step_;  ///< the first that differs, in words
    Index added_ = 0, file_ = 0;
    std::optional<double> epoch_ = {};
    std::map<std::string, bool, std::less<>> wanted_;
    std::vector<Gathered> all_;
    std::vector<Complaint> complaints_;
    RecordKeys keys_;
    std::map<std::string, std::size_t, std::less<>> index_;
};

/// A number as logs write it, with NaN and infinity; nullopt for other text.
std::optional<double> logged_number(std::string_view text);

/// How likely a column or key of that name holds the step: 1 is the most likely; 0: not at all.
int step_rank(std::string_view name);

/// Does a column or key of that name tell records of one step apart, such as those of layers, ranks
/// or runs?
bool is_qualifier(std::string_view name);
/// How likely a column or key of that name holds the epoch: 1 is the most likely; 0: not at all.
int epoch_rank(std::string_view name);
/// Of Weights & Biases, which writes NAME__MIN and NAME__MAX, in capitals or not, beside the mean
/// NAME of several steps.
bool is_bound_of_bucket(std::string_view name);

/// Contains the name `grad` and `norm`, or `gnorm`?
bool is_like_gradient_norm(std::string_view name);
/// The word of a name like that of a gradient norm that says that its numbers are others: limits,
/// powers, logarithms, averages, ratios and the like of norms ("ema" of grad_norm_ema, "log" of
/// logGradNorm, "2" of gradnorm2); empty where there is none.  Words behind a point count only
/// beside those of the norm: elsewhere they are of a parameter, as policy.log_std.
std::string names_other_than_norm(std::string_view name);

/// Reads the text of a file into `out`; of JSON lines one at a time.
void read_csv_log(std::string_view text, LogRecords& out);
void read_json_lines(LogFile& file, LogRecords& out);
/// A trainer_state.json.
void read_history(std::string_view text, LogRecords& out);

/// Does it start like a TensorBoard event file?
bool is_event_file(std::string_view bytes);
void read_event_log(std::string_view bytes, LogRecords& out);

}  // namespace tsdiag
