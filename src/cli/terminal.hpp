#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/run.hpp"

/// The only code that writes to a terminal.  Results go to standard output, everything else to
/// standard error.
namespace tsdiag::cli {

/// The reader of standard output has gone (`tsdiag list metrics | head`): there is nobody to tell.
struct Closed {};

/// To standard output.  Throws `Error` where it cannot be written (a full disk), `Closed` for a
/// closed pipe.
void print(std::string_view text);
/// One line to standard error.
void say(std::string_view line);

/// One line that may go to a terminal: control characters are spelled, what is longer than `most`
/// bytes is shortened, and where the locale is not UTF-8 signs that are not ASCII are spelled or
/// '?'.
std::string printable(std::string_view text, std::size_t most = 4096);
/// Bytes that a cell of a table may take.
constexpr std::size_t widest_cell = 160;

enum class Style { plain, bold, dim, warning };
/// `text` in colour where standard output is a terminal that wants it (NO_COLOR, CLICOLOR_FORCE,
/// TERM=dumb).
std::string styled(std::string_view text, Style style);

/// Is standard error a terminal that can move its cursor?
bool error_is_terminal();

/// Columns of the terminal; 80 where there is none.
std::size_t terminal_width();
/// Words of `text` in lines of `width`, later ones behind `indent` spaces.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

/// Cells in columns, numbers to the right; the first row is the head.  Each cell is made printable.
std::string aligned(std::vector<std::vector<std::string>> rows, std::size_t left_columns);

/// "45 s", "3 min", "2 h 10 min"
std::string duration(double seconds);

/// A bar with the time left, on standard error, where that is a terminal; nothing otherwise.  Long
/// work says once how long it will take.
class ProgressBar {
  public:
    /// `quiet`: nothing at all.  `lines`: a line each 10 % where there is no terminal.
    ProgressBar(bool quiet, bool lines);
    ~ProgressBar() { clear(); }
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    void update(const Progress& progress);
    void clear();

  private:
    using Clock = std::chrono::steady_clock;
    void announce(double seconds, bool measured);
    void draw(double fraction, double left, Index layer);
    bool quiet_, lines_, terminal_, drawn_ = false, announced_ = false;
    int tenths_ = 0;
    std::string phase_;
    Clock::time_point start_, last_;
};

}  // namespace tsdiag::cli
