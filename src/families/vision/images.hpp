#pragma once
#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// Shared by vision transformers.
namespace tsdiag::families {

/// Reads a patch kernel (width, channels, height, width of a patch).
void read_patch_kernel(Reader& reader, const std::string& weight);
/// Sets the image's size so that its patches and, if they have positions, the prefix fill `rows`
/// rows of the position table: from the config (`image_size`), else a square.
void read_grid(Reader& reader, Index rows);

/// Sets the image's size, which no tensor shows: from the config, else a square of `side`.  A
/// multiple of the patch.
void read_image_size(Reader& reader, Index side);
/// Refuses model arguments of timm beside the name, but for sizes that the tensors show.
void check_timm_arguments(const Reader& reader);

}  // namespace tsdiag::families
