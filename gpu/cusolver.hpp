#pragma once
#ifdef TSDIAG_EMULATED
#include "emulated_cusolver.hpp"
#else
#include <cusolverDn.h>
#endif
#include <fmt/format.h>

#include <string>

#include "tsdiag/error.hpp"

/// cuSOLVER, which is opened when a dense problem is first solved: loading it takes time, and most
/// runs have none (decision 146).
namespace tsdiag::gpu {

/// The functions that are used, less their prefix.
#define TSDIAG_EACH_OF_CUSOLVER(use) \
    use(Create);                     \
    use(SetStream);                  \
    use(CreateParams);               \
    use(Xgeev_bufferSize);           \
    use(Xgeev);                      \
    use(Xsyevd_bufferSize);          \
    use(Xsyevd);                     \
    use(Xgetrf_bufferSize);          \
    use(Xgetrf);                     \
    use(Xgetrs)

struct Cusolver {
#define TSDIAG_DECLARE(name) decltype(&cusolverDn##name) name = nullptr
    TSDIAG_EACH_OF_CUSOLVER(TSDIAG_DECLARE);
#undef TSDIAG_DECLARE
};

/// Opens the library at the first call; it is never closed.  Throws `NotAvailable` where it is
/// missing.  Implemented by cusolver.cpp, and by emulated_cusolver.cpp.
const Cusolver& cusolver();

/// `release`: of CUDA, as "13.0".
inline NotAvailable no_cusolver(const std::string& why, const std::string& release) {
    return NotAvailable(
        fmt::format("cuSOLVER, which finds dense eigenvalues on a device, cannot be opened: {}; "
                    "install it from CUDA {}, beside cuBLAS or in a folder of LD_LIBRARY_PATH, or "
                    "use --device cpu",
                    why, release));
}

}  // namespace tsdiag::gpu
