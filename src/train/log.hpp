#pragma once
#include <array>
#include <filesystem>
#include <string>

#include "tsdiag/output.hpp"
#include "tsdiag/train.hpp"

namespace tsdiag::training {

/// How long each log was when a checkpoint was saved, and the digest of that: by file name, with
/// `grows`.
using LogMarks = Manifest::Entries;

/// steps.csv, gradients.csv, evaluations.csv, metrics.csv and curves.csv of a run, to which lines
/// are only ever added.
class Log {
  public:
    static const std::array<const char*, 5>& files();
    /// The tables without a line, into a folder.
    static void write_empty(const std::filesystem::path& directory);
    /// The marks of those.
    static LogMarks empty_marks();

    Log() = default;
    ~Log() { close(); }
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    /// Goes on behind `marks`: what stands behind them is cut off.  `table` has what metrics.csv
    /// and curves.csv hold.
    void open(const std::filesystem::path& directory, const LogMarks& marks, const Table& table);
    void add(const TrainStep& step);
    void add(const Evaluation& evaluation);
    void add(const Table& table);  ///< the rows that it has got since
    /// Waits until the disk has all that was added; returns the marks.
    LogMarks sync();
    void close();

  private:
    struct File {
        int descriptor = -1;
        std::uint64_t bytes = 0;
        Sha256 digest = {};
    };
    void append(std::size_t file, std::string_view text);
    std::filesystem::path directory_;
    std::array<File, 5> open_ = {};
    std::size_t rows_ = 0, points_ = 0;  ///< of the table, that are written
};

/// Reads the logs of `directory` into `result`: all of them, or as much as `marks` says, which must
/// be what was written.  Throws `FormatError` naming file and line.
void read_logs(const std::filesystem::path& directory, const LogMarks* marks, TrainResult& result);

}  // namespace tsdiag::training
