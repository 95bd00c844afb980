#include "tsdiag/plugin.hpp"

#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <string>

#include "device_backend.hpp"
#include "runtime.hpp"

/// What libtsdiag_cuda.so exports.
namespace tsdiag::gpu {
namespace {

void tell(char* why, std::size_t size, const std::string& text) {
    if (size > 0) std::snprintf(why, size, "%s", text.c_str());
}

int devices(char* why, std::size_t size) {
    std::string reason;
    const int count = count_devices(reason);
    if (count == 0) tell(why, size, reason);
    return count;
}

const Backend* open(int index, Products products, char* why, std::size_t size) {
    static std::mutex mutex;
    static auto& opened =
        *new std::map<std::pair<int, Products>, std::unique_ptr<Backend>>();  // never destroyed
    try {
        std::string reason;
        const int count = count_devices(reason);
        if (index >= 0 && index < count) {
            const std::lock_guard lock(mutex);
            std::unique_ptr<Backend>& backend = opened[{index, products}];
            if (!backend) backend = make_backend(index, products);
            backend->allocate(1);  // the device answers
            return backend.get();
        }
        tell(why, size,
             count == 0 ? reason
                        : "the devices are numbered from 0 to " + std::to_string(count - 1));
    } catch (const std::exception& error) {
        tell(why, size, error.what());
    }
    return nullptr;
}

constexpr BackendPlugin plugin = {plugin_abi, TSDIAG_VERSION, devices, open};

}  // namespace
}  // namespace tsdiag::gpu

extern "C" __attribute__((visibility("default"))) const tsdiag::BackendPlugin*
tsdiag_backend_plugin() {
    return &tsdiag::gpu::plugin;
}
