#include "support/coverage.hpp"

#include <fmt/format.h>

#include <cstdlib>

/// coverage [SERIES [RESAMPLES [SEED [T...]]]]: the table of docs/metrics.md, "Gradients over
/// training".  All numbers of one T use the draws of SEED, so their errors are correlated.
int main(int argc, char** argv) {
    using tsdiag::test::Coverage;
    const tsdiag::Index series = argc > 1 ? std::atoi(argv[1]) : 2000,
                        resamples = argc > 2 ? std::atoi(argv[2]) : 1000;
    const auto seed = std::uint64_t(argc > 3 ? std::atoi(argv[3]) : 11);
    if (series < 1 || resamples < 100) {
        fmt::print(stderr, "coverage [SERIES [RESAMPLES [SEED [T...]]]]: of at least 1 and 100.\n");
        return 2;
    }
    std::vector<tsdiag::Index> counts;
    for (int i = 4; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
    if (counts.empty()) counts = {20, 50, 100, 200, 600};
    fmt::print("| T | law | phi = 0 | 0.5 | 0.8 | 0.9 |\n|---:|---|---:|---:|---:|---:|\n");
    for (const tsdiag::Index count : counts)
        for (const auto& [law, rsd, lognormal] : {std::tuple("normal, rsd 0.2", 0.2, false),
                                                  std::tuple("log-normal, rsd 0.2", 0.2, true),
                                                  std::tuple("log-normal, rsd 0.5", 0.5, true)}) {
            fmt::print("| {} | {} |", count, law);
            for (const double phi : {0.0, 0.5, 0.8, 0.9}) {
                const Coverage found =
                    tsdiag::test::coverage({.phi = phi, .rsd = rsd, .lognormal = lognormal}, count,
                                           series, resamples, seed);
                const double share = found.share();
                fmt::print(" {:.1f} \u00b1 {:.1f} % |", 100 * share, 100 * found.error(share));
                std::fflush(stdout);
            }
            fmt::print("\n");
        }
    return 0;
}
