#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "time_estimate.hpp"
#include "tsdiag/run.hpp"

/// The only code that writes to a terminal.  Results go to standard output, everything else to
/// standard error.
namespace tsdiag::cli {

/// The pipe of standard output was closed (`tsdiag list metrics | head`).
struct Closed {};

/// From now on nothing is written: for all ranks of a command but one.
void mute(bool yes);
bool is_muted();

/// From now on `print` drops what it is given, so that standard output is JSON alone.
void print_json_only();
bool prints_json();

/// Writes to standard output.  Throws `Error` on failure (a full disk), `Closed` for a
/// closed pipe.
void print(std::string_view text);
/// Writes a JSON document there.
void print_document(std::string_view text);
/// Does `file` name what standard output is, as /dev/stdout does?
bool is_standard_output(const std::filesystem::path& file);
/// One line to standard error.
void say(std::string_view line);

/// Makes a line safe for a terminal: escapes control characters, truncates it to `most` bytes, and
/// where the locale is not UTF-8 spells out symbols that are not ASCII, or replaces them by '?'.
std::string printable(std::string_view text, std::size_t most = 4096);
/// Largest number of bytes in a table cell.
constexpr std::size_t widest_cell = 160;

enum class Style { plain, bold, dim, warning };
/// `text` in colour where standard output is a terminal with colours (NO_COLOR, CLICOLOR_FORCE,
/// TERM=dumb).
std::string styled(std::string_view text, Style style);

/// Is standard error a terminal that can move its cursor?
bool error_is_terminal();

/// Columns of the terminal; 80 where there is none.
std::size_t terminal_width();
/// `text` wrapped to lines of `width`, the later ones indented by `indent` spaces.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

/// `value` to so many significant digits, as `readable`; "-" for none.
std::string number_cell(std::optional<double> value, int digits);
/// As `with_error`; "-" for none.
std::string number_cell(std::optional<double> value, std::optional<double> error);
/// Fills up the numbers of a right-aligned column with spaces, so that their points are in line,
/// and those of their errors.
void align_points(std::vector<std::string>& cells);
/// Cells in columns, numbers right-aligned, each made printable; the first row is the header.
std::string aligned(std::vector<std::vector<std::string>> rows, std::size_t left_columns);

/// "45 s", "3 min", "2 h 10 min"
std::string duration(double seconds);

/// "45 s to 3 min"
std::string duration_between(double low, double high);

/// A progress bar with the remaining time, on standard error if it is a terminal.  Long work is
/// announced with the range of its time, and again where that proves wrong.
class ProgressBar {
  public:
    /// `quiet`: no output.  `lines`: without a terminal, a line every 10 %.
    ProgressBar(bool quiet, bool lines);
    ~ProgressBar() { clear(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    void update(const Progress& progress);
    void clear();

  private:
    using Clock = std::chrono::steady_clock;
    void announce(const TimeEstimate::Range& range, std::string_view how);
    void draw(double fraction, double left, Index layer);
    bool quiet_, lines_, terminal_, drawn_ = false;
    TimeEstimate estimate_;
    int tenths_ = 0;
    std::string phase_;
    Clock::time_point start_, last_;
};

}  // namespace tsdiag::cli
