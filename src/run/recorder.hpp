#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/table.hpp"
#include "tsdiag/units.hpp"

namespace tsdiag {

/// Records the values of one trial for a later replay.
class Recorder final : public Sink {
  public:
    void scalar(const Place& at, std::string_view metric, const Value& value) override;
    void point(const Place& at, std::string_view curve, double x, const Value& y) override;
    void matrix(Map map) override;
    /// Ends a segment, a layer say: what follows belongs to the next.
    void mark() { marks_.push_back(entries_.size()); }
    /// Adds what another said later.
    void append(const Recorder& later);
    std::size_t segments() const { return marks_.size() + 1; }
    void replay(Sink& out) const;
    /// One segment, without maps.
    void replay(Sink& out, std::size_t segment) const;
    void replay_maps(Sink& out) const;

    void write(RecordWriter& out) const;
    /// Throws `FormatError` for bytes that `write` cannot have made.
    static Recorder read(RecordReader& in);

  private:
    struct Entry {
        Place at;
        std::string name;
        Value value;
        double x = 0;
        bool is_point = false;
        void replay(Sink& out) const;
    };
    static Entry read_entry(RecordReader& in, const std::vector<std::string_view>& names);
    std::vector<Entry> entries_;
    std::vector<Map> maps_;
    std::vector<std::size_t> marks_;
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
