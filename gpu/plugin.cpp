#include "tsdiag/plugin.hpp"

#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "device_backend.hpp"
#include "runtime.hpp"
#include "tsdiag/error.hpp"

/// The export of libtsdiag_cuda.so.
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

/// Tests a launch and a copy, the basis of all work; throws where one fails.
void require_works(const Backend& backend) {
    const std::shared_ptr<void> memory = backend.allocate(sizeof(double));
    const View one{memory.get(), {1, 1, 1}, 1, 1, Type::f64};
    backend.draw(one, Law::uniform, 0, 0, 1, 0);  // 1 + 0 u
    double drawn = 0;
    backend.download(&drawn, one);
    if (drawn != 1) throw Error("a kernel that should have given 1 gave " + std::to_string(drawn));
}

/// Throws `NotAvailable` where the device cannot be used.
const Backend& opened(int index, Products products) {
    static std::mutex mutex;
    static auto& all =
        *new std::map<std::pair<int, Products>, std::unique_ptr<Backend>>();  // never destroyed
    const std::lock_guard lock(mutex);
    if (const auto found = all.find({index, products}); found != all.end()) return *found->second;
    std::string reason;
    const int count = count_devices(reason);
    if (count > 0 && (index < 0 || index >= count))
        reason = "the devices are numbered from 0 to " + std::to_string(count - 1);
    if (reason.empty()) reason = why_no_code(TSDIAG_TARGETS, name_of(index), capability(index));
    if (!reason.empty()) throw NotAvailable(reason);
    std::unique_ptr<Backend> made = make_backend(index, products);
    require_works(*made);
    return *all.emplace(std::pair{index, products}, std::move(made)).first->second;
}

const Backend* open(int index, Products products, char* why, std::size_t size) {
    try {
        return &opened(index, products);
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
