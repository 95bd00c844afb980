#include <fmt/format.h>

#include "tsdiag/file.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {

void write_tables(const RunResult& result, const std::filesystem::path& directory) {
    const std::vector<MetricRow> metrics = result.table.metrics();
    write_atomically(directory / "metrics.csv", metrics_csv(metrics));
    write_atomically(directory / "curves.csv", curves_csv(result.table.curves()));
    const RunRecord::Input input = RunRecord(result.run).input;
    const Index count = input.samples.value_or(0) * input.trials.value_or(0);
    if (const std::string samples = samples_csv(metrics, count); !samples.empty())
        write_atomically(directory / "samples.csv", samples);
    if (result.table.maps().empty()) return;
    std::vector<NamedArray> arrays;
    for (const Map& map : result.table.maps()) {
        NamedArray array;
        const bool of_layer = map.at.head < 0;
        array.name = fmt::format("{}.{}", map.name, map.at.layer);
        if (!of_layer) array.name += fmt::format(".{}", map.at.head);
        array.shape = {map.rows, map.cols};
        if (of_layer) array.shape.erase(array.shape.begin());
        array.f64 = map.values;
        arrays.push_back(std::move(array));
    }
    write_npz(directory / "maps.npz", arrays);
}

}  // namespace tsdiag
