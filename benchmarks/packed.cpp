#include <fmt/format.h>
#include <time.h>

#include <filesystem>
#include <fstream>

#include "support/packers.hpp"
#include "tsdiag/checkpoint.hpp"

/// How fast one core dequantises a matrix of 4096 x 4096 of each layout of packed weights, in GB of
/// float32 a second of its own time: the best of ten, so that other programs count little.
namespace {

using namespace tsdiag;

double own_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

double gigabytes_a_second(const RawTensor& tensor) {
    std::vector<float> out(std::size_t(tensor.count()));
    double best = 1e9;
    for (int i = 0; i < 10; ++i) {
        const double start = own_seconds();
        widen<float>(tensor, out);
        best = std::min(best, own_seconds() - start);
    }
    return 4e-9 * double(out.size()) / best;
}

}  // namespace

int main() {
    const std::filesystem::path file = std::filesystem::temp_directory_path() / "tsdiag-packed";
    for (const test::Packer& packer : test::all_packers()) {
        std::mt19937 random(1);
        const auto matrix = packer.pack("layer.", 4096, 4096, random);
        std::ofstream(file, std::ios::binary) << test::safetensors(matrix.arrays);
        Json config;
        config.set("quantization_config", Json::parse(packer.quantised, packer.name));
        std::vector<std::string> warnings;
        const auto opened = apply_packing(open_checkpoint(file), config, warnings);
        fmt::print("{:<40} {:6.2f} GB/s\n", packer.name,
                   gigabytes_a_second(opened->tensor("layer.weight")));
    }
    std::filesystem::remove(file);
}
