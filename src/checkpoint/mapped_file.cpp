#include "mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tsdiag::checkpoint {
namespace {

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
    std::shared_ptr<MappedFile> file(new MappedFile, Unmap{});
    file->path_ = path.string();
    // Without O_NONBLOCK, opening a pipe would wait for its writer.
    const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (descriptor.number < 0) refuse_system(file->path_, errno);
    struct stat status;
    if (::fstat(descriptor.number, &status) != 0) refuse_system(file->path_, errno);
    if (!S_ISREG(status.st_mode))
        refuse(file->path_, "is not a regular file, expected a checkpoint. Check the path.");
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) return file;
    void* begin = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.number, 0);
    if (begin == MAP_FAILED) refuse_system(file->path_, errno);
    file->bytes_ = {static_cast<const std::byte*>(begin), size};
    return file;
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void drop_pages(Bytes bytes) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    const std::uintptr_t first = (begin + page - 1) / page * page;
    const std::uintptr_t last = (begin + bytes.size()) / page * page;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace tsdiag::checkpoint
