#include "mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <utility>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {
namespace {

/// The version of a file: its contents have changed where the same file has another size or time.
struct Version {
    dev_t device = 0;
    ino_t file = 0;
    off_t size = 0;
    timespec changed{};

    explicit Version(const struct stat& status)
        : device(status.st_dev),
          file(status.st_ino),
          size(status.st_size),
          changed(status.st_mtim) {}
    Version() = default;

    /// A file that was replaced or removed keeps its contents as long as it is mapped.
    bool differs(const std::string& path) const {
        struct stat status {};
        if (::stat(path.c_str(), &status) != 0) return false;
        const Version now(status);
        return now.device == device && now.file == file &&
               (now.size != size || now.changed.tv_sec != changed.tv_sec ||
                now.changed.tv_nsec != changed.tv_nsec);
    }
};

/// An entry of the list that the signal handler walks: entries are reused, never freed.
struct Mapping {
    std::atomic<std::uintptr_t> begin{0}, end{0};  ///< both 0: free
    std::atomic<const char*> path{nullptr};
    const MappedFile* file = nullptr;  ///< guarded by the mutex of the list
    Version version;
    Mapping* next = nullptr;
};

class Mappings {
  public:
    void add(const MappedFile& file, const Version& version) {
        const std::lock_guard<std::mutex> lock(mutex_);
        Mapping* entry = find(nullptr);
        if (entry == nullptr) {
            entry = new Mapping;
            entry->next = first_.load();
            first_.store(entry);
        }
        entry->file = &file;
        entry->version = version;
        entry->path = file.path().c_str();
        entry->begin = reinterpret_cast<std::uintptr_t>(file.bytes().data());
        entry->end = entry->begin + file.bytes().size();
    }
    void remove(const MappedFile& file) {
        const std::lock_guard<std::mutex> lock(mutex_);
        Mapping* entry = find(&file);
        if (changed_.empty() && entry->version.differs(file.path())) changed_ = file.path();
        entry->begin = 0;
        entry->end = 0;
        entry->file = nullptr;
    }
    /// The path of a file whose contents have changed; empty where there is none.
    std::string take_changed() {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (Mapping* entry = first_.load(); entry != nullptr; entry = entry->next) {
            if (entry->file == nullptr || !entry->version.differs(entry->file->path())) continue;
            return entry->file->path();
        }
        return std::exchange(changed_, {});
    }
    /// The path of the file that is mapped at `address`; async-signal-safe.
    const char* path_at(std::uintptr_t address) const {
        const auto page = std::uintptr_t(::sysconf(_SC_PAGESIZE));
        for (const Mapping* entry = first_.load(); entry != nullptr; entry = entry->next) {
            const std::uintptr_t end = (entry->end.load() + page - 1) / page * page;
            if (address >= entry->begin.load() && address < end) return entry->path.load();
        }
        return nullptr;
    }

  private:
    /// The entry of `file`, or, for null, a free one; null where there is none.
    Mapping* find(const MappedFile* file) const {
        Mapping* entry = first_.load();
        while (entry != nullptr && entry->file != file) entry = entry->next;
        return entry;
    }

    std::mutex mutex_;
    std::atomic<Mapping*> first_{nullptr};
    std::string changed_;  ///< the first changed file that is no longer mapped
};

Mappings& mappings() {
    static auto& instance = *new Mappings;  // the handler may run after static destructors
    return instance;
}

std::atomic<void (*)(const char*)> lost_page{nullptr};

void on_bus_error(int, siginfo_t* info, void*) {
    const char* path = mappings().path_at(reinterpret_cast<std::uintptr_t>(info->si_addr));
    if (info->si_code > 0 && path != nullptr) lost_page.load()(path);
    ::signal(SIGBUS, SIG_DFL);  // the instruction is retried and ends the process
    if (info->si_code <= 0) ::raise(SIGBUS);
}

struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) ::close(number);
    }
};

[[noreturn]] void refuse_system(const std::string& path, int error) {
    refuse(path, fmt::format("cannot be opened: {}. Check the path and its permissions.",
                             std::strerror(error)));
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
    auto* made = new MappedFile;
    const std::shared_ptr<const MappedFile> file = own<MappedFile>(made);
    made->path_ = path.string();
    // Without O_NONBLOCK, opening a pipe would wait for its writer.
    const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (descriptor.number < 0) refuse_system(made->path_, errno);
    struct stat status;
    if (::fstat(descriptor.number, &status) != 0) refuse_system(made->path_, errno);
    if (!S_ISREG(status.st_mode))
        refuse(made->path_, "is not a regular file, expected a checkpoint. Check the path.");
    const auto size = std::size_t(status.st_size);
    if (size == 0) return file;
    void* begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.number, 0);
    if (begin == MAP_FAILED) refuse_system(made->path_, errno);
    made->bytes_ = {static_cast<const std::byte*>(begin), size};
    mappings().add(*file, Version(status));
    return file;
}

MappedFile::~MappedFile() {
    if (bytes_.empty()) return;
    mappings().remove(*this);
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void drop_pages(Bytes bytes) {
    const auto page = std::uintptr_t(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    const std::uintptr_t first = (begin + page - 1) / page * page;
    const std::uintptr_t last = (begin + bytes.size()) / page * page;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace tsdiag::checkpoint

namespace tsdiag {

void watch_mapped_files(void (*lost)(const char* path)) {
    checkpoint::mappings();  // made here, not in the handler
    checkpoint::lost_page = lost;
    struct sigaction action {};
    action.sa_sigaction = checkpoint::on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
}

void require_unchanged_files() {
    const std::string path = checkpoint::mappings().take_changed();
    if (!path.empty())
        checkpoint::refuse(
            path, "changed while it was being read. Run again when no process writes to it.");
}

}  // namespace tsdiag
