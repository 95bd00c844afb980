#include "checkpoint/zip_writer.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;
using samples::refusal;
using samples::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void copy_sample(const fs::path& from, const fs::path& to) { fs::copy_file(from, to); }

TEST(OpenCheckpoint, SaysWhatAFileThatIsNoCheckpointLooksLike) {
    const TemporaryFolder folder;
    const std::pair<std::string, const char*> files[] = {
        {"", "empty (0 bytes)"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git-lfs pointer"},
        {"\x89HDF\r\n\x1a\n", "HDF5"},
        {"\x1f\x8b\x08", "gzip"},
        {"\x28\xb5\x2f\xfd", "zstd"},
        {"\n<!DOCTYPE HTML><html>", "web page"},
        {"<HTML>", "web page"},
        {"{\"model_type\": \"bert\"}", "JSON text"},
        {"hello", "is text"},
        {"PYTORCH1xx", "never released"},
        {"PK\x03\x04", "a truncated zip file"},
        {std::string("\x80\x04\x95\0\0\0\0\0\0\0\0}.", 13), "plain Python pickle"},
        {"(dp0\nS'a'\nI1\ns.", "plain Python pickle"},
        {std::string("}q\0(X\1\0\0\0aK\1u.", 14), "plain Python pickle"},
        {"ccollections\nOrderedDict\n(tR.", "plain Python pickle"},
        {"tjgg\3\0\0\0", "GGJT"},
        {"lmgg\0\x7d\0\0", "GGML"},
        {"24ka\1", "Is the file complete?"},
        {samples::raw<std::int32_t>({288, 768, 6, 6, 6, 32000, 256}) + "weights", "llama2.c"},
        {samples::raw<std::int32_t>({64, 172, 5, 8, 4, -512, 512}) + "weights", "llama2.c"},
        {"\x81\xa6params\x82\xa7"
         "encoder\x80",
         "Is the file complete?"},
        {std::string("\xde\0\x20\xd9\x24params/with/a/name/of/many/characters\xc0", 43),
         "has a key that is no text"},
        {std::string("\x1c\0\0\0TFL3\0", 9), "TensorFlow Lite"},
        {std::string("RIFF\x24\0\0\0WAVEfmt ", 16), "is sound, which no family takes"},
        {std::string("fLaC\0\0\0\x22", 8), "--input hidden:FILE.npy"},
        {std::string("RIFF\x24\0\0\0WEBPVP8 ", 16), "is a picture"},
        {std::string("RIFF\x24\0\0\0AVI LIST", 16), "is not in a known"},
        {"\x89PNG\r\n\x1a\n", "--images FILE"},
        {std::string("\x08\x08\x12\x07pytorch\x1a\x05", 12), "is an ONNX model"},
        {std::string("\x08\x0a\x3a\x90\x02\x0a\x0e\x0a\x01x", 10), "is an ONNX model"},
        {std::string("\x08\x01\x12\x90\x02\x0a\x0e\x0a\x01x", 10), "is not in a known"},
        {std::string("\x01\x02\x03\xff", 4), "is not in a known checkpoint format"},
        {samples::raw<std::int32_t>({288, 768, 6, 5, 5, 32000, 256}) + "heads",
         "is not in a known"},
        {std::string("\x81\xa6par\0ms\x82", 9), "is not in a known checkpoint format"},
        {std::string("storages") + std::string(249, '\0') + "ustar  ", "tar file from PyTorch 0.1"},
        {std::string("model.bin") + std::string(248, '\0') + "ustar  ", "is a tar archive"}};
    for (const auto& [content, expected] : files)
        EXPECT_THAT(refusal(folder.write("m.pt", content)),
                    AllOf(HasSubstr("m.pt: "), HasSubstr(expected)))
            << testing::PrintToString(content.substr(0, 20));
}

TEST(OpenCheckpoint, RefusesPathsThatAreNoFiles) {
    const TemporaryFolder folder;
    EXPECT_THAT(refusal(folder / "absent.pt"), HasSubstr("No such file"));
    fs::create_symlink("loop.pt", folder / "loop.pt");
    EXPECT_THAT(refusal(folder / "loop.pt"), HasSubstr("cannot be opened"));
    EXPECT_THAT(refusal("/dev/null"), HasSubstr("not a regular file"));
    fs::create_directory_symlink(".", folder / "self");
    EXPECT_THAT(refusal(folder.path()), HasSubstr("contains no model"))
        << "its only file is a loop";
}

TEST(OpenCheckpoint, NamesTheVersionOfGguf) {
    EXPECT_TRUE(open_checkpoint(samples::folder() / "empty.gguf")->names().empty());
    const TemporaryFolder folder;
    EXPECT_THAT(refusal(folder.write("m.gguf", "GGUF\x03")), HasSubstr("more bytes are expected"));
    // Version 1 has 32-bit counts: 12 tensors and 12 keys.
    EXPECT_THAT(refusal(folder.write("m.gguf", "GGUF" + samples::raw<std::uint32_t>({1, 12, 12}))),
                HasSubstr("version 1, expected 2 or 3"));
    EXPECT_THAT(samples::message_of<FormatError>([&] {
                    open_checkpoint(folder.write(
                        "m.gguf", std::string("GGUF\0\0\0\3", 8) + std::string(16, '\0')));
                }),
                HasSubstr("big-endian"));
}

TEST(OpenDirectory, SaysWhatItLookedForWhereNothingIs) {
    const TemporaryFolder folder;
    folder.write("config.json", "{}");
    EXPECT_THAT(refusal(folder.path()),
                AllOf(HasSubstr("contains no model"), HasSubstr("model.safetensors.index.json"),
                      HasSubstr("pytorch_model.bin"), HasSubstr(".ckpt")));
}

TEST(OpenDirectory, PrefersSafetensorsAndTakesTheOnlyFile) {
    const TemporaryFolder folder;
    copy_sample(samples::folder() / "plain.pt", folder / "last.ckpt");
    folder.write("optimizer.pt", "x");
    folder.write("training_args.bin", "x");
    EXPECT_EQ(open_checkpoint(folder.path())->format(), "torch zip");
    copy_sample(samples::folder() / "plain.pt", folder / "best.ckpt");
    EXPECT_THAT(refusal(folder.path()), HasSubstr("2 possible model files (best.ckpt, last"));
    copy_sample(samples::folder() / "plain.pt", folder / "pytorch_model.bin");
    EXPECT_EQ(open_checkpoint(folder.path())->format(), "torch zip");
    copy_sample(samples::folder() / "types.safetensors", folder / "model.safetensors");
    EXPECT_EQ(open_checkpoint(folder.path())->format(), "safetensors");
}

TEST(OpenDirectory, RefusesShardsWithoutTheirIndex) {
    const TemporaryFolder folder;
    for (const char* name :
         {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
        copy_sample(samples::folder() / "sharded" / name, folder / name);
    EXPECT_THAT(refusal(folder.path()), HasSubstr("Download the index as well"));
}

TEST(OpenShards, JoinsThemInTheOrderOfTheIndex) {
    const auto file = open_checkpoint(samples::folder() / "sharded");
    EXPECT_THAT(file->names(), ElementsAre("a", "b"));
    EXPECT_EQ(file->format(), "safetensors, in shards");
    EXPECT_EQ(file->metadata()["total_size"].integer(), 28);
    EXPECT_EQ(file->metadata()["format"].string(), "pt");
    const auto by_index =
        open_checkpoint(samples::folder() / "sharded_torch" / "pytorch_model.bin.index.json");
    EXPECT_EQ(by_index->format(), "torch, in shards");
    EXPECT_TRUE(as_is<float>(by_index->tensor("a")).has_value());
}

class Shards : public testing::Test {
  protected:
    Shards() {
        for (const char* name : {one, two})
            copy_sample(samples::folder() / "sharded" / name, folder / name);
    }
    std::string with_index(const std::string& map) {
        folder.write("model.safetensors.index.json", "{\"weight_map\": " + map + "}");
        return refusal(folder.path());
    }
    const TemporaryFolder folder;
    const char* one = "model-00001-of-00002.safetensors";
    const char* two = "model-00002-of-00002.safetensors";
};

TEST_F(Shards, RefusesAnIndexThatDoesNotFit) {
    EXPECT_THAT(
        with_index("{\"a\": \"model-00001-of-00002.safetensors\", \"b\": \"gone.safetensors\"}"),
        HasSubstr("shard 'gone.safetensors', which is missing"));
    EXPECT_THAT(
        with_index("{\"b\": \"model-00001-of-00002.safetensors\"}"),
        HasSubstr("places tensor 'b' in 'model-00001-of-00002.safetensors', which does not"));
    EXPECT_THAT(with_index("{}"), HasSubstr("no \"weight_map\""));
    EXPECT_THAT(with_index("[1]"), HasSubstr("no \"weight_map\""));
    EXPECT_THAT(with_index("{\"a\": 1}"), HasSubstr("no shard for tensor 'a'"));
    EXPECT_THAT(with_index("{\"a\": "), HasSubstr("not valid JSON"));
}

TEST_F(Shards, RefusesNamesThatLeaveTheFolder) {
    for (const char* name : {"../x", "/etc/passwd", "a/b", "..", "", "a\\\\b", ".", "x\\u0000y"})
        EXPECT_THAT(with_index(std::string("{\"a\": \"") + name + "\"}"),
                    HasSubstr("expected the plain name of a file"))
            << name;
}

TEST_F(Shards, TakesTensorsThatTheIndexForgot) {
    folder.write("model.safetensors.index.json",
                 std::string("{\"weight_map\": {\"a\": \"") + one + "\"}}");
    EXPECT_THAT(open_checkpoint(folder.path())->names(), ElementsAre("a"));
}

TEST_F(Shards, FollowsSymbolicLinksAsCachesOfModelsHaveThem) {
    fs::rename(folder / one, folder / "blob");
    fs::create_symlink("blob", folder / one);
    folder.write("model.safetensors.index.json",
                 std::string("{\"weight_map\": {\"a\": \"") + one + "\", \"b\": \"" + two + "\"}}");
    EXPECT_THAT(open_checkpoint(folder.path())->names(), ElementsAre("a", "b"));
}

TEST(DType, HasANameAndASize) {
    EXPECT_EQ(name(DType::bf16), "bf16");
    EXPECT_EQ(name(DType::boolean), "bool");
    EXPECT_EQ(bytes_of(DType::c128), 16u);
    EXPECT_EQ(bytes_of(DType::other), 0u);
}

}  // namespace
}  // namespace tsdiag
