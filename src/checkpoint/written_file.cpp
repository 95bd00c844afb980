#include "written_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <unordered_set>

#include "layout.hpp"

namespace tsdiag::checkpoint {

WrittenFile::WrittenFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + fmt::format(".{}.part", ::getpid())) {
    out_.open(temporary_, std::ios::binary | std::ios::trunc);
    if (!out_)
        throw UsageError(
            fmt::format("{}: cannot be written: {}. Check the folder and its "
                        "permissions.",
                        path_.string(), std::strerror(errno)));
}

WrittenFile::~WrittenFile() {
    if (finished_) return;
    out_.close();
    std::error_code ignored;
    std::filesystem::remove(temporary_, ignored);
}

void WrittenFile::write(Bytes bytes) {
    out_.write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
    position_ += bytes.size();
}

void WrittenFile::finish() {
    out_.close();
    std::error_code error;
    if (out_) std::filesystem::rename(temporary_, path_, error);
    if (!out_ || error)
        throw Error(
            fmt::format("{}: could not be written completely ({} bytes){}. Is the disk full?",
                        path_.string(), position_, error ? ": " + error.message() : std::string()));
    finished_ = true;
}

Bytes bytes_of_array(const NamedArray& array) {
    const std::size_t held = is_double(array) ? array.f64.size() : array.f32.size();
    const auto count = element_count(array.shape);
    if (!count || std::size_t(*count) != held || (is_double(array) && !array.f32.empty()))
        throw UsageError(
            fmt::format("array '{}' of shape {} has {} float32 and {} float64 elements, expected "
                        "one of them to match its shape.",
                        array.name, shape_text(array.shape), array.f32.size(), array.f64.size()));
    return is_double(array) ? std::as_bytes(array.f64) : std::as_bytes(array.f32);
}

void check_names(std::span<const NamedArray> arrays, std::string_view reserved) {
    std::unordered_set<std::string_view> seen;
    for (const NamedArray& array : arrays)
        if (array.name == reserved || !seen.insert(array.name).second)
            throw UsageError(fmt::format(
                "an array cannot be named '{}', expected an unused name. Choose another.",
                array.name));
}

}  // namespace tsdiag::checkpoint
