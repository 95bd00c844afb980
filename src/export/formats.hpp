#pragma once
#include <cstdint>
#include <string>

#include "tsdiag/export.hpp"

/// The members of the list.
namespace tsdiag::exports {

/// Appends the lowest `bytes` bytes of `value`, little-endian.
void append_bytes(std::string& out, std::uint64_t value, int bytes);
/// Appends `value` in groups of seven bits (LEB128).
void append_varint(std::string& out, std::uint64_t value);

extern const ExportFormat json_lines, parquet, tensorboard;

}  // namespace tsdiag::exports
