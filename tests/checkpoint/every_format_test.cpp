#include <unistd.h>

#include <set>

#include "checkpoint/samples.hpp"

/// Laws for every format, on every sample file: a damaged file is read or refused with a
/// tsdiag::Error, and nothing else happens.
namespace tsdiag {
namespace {

constexpr std::size_t short_file = 20000;
constexpr std::int64_t worth_reading = 1 << 20;

/// Everything that the program does with a checkpoint.  True where the file was accepted.
bool read_all(const std::filesystem::path& path) {
    try {
        auto file = open_checkpoint(path);
        header_digest(*file);
        for (int pass = 0; pass < 2; ++pass) {
            for (const std::string& name : file->names()) {
                const RawTensor tensor = file->tensor(name);
                if (tensor.dtype == DType::other || tensor.count() > worth_reading) continue;
                if (tensor.dtype == DType::c64 || tensor.dtype == DType::c128) continue;
                std::vector<float> values(std::size_t(tensor.count()));
                widen<float>(tensor, values);
                summarise(tensor);
                as_is<double>(tensor);
                release_pages(tensor);
            }
            file->metadata().dump();
            std::vector<std::string> notes;
            if (pass == 0) file = unwrap(std::move(file), &notes);
        }
        return true;
    } catch (const Error& e) {
        EXPECT_FALSE(std::string(e.what()).empty());
        return false;
    }
}

class EveryFile : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(EveryFile, SurvivesEveryTruncation) {
    const samples::TemporaryFolder folder;
    const std::string whole = samples::read_file(GetParam());
    const auto path = folder.write(GetParam().filename().string(), whole);
    const std::size_t step = whole.size() < short_file ? 1 : 1 + whole.size() / 997;
    for (std::size_t size = whole.size(); size >= step; size -= step) {
        ASSERT_EQ(::truncate(path.c_str(), off_t(size - step)), 0);
        EXPECT_FALSE(read_all(path)) << "the first " << size - step << " bytes were accepted";
    }
}

TEST_P(EveryFile, SurvivesTrailingBytes) {
    const samples::TemporaryFolder folder;
    const std::string whole = samples::read_file(GetParam());
    read_all(folder.write(GetParam().filename().string(), whole + std::string(100, '\xff')));
}

/// Bytes with a special meaning: signs, limits of ranges, and pickle opcodes.
constexpr std::string_view favourites("\x00\xff\x7f\x80\x01(.0qhtRbu}]", 15);

TEST_P(EveryFile, SurvivesChangedBytes) {
    const samples::TemporaryFolder folder;
    const std::string whole = samples::read_file(GetParam());
    const std::string name = GetParam().filename().string();
    std::uint64_t state = 20240817;
    const auto draw = [&](std::size_t below) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return std::size_t((state >> 33) % below);
    };
    for (int trial = 0; trial < 300; ++trial) {
        std::string damaged = whole;
        for (std::size_t changes = 1 + draw(3); changes > 0; --changes)
            damaged[draw(damaged.size())] =
                draw(2) == 0 ? favourites[draw(favourites.size())] : char(draw(256));
        read_all(folder.write(name, damaged));
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFile, testing::ValuesIn(samples::all_files()),
                         [](const auto& sample) {
                             const auto relative =
                                 sample.param.lexically_relative(samples::folder());
                             std::string name = relative.string();
                             for (char& c : name)
                                 if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                             return name;
                         });

TEST(EveryFormat, HasASampleFileThatItRecognises) {
    std::set<std::string_view> seen;
    for (const auto& path : samples::all_files()) {
        const std::string content = samples::read_file(path);
        const auto bytes = std::as_bytes(std::span(content));
        for (const FormatEntry* format : formats())
            if (format->sniff(bytes.first(std::min<std::size_t>(bytes.size(), 4096)))) {
                seen.insert(format->name);
                break;
            }
    }
    for (const FormatEntry* format : formats())
        EXPECT_TRUE(seen.contains(format->name)) << "no sample file of " << format->name;
}

TEST(EveryFormat, SniffsHeadsOfAnyLength) {
    for (const auto& path : samples::all_files()) {
        const std::string content = samples::read_file(path);
        for (std::size_t size = 0; size < std::min<std::size_t>(content.size(), 64); ++size) {
            const std::vector<char> head(content.begin(), content.begin() + std::ptrdiff_t(size));
            for (const FormatEntry* format : formats())
                format->sniff(std::as_bytes(std::span(head)));
        }
    }
}

}  // namespace
}  // namespace tsdiag
