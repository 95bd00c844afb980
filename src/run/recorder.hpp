#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tsdiag/table.hpp"

namespace tsdiag {

/// Records the values of one trial for a later replay.
class Recorder final : public Sink {
  public:
    void scalar(const Place& at, std::string_view metric, const Value& value) override;
    void point(const Place& at, std::string_view curve, double x, const Value& y) override;
    void matrix(Map map) override;
    void replay(Sink& out) const;

  private:
    struct Entry {
        Place at;
        std::string name;
        Value value;
        double x = 0;
        bool is_point = false;
    };
    std::vector<Entry> entries_;
    std::vector<Map> maps_;
};

/// Sums the progress of all threads; reports it when the calling thread adds to it.
class Meter {
  public:
    Meter(double whole, std::function<void(double)> tell) : whole_(whole), tell_(std::move(tell)) {}
    void add(double part);

  private:
    double whole_;
    std::function<void(double)> tell_;
    std::atomic<double> done_ = 0;
};

}  // namespace tsdiag
