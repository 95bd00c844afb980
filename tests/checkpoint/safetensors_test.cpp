#include "checkpoint/samples.hpp"

namespace tsdiag {
namespace {

using samples::refusal;
using samples::TemporaryFolder;
using testing::HasSubstr;

std::string with_header(std::string_view json, std::string_view data) {
    return samples::raw<std::uint64_t>({json.size()}) + std::string(json) + std::string(data);
}

/// The error message for a file with that header and that many bytes of data.
std::string refusal_of(std::string_view json, std::size_t bytes) {
    const TemporaryFolder folder;
    return refusal(folder.write("m.safetensors", with_header(json, std::string(bytes, '\0'))));
}

TEST(Safetensors, TakesMetadataOfNullForNone) {
    const samples::TemporaryFolder folder;
    const std::string header = R"({"__metadata__": null})";
    const auto file = open_checkpoint(
        folder.write("a.safetensors", samples::raw<std::uint64_t>({header.size()}) + header));
    EXPECT_TRUE(file->names().empty());
    EXPECT_EQ(file->metadata().dump(), "{}");
}

TEST(Safetensors, RefusesHeadersThatAreNotThere) {
    const TemporaryFolder folder;
    EXPECT_THAT(refusal(folder.write("m", with_header("{}", "").substr(0, 9))),
                HasSubstr("truncated"));
    EXPECT_THAT(
        refusal(folder.write("m", samples::raw<std::uint64_t>({100'000'001}) + "{}")),
        HasSubstr("has a safetensors header of 100000001 bytes, expected at most 100000000"));
    EXPECT_THAT(refusal(folder.write("m", samples::raw<std::uint64_t>({1ull << 63}) + "{}")),
                HasSubstr("is not in a known checkpoint format"));
    EXPECT_THAT(refusal(folder.write("m", samples::raw<std::uint64_t>({0}) + "{}")),
                HasSubstr("not valid JSON"));
    EXPECT_THAT(refusal(folder.write("m", with_header("{\"a\": }", ""))),
                HasSubstr("not valid JSON"));
}

TEST(Safetensors, RefusesHolesOverlapsAndForeignBytes) {
    const auto two = [](int b0, int e0, int b1, int e1) {
        return "{\"a\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(e0 - b0) +
               "],\"data_offsets\":[" + std::to_string(b0) + "," + std::to_string(e0) +
               "]},\"b\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(e1 - b1) +
               "],\"data_offsets\":[" + std::to_string(b1) + "," + std::to_string(e1) + "]}}";
    };
    EXPECT_THAT(refusal_of(two(0, 4, 5, 9), 9), HasSubstr("'b' begins at data byte 5, expected 4"));
    EXPECT_THAT(refusal_of(two(0, 4, 3, 7), 7), HasSubstr("'b' begins at data byte 3, expected 4"));
    EXPECT_THAT(refusal_of(two(1, 4, 4, 7), 7), HasSubstr("'a' begins at data byte 1, expected 0"));
    EXPECT_THAT(refusal_of(two(0, 4, 4, 8), 9), HasSubstr("9 bytes of data, expected 8"));
    EXPECT_THAT(refusal_of(two(0, 4, 4, 8), 7), HasSubstr("truncated"));
}

TEST(Safetensors, AcceptsOffsetsInAnyOrder) {
    const TemporaryFolder folder;
    const std::string json = R"( {"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                             R"("a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}} )";
    const auto file = open_checkpoint(folder.write("m", with_header(json, "\x01\xff\x09")));
    EXPECT_THAT(file->names(), testing::ElementsAre("b", "a"));
    EXPECT_THAT(samples::values(file->tensor("a")), testing::ElementsAre(1, -1));
    EXPECT_THAT(samples::values(file->tensor("b")), testing::ElementsAre(9));
}

