#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tsdiag/cluster.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ranks_plugin.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr const char* library = "libtsdiag_mpi.so";

/// As for the library of CUDA: TSDIAG_MPI_PLUGIN alone where it is set, else beside the program,
/// its library folder, and the system's default.
std::vector<fs::path> places() {
    if (const char* said = std::getenv("TSDIAG_MPI_PLUGIN")) return {said};
    std::error_code failed;
    const fs::path program = fs::read_symlink("/proc/self/exe", failed).parent_path();
    if (failed) return {library};
    return {program / library, program.parent_path() / "lib" / "tsdiag" / library, library};
}

std::optional<int> number_of(const char* variable) {
    const char* text = std::getenv(variable);
    if (text == nullptr) return std::nullopt;
    int value = 0;
    const char* end = text + std::string_view(text).size();
    const auto [last, error] = std::from_chars(text, end, value);
    if (error != std::errc() || last != end) return std::nullopt;
    return value;
}

const RanksPlugin& opened() {
    std::string why = fmt::format("{} is not installed", library);
    for (const fs::path& path : places()) {
        std::error_code failed;
        if (path.has_parent_path() && !fs::exists(path, failed)) continue;
        // Global: Open MPI opens components that look for its symbols.
        void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (handle == nullptr) {
            if (path.has_parent_path()) why = dlerror();
            continue;
        }
        using Entry = const RanksPlugin* (*)();
        const auto entry = reinterpret_cast<Entry>(dlsym(handle, ranks_entry));
        const RanksPlugin* plugin = entry ? entry() : nullptr;
        if (plugin != nullptr && plugin->abi == ranks_abi &&
            std::string_view(plugin->version) == TSDIAG_VERSION)
            return *plugin;
        why = fmt::format("{} belongs to another tsdiag than {}", path.string(), TSDIAG_VERSION);
    }
    throw NotAvailable(
        fmt::format("several ranks: {}; use --part i/N and tsdiag merge instead.", why));
}

}  // namespace

std::optional<Launcher> launcher() {
    struct Known {
        const char *name, *size, *rank;
    };
    // Of Slurm, only a step has several processes: a batch script has SLURM_NTASKS, too.
    constexpr std::array<Known, 4> all = {
        {{"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
         {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
         {"mpiexec", "PMI_SIZE", "PMI_RANK"},
         {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}}};
    for (const Known& known : all) {
        const std::optional<int> size = number_of(known.size), rank = number_of(known.rank);
        if (size && rank && *size > 1 && *rank >= 0 && *rank < *size)
            return Launcher{known.name, *rank, *size};
    }
    return std::nullopt;
}

struct Ranks::Library {
    const RanksPlugin& plugin;
};

Ranks::Ranks(const Launcher& launcher) : library_(std::make_unique<Library>(opened())) {
    std::array<char, 512> why{};
    if (!library_->plugin.start(&rank_, &size_, &local_rank_, &local_size_, why.data(), why.size()))
        throw NotAvailable(fmt::format("several ranks: {}.", why.data()));
    if (size_ != launcher.size) {
        library_->plugin.finish();
        throw NotAvailable(fmt::format(
            "{} started {} processes, but the MPI of {} sees {}: it is of another brand or "
            "version; use the mpirun of that MPI, srun --mpi=pmix, or --part i/N.",
            launcher.name, launcher.size, library, size_));
    }
}

Ranks::~Ranks() { library_->plugin.finish(); }

std::int64_t Ranks::add(int counter, std::int64_t n) const {
    check(counter >= 0 && counter < ranks_counters, "a job has no more stages than counters");
    return library_->plugin.add(counter, n);
}

namespace {

void append(void* to, const char* bytes, std::size_t size) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(bytes, size);
}

}  // namespace

std::vector<std::string> Ranks::gather(const std::string& text) const {
    std::vector<std::string> all;
    library_->plugin.gather(text.data(), text.size(), append, &all);
    return all;
}

std::vector<std::string> Ranks::exchange(const std::vector<std::string>& texts) const {
    check(int(texts.size()) == size_, "there is a text for each rank");
    std::vector<const char*> bytes;
    std::vector<std::size_t> sizes;
    for (const std::string& text : texts) {
        bytes.push_back(text.data());
        sizes.push_back(text.size());
    }
    std::vector<std::string> all;
    library_->plugin.exchange(bytes.data(), sizes.data(), append, &all);
    return all;
}

std::optional<int> first_without(const Ranks& ranks, const std::string& folder) {
    std::error_code failed;
    fs::path file;
    std::vector<fs::path> made;  // innermost first
    if (ranks.rank() == 0) {
        for (fs::path at = fs::absolute(folder); !fs::exists(at, failed); at = at.parent_path())
            made.push_back(at);
        fs::create_directories(folder, failed);
        file = fs::path(folder) / fmt::format(".shared-{}.tmp", getpid());
        const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (descriptor >= 0) ::close(descriptor);
    }
    file = ranks.gather(file.string()).front();
    bool seen = false;
    // A network's file system may show a new file after a while.
    constexpr int attempts = 50;
    for (int i = 0; i < attempts && !seen; ++i) {
        seen = fs::exists(file, failed);
        if (!seen) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    const std::vector<std::string> all = ranks.gather(seen ? "1" : "0");
    if (ranks.rank() == 0) fs::remove(file, failed);
    for (const fs::path& one : made) fs::remove(one, failed);
    for (std::size_t r = 0; r < all.size(); ++r)
        if (all[r] == "0") return int(r);
    return std::nullopt;
}

}  // namespace tsdiag
