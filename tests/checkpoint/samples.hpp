#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"

/// Shared by the tests of formats: sample files, files that a test writes, and values as doubles.
namespace tsdiag::samples {

inline std::filesystem::path folder() {
    return std::filesystem::path(test::test_data()) / "formats";
}

/// The sample files themselves, shards included, sorted; not the script and not expected.json.
inline std::vector<std::filesystem::path> all_files() {
    std::vector<std::filesystem::path> files;
    for (const auto& at : std::filesystem::recursive_directory_iterator(folder())) {
        const std::string extension = at.path().extension().string();
        if (at.is_regular_file() && extension != ".py" && at.path().filename() != "expected.json")
            files.push_back(at.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder for each test, removed with it.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        std::string name = std::string("tsdiag_") + test->test_suite_name() + "_" + test->name() +
                           "_" + std::to_string(::getpid());
        std::replace(name.begin(), name.end(), '/', '_');
        path_ = std::filesystem::path(testing::TempDir()) / name;
        std::filesystem::create_directories(path_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
    const std::filesystem::path& path() const { return path_; }

    std::filesystem::path write(const std::string& name, std::string_view content) const {
        const std::filesystem::path file = path_ / name;
        std::ofstream(file, std::ios::binary | std::ios::trunc)
            .write(content.data(), std::streamsize(content.size()));
        return file;
    }

  private:
    std::filesystem::path path_;
};

inline std::vector<double> values(const RawTensor& tensor) {
    std::vector<double> result(std::size_t(tensor.count()));
    widen<double>(tensor, result);
    return result;
}

/// The message of the Error of type E that `f` throws; a failure where it throws none.
template <class E, class F>
std::string message_of(F&& f) {
    try {
        f();
    } catch (const E& e) {
        return e.what();
    } catch (const std::exception& e) {
        ADD_FAILURE() << "another error: " << e.what();
        return "";
    }
    ADD_FAILURE() << "no error";
    return "";
}

/// Opening `path` must fail with a FormatError; its message.
inline std::string refusal(const std::filesystem::path& path) {
    return message_of<FormatError>([&] { open_checkpoint(path); });
}

/// Integers and floats as the bytes of files.
template <class T>
std::string raw(std::initializer_list<T> numbers) {
    std::string bytes;
    for (const T n : numbers) bytes.append(reinterpret_cast<const char*>(&n), sizeof n);
    return bytes;
}

}  // namespace tsdiag::samples
