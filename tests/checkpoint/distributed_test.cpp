#include <unistd.h>

#include "samples.hpp"
#include "support/packers.hpp"
#include "support/places.hpp"

/// Models in parts: torch.distributed.checkpoint, and Meta's consolidated files.
namespace tsdiag {
namespace {

namespace fs = std::filesystem;
using samples::message_of;
using samples::read_file;
using samples::refusal;
using samples::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path two = fs::path(test::test_data()) / "distributed/two";

class Distributed : public testing::Test {
  protected:
    Distributed() {
        for (const char* name : {".metadata", "__0_0.distcp", "__1_0.distcp"})
            fs::copy_file(two / name, folder / name);
    }
    /// Opens and reads everything; true where that was possible.
    bool accepted() const {
        try {
            const auto file = open_checkpoint(folder.path());
            for (const std::string& name : file->names()) samples::values(file->tensor(name));
            return true;
        } catch (const Error& error) {
            EXPECT_FALSE(std::string(error.what()).empty());
            return false;
        }
    }
    const TemporaryFolder folder;
};

TEST_F(Distributed, HasTheTensorsThatItsProcessesSaved) {
    const auto file = open_checkpoint(folder.path());
    EXPECT_EQ(file->format(), "torch distributed");
    const Json expected = Json::parse(read_file(two / "expected.json"), "expected");
    std::vector<std::string> names;
    for (const auto& [name, about] : expected.object()) {
        SCOPED_TRACE(name);
        names.push_back(name);
        const RawTensor tensor = file->tensor(name);
        std::vector<std::int64_t> shape;
        for (const Json& size : about.array()[0].array()) shape.push_back(size.integer());
        EXPECT_EQ(tensor.shape, shape);
        std::vector<double> values;
        for (const Json& value : about.array()[1].array()) values.push_back(value.number());
        EXPECT_EQ(samples::values(tensor), values);
    }
    EXPECT_EQ(file->names(), names);
}

TEST_F(Distributed, IsUnwrappedByTheKeysOfItsPlan) {
    std::vector<std::string> notes;
    const auto model = unwrap(open_checkpoint(folder.path()), &notes);
    EXPECT_THAT(model->names(),
                ElementsAre("rows.weight", "columns.weight", "whole.weight", "cube"));
    EXPECT_THAT(notes, testing::Contains("entered 'model'"));
    EXPECT_THAT(notes, testing::Contains("skipped 1 tensor of 'optimizer'"));
}

TEST_F(Distributed, IsOneModelAndNotASeries) { EXPECT_TRUE(checkpoints_in(folder.path()).empty()); }

TEST_F(Distributed, SurvivesEveryTruncation) {
    for (const char* name : {".metadata", "__0_0.distcp", "__1_0.distcp"}) {
        const std::string whole = read_file(two / name);
        for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
            folder.write(name, std::string_view(whole).substr(0, size));
            EXPECT_FALSE(accepted()) << name << " of " << size << " bytes was accepted";
        }
        folder.write(name, whole);
    }
    fs::remove(folder / "__1_0.distcp");
    EXPECT_FALSE(accepted());
}

TEST_F(Distributed, SurvivesChangedBytes) {
    std::mt19937 random(9);
    for (const char* name : {".metadata", "__0_0.distcp"}) {
        const std::string whole = read_file(two / name);
        for (int trial = 0; trial < 300; ++trial) {
            std::string damaged = whole;
            for (int changes = 1 + int(random() % 3); changes > 0; --changes)
                damaged[random() % damaged.size()] = char(random());
            folder.write(name, damaged);
            accepted();
        }
        folder.write(name, whole);
    }
}

/// The index as it is, but for one text.
std::string edited(std::string_view from, std::string_view to) {
    std::string index = read_file(two / ".metadata");
    for (std::size_t at = index.find(from); at != index.npos; at = index.find(from, at + 1))
        index.replace(at, from.size(), to);
    return index;
}

TEST_F(Distributed, RefusesIndicesThatDoNotFit) {
    folder.write(".metadata", edited("__1_0.distcp", "../../secret"));
    EXPECT_THAT(refusal(folder.path()), HasSubstr("expected the plain name of a file"));
    folder.write(".metadata", edited("__1_0.distcp", "__0_0.distcp"));
    EXPECT_FALSE(accepted());
    folder.write(".metadata", edited("storage_data", "storage_dada"));
    EXPECT_THAT(refusal(folder.path()), HasSubstr("has no state_dict_metadata and storage_data"));
    folder.write(".metadata", "\x80\x02N.");
    EXPECT_THAT(refusal(folder.path()), HasSubstr("has no state_dict_metadata"));
}

/// Meta's names over two files: rows, columns, and what both have.
class Consolidated : public testing::Test {
  protected:
    static constexpr std::int64_t width = 4;

