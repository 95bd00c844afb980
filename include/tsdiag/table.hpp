#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

/// The only result of a run: metric rows and curve rows, aggregated over samples.
namespace tsdiag {

using Index = std::int64_t;

/// One number of one sample, or the reason why there is none.
struct Value {
    std::optional<double> value;  ///< finite where present
    std::optional<double> low, high;  ///< the interval of a value that is not certified
    std::string note;                 ///< why it is undefined or uncertain; empty otherwise
    Value() = default;
    Value(double v) : value(v) {}
};
/// A metric that has no meaning for its input.
Value undefined(std::string reason);
/// A value that could not be certified: known to lie in [low, high].
Value interval(double low, double high, std::string reason);

/// Where a number belongs.  Layers and heads count from 0; -1 and empty mean "does not apply".
struct Place {
    Index step = -1, layer = -1;
    std::string stage;
    Index head = -1;
    std::string tensor;
    auto operator<=>(const Place&) const = default;
};

/// One row of metrics.csv.
struct MetricRow {
    std::string model;
    Place at;
    std::string metric;
    std::optional<double> value, low, high, standard_error;
    Index count = 0;  ///< in how many samples it was defined
    std::string note;
};

/// One row of curves.csv.
struct CurveRow {
    std::string model;
    Place at;
    std::string curve;
    double x = 0;
    std::optional<double> y, standard_error;
    Index count = 0;
};

/// An array to be kept whole (an attention map): row-major.
struct Map {
    Place at;
    std::string name;
    Index rows = 0, cols = 0;
    std::vector<double> values;
};

/// What probes write to.  A sink knows the sample; a probe speaks of one sample.
class Sink {
  public:
    virtual ~Sink() = default;
    /// Throws `NonFiniteError` naming metric and place when a value is not finite.
    virtual void scalar(const Place& at, std::string_view metric, const Value& value) = 0;
    virtual void point(const Place& at, std::string_view curve, double x, const Value& y) = 0;
    virtual void matrix(Map map) = 0;
};

/// Aggregates samples: value = mean of the samples' values (Welford), stderr = sd/sqrt(count),
/// count = how many were defined.  Rows come out in the order in which their keys first appeared.
class Table final : public Sink {
  public:
    explicit Table(std::string model = {});
    void scalar(const Place& at, std::string_view metric, const Value& value) override;
    void point(const Place& at, std::string_view curve, double x, const Value& y) override;
    void matrix(Map map) override;  ///< the first sample's is kept

    const std::string& model() const { return model_; }
    std::vector<MetricRow> metrics() const;
    std::vector<CurveRow> curves() const;
    const std::vector<Map>& maps() const { return maps_; }
    /// Appends the rows of `other` (several models or steps in one report).
    void append(const Table& other);

    /// The row of one metric, or nothing.
    std::optional<MetricRow> find(const Place& at, std::string_view metric) const;

  private:
    struct Moments {
        Index order = 0, seen = 0, count = 0;
        double mean = 0, m2 = 0;
        std::optional<double> low, high;
        std::string note;
    };
    using MetricKey = std::tuple<std::string, Place, std::string>;
    using CurveKey = std::tuple<std::string, Place, std::string, double>;
    static void add(Moments& m, const Value& value);

    std::string model_;
    std::map<MetricKey, Moments> metrics_;
    std::map<CurveKey, Moments> curves_;
    std::vector<Map> maps_;
};

/// `model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,note`: RFC 4180 quoting, the
/// shortest decimal that round-trips each double, empty where a field does not apply.
std::string metrics_csv(const std::vector<MetricRow>& rows);
std::string curves_csv(const std::vector<CurveRow>& rows);
std::vector<MetricRow> read_metrics_csv(std::string_view text, std::string_view source);
std::vector<CurveRow> read_curves_csv(std::string_view text, std::string_view source);

/// Shortest decimal that reads back as the same double.
std::string shortest(double value);

/// Writes `text` to a temporary name beside `file`, flushes it to the disk and renames it: a reader sees
/// the old file or the whole new one.  Throws `Error` naming file and cause (disk full, permission ...).
void write_atomically(const std::filesystem::path& file, std::string_view text);

}  // namespace tsdiag
