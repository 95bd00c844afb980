#include "cifar.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "data.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag::training {

void read_cifar(const std::string& file, std::size_t skip, Index classes, Images& out) {
    constexpr std::size_t pixels = 3 * 32 * 32;
    const std::string bytes = file_text(file, "CIFAR images", longest_data);
    const std::size_t record = skip + 1 + pixels;
    if (bytes.empty() || bytes.size() % record != 0)
        throw FormatError(fmt::format("{}: has {} bytes, expected a multiple of {}.", file,
                                      bytes.size(), record));
    for (std::size_t at = 0; at < bytes.size(); at += record) {
        const auto label = std::uint8_t(bytes[at + skip]);
        if (label >= classes)
            throw FormatError(fmt::format("{}: image {} has the label {}, expected 0 to {}.", file,
                                          at / record, label, classes - 1));
        out.labels.push_back(label);
        const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data()) + at + skip + 1;
        out.pixels.insert(out.pixels.end(), first, first + pixels);
    }
}

Cifar10 read_cifar10(const std::string& directory) {
    const std::filesystem::path folder = directory;
    Cifar10 out;
    for (int k = 1; k <= 5; ++k)
        read_cifar((folder / fmt::format("data_batch_{}.bin", k)).string(), 0, 10, out.training);
    read_cifar((folder / "test_batch.bin").string(), 0, 10, out.held_out);
    return out;
}

}  // namespace tsdiag::training