    static test::Array array(const std::string& name, const std::vector<std::int64_t>& shape,
                             float first) {
        std::int64_t count = 1;
        for (const std::int64_t size : shape) count *= size;
        std::vector<float> values;
        for (std::int64_t i = 0; i < count; ++i) values.push_back(first + float(i));
        return {name, "F32", shape, test::bytes_of(values)};
    }
    static std::vector<test::Array> part(float first, std::int64_t words, std::int64_t columns) {
        return {array("norm.weight", {width}, 1),
                array("tok_embeddings.weight", {words, columns}, first),
                array("layers.0.attention.wq.weight", {2, width}, first),
                array("layers.0.attention.wo.weight", {width, 2}, first)};
    }
    void write(const std::string& name, const std::vector<test::Array>& arrays) {
        folder.write(name, test::safetensors(arrays));
    }
    std::vector<double> values(const std::string& name) const {
        return samples::values(open_checkpoint(folder.path())->tensor(name));
    }
    const TemporaryFolder folder;
};

TEST_F(Consolidated, JoinsRowsAndColumns) {
    write("consolidated.00.pth", part(0, 2, 2));
    write("consolidated.01.pth", part(100, 2, 2));
    EXPECT_EQ(open_checkpoint(folder.path())->format(), "torch, in parts");
    EXPECT_THAT(values("norm.weight"), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(values("layers.0.attention.wq.weight"),
                ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103, 104, 105, 106, 107));
    EXPECT_THAT(values("layers.0.attention.wo.weight"),
                ElementsAre(0, 1, 100, 101, 2, 3, 102, 103, 4, 5, 104, 105, 6, 7, 106, 107));
    EXPECT_THAT(values("tok_embeddings.weight"), ElementsAre(0, 1, 100, 101, 2, 3, 102, 103));
    EXPECT_TRUE(checkpoints_in(folder.path()).empty());
}

TEST_F(Consolidated, JoinsWordsOfLlama3) {
    write("consolidated.00.pth", part(0, 1, width));
    write("consolidated.01.pth", part(100, 1, width));
    EXPECT_THAT(values("tok_embeddings.weight"), ElementsAre(0, 1, 2, 3, 100, 101, 102, 103));
}

TEST_F(Consolidated, RefusesPartsThatDoNotFit) {
    write("consolidated.00.pth", part(0, 2, 2));
    auto other = part(100, 2, 2);
    other[0] = array("norm.weight", {width}, 2);
    write("consolidated.01.pth", other);
    EXPECT_THAT(refusal(folder.path()),
                HasSubstr("'norm.weight' has different values in its 2 files"));
    other = part(100, 2, 2);
    other[2] = array("layers.0.attention.wq.weight", {3, width}, 0);
    write("consolidated.01.pth", other);
    EXPECT_THAT(refusal(folder.path()), HasSubstr("has different shapes in its 2 files"));
    other = part(100, 2, 2);
    other.pop_back();
    write("consolidated.01.pth", other);
    EXPECT_THAT(refusal(folder.path()), HasSubstr("consolidated.01.pth: has not the tensors of"));
    fs::remove(folder / "consolidated.01.pth");
    write("consolidated.02.pth", part(100, 2, 2));
    EXPECT_THAT(refusal(folder.path()), HasSubstr("contains 2 possible model files"));
}

}  // namespace
}  // namespace tsdiag
