#include "head_classes.hpp"

#include <fmt/format.h>

namespace tsdiag::reports {
namespace {

/// The defined numbers of one head.
struct Head {
    std::optional<double> lambda2, delta, row_max, local_auc;
};

std::map<HeadAt, Head> heads_of(const TableView& rows, const std::string& model) {
    std::map<HeadAt, Head> found;
    for (const auto& [at, p] : rows.heads(model, metric::lambda2_abs)) found[at].lambda2 = p.value;
    for (const auto& [at, p] : rows.heads(model, metric::delta)) found[at].delta = p.value;
    for (const auto& [at, p] : rows.heads(model, metric::row_max)) found[at].row_max = p.value;
    for (const auto& [at, p] : rows.heads(model, metric::local_auc)) found[at].local_auc = p.value;
    return found;
}

bool nearly_rank_one(const Head& h) {
    return *h.lambda2 < rank_one_lambda2 && *h.delta < rank_one_delta;
}

}  // namespace

std::string rank_one_criterion() {
    return fmt::format(" Nearly rank one: lambda2_abs < {} and delta < {}.", rank_one_lambda2,
                       rank_one_delta);
}

std::string identity_and_sink_criteria() {
    return fmt::format(
        " Identity-like: row_max > {}, local_auc > {}, lambda2_abs > {}. Sink-like: row_max > {}, "
        "local_auc < {}, and delta > {} or nearly rank one.",
        identity_row_max, identity_local_auc, identity_lambda2, sink_row_max, sink_local_auc,
        sink_delta);
}

std::vector<HeadClass> head_classes(const TableView& rows, const std::string& model) {
    HeadClass rank_one{.name = "nearly rank one"}, identity{.name = "identity-like"},
        sink{.name = "sink-like"};
    for (const auto& [at, h] : heads_of(rows, model)) {
        if (h.lambda2 && h.delta) {
            ++rank_one.measured;
            if (nearly_rank_one(h)) rank_one.members.push_back(at);
        }
        if (!h.row_max || !h.local_auc || !h.lambda2) continue;
        ++identity.measured;
        if (*h.row_max > identity_row_max && *h.local_auc > identity_local_auc &&
            *h.lambda2 > identity_lambda2)
            identity.members.push_back(at);
        if (!h.delta) continue;
        ++sink.measured;
        if (*h.row_max > sink_row_max && *h.local_auc < sink_local_auc &&
            (*h.delta > sink_delta || nearly_rank_one(h)))
            sink.members.push_back(at);
    }
    return {rank_one, identity, sink};
}

}  // namespace tsdiag::reports
