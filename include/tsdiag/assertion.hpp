#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tsdiag/comparison.hpp"

/// Assertions on the numbers of results, for the tests of a training.
namespace tsdiag {

/// A number of a result: METRIC[@STAGE][:LAYER[.HEAD]].  LAYER is a number, `last`, or `max`,
/// `min`, `mean` over the layers, HEAD likewise; without HEAD the mean over the heads.  The stage
/// is by default the one at which summaries read the metric.
struct NumberName {
    struct Selector {
        enum class Kind { none, one, last, most, least, mean } kind = Kind::none;
        Index value = 0;
    };
    std::string text = {};
    std::string metric = {}, stage = {};
    Selector layer = {}, head = {};
};
/// Throws `UsageError` that quotes `text` and begins with `option`, with the nearest metric for an
/// unknown one.
NumberName parse_number_name(const std::string& text, const std::string& option);
/// The number of `result`; none where it is undefined or was not measured.  Of a number that is
/// known to an interval only, the middle.
std::optional<double> number_of(const NumberName& name, const MeasuredResult& result);

/// A statement about a number of results: [RESULT[-RESULT]:] METRIC[@STAGE][:LAYER[.HEAD]] OP
/// NUMBER
///
/// RESULT is A, B, ... in the order of the results; "B-A" is the difference; without it the
/// statement is about each result.  The number is named as `NumberName` has it; OP is <, <=, > or
/// >=.
struct Assertion {
    enum class Relation { less, at_most, more, at_least };
    std::string text = {};
    std::optional<std::size_t> result = {}, minus = {};
    NumberName number = {};
    Relation relation = Relation::less;
    double bound = 0;
};
/// Throws `UsageError` that quotes `text`, with the nearest metric for an unknown one.
Assertion parse_assertion(const std::string& text, std::size_t results);

/// Whether an assertion holds.  It is judged by the measured number, not by an interval of its
/// mean; a number that is known to an interval only must satisfy it throughout.  It fails, with the
/// reason, where a number that it needs is undefined or was not measured.
using Judgement = RunRecord::Judgement;
/// One for the difference, or for each result that the assertion is about.
std::vector<Judgement> judge(const Assertion& assertion, std::span<const MeasuredResult> results);

}  // namespace tsdiag
