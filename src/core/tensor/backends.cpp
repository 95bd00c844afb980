#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "tsdiag/error.hpp"
#include "tsdiag/plugin.hpp"

/// The backends: the CPU, and what libtsdiag_cuda.so has.
namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr const char* library = "libtsdiag_cuda.so";

/// Search path of the library: TSDIAG_CUDA_PLUGIN alone where it is set, else beside the program,
/// its library folder, and the system's default.
std::vector<fs::path> places() {
    if (const char* said = std::getenv("TSDIAG_CUDA_PLUGIN")) return {said};
    std::error_code failed;
    const fs::path program = fs::read_symlink("/proc/self/exe", failed).parent_path();
    if (failed) return {library};
    return {program / library, program.parent_path() / "lib" / "tsdiag" / library, library};
}

/// The plug-in, or the reason why there is none.
struct Opened {
    const BackendPlugin* plugin = nullptr;
    std::string why;
};

Opened open_library(const fs::path& path) {
    // Never closed: the driver does not support that.
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return {nullptr, dlerror()};
    using Entry = const BackendPlugin* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(handle, plugin_entry));
    if (entry == nullptr)
        return {nullptr, fmt::format("{}: is not a tsdiag library", path.string())};
    const BackendPlugin* plugin = entry();
    if (plugin->abi != plugin_abi)
        return {nullptr, fmt::format("{}: has interface version {}, but this program has {}; "
                                     "install both from the same build",
                                     path.string(), plugin->abi, plugin_abi)};
    if (std::string_view(plugin->version) != TSDIAG_VERSION)
        return {
            nullptr,
            fmt::format(
                "{}: belongs to tsdiag {}, but this is tsdiag {}; install both from the same build",
                path.string(), plugin->version, TSDIAG_VERSION)};
    return {plugin, {}};
}

bool is_chosen() { return std::getenv("TSDIAG_CUDA_PLUGIN") != nullptr; }
/// Whether there is a driver, or a library was requested by name.
bool may_have_devices() {
    return is_chosen() || dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

const Opened& cuda_plugin() {
    static const Opened opened = [] {
        const std::vector<fs::path> all = places();
        std::error_code failed;
        const bool chosen = is_chosen();
        // Without a driver the library is useless, and loading its cuBLAS takes 200 MB.
        if (!may_have_devices()) return Opened{nullptr, "no NVIDIA driver is installed"};
        for (const fs::path& path : all)
            if (path == library || fs::exists(path, failed)) {
                Opened found = open_library(path);
                // Only the last is a guess and may be missing.
                if (found.plugin != nullptr || path != library) return found;
            }
        return Opened{nullptr, chosen ? fmt::format("{}: no such file", all[0].string())
                                      : fmt::format("{} is not installed", library)};
    }();
    return opened;
}

/// Why no device can be used; empty where one can.
std::string why_no_device() {
    const Opened& opened = cuda_plugin();
    if (opened.plugin == nullptr) return opened.why;
    std::array<char, 512> why{};
    return opened.plugin->devices(why.data(), why.size()) > 0 ? std::string() : why.data();
}

/// A device, or the reason why it does not work.
struct Tried {
    const Backend* backend = nullptr;
    std::string why;
};

Tried try_device(int index, Products products) {
    std::array<char, 512> why{};
    const Backend* backend = cuda_plugin().plugin->open(index, products, why.data(), why.size());
    return {backend, why.data()};
}

/// Devices in their order up to the first that works.
struct Search {
    int found = -1;
    std::string passed_over;  ///< "cuda:0 ...; cuda:1 ..."
};

const Search& search() {
    static const Search done = [] {
        Search all;
        all.passed_over = why_no_device();
        if (!all.passed_over.empty()) return all;
        const int count = cuda_plugin().plugin->devices(nullptr, 0);
        for (int i = 0; i < count && all.found < 0; ++i) {
            const Tried tried = try_device(i, Products::exact);
            if (tried.backend != nullptr)
                all.found = i;
            else
                all.passed_over += fmt::format("{}cuda:{}: {}", i > 0 ? "; " : "", i, tried.why);
        }
        return all;
    }();
    return done;
}

const Backend& open_device(std::string_view name, int index, Products products) {
    const auto refuse = [name](const std::string& why) {
        throw NotAvailable(fmt::format("device '{}': {}; use --device cpu", name, why));
    };
    if (const std::string why = why_no_device(); !why.empty()) refuse(why);
    const Tried tried = try_device(index, products);
    if (tried.backend == nullptr) refuse(tried.why);
    return *tried.backend;
}

const Backend& open_first_device(Products products) {
    if (search().found >= 0)
        return open_device(fmt::format("cuda:{}", search().found), search().found, products);
    throw NotAvailable(fmt::format("device 'cuda': {}; use --device cpu", search().passed_over));
}

/// N of "cuda:N"; -1 for any other name.
int index_of(std::string_view name) {
    const std::string_view digits = name.substr(name.find(':') + 1);
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    return error == std::errc() && end == digits.data() + digits.size() ? index : -1;
}

}  // namespace

const Backend& open_backend(std::string_view name, Products products) {
    const auto host = [products]() -> const Backend& {
        if (products == Products::exact) return cpu();
        if (products == Products::tf32)
            throw NotAvailable("--fast tf32: needs a CUDA device, but the device is the CPU");
        if (const Backend* rounding = rounding_cpu()) return *rounding;
        throw NotAvailable(
            "--fast bf16: needs a CUDA device, or a processor with AVX-512 BF16 or AMX and oneDNN");
    };
    if (name == "cpu") return host();
    if (name == "auto" && search().found < 0) return host();
    if (name == "auto" || name == "cuda") return open_first_device(products);
    if (name.starts_with("cuda:") && index_of(name) >= 0)
        return open_device(name, index_of(name), products);
    throw UsageError(fmt::format("unknown device '{}'; expected auto, cpu, cuda or cuda:N", name));
}

std::string passed_over_devices(std::string_view name) {
    if ((name != "auto" && name != "cuda") || !may_have_devices()) return {};
    const Search& all = search();
    if (all.passed_over.empty()) return {};
    return fmt::format("device '{}': {}; using {}", name, all.passed_over,
                       all.found < 0 ? "the CPU" : fmt::format("cuda:{}", all.found));
}

std::vector<std::pair<std::string, std::string>> list_backends() {
    std::vector<std::pair<std::string, std::string>> list = {{"cpu", cpu().description()}};
    if (const std::string why = why_no_device(); !why.empty()) {
        list.emplace_back("cuda", "not available: " + why);
        return list;
    }
    const int count = cuda_plugin().plugin->devices(nullptr, 0);
    for (int i = 0; i < count; ++i) {
        const Tried tried = try_device(i, Products::exact);
        list.emplace_back(fmt::format("cuda:{}", i), tried.backend != nullptr
                                                         ? tried.backend->description()
                                                         : "not available: " + tried.why);
    }
    return list;
}

}  // namespace tsdiag
