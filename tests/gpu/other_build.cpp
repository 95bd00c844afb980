#include "tsdiag/plugin.hpp"

/// A plug-in of another build of tsdiag, with another version of the interface.
extern "C" const tsdiag::BackendPlugin* tsdiag_backend_plugin() {
    static constexpr tsdiag::BackendPlugin plugin = {tsdiag::plugin_abi + 1, "0.0.1", nullptr,
                                                     nullptr};
    return &plugin;
}
