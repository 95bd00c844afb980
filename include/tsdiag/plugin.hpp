#pragma once
#include <cstddef>
#include <cstdint>

#include "tsdiag/backend.hpp"

/// Interface of a device library, exported as a function `const BackendPlugin* ()` named
/// `plugin_entry`.  The library is loaded when a device is requested, so that the program itself
/// links none of it and starts anywhere.
namespace tsdiag {

/// To be incremented with any change of Backend, View, RowStatistics or StateMoments.
constexpr std::uint32_t plugin_abi = 10;
constexpr const char* plugin_entry = "tsdiag_backend_plugin";

struct BackendPlugin {
    std::uint32_t abi;    ///< plugin_abi of its build
    const char* version;  ///< of tsdiag; must be that of the program
    /// Number of devices; 0: `why` says what is missing.
    int (*devices)(char* why, std::size_t size);
    /// Device `index`, tested, valid for the life of the program; null: `why` says what failed, or
    /// which devices the library has code for.
    const Backend* (*open)(int index, Products products, char* why, std::size_t size);
};

}  // namespace tsdiag
