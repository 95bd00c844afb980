#pragma once
#include <cstddef>
#include <functional>
#include <utility>

/// Memory of emulated devices.  A block that was given back holds NaN and is the first to be used
/// again: by the thread that gave it at once, as its stream keeps the order, by others once that
/// stream has come to it.
namespace tsdiag::gpu::emulator {

/// Null where there is no more; the second is to be done by the stream before anything with it.
std::pair<void*, std::function<void()>> take(std::size_t bytes, int device);
/// What the stream is to do where the block is given back.
std::function<void()> give(void* data, int device);
/// Throws `Error` where the bytes are not all in one block of `device` that is in use.
void require_inside(const void* data, std::size_t bytes, int device, const char* what);

std::size_t all_bytes();
std::size_t free_bytes();

}  // namespace tsdiag::gpu::emulator
