#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

/// The only result of a run: metric rows and curve rows, aggregated over samples.
namespace tsdiag {

using Index = std::int64_t;

/// One number of one sample, or the reason why there is none.
struct Value {
    std::optional<double> value;      ///< finite where present
    std::optional<double> low, high;  ///< the interval of a value that is not certified
    std::string note;                 ///< why it is undefined or uncertain; empty otherwise
    Value() = default;
    Value(double v) : value(v) {}
};
/// A metric that is undefined for its input.
Value undefined(std::string reason);
/// A value that could not be certified: known to lie in [low, high].
Value interval(double low, double high, std::string reason);

/// Where a number belongs.  Layers and heads count from 0; -1 and empty mean "does not apply".
struct Place {
    Index step = -1, layer = -1;
    std::string stage = {};
    Index head = -1;
    std::string tensor = {};
    auto operator<=>(const Place&) const = default;
};

/// One row of metrics.csv.
struct MetricRow {
    std::string model = {};
    Place at = {};
    std::string metric = {};
    std::optional<double> value = {}, low = {}, high = {}, standard_error = {};
    Index count = 0;  ///< in how many samples it was defined
    std::string note = {};
    /// The value of each sample, trial by trial, none where it is undefined; empty: not kept.
    std::vector<std::optional<double>> samples = {};
};

/// One row of curves.csv.
struct CurveRow {
    std::string model = {};
    Place at = {};
    std::string curve = {};
    double x = 0;
    std::optional<double> y = {}, standard_error = {};
    Index count = 0;
};

/// An array to be kept whole, row-major: an attention map, or with head -1 one of a whole layer.
struct Map {
    Place at = {};
    std::string name = {};
    Index rows = 0, cols = 0;
    std::vector<double> values = {};
};

/// Output of probes.  A sink knows the sample; a probe reports one sample.
class Sink {
  public:
    virtual ~Sink() = default;
    virtual void scalar(const Place& at, std::string_view metric, const Value& value) = 0;
    virtual void point(const Place& at, std::string_view curve, double x, const Value& y) = 0;
    virtual void matrix(Map map) = 0;
};

/// Aggregates samples.  Here, and only here, a value or mean that is not finite, or has a bound
/// that is not, is undefined with that as its reason, and a matrix with such an entry is left out:
/// it takes no other number with it.  Throws `NonFiniteError` naming the place of such an abscissa.
///
/// Value = mean of the samples' values (Welford), stderr = sd/sqrt(count),
/// count = how many were defined; low, high = means of the samples' bounds, where a certified value
/// is its own bound, empty when no sample had any; note = the first reason.  A standard error needs
/// two samples. Rows come out in the order in which their keys first appeared.  Cost: O(1) a value.
class Table final : public Sink {
  public:
    explicit Table(std::string model = {});
    void scalar(const Place& at, std::string_view metric, const Value& value) override;
    void point(const Place& at, std::string_view curve, double x, const Value& y) override;
    void matrix(Map map) override;  ///< the first sample's is kept

    /// Keeps the value of each sample in the rows without a head (`MetricRow::samples`): of all of
    /// them, or where those are more than `most_samples_kept`, or with rows of another table, none.
    void keep_samples() { keeps_samples_ = true; }
    static constexpr std::size_t most_samples_kept = std::size_t(1) << 19;

    const std::string& model() const { return model_; }
    std::vector<MetricRow> metrics() const;
    std::vector<CurveRow> curves() const;
    const std::vector<Map>& maps() const { return maps_; }
    /// Appends the rows of `other` (several models or steps in one report).
    void append(const Table& other);
    /// Appends rows read from a file: value, bounds, standard error and count of each are kept.
    void append(const std::vector<MetricRow>& metrics, const std::vector<CurveRow>& curves);

    /// The row of one metric, or nullopt.
    std::optional<MetricRow> find(const Place& at, std::string_view metric) const;

  private:
    struct Moments {
        Index seen = 0, count = 0;  ///< samples, samples in which it was defined
        double mean = 0;
        long double m2 = 0;  ///< squares of large and of small values fit
        Index known = 0;     ///< samples with a value or bounds
        double low = 0, high = 0;
        bool bounded = false;  ///< some sample gave bounds
        std::string note;
    };
    /// Strings are interned: a run adds a million values at a few thousand places.
    struct Key {
        std::uint32_t model = 0, stage = 0, tensor = 0, name = 0;
        Index step = -1, layer = -1, head = -1;
        double x = 0;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const;
    };
    struct StringHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view s) const {
            return std::hash<std::string_view>{}(s);
        }
    };
    /// Moments in the order in which their keys first appeared.
    struct Rows {
        std::vector<Key> keys;
        std::vector<Moments> moments;
        std::unordered_map<Key, std::size_t, KeyHash> index;
        Moments& at(const Key& key);
    };
    void keep_sample(const Key& key, std::optional<double> value);
    void forget_samples();
    static void add(Moments& m, const Value& value);
    static void merge(Moments& into, const Moments& from);
    static Moments moments_of(const MetricRow& row);
    std::uint32_t intern(std::string_view s);
    Key key(const Place& at, std::string_view name, double x);
    Key translate(const Key& key, const Table& other);
    Place place(const Key& key) const;
    MetricRow metric_row(const Key& key, const Moments& m) const;

    std::string model_;
    std::vector<std::string> names_;
    std::unordered_map<std::string, std::uint32_t, StringHash, std::equal_to<>> ids_;
    Rows metrics_, curves_;
    std::vector<Map> maps_;
    bool keeps_samples_ = false;
    std::vector<std::vector<std::optional<double>>> samples_;  ///< of each of `metrics_`
    std::size_t samples_kept_ = 0;
};

/// `model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,note,of,unit`: quoting of
/// RFC 4180, the shortest decimal that round-trips, empty where a field does not apply.
std::string metrics_csv(const std::vector<MetricRow>& rows);
std::string curves_csv(const std::vector<CurveRow>& rows);
/// samples.csv, `layer,stage,tensor,metric,0,1,...`: of each row with `count` samples the value of
/// each, in a column of its own; empty where there is no such row, or one sample.
std::string samples_csv(const std::vector<MetricRow>& rows, Index count);
/// Gives the rows of one model at `step` without a head their samples, `count` of each.  Throws
/// `FormatError` for another table.
void read_samples_csv(std::string_view text, std::string_view source, Index count, Index step,
                      std::vector<MetricRow>& rows);
std::vector<MetricRow> read_metrics_csv(std::string_view text, std::string_view source);
std::vector<CurveRow> read_curves_csv(std::string_view text, std::string_view source);

/// Shortest decimal that reads back as the same double.
std::string shortest(double value);

}  // namespace tsdiag
