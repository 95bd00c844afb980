#include "terminal.hpp"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tsdiag/error.hpp"
#include "tsdiag/table_view.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

std::string_view environment(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

std::atomic<bool> muted{false}, only_json{false};

bool is_dumb() { return environment("TERM") == "dumb"; }

bool coloured() {
    static const bool yes = [] {
        if (!environment("NO_COLOR").empty() || is_dumb()) return false;
        const std::string_view force = environment("CLICOLOR_FORCE");
        return (!force.empty() && force != "0") || isatty(STDOUT_FILENO) == 1;
    }();
    return yes;
}

bool utf8() {
    static const bool yes = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
    return yes;
}

/// ASCII spellings of the symbols in messages, for terminals without UTF-8.
constexpr std::pair<std::string_view, std::string_view> spellings[] = {
    {"\u03bb", "lambda"}, {"\u03b4", "delta"}, {"\u03c9", "omega"}, {"\u03be", "xi"},
    {"\u03b1", "alpha"},  {"\u03c4", "tau"},   {"\u00d7", "x"},     {"\u2013", "-"},
    {"\u2014", "-"},      {"\u2212", "-"},     {"\u2248", "~"},     {"\u2264", "<="},
    {"\u2265", ">="},     {"\u2082", "2"},     {"\u2081", "1"},     {"\u00b2", "^2"},
    {"\u2026", "..."},    {"\u00b1", "+-"},    {"\u2192", "->"},    {"\u221e", "infinity"},
    {"\u00b7", "."},      {"\u2019", "'"},     {"\u201c", "\""},    {"\u201d", "\""}};

std::string spelled(std::string_view sign) {
    for (const auto& [from, to] : spellings)
        if (sign == from) return std::string(to);
    return "?";
}

}  // namespace

void mute(bool yes) { muted = yes; }
bool is_muted() { return muted; }

void print_json_only() { only_json = true; }
bool prints_json() { return only_json; }

void print(std::string_view text) {
    if (!only_json) print_document(text);
}

void print_document(std::string_view text) {
    if (muted) return;
    errno = 0;
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (written && std::fflush(stdout) == 0) return;
    if (errno == EPIPE) throw Closed();
    throw Error(fmt::format("standard output: cannot be written ({}).", std::strerror(errno)));
}

