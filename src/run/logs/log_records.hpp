#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/training_log.hpp"

/// What the readers of logs hand on, one number at a time.
namespace tsdiag {

/// Gathers the series that were asked for, in the order in which their names first appear.
class LogRecords {
  public:
    LogRecords(std::string source, const LogOptions& options);

    /// Is the series of that name wanted?  Remembers the name for messages.
    bool wants(std::string_view name);
    /// A number, with the place where it stands ("line 7", "the record at byte 120").
    void add(std::string_view name, Index step, double value, const std::string& place);
    /// The text of a cell; an empty one is no number.
    void add_text(std::string_view name, Index step, std::string_view text,
                  const std::string& place);

    void note(std::string text);
    /// What follows is read from this file.
    void enter(std::string source) { source_ = std::move(source); }
    const std::string& source() const { return source_; }
    const LogOptions& options() const { return options_; }
    Index added() const { return added_; }  ///< numbers so far, also those that are left out
    [[noreturn]] void fail(const std::string& place, const std::string& what) const;

    /// Orders the steps and says what was replaced and is missing.
    std::vector<LoggedSeries> finish();

  private:
    struct Gathered {
        std::string name;
        std::map<Index, double> values;
        Index replaced = 0, left_out = 0;
    };
    LoggedSeries finished(const Gathered& one) const;
    Gathered& at(std::string_view name);

    std::string source_;
    LogOptions options_;
    std::vector<std::string> known_, notes_;
    Index added_ = 0;
    std::map<std::string, bool, std::less<>> wanted_;
    std::vector<Gathered> all_;
    std::map<std::string, std::size_t, std::less<>> index_;
};

/// A number as logs write it, with NaN and infinity; nothing for other text.
std::optional<double> logged_number(std::string_view text);

/// Does a column or key of that name hold the step?  The lower, the surer; 0: no.
int step_rank(std::string_view name);

/// Reads the text of a file into `out`.
void read_csv_log(std::string_view text, LogRecords& out);
void read_json_log(std::string_view text, LogRecords& out);

/// Does it begin as a TensorBoard event file does?
bool is_event_file(std::string_view bytes);
void read_event_log(std::string_view bytes, LogRecords& out);

}  // namespace tsdiag
