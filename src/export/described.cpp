#include "described.hpp"

#include "tsdiag/metric.hpp"

namespace tsdiag {

std::string_view described_by(const MetricRow& row) {
    const Metric* metric = find_metric(row.metric);
    if (!metric) return "";
    switch (metric->of) {
        case Of::state:
            return "state";
        case Of::step:
            return "step";
        case Of::layer:
            return "layer";
        case Of::head:
            return row.at.head < 0 ? "mean over heads" : "head";
        case Of::gradient:
            return "gradient";
        case Of::curve:
            return "curve";
        case Of::series:
            return "series";
    }
    return "";
}

std::string_view unit_of(const MetricRow& row) {
    const Metric* metric = find_metric(row.metric);
    return metric ? metric->unit : "";
}

}  // namespace tsdiag
