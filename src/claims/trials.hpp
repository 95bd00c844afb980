#pragma once
#include <exception>
#include <vector>

#include "tsdiag/table.hpp"

namespace tsdiag::claim {

/// body(t) for t in [0, count), on all threads.  Results are to be written by index.  The exception
/// of the lowest trial is thrown once all have ended.
template <class Body>
void for_each_trial(Index count, const Body& body) {
    std::exception_ptr first;
    Index first_trial = count;
#pragma omp parallel for schedule(dynamic)
    for (Index t = 0; t < count; ++t) {
        try {
            body(t);
        } catch (...) {
#pragma omp critical(tsdiag_claim_trial)
            if (t < first_trial) {
                first_trial = t;
                first = std::current_exception();
            }
        }
    }
    if (first) std::rethrow_exception(first);
}

}  // namespace tsdiag::claim
