#include <unistd.h>

#include "samples.hpp"

/// TensorFlow's checkpoints: an index in the layout of LevelDB's tables, and data files.
namespace tsdiag {
namespace {

namespace fs = std::filesystem;
using samples::read_file;
using samples::refusal;
using samples::TemporaryFolder;
using testing::HasSubstr;

const fs::path written = fs::path(test::test_data()) / "golden/tensorflow-bert";
constexpr const char *index_name = "bert_model.ckpt.index",
                     *data_name = "bert_model.ckpt.data-00000-of-00001";

class TensorFlow : public testing::Test {
  protected:
    TensorFlow() {
        folder.write(index_name, index);
        folder.write(data_name, data);
    }
    /// Opens and reads everything; true where that was possible.
    bool accepted() const {
        try {
            const auto file = open_checkpoint(folder / index_name);
            for (const std::string& name : file->names()) samples::values(file->tensor(name));
            return true;
        } catch (const Error& error) {
            EXPECT_FALSE(std::string(error.what()).empty());
            return false;
        }
    }
    const std::string index = read_file(written / index_name),
                      data = read_file(written / data_name);
    const TemporaryFolder folder;
};

TEST_F(TensorFlow, OpensByItsFolderAndByItsIndex) {
    const auto file = open_checkpoint(folder.path());
    EXPECT_EQ(file->format(), "tensorflow");
    EXPECT_EQ(open_checkpoint(folder / index_name)->names(), file->names());
    EXPECT_EQ(file->tensor("bert/embeddings/word_embeddings").shape,
              (std::vector<std::int64_t>{24, 18}));
    EXPECT_EQ(samples::values(file->tensor("global_step")), std::vector<double>{7});
    EXPECT_TRUE(std::ranges::is_sorted(file->names()));
    EXPECT_TRUE(checkpoints_in(folder.path()).empty());
}

TEST_F(TensorFlow, SurvivesTruncations) {
    ASSERT_TRUE(accepted());
    for (std::size_t size = 0; size < index.size(); ++size) {
        folder.write(index_name, index.substr(0, size));
        EXPECT_FALSE(accepted()) << size;
    }
    folder.write(index_name, index);
    for (std::size_t size = 0; size < data.size(); size += 1 + data.size() / 97) {
        folder.write(data_name, data.substr(0, size));
        EXPECT_FALSE(accepted()) << size;
    }
    fs::remove(folder / data_name);
    EXPECT_THAT(refusal(folder / index_name), HasSubstr("needs the file 'bert_model.ckpt.data"));
}

/// Every block and every tensor has a checksum; only the footer's padding has none.
TEST_F(TensorFlow, RefusesChangedBytes) {
    constexpr std::size_t footer = 48, padded = 40;
    std::size_t accepted_bytes = 0;
    for (std::size_t at = 0; at < index.size(); at += 3) {
        std::string changed = index;
        changed[at] = char(changed[at] ^ 0x41);
        folder.write(index_name, changed);
        const bool taken = accepted();
        accepted_bytes += taken;
        const bool in_padding = at >= index.size() - footer && at < index.size() - footer + padded;
        EXPECT_FALSE(taken && !in_padding) << at;
    }
    EXPECT_LT(accepted_bytes, padded);
    folder.write(index_name, index);
    for (std::size_t at = 0; at < data.size(); at += 1 + data.size() / 97) {
        std::string changed = data;
        changed[at] = char(changed[at] ^ 0x41);
        folder.write(data_name, changed);
        EXPECT_FALSE(accepted()) << at;
    }
}

TEST_F(TensorFlow, SaysWhichOfSeveralIsMeant) {
    folder.write("other.index", index);
    folder.write("other.data-00000-of-00001", data);
    EXPECT_THAT(refusal(folder.path()), HasSubstr("bert_model.ckpt.index, other.index"));
    fs::remove(folder / "other.data-00000-of-00001");
    EXPECT_EQ(open_checkpoint(folder.path())->format(), "tensorflow");
    EXPECT_THAT(refusal(folder.write("no.index", "{}")), HasSubstr("does not end as a table"));
}

}  // namespace
}  // namespace tsdiag
