#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/table.hpp"

/// What equal steps of a log mean: a resumed training, epochs, or several series.
namespace tsdiag {

/// One number of a log.
struct LoggedNumber {
    Index step = 0;
    double value = 0;
    std::optional<double> epoch = {};
    Index file = 0;
    std::size_t record = 0;  ///< of `RecordKeys`
    Index complaint = -1;    ///< why it cannot be used; -1: it can
};

/// The keys of each record other than its step, epoch and series, which may tell series apart.  A
/// key with more than 4096 values does not and is dropped.
class RecordKeys {
  public:
    /// The value of one record; key 0 is the first that was seen.
    struct Entry {
        std::uint32_t key = 0, value = 0;
    };

    /// Begins a record.
    void begin();
    void put(std::string_view key, std::string_view value);
    /// The number of the record that was begun.
    std::size_t current();

    std::vector<Entry> of(std::size_t record) const;
    const std::string& name(std::uint32_t key) const { return keys_[key].name; }
    const std::string& value(const Entry& entry) const {
        return keys_[entry.key].values[entry.value];
    }
    /// Are all its values numbers?
    bool numeric(std::uint32_t key) const { return keys_[key].numeric; }

  private:
    struct Key {
        std::string name;
        std::map<std::string, std::uint32_t, std::less<>> places = {};
        std::vector<std::string> values = {};
        bool numeric = true, dropped = false;
    };
    std::vector<Key> keys_;
    std::map<std::string, std::uint32_t, std::less<>> index_;
    std::vector<Entry> entries_;
    std::vector<std::size_t> begins_;
    bool open_ = false;
    std::vector<Entry> pending_;
};

/// One series of the numbers: what its records have in common (" layer=3"; empty where it is the
/// only one), and its numbers, of which the later of equal steps counts.
struct SettledSeries {
    std::string of = {};
    std::vector<LoggedNumber> numbers = {};
    std::vector<std::string> notes = {};
    std::string refusal = {};  ///< why equal steps have no meaning; empty: they have
    Index replaced = 0;        ///< numbers whose step occurs again
};

/// The series that the numbers of one name are, which are in the order of the log:
///
///  - where the steps go back as the epoch grows, they are counted on;
///  - where they go back to one of the later half, or after the first tenth and then beyond all
///    before, or repeat a beginning not longer than a quarter of what follows, the training was
///    resumed;
///  - else the keys that are constant from one return of the steps to the next, or that occur with
///    the first step in each of their values, tell several series apart; text does so also where
///    the training was resumed;
///  - else keys that all records have tell several series apart, whatever the steps: those whose
///    words repeat in one order, or return behind others under a key such as `network` or `split`,
///    and those of which two numbers take turns;
///  - else there is a refusal in the one series that is returned.
///
/// Cost: O(n log n) for n numbers, a return of the steps (at most 100 are tried) and a key.
std::vector<SettledSeries> settled_series(const std::vector<LoggedNumber>& numbers,
                                          const RecordKeys& keys);

/// The most frequent difference of neighbouring steps; the smallest of equally frequent ones.
Index usual_distance(const std::vector<Index>& steps);

}  // namespace tsdiag
