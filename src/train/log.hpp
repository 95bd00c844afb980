#pragma once
#include <filesystem>
#include <fstream>

#include "tsdiag/train.hpp"

namespace tsdiag::training {

/// The tables of a run in its directory, a line each step.
class Log {
  public:
    /// Nothing is written where `directory` is empty.
    explicit Log(std::filesystem::path directory) : directory_(std::move(directory)) {}
    /// Begins the files with what `result` holds.
    void begin(const TrainResult& result);
    void add(const TrainStep& step);
    void add(const Evaluation& evaluation);
    void write(const Table& table) const;  ///< metrics.csv, curves.csv: what the probes said

    /// What an earlier run logged up to `step`, for a result to go on from; the largest number:
    /// all.
    void read(Index step, TrainResult& result) const;

  private:
    std::filesystem::path directory_;
    std::ofstream steps_, gradients_, evaluations_;
};

}  // namespace tsdiag::training
