#pragma once
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"

/// Shared by the fuzz targets.  A target is one reader: it may accept its bytes or refuse them with
/// a `tsdiag::Error`; other exceptions, broken invariants and sanitizer findings are failures.
namespace tsdiag::fuzz {

/// The folder of this process, removed with it.
class Folder {
  public:
    Folder() {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "tsdiag-fuzz-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) std::abort();
        path_ = pattern;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::string write(const std::string& name, std::string_view bytes) const {
        const std::filesystem::path file = path_ / name;
        std::ofstream(file, std::ios::binary | std::ios::trunc)
            .write(bytes.data(), std::streamsize(bytes.size()));
        return file.string();
    }
    void remove(const std::string& name) const { std::filesystem::remove(path_ / name); }

  private:
    std::filesystem::path path_;
};

inline const Folder& folder() {
    static const Folder instance;
    return instance;
}

/// Calls `read`; true if the input is accepted.
template <class F>
bool accepts(F&& read) {
    try {
        read();
        return true;
    } catch (const BrokenInvariant& fault) {
        fmt::print(stderr, "broken invariant: {}\n", fault.what());
        std::abort();
    } catch (const Error& refused) {
        // Names of the file are unescaped here: the program escapes them (terminal.cpp).
        if (std::string_view(refused.what()).empty()) {
            fmt::print(stderr, "refused without a sentence\n");
            std::abort();
        }
        return false;
    }
}

/// Everything that commands do with a checkpoint before they run it.
inline void read_all(const Checkpoint& file) {
    constexpr std::int64_t worth_reading = 1 << 20;
    header_digest(file);
    file.metadata().dump();
    for (const std::string& name : file.names()) {
        const RawTensor tensor = file.tensor(name);
        if (!accepts([&] { summarise(tensor); }) || tensor.count() > worth_reading) continue;
        std::vector<float> values(std::size_t(tensor.count()));
        widen<float>(tensor, values);
        as_is<float>(tensor);
        release_pages(tensor);
    }
}

/// Splits an input into several files; missing ones are empty.
inline std::vector<std::string_view> parts(std::string_view input, std::size_t count) {
    constexpr std::string_view separator = "\n=====\n";
    std::vector<std::string_view> out;
    while (out.size() + 1 < count) {
        const std::size_t at = input.find(separator);
        out.push_back(input.substr(0, at));
        input.remove_prefix(at == std::string_view::npos ? input.size() : at + separator.size());
    }
    out.push_back(input);
    return out;
}

/// Takes the first byte of an input as a selector; the rest is read.
inline unsigned char take_choice(std::string_view& input) {
    if (input.empty()) return 0;
    const auto choice = static_cast<unsigned char>(input.front());
    input.remove_prefix(1);
    return choice;
}

}  // namespace tsdiag::fuzz

/// The entry point of a target: reads `input`.
void examine(std::string_view input);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    examine({reinterpret_cast<const char*>(data), size});
    return 0;
}