bool is_standard_output(const std::filesystem::path& file) {
    struct stat named {
    }, open{};
    return ::stat(file.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &open) == 0 &&
           named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

void say(std::string_view line) {
    if (muted) return;
    const std::string text = std::string(line) + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string printable(std::string_view text, std::size_t most) {
    std::string shown = shortened(visible(text), most);
    if (utf8()) return shown;
    std::string out;
    for (std::string_view rest = shown; !rest.empty();) {
        const std::string_view sign = rest.substr(0, utf8_length(rest));
        out += sign.size() > 1 ? spelled(sign) : std::string(sign);
        rest.remove_prefix(sign.size());
    }
    return out;
}

std::string styled(std::string_view text, Style style) {
    if (!coloured() || style == Style::plain) return std::string(text);
    const char* code = style == Style::bold ? "1" : style == Style::dim ? "2" : "33";
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::size_t terminal_width() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
    return 80;
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
    std::string out;
    std::size_t column = indent;  // the caller has written that many columns
    while (!text.empty()) {
        const std::size_t space = std::min(text.find(' '), text.size());
        const std::string_view word = text.substr(0, space);
        if (column > indent && column + 1 + word.size() > width) {
            out += "\n" + std::string(indent, ' ');
            column = indent;
        } else if (column > indent) {
            out += ' ';
            column += 1;
        }
        out += word;
        column += word.size();
        text.remove_prefix(std::min(space + 1, text.size()));
    }
    return out;
}

std::string number_cell(std::optional<double> value, int digits) {
    return value ? readable(*value, digits) : "-";
}

std::string number_cell(std::optional<double> value, std::optional<double> error) {
    return value ? with_error(*value, error) : "-";
}

namespace {

constexpr std::string_view plus_minus = " \u00b1 ";

/// Columns of a terminal.
std::size_t width_of(std::string_view text) {
    return std::size_t(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

void fill_up(std::vector<std::string>& cells) {
    const auto length_from_point = [](const std::string& cell) {
        return cell.size() - std::min(cell.find_first_of(".e"), cell.size());
    };
    std::size_t most = 0;
    for (const std::string& cell : cells) most = std::max(most, length_from_point(cell));
    for (std::string& cell : cells)
        if (cell != "-") cell.append(most - length_from_point(cell), ' ');
}

}  // namespace

void align_points(std::vector<std::string>& cells) {
    std::vector<std::string> errors(cells.size());
    for (std::size_t i = 0; i < cells.size(); ++i)
        if (const std::size_t at = cells[i].find(plus_minus); at != std::string::npos) {
            errors[i] = cells[i].substr(at + plus_minus.size());
            cells[i].resize(at);
        }
    fill_up(cells);
    std::vector<bool> has_error;
    for (const std::string& error : errors) has_error.push_back(!error.empty());
    if (std::ranges::find(has_error, true) == has_error.end()) return;
    fill_up(errors);
    std::size_t widest = 0;
    for (const std::string& error : errors) widest = std::max(widest, error.size());
    for (std::size_t i = 0; i < cells.size(); ++i)
        if (cells[i] != "-")
            cells[i] +=
                fmt::format("{}{:>{}}", has_error[i] ? plus_minus : "   ", errors[i], widest);
}

std::string aligned(std::vector<std::vector<std::string>> rows, std::size_t left_columns) {
    std::vector<std::size_t> widths;
    for (auto& row : rows) {
        // Only what others stand behind has to be narrow.
        for (std::string& cell : row)
            cell = &cell == &row.back() ? printable(cell) : printable(cell, widest_cell);
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t c = 0; c < row.size(); ++c)
            widths[c] = std::max(widths[c], width_of(row[c]));
    }
    std::string out;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t c = 0; c < row.size(); ++c) {
            if (c > 0) line += "  ";
            line += c < left_columns ? fmt::format("{:<{}}", row[c], widths[c])
                                     : fmt::format("{:>{}}", row[c], widths[c]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + "\n";
    }
    return out;
}

std::string duration(double seconds) {
    if (seconds < 90) return fmt::format("{:.0f} s", std::max(seconds, 1.0));
    const Index minutes = std::lround(seconds / 60);
    if (minutes < 90) return fmt::format("{} min", minutes);
    return minutes % 60 == 0 ? fmt::format("{} h", minutes / 60)
                             : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

std::string duration_between(double low, double high) {
    const std::string least = duration(low), most = duration(high);
    return least == most ? most : fmt::format("{} to {}", least, most);
}

bool error_is_terminal() { return isatty(STDERR_FILENO) == 1 && !is_dumb(); }

ProgressBar::ProgressBar(bool quiet, bool lines)
    : quiet_(quiet || muted), lines_(lines), terminal_(error_is_terminal()) {}

void ProgressBar::announce(const TimeEstimate::Range& range, std::string_view how) {
    clear();
    say(fmt::format("tsdiag: this will take about {}, {}.", duration_between(range.low, range.high),
                    how));
}

void ProgressBar::update(const Progress& progress) {
    if (quiet_) return;
    const Clock::time_point now = Clock::now();
    if (phase_ != progress.phase) {
        phase_ = progress.phase;
        start_ = last_ = now;
        tenths_ = 0;
        estimate_ = {};
    }
    if (progress.estimate && !estimate_.was_told())
        announce(estimate_.guessed(*progress.estimate), "by its size; nothing is measured yet");
    const double seconds = std::chrono::duration<double>(now - start_).count();
    if (progress.fraction <= 0 || seconds < 1) return;
    const double left = seconds * (1 - progress.fraction) / progress.fraction;
    const bool again = estimate_.was_told();
    if (const auto range = estimate_.measured(seconds, progress.fraction))
        announce(*range, again ? "other than estimated before" : "as measured on the first part");
    const int tenths = int(progress.fraction * 10);
    if (!terminal_ && lines_ && tenths > tenths_) {
        tenths_ = tenths;
        say(fmt::format("tsdiag: {} %, {} left", tenths * 10, duration(left)));
    }
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    draw(progress.fraction, left, progress.layer);
}

void ProgressBar::draw(double fraction, double left, Index layer) {
    constexpr int cells = 24;
    const int full = std::clamp(int(fraction * cells), 0, cells);
    std::string bar;
    for (int i = 0; i < cells; ++i)
        bar += i < full ? (utf8() ? "\u2588" : "#") : (utf8() ? "\u2591" : "-");
    const std::string text =
        fmt::format("\r{} {:3.0f} %  {} left{}\x1b[K", bar, 100 * fraction, duration(left),
                    layer >= 0 ? fmt::format("  layer {}", layer) : "");
    std::fwrite(text.data(), 1, text.size(), stderr);
    drawn_ = true;
}

void ProgressBar::clear() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
}

}  // namespace tsdiag::cli
