#include "checkpoint/zip_writer.hpp"

namespace tsdiag {
namespace {

using samples::refusal;
using samples::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string npy(std::string header, const std::string& data, char version = 1) {
    header += '\n';
    std::string out = "\x93NUMPY" + std::string(1, version) + std::string(1, '\0');
    if (version == 1)
        out += samples::raw<std::uint16_t>({std::uint16_t(header.size())});
    else
        out += samples::raw<std::uint32_t>({std::uint32_t(header.size())});
    return out + header + data;
}

std::string header(const std::string& descr, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

TEST(Npy, AcceptsTheHeadersOfAllWriters) {
    const TemporaryFolder folder;
    const std::string data = samples::raw<float>({1, 2});
    for (const std::string& good :
         {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }  ", data),
          npy("{\"shape\": (2L,), \"fortran_order\": False, \"descr\": \"<f4\"}", data),
          npy("{'descr':'<f4','fortran_order':False,'shape':(1,2)}", data, 2),
          npy("{'descr': '=f4', 'fortran_order': True, 'shape': (2,)}", data, 3)}) {
        const auto file = open_checkpoint(folder.write("a.npy", good));
        EXPECT_THAT(samples::values(file->tensor("array")), ElementsAre(1, 2));
        EXPECT_EQ(file->format(), "npy");
    }
}

TEST(Npy, RefusesHeadersThatAreNone) {
    const TemporaryFolder folder;
    const auto refused = [&](const std::string& text) {
        return refusal(folder.write("a.npy", npy(text, "")));
    };
    for (const char* bad :
         {"", "{", "{}", "[]", "{'descr': '<f4'}", "{'descr': <f4}", "{'descr': '<f4",
          "{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'shape': ()}",
          "{'descr': '<f4', 'fortran_order': False, 'size': ()}"})
        EXPECT_THAT(refused(bad), HasSubstr("npy header")) << bad;
    EXPECT_THAT(refused(header("|O", "(1,)")), HasSubstr("Python objects (dtype |O)"));
    EXPECT_THAT(refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}"),
                HasSubstr("contains records"));
    EXPECT_THAT(refused(header("<f4", "(3,)")), HasSubstr("0 bytes of data, expected 12"));
    EXPECT_THAT(refused(header("<f8", "(4294967296, 4294967296)")), HasSubstr("fits 63 bits"));
    EXPECT_THAT(refusal(folder.write("a.npy", npy(header("<f4", "()"), "12345"))),
                HasSubstr("followed by extra bytes"));
    EXPECT_THAT(refusal(folder.write("a.npy", npy(header("<f4", "()"), "1234", 9))),
                HasSubstr("npy version 9"));
}

/// An end record that counts fewer entries would hide arrays.
TEST(Npz, RefusesMoreEntriesThanItsEndRecordCounts) {
    const TemporaryFolder folder;
    const std::string one = npy(header("<f4", "(1,)"), "1234");
    std::string text = samples::zip_of({{"a.npy", one}, {"b.npy", one}});
    EXPECT_EQ(open_checkpoint(folder.write("a.npz", text))->names().size(), 2U);
    text[text.size() - 12] = 1;
    EXPECT_THAT(refusal(folder.write("a.npz", text)), HasSubstr("more zip entries than the 1"));
}

TEST(Npy, RefusesElementsWithoutBytesOfWhichAnyNumberFits) {
    const TemporaryFolder folder;
    for (const char* descr : {"<U0", "|V0", "|S0", "<M", "|X", "<f3x"})
        EXPECT_THAT(refusal(folder.write("a.npy", npy(header(descr, "(1000000000, 4)"), ""))),
                    HasSubstr(std::string("has dtype ") + descr +
                              ", whose element size is zero or unknown"));
}

TEST(Npy, ListsTypesThatItCannotRead) {
    const TemporaryFolder folder;
    const auto file =
        open_checkpoint(folder.write("a.npy", npy(header("<U2", "(1,)"), "12345678")));
    EXPECT_EQ(file->tensor("array").dtype, DType::other);
    EXPECT_THROW(summarise(file->tensor("array")), NotAvailable);
    const auto complex =
        open_checkpoint(folder.write("c.npy", npy(header("<c8", "(1,)"), "12345678")));
    EXPECT_EQ(complex->tensor("array").dtype, DType::c64);
}

TEST(Npz, RefusesObjectsByName) {
    EXPECT_THAT(refusal(samples::folder() / "objects.npz"),
                HasSubstr("array 'bad': contains Python objects (dtype |O)"));
}

TEST(Npz, UsesStoredArraysInPlaceAndInflatesOthersOnce) {
    const auto stored = open_checkpoint(samples::folder() / "stored.npz");
    EXPECT_FALSE(stored->tensor("fortran").contiguous());
    EXPECT_TRUE(stored->tensor("big").big_endian);
    const auto deflated = open_checkpoint(samples::folder() / "deflated.npz");
    EXPECT_EQ(deflated->tensor("f4").bytes.data(), deflated->tensor("f4").bytes.data());
    EXPECT_NO_THROW(release_pages(deflated->tensor("f4")));
    EXPECT_EQ(samples::values(deflated->tensor("f4")), samples::values(stored->tensor("f4")));
    EXPECT_THROW(stored->tensor("absent"), UsageError);
}

TEST(Npz, KeepsInflatedMemoryThatReleasePagesMustNotDrop) {
    const TemporaryFolder folder;
    std::vector<float> numbers(1 << 16);  // many whole pages
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i * 31 % 257);
    const std::string data(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
    const auto file = open_checkpoint(folder.write(
        "a.npz", samples::zip_of({{"x.npy", npy(header("<f4", "(65536,)"), data), 8}})));
    const RawTensor tensor = file->tensor("x");
    release_pages(tensor);
    std::vector<float> read(numbers.size());
    widen<float>(tensor, read);
    EXPECT_EQ(read, numbers);
}

TEST(Npz, RefusesDeflateBombsAndLies) {
    const TemporaryFolder folder;
    const std::string good = npy(header("<f4", "(4,)"), std::string(16, 'x'));
    const auto opened = [&](const samples::ZipMember& member) {
        const auto file = open_checkpoint(folder.write("a.npz", samples::zip_of({member})));
        return file->tensor(file->names().front());
    };
    EXPECT_NO_THROW(opened({"x.npy", good, 8}));
    const auto refused = [&](const samples::ZipMember& member) {
        return samples::message_of<FormatError>([&] { opened(member); });
    };
    const auto size = std::uint32_t(good.size());
    EXPECT_THAT(refused({"x.npy", good, 8, 0, size - 1}), HasSubstr("more than its stated size"));
    EXPECT_THAT(refused({"x.npy", good, 8, 0, size + 1}), HasSubstr("unpacks to"));
    EXPECT_THAT(refused({"x.npy", good, 8, 0, 4000000000u}), HasSubstr("zip bomb"));
}

TEST(Npz, InflatesAllEntriesWithinOneBudget) {
    const TemporaryFolder folder;
    const std::string zeros = npy(header("<f4", "(10000000,)"), std::string(40'000'000, '\0'));
    std::vector<samples::ZipMember> members;
    for (const char* name : {"a.npy", "b.npy", "c.npy", "d.npy", "e.npy"})
        members.push_back({name, zeros, 8});
    const auto file = open_checkpoint(folder.write("a.npz", samples::zip_of(members)));
    EXPECT_EQ(file->tensor("a").count(), 10'000'000) << "one is well";
    EXPECT_EQ(file->tensor("a").count(), 10'000'000) << "again, it costs nothing";
    const std::string why = samples::message_of<FormatError>([&] {
        for (const std::string& name : file->names()) file->tensor(name);
    });
    EXPECT_THAT(why, HasSubstr("makes the file unpack, copy and repeat more than 64"));
}

TEST(Npz, ComparesChecksumsOfStoredEntriesWhenTheirElementsAreRead) {
    const TemporaryFolder folder;
    const std::string data = npy(header("<f4", "(4,)"), std::string(16, 'x'));
    std::string zip = samples::zip_of({{"x.npy", data}, {"y.npy", data}});
    zip[zip.find("xxxx")] ^= 1;
    const auto file = open_checkpoint(folder.write("a.npz", zip));
    const RawTensor bad = file->tensor("x");
    std::vector<float> values(4);
    for (int again = 0; again < 2; ++again) {
        const auto refused = [&](auto read) { return samples::message_of<FormatError>(read); };
        EXPECT_THAT(refused([&] { widen<float>(bad, values); }),
                    HasSubstr("entry 'x.npy' does not match its checksum"));
        EXPECT_THAT(refused([&] { summarise(bad); }), HasSubstr("checksum"));
    }
    EXPECT_EQ(samples::values(file->tensor("y")).size(), 4u) << "the other entry is whole";
}

TEST(Npz, ComparesChecksumsBeforeElementsAreUsedInPlace) {
    const TemporaryFolder folder;
    int in_place = 0;
    for (int padding = 0; padding < 4; ++padding) {  // one of them aligns the elements
        const std::string data = npy(header("<f4", "(4,)") + std::string(std::size_t(padding), ' '),
                                     std::string(16, 'x'));
        const std::string zip = samples::zip_of({{"x.npy", data}});
        const auto good = open_checkpoint(folder.write("good.npz", zip));
        if (!as_is<float>(good->tensor("x"))) continue;
        ++in_place;
        std::string damaged = zip;
        damaged[damaged.find("xxxx")] ^= 1;
        const auto bad = open_checkpoint(folder.write("bad.npz", damaged));
        EXPECT_THAT(samples::message_of<FormatError>([&] { as_is<float>(bad->tensor("x")); }),
                    HasSubstr("checksum"));
    }
    EXPECT_EQ(in_place, 1);
}

TEST(Npz, RefusesAWrongChecksumOfADeflatedEntry) {
    const TemporaryFolder folder;
    const std::string data = npy(header("<f4", "(4,)"), std::string(16, 'x'));
    std::string zip = samples::zip_of({{"x.npy", data, 8}});
    zip[zip.find("PK\x01\x02") + 16] ^= 1;
    EXPECT_THAT(refusal(folder.write("a.npz", zip)), HasSubstr("checksum"));
}

TEST(Npz, RefusesOverlappingEntriesAndStrangers) {
    const TemporaryFolder folder;
    const std::string data = npy(header("<f4", "(400,)"), std::string(1600, 'x'));
    std::vector<samples::ZipMember> members = {{"x.npy", data}};
    for (int i = 0; i < 9; ++i)
        members.push_back({std::to_string(i) + ".npy", "", 0, 0, std::uint32_t(data.size()),
                           std::uint32_t(data.size()), 0});
    EXPECT_THAT(refusal(folder.write("a.npz", samples::zip_of(members))), HasSubstr("overlap"));
    EXPECT_THAT(refusal(folder.write("b.npz", samples::zip_of({{"x.npy", data}, {"y.txt", "?"}}))),
                HasSubstr("contains 'y.txt'"));
}

}  // namespace
}  // namespace tsdiag
