#pragma once
#include <string>
#include <utility>
#include <vector>

#include "rows.hpp"

/// Classes of heads in the verdict, each with a criterion on the numbers of metrics.csv, which the
/// caption of its figure states.
namespace tsdiag::reports {

/// Nearly rank one: all rows of P are nearly the same.  delta = |Pi2 P|_2 bounds the distance of
/// any direction of P from the mean row; lambda2_abs is the rate of repeated mixing.
constexpr double rank_one_lambda2 = 0.05, rank_one_delta = 0.2;
/// Identity-like: each row is almost one entry, near its own token, and P preserves its input.  A
/// head that attends to the previous token has row_max and local_auc near 1 too, but lambda2_abs
/// near 0.
constexpr double identity_row_max = 0.9, identity_local_auc = 0.9, identity_lambda2 = 0.9;
/// Sink-like: rows concentrate on an entry that is not near their own token (local_auc below the
/// 1/2 of uniform attention) but the same for many rows: delta^2 <= |P|_2^2 <= the greatest column
/// sum of a row-stochastic P, so delta > 1 means that one token receives more than one row's worth;
/// and a head that is nearly rank one has the same row everywhere.
constexpr double sink_row_max = 0.5, sink_local_auc = 0.5, sink_delta = 1;

using HeadAt = std::pair<Index, Index>;  ///< layer, head

/// " Nearly rank one: lambda2_abs < 0.05 and delta < 0.2.", for captions.
std::string rank_one_criterion();
/// The same of identity-like and sink-like heads.
std::string identity_and_sink_criteria();

struct HeadClass {
    std::string name;          ///< "nearly rank one"
    std::size_t measured = 0;  ///< heads for which all required metrics are defined
    std::vector<HeadAt> members = {};
};

/// The three kinds; `measured` is 0 where the table lacks a metric.
std::vector<HeadClass> head_classes(const TableView& rows, const std::string& model);

}  // namespace tsdiag::reports
