#pragma once
#include <cstdint>
#include <exception>

namespace tsdiag {

/// body(i) for i in [first, end) on all threads, each of which takes the next i when it is free.
/// Results are to be written by index. An exception that left a parallel region would end the
/// process; here that of the lowest index is thrown once all have ended.
template <class Body>
void in_parallel(std::int64_t first, std::int64_t end, const Body& body) {
    std::exception_ptr thrown;
    std::int64_t thrown_at = end;
#pragma omp parallel for schedule(dynamic) if (end - first > 1)
    for (std::int64_t i = first; i < end; ++i) {
        try {
            body(i);
        } catch (...) {
#pragma omp critical(tsdiag_in_parallel)
            if (i < thrown_at) {
                thrown_at = i;
                thrown = std::current_exception();
            }
        }
    }
    if (thrown) std::rethrow_exception(thrown);
}
template <class Body>
void in_parallel(std::int64_t count, const Body& body) {
    in_parallel(0, count, body);
}

}  // namespace tsdiag
