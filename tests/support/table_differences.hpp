#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/table.hpp"

/// Compares two float64 tables of one measurement by backends with different rounding.
namespace tsdiag::test {

/// |found - expected| <= relative max(|expected|, floor).
struct Allowed {
    double relative = 0, floor = 0;
    const char* reason = "";

    double at(double expected) const { return relative * std::max(std::abs(expected), floor); }
};

/// The tolerance between two backends.
inline Allowed allowed(std::string_view metric) {
    constexpr std::string_view iterated[] = {"lambda2_abs", "spectral_gap", "gap",  "delta",
                                             "delta_pi",    "est1",         "est2", "stable_rank"};
    constexpr std::string_view rests[] = {"row_sum_dev", "est_mu", "neg_mass", "omega"};
    if (std::ranges::find(iterated, metric) != std::end(iterated))
        return {1e-6, 1e-3, "iterations stop at residuals of 1e-7, each backend at its own"};
    if (std::ranges::find(rests, metric) != std::end(rests))
        return {1e-10, 1e-1, "the rest of sums near 1: roundings of these, not of it"};
    if (metric == "local_acc_appendix")
        return {0.02, 1, "counts columns up to a sum: at a tie rounding decides on one of a row"};
    return {1e-10, 1e-4, "sums of some 1e3 roundings of 1e-16, amplified by what follows"};
}

/// Of one metric, or curve.
struct Difference {
    Index numbers = 0;    ///< present on both sides
    double worst = 0;     ///< largest |found - expected| / allowed
    double largest = 0;   ///< |found - expected| at the worst place
    std::string at = {};  ///< the worst place
};

struct TableDifferences {
    std::vector<std::string> faults;  ///< one sentence each; empty: the tables agree
    std::map<std::string, Difference, std::less<>> metrics;
    Index numbers = 0;

    void number(std::string_view metric, const std::string& where, double found, double expected) {
        const Allowed may = allowed(metric);
        const double off = std::abs(found - expected), share = off / may.at(expected);
        Difference& d = metrics[std::string(metric)];
        ++d.numbers, ++numbers;
        if (!(share <= d.worst)) d = {d.numbers, share, off, where};
        if (!(share <= 1))
            faults.push_back(where + " is " + shortest(found) + ", expected " + shortest(expected) +
                             " to " + shortest(may.at(expected)) + " (" + may.reason + ")");
    }
};

namespace detail {

inline std::string place(std::string_view name, const Place& at) {
    std::string text(name);
    if (at.layer >= 0) text += " of layer " + std::to_string(at.layer);
    if (!at.stage.empty()) text += ", " + at.stage;
    if (at.head >= 0) text += ", head " + std::to_string(at.head);
    return at.tensor.empty() ? text : text + ", " + at.tensor;
}

inline void compare(const MetricRow& found, const MetricRow& expected, TableDifferences& out) {
    const std::string where = place(expected.metric, expected.at);
    if (found.at != expected.at || found.metric != expected.metric)
        return out.faults.push_back(place(found.metric, found.at) + " stands where " + where +
                                    " was expected");
    if (found.value && expected.value)
        return out.number(expected.metric, where, *found.value, *expected.value);
    if (found.value.has_value() != expected.value.has_value())
        return out.faults.push_back(where + " is undefined in one table alone: " + found.note +
                                    expected.note);
    if (found.low.has_value() != expected.low.has_value() ||
        (found.low && (*found.low > *expected.high || *expected.low > *found.high)))
        return out.faults.push_back(where + ": the intervals exclude each other");
    if (!found.low && found.note != expected.note)
        out.faults.push_back(where + " is undefined for '" + found.note + "', expected '" +
                             expected.note + "'");
}

inline void compare(const CurveRow& found, const CurveRow& expected, TableDifferences& out) {
    const std::string where = place(expected.curve, expected.at) + ", x = " + shortest(expected.x);
    if (found.at != expected.at || found.curve != expected.curve || found.x != expected.x)
        return out.faults.push_back("another point stands where " + where + " was expected");
    if (found.y && expected.y) return out.number(expected.curve, where, *found.y, *expected.y);
    if (found.y || expected.y) out.faults.push_back(where + " is undefined in one table alone");
}

}  // namespace detail

/// Adds the differences of two tables with rows in the same order.
template <class Row>
void compare_rows(const std::vector<Row>& found, const std::vector<Row>& expected,
                  TableDifferences& out) {
    if (found.size() != expected.size())
        out.faults.push_back(std::to_string(found.size()) + " rows, expected " +
                             std::to_string(expected.size()));
    for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i)
        detail::compare(found[i], expected[i], out);
}

}  // namespace tsdiag::test
