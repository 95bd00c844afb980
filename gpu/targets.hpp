#pragma once
#include <string>
#include <string_view>

/// Devices that the library has code for.
namespace tsdiag::gpu {

struct Capability {
    int major = 0, minor = 0;
    friend bool operator==(const Capability&, const Capability&) = default;
};

/// Whether code for `targets`, those of CMAKE_CUDA_ARCHITECTURES ("80-real,90"), runs on `device`:
/// machine code ("80-real") on its major version from its minor version on, intermediate code
/// ("80-virtual") on all that are as new or newer, both ("80") on either; architecture-specific
/// code ("90a") on that one alone.  An empty list means unknown: true.
bool runs_on(std::string_view targets, Capability device);

/// Why the library has no code for device `name`; empty where it has.
std::string why_no_code(std::string_view targets, std::string_view name, Capability device);

}  // namespace tsdiag::gpu
