#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "support/table_differences.hpp"

/// Are the tables of two runs the same but for rounding?
///
///     tsdiag_compare_tables FOUND EXPECTED
///
/// for two directories that `tsdiag probe --dtype f64` wrote.  Prints each metric with its worst
/// number, and a last line; exits with 0 where all is within the tolerance `allowed`, 1 where it is
/// not, where nothing was measured, and where a table is missing or cannot be read.
namespace {

using namespace tsdiag;

std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error(file + ": cannot be read");
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

test::TableDifferences differences(const std::string& found, const std::string& expected) {
    test::TableDifferences all;
    const std::string a = found + "/metrics.csv", b = expected + "/metrics.csv";
    test::compare_rows(read_metrics_csv(read(a), a), read_metrics_csv(read(b), b), all);
    const std::string c = found + "/curves.csv", d = expected + "/curves.csv";
    test::compare_rows(read_curves_csv(read(c), c), read_curves_csv(read(d), d), all);
    if (all.numbers == 0) all.faults.emplace_back("no number is in both tables");
    return all;
}

int report(const test::TableDifferences& all) {
    constexpr std::size_t most = 10;
    std::string worst = "nothing";
    double share = -1;
    for (const auto& [metric, d] : all.metrics) {
        std::printf("%-20s %6lld numbers, worst %.1e (%.1e of what is allowed): %s\n",
                    metric.c_str(), static_cast<long long>(d.numbers), d.largest, d.worst,
                    d.at.c_str());
        if (d.worst > share) share = d.worst, worst = metric;
    }
    for (std::size_t i = 0; i < all.faults.size() && i < most; ++i)
        std::printf("%s\n", all.faults[i].c_str());
    if (all.faults.size() > most) std::printf("and %zu more\n", all.faults.size() - most);
    std::printf(
        "%s: %lld numbers of %zu metrics, %zu faults, worst %s at %.1e of what is allowed\n",
        all.faults.empty() ? "same" : "different", static_cast<long long>(all.numbers),
        all.metrics.size(), all.faults.size(), worst.c_str(), share);
    return all.faults.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 3) throw std::runtime_error("usage: tsdiag_compare_tables FOUND EXPECTED");
    return report(differences(argv[1], argv[2]));
} catch (const std::exception& error) {
    std::printf("different: %s\n", error.what());
    return 1;
}
