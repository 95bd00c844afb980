#include "checkpoint/samples.hpp"

namespace tsdiag {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<float> six = {0, 0.5f, -1, 2, 3e-40f, 1e38f};
const std::vector<double> two = {0.1, -1e300};

std::vector<NamedArray> arrays() {
    return {{"w", {2, 3}, six, {}}, {"a.d", {2}, {}, two}, {"empty", {0, 4}, {}, {}}};
}

void expect_arrays(const Checkpoint& file) {
    EXPECT_EQ(file.tensor("w").shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_THAT(samples::values(file.tensor("w")),
                ElementsAre(0, 0.5, -1, 2, double{3e-40f}, double{1e38f}));
    EXPECT_THAT(samples::values(file.tensor("a.d")), ElementsAre(0.1, -1e300));
    EXPECT_EQ(file.tensor("empty").shape, (std::vector<std::int64_t>{0, 4}));
    EXPECT_TRUE(as_is<float>(file.tensor("w")).has_value()) << "written files are read in place";
    EXPECT_TRUE(as_is<double>(file.tensor("a.d")).has_value());
}

std::size_t files_in(const std::filesystem::path& folder) {
    const std::filesystem::directory_iterator all(folder);
    return std::size_t(std::distance(begin(all), end(all)));
}

TEST(WriteSafetensors, ReadsBackInPlaceWithItsMetadata) {
    const samples::TemporaryFolder folder;
    Json metadata;
    metadata.set("format", "tsdiag").set("step", 7);
    write_safetensors(folder / "m.safetensors", arrays(), metadata);
    const auto file = open_checkpoint(folder / "m.safetensors");
    EXPECT_THAT(file->names(), ElementsAre("a.d", "empty", "w"));
    expect_arrays(*file);
    EXPECT_EQ(file->metadata()["format"].string(), "tsdiag");
    EXPECT_EQ(file->metadata()["step"].string(), "7");
    EXPECT_EQ(files_in(folder.path()), 1u) << "the temporary file is gone";
}

TEST(WriteNpz, ReadsBackInPlace) {
    const samples::TemporaryFolder folder;
    write_npz(folder / "m.npz", arrays());
    const auto file = open_checkpoint(folder / "m.npz");
    EXPECT_THAT(file->names(), ElementsAre("w", "a.d", "empty"));
    EXPECT_EQ(file->format(), "npz");
    expect_arrays(*file);
}

TEST(Write, IsDeterministicAndReplacesOldFiles) {
    const samples::TemporaryFolder folder;
    for (const char* name : {"a", "b"}) {
        folder.write(name, "old");
        write_safetensors(folder / name, arrays());
    }
    EXPECT_EQ(samples::read_file(folder / "a"), samples::read_file(folder / "b"));
    write_npz(folder / "a", arrays());
    write_npz(folder / "b", arrays());
    EXPECT_EQ(samples::read_file(folder / "a"), samples::read_file(folder / "b"));
}

TEST(Write, RefusesArraysThatDoNotFillTheirShape) {
    const samples::TemporaryFolder folder;
    const std::vector<NamedArray> wrong = {{"w", {2, 2}, six, {}}};
    const std::vector<NamedArray> both = {{"w", {2}, std::span(six).first(2), two}};
    const std::vector<NamedArray> twice = {{"w", {6}, six, {}}, {"w", {6}, six, {}}};
    EXPECT_THAT(samples::message_of<UsageError>([&] { write_safetensors(folder / "m", wrong); }),
                HasSubstr("'w' of shape (2, 2) has 6"));
    EXPECT_THROW(write_npz(folder / "m", wrong), UsageError);
    EXPECT_THROW(write_npz(folder / "m", both), UsageError);
    EXPECT_THROW(write_safetensors(folder / "m", twice), UsageError);
    EXPECT_EQ(files_in(folder.path()), 0u) << "nothing is left of a failed file";
}

TEST(Write, SaysWhereItCannotWrite) {
    EXPECT_THAT(
        samples::message_of<UsageError>([] { write_npz("/nonexistent/folder/m.npz", arrays()); }),
        HasSubstr("/nonexistent/folder/m.npz: cannot be written"));
}

TEST(HeaderDigest, TellsNamesShapesAndSizesApartAndNothingElse) {
    const samples::TemporaryFolder folder;
    const auto digest = [&](const char* name, const std::vector<NamedArray>& content) {
        write_safetensors(folder / name, content);
        return header_digest(*open_checkpoint(folder / name));
    };
    const std::vector<float> other(6, 1.0f);
    const std::string first = digest("a", {{"w", {2, 3}, six, {}}});
    EXPECT_EQ(first.size(), 16u);
    EXPECT_EQ(first, digest("b", {{"w", {2, 3}, other, {}}}));
    EXPECT_NE(first, digest("b", {{"v", {2, 3}, six, {}}}));
    EXPECT_NE(first, digest("b", {{"w", {3, 2}, six, {}}}));
}

}  // namespace
}  // namespace tsdiag
