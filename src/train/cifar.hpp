#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tsdiag/tensor.hpp"

namespace tsdiag::training {

/// Pixels and labels in memory.
struct Images {
    std::vector<std::uint8_t> pixels = {};  ///< of an image by channel, then by row
    std::vector<Index> labels = {};
};
/// Appends the records of a binary file of CIFAR: `skip` bytes, a label, 3 x 32 x 32 pixels. Throws
/// `FormatError` naming the file for another size or a label beyond `classes`.
void read_cifar(const std::string& file, std::size_t skip, Index classes, Images& out);

/// CIFAR-10 from a folder: data_batch_1.bin to data_batch_5.bin, and test_batch.bin.
struct Cifar10 {
    Images training, held_out;
};
Cifar10 read_cifar10(const std::string& directory);

}  // namespace tsdiag::training
