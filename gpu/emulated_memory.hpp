#pragma once
#include <cstddef>
#include <functional>
#include <utility>

/// Memory of emulated devices.  A freed block is filled with NaN and is the first to be reused: at
/// once by the thread that freed it, whose stream keeps the order; by others after that stream has
/// processed it.
namespace tsdiag::gpu::emulator {

/// Null when out of memory; the second is for the stream to do before any use.
std::pair<void*, std::function<void()>> take(std::size_t bytes, int device);
/// What the stream has to do when the block is freed.
std::function<void()> give(void* data, int device);
/// Throws `Error` unless the bytes are all in one block of `device` that is in use.
void require_inside(const void* data, std::size_t bytes, int device, const char* what);
/// Whether `data` points into memory of a device.
bool is_on_device(const void* data);

std::size_t all_bytes();
std::size_t free_bytes();

}  // namespace tsdiag::gpu::emulator