TEST(Safetensors, RefusesSizesThatDoNotFit) {
    const auto one = [](const char* dtype, const char* shape, const char* offsets) {
        return std::string("{\"t\":{\"dtype\":\"") + dtype + "\",\"shape\":" + shape +
               ",\"data_offsets\":" + offsets + "}}";
    };
    EXPECT_THAT(refusal_of(one("F32", "[2,3]", "[0,20]"), 20), HasSubstr("24 bytes apart"));
    EXPECT_THAT(refusal_of(one("F32", "[4294967296,4294967296]", "[0,0]"), 0),
                HasSubstr("fits 63 bits"));
    EXPECT_THAT(refusal_of(one("F32", "[2305843009213693952]", "[0,0]"), 0),
                HasSubstr("fits 63 bits"));
    EXPECT_THAT(refusal_of(one("F4", "[3]", "[0,2]"), 2), HasSubstr("whole number of bytes"));
    EXPECT_THAT(refusal_of(one("F32", "[1]", "[4,0]"), 4), HasSubstr("4 bytes apart"));
    EXPECT_THAT(refusal_of(one("F32", "[-1]", "[0,4]"), 4), HasSubstr("valid \"shape\""));
    EXPECT_THAT(refusal_of(one("F32", "[1.5]", "[0,4]"), 4), HasSubstr("valid \"shape\""));
    EXPECT_THAT(refusal_of(one("F32", "[1]", "[0]"), 4), HasSubstr("4 bytes apart"));
    EXPECT_THAT(refusal_of(one("F33", "[1]", "[0,4]"), 4), HasSubstr("dtype 'F33'"));
    EXPECT_THAT(refusal_of("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
                HasSubstr("has no \"dtype\""));
    EXPECT_THAT(refusal_of("{\"t\":[1]}", 0), HasSubstr("has no \"dtype\""));
}

TEST(Safetensors, RefusesDuplicateNamesAndOddMetadata) {
    const std::string t = R"("t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    EXPECT_THAT(refusal_of("{" + t + "," + t + "}", 0), HasSubstr("'t' occurs twice"));
    EXPECT_THAT(refusal_of(R"({"__metadata__":{"a":1}})", 0), HasSubstr("object of strings"));
    EXPECT_THAT(refusal_of(R"({"__metadata__":"a"})", 0), HasSubstr("object of strings"));
}

TEST(Safetensors, ListsTypesThatItCannotRead) {
    const TemporaryFolder folder;
    const auto file = open_checkpoint(folder.write(
        "m", with_header(R"({"t":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]}})", "abcd")));
    const RawTensor tensor = file->tensor("t");
    EXPECT_EQ(tensor.dtype, DType::other);
    EXPECT_EQ(tensor.dtype_name, "F4");
    EXPECT_EQ(tensor.bytes.size(), 4u);
    const std::string message = samples::message_of<NotAvailable>([&] { summarise(tensor); });
    EXPECT_THAT(message, HasSubstr("dtype F4"));
}

TEST(Safetensors, KeepsMetadataAndSuggestsNames) {
    const auto file = open_checkpoint(samples::folder() / "types.safetensors");
    EXPECT_EQ(file->metadata()["format"].string(), "pt");
    EXPECT_EQ(file->format(), "safetensors");
    EXPECT_THAT(samples::message_of<UsageError>([&] { file->tensor("bf166"); }),
                HasSubstr("Did you mean 'bf16'?"));
    EXPECT_TRUE(file->has("f32"));
    EXPECT_FALSE(file->has("F32"));
}

TEST(Safetensors, ReadsUnalignedDataByCopyAndAlignedDataInPlace) {
    const auto unaligned = open_checkpoint(samples::folder() / "unaligned.safetensors");
    EXPECT_FALSE(as_is<float>(unaligned->tensor("w")).has_value());
    const auto aligned = open_checkpoint(samples::folder() / "types.safetensors");
    const RawTensor tensor = aligned->tensor("f32");
    const auto in_place = as_is<float>(tensor);
    ASSERT_TRUE(in_place.has_value());
    EXPECT_EQ(static_cast<const void*>(in_place->data()), tensor.bytes.data());
    EXPECT_FALSE(as_is<double>(tensor).has_value());
}

TEST(Safetensors, TensorsOutliveTheCheckpoint) {
    RawTensor tensor;
    {
        const auto file = open_checkpoint(samples::folder() / "types.safetensors");
        tensor = file->tensor("f32");
    }
    release_pages(tensor);
    EXPECT_EQ(samples::values(tensor)[0], -2.5);
}

}  // namespace
}  // namespace tsdiag
