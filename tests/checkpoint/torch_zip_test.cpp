#include "checkpoint/zip_writer.hpp"

namespace tsdiag {
namespace {

using samples::dict;
using samples::integer;
using samples::raw;
using samples::refusal;
using samples::TemporaryFolder;
using samples::tensor;
using samples::text;
using samples::torch_zip_of;
using samples::tuple;
using samples::zip_of;
using testing::ElementsAre;
using testing::HasSubstr;

/// Opens a torch.save archive with that pickle.
std::unique_ptr<Checkpoint> opened(const std::string& pickle,
                                   const std::vector<std::string>& storages = {}) {
    const TemporaryFolder folder;
    return open_checkpoint(folder.write("m.pt", torch_zip_of(pickle, storages)));
}
std::string refused(const std::string& pickle, const std::vector<std::string>& storages = {}) {
    return samples::message_of<FormatError>([&] { opened(pickle, storages); });
}

const std::string six_floats = raw<float>({0, 1, 2, 3, 4, 5});

TEST(TorchZip, KeepsWhatStandsBesideTheTensors) {
    const auto file = open_checkpoint(samples::folder() / "namespace.bin");
    const Json& m = file->metadata();
    EXPECT_EQ(m["args"]["lr"].number(), 0.1);
    EXPECT_EQ(m["args"]["betas"].dump(), "[0.9, 0.99]");
    EXPECT_EQ(m["args"]["name"].string(), "deit");
    EXPECT_EQ(m["args"]["out"].string(), "/tmp/x");
    EXPECT_FALSE(m["args"].contains("__class__"));
    EXPECT_EQ(m["loss"].number(), 0.25);
    EXPECT_TRUE(m["steps"].is_integer());
    EXPECT_EQ(m["steps"].integer(), 7);
    EXPECT_TRUE(m["flag"].boolean());
    EXPECT_EQ(m["nan"].string(), "nan");
    EXPECT_EQ(m["inf"].dump(), R"(["inf", "-inf"])");
    EXPECT_EQ(m["big"].number(), 0x1p63);
    EXPECT_TRUE(m.contains("none") && m["none"].is_null());
    EXPECT_EQ(m["counts"].dump(), R"({"a": 1})");
    EXPECT_EQ(m["tags"].dump(), R"(["x"])");
    EXPECT_EQ(m["color"].string(), "colors.Color.RED");
    EXPECT_EQ(m["size"].dump(), "[2, 3]");
    EXPECT_EQ(m["device"].string(), "cpu");
    EXPECT_EQ(m["dtype"].string(), "torch.float16");
    EXPECT_EQ(m["raw"]["size"].integer(), 2);
    EXPECT_EQ(m["text"].string(), "abc");
    EXPECT_EQ(m["objects"]["__class__"].string(), "numpy.core.multiarray._reconstruct");
    EXPECT_EQ(m["optimizer"].dump(), R"({"param_groups": [{"lr": 0.1}]})");
    EXPECT_FALSE(m.contains("model"));
}

TEST(TorchZip, KeepsTheMembersOfModules) {
    const auto file = open_checkpoint(samples::folder() / "module.pt");
    const Json& net = file->metadata()["net"];
    EXPECT_EQ(net["__class__"].string(), "torch.nn.modules.container.Sequential");
    EXPECT_EQ(net["0"]["in_features"].integer(), 2);
    EXPECT_EQ(file->metadata()["epoch"].integer(), 2);
}

TEST(TorchZip, ReadsNumbersOfEveryProtocol) {
    EXPECT_EQ(open_checkpoint(samples::folder() / "protocol0.pt")->metadata().dump(),
              R"({"lr": 0.5, "n": 12, "yes": true})");
    const auto file = open_checkpoint(samples::folder() / "protocol4.pt");
    EXPECT_EQ(file->metadata()["big"].number(), 0x1p70);
    const std::string longs = text("a") + std::string("\x8a\x01\xff", 3) + text("b") +
                              std::string("\x8a\x00", 2) + text("c") +
                              std::string("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x80", 11);
    EXPECT_EQ(opened(dict(longs))->metadata().dump(),
              R"({"a": -1, "b": 0, "c": -2361183241434822606848.0})");
}

TEST(TorchZip, CyclesEndAndSharedValuesAreWrittenOut) {
    const auto file = open_checkpoint(samples::folder() / "cycle.pt");
    EXPECT_EQ(file->metadata().dump(), R"({"self": "<cycle>"})");
}

TEST(TorchZip, RefusesTensorsThatReachBeyondTheirStorage) {
    const auto one = [](const std::string& t) {
        return refused(dict(text("w") + t), {six_floats});
    };
    EXPECT_THAT(one(tensor("0", 6, 1, {6}, {1})), HasSubstr("'w' of shape (6,), strides (1,) and"));
    EXPECT_THAT(one(tensor("0", 6, 0, {2, 3}, {4, 1})), HasSubstr("exceeds its storage"));
    EXPECT_THAT(one(tensor("0", 6, -1, {1}, {1})), HasSubstr("exceeds its storage"));
    EXPECT_THAT(one(tensor("0", 6, 0, {2}, {-1})), HasSubstr("exceeds its storage"));
    EXPECT_THAT(one(tensor("0", 6, INT64_MAX, {2}, {INT64_MAX})), HasSubstr("exceeds its storage"));
    EXPECT_THAT(one(tensor("0", 6, 0, {INT64_MAX, 4}, {0, 0})), HasSubstr("fits 63 bits"));
    EXPECT_THAT(one(tensor("0", 6, 0, {-1}, {1})), HasSubstr("fits 63 bits"));
    EXPECT_THAT(one(tensor("0", 6, 0, {2, 3}, {1})), HasSubstr("2 sizes and 1 strides"));
    EXPECT_THAT(one(tensor("0", 6, 0, {1 << 30}, {0})), HasSubstr("expands 6 stored elements"));
    EXPECT_THAT(one(tensor("0", 7, 0, {1}, {1})),
                HasSubstr("storage '0' has 24 bytes, expected 7"));
    EXPECT_THAT(one(tensor("0", -1, 0, {1}, {1})), HasSubstr("storage '0' has -1 elements"));
    EXPECT_THAT(one(tensor("0", INT64_MAX, 0, {1}, {1})), HasSubstr("storage '0' has 24 bytes"));
    EXPECT_THAT(one(tensor("1", 6, 0, {1}, {1})), HasSubstr("no entry 'm/data/1'"));
}

TEST(TorchZip, AcceptsEmptyTensorsWhereverTheyPoint) {
    const auto file = opened(dict(text("w") + tensor("0", 0, 0, {0, 5}, {5, 1})), {""});
    EXPECT_EQ(file->tensor("w").count(), 0);
}

TEST(TorchZip, ExecutesNothingAndKeepsUnknownObjectsInert) {
    const auto file = opened(dict(text("evil") + "cposix\nsystem\n(" + text("echo pwned") + "tR" +
                                  text("w") + tensor("0", 6, 0, {6}, {1})),
                             {six_floats});
    EXPECT_THAT(file->names(), ElementsAre("w"));
    EXPECT_EQ(file->metadata().dump(),
              R"({"evil": {"__class__": "posix.system", "__args__": ["echo pwned"]}, )"
              R"("__callables__": ["posix.system"]})");
}

TEST(TorchZip, BoundsWhatSharedReferencesExpandTo) {
    // Each list holds the one before it ten times: 10^40 values in a few hundred bytes.
    std::string laughs =
        "\x80\x02]q" + std::string(1, '\0') + "X" + raw<std::uint32_t>({3}) + "lola";
    for (char level = 1; level < 40; ++level) {
        laughs += "]q" + std::string(1, level) + "(";
        for (int i = 0; i < 10; ++i) laughs += "h" + std::string(1, char(level - 1));
        laughs += "e";
    }
    EXPECT_THAT(refused(laughs + "."),
                HasSubstr("what stands beside the weights makes the file unpack"));
}

/// {"0": array, "1": array, ...} of NumPy arrays that share one memoised text of `size` bytes.
std::string arrays_of_one_text(std::uint32_t size, int count) {
    const std::string memo = std::string("q\0", 2);
    std::string items =
        text("text") + "X" + raw<std::uint32_t>({size}) + std::string(size, 'x') + memo;
    for (int i = 0; i < count; ++i)
        items += text(std::to_string(i)) +
                 "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + tuple({0}) + "tR(" +
                 integer(1) + tuple({size}) + "cnumpy\ndtype\n(" + text("u1") +
                 "tR\x89"
                 "c_codecs\nencode\n(" +
                 std::string("h\0", 2) + text("latin1") + "tRtb";
    return dict(items);
}

TEST(TorchZip, CopiesSharedBlobsWithinTheBudget) {
    const auto some = opened(arrays_of_one_text(1'000'000, 3));
    EXPECT_EQ(some->tensor("2").count(), 1'000'000);
    EXPECT_THAT(refused(arrays_of_one_text(1'000'000, 300)),
                HasSubstr("makes the file unpack, copy and repeat more than"));
}

TEST(TorchZip, ShowsViewsWithinTheBudget) {
    std::string items, same;
    for (int i = 0; i < 40; ++i) {
        items += text(std::to_string(i)) + tensor("0", 6, 0, {1000, 1000, i + 1}, {0, 0, 0});
        same += text(std::to_string(i)) + tensor("0", 6, 0, {1000, 1000, 10}, {0, 0, 0});
    }
    EXPECT_THAT(refused(dict(items), {six_floats}), HasSubstr("tensor '5' makes the file unpack"));
    EXPECT_EQ(opened(dict(same), {six_floats})->names().size(), 40u)
        << "one view of many names is one";
}

TEST(TorchZip, BoundsNamesOfClassesThatTextsBuild) {
    std::string pickle = "\x80\x04" + text(std::string(100'000, 'a')) + std::string("q\0", 2);
    for (int i = 0; i < 100'000; ++i) pickle += std::string("h\0h\0\x93", 5) + "0";
    EXPECT_THAT(refused(pickle + "."), HasSubstr("names a class of 200000 bytes"));
}

TEST(TorchZip, BoundsElementsWhoseSizeItDoesNotKnow) {
    const std::string quint = "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") +
                              "ctorch\nQUInt4x2Storage\n" + text("0") + text("cpu") + integer(24) +
                              "tQ" + integer(0);
    const std::string end =
        "\x89"
        "ccollections\nOrderedDict\n)RtR";
    EXPECT_EQ(opened(dict(text("w") + quint + tuple({48}) + tuple({1}) + end), {six_floats})
                  ->tensor("w")
                  .count(),
              48);
    EXPECT_THAT(
        refused(dict(text("w") + quint + tuple({1'000'000'000}) + tuple({1}) + end), {six_floats}),
        HasSubstr("exceeds its storage"));
}

TEST(TorchZip, ComparesChecksums) {
    const TemporaryFolder folder;
    const std::string good =
        torch_zip_of(dict(text("w") + tensor("0", 6, 0, {6}, {1})), {six_floats});
    std::string zip = good;
    zip[zip.find(six_floats) + 3] ^= 1;
    const auto file = open_checkpoint(folder.write("m.pt", zip));
    EXPECT_EQ(file->tensor("w").count(), 6) << "shapes need no elements";
    EXPECT_THAT(samples::message_of<FormatError>([&] { samples::values(file->tensor("w")); }),
                HasSubstr("entry 'm/data/0' does not match its checksum"));
    zip = good;
    zip[zip.find("storage")] ^= 1;
    EXPECT_THAT(refusal(folder.write("n.pt", zip)),
                HasSubstr("entry 'm/data.pkl' does not match its checksum"));
}

TEST(TorchZip, BoundsTheDepth) {
    std::string deep = "\x80\x02";
    for (int i = 0; i < 100000; ++i) deep += "]";
    for (int i = 1; i < 100000; ++i) deep += "a";
    EXPECT_THAT(refused(deep + "."), HasSubstr("nested deeper than 100"));
    std::string parameters = "\x80\x02";
    for (int i = 0; i < 100000; ++i) parameters += "ctorch._utils\n_rebuild_parameter\n(";
    parameters += "N";
    for (int i = 0; i < 100000; ++i) parameters += "tR";
    EXPECT_THAT(refused(parameters + "."), HasSubstr("nested deeper than 100"));
}

TEST(TorchZip, RefusesPicklesThatAreNone) {
    for (const std::string& bad :
         {std::string("\x80\x02"), std::string("\x80\x06N."), std::string("."), std::string("a."),
          std::string("t."), std::string("}K\x01s."),
          std::string("K\x01K\x02"
                      "a."),
          std::string("h\x05."), std::string("(u."), std::string("Ixyz\n."), std::string("Fabc\n."),
          std::string("Sabc\n."), std::string("}(K\x01u."), std::string("K\x01K\x01\x93."),
          std::string("K\x01}b."), std::string("\xffN."), std::string("(o."),
          std::string("X\xff\xff\xff\xff.", 6),
          std::string("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.")})
        EXPECT_THAT(refused(bad), HasSubstr("m.pt")) << testing::PrintToString(bad);
}

TEST(TorchZip, RefusesTwoTensorsOfOneName) {
    const std::string w = tensor("0", 6, 0, {6}, {1});
    EXPECT_THAT(
        refused(dict(text("a.b") + w + text("a") + "}(" + text("b") + w + "u"), {six_floats}),
        HasSubstr("two tensors are named 'a.b'"));
    const auto file = opened(
        dict(text("a") + tensor("0", 6, 0, {1}, {1}) + text("a") + tensor("0", 6, 5, {1}, {1})),
        {six_floats});
    EXPECT_EQ(samples::values(file->tensor("a"))[0], 5)
        << "of a repeated key the last value counts";
}

TEST(TorchZip, RefusesDamagedZipFiles) {
    const TemporaryFolder folder;
    const std::string pickle = dict(text("w") + tensor("0", 6, 0, {6}, {1}));
    const auto zip = [&](const std::vector<samples::ZipMember>& members) {
        return refusal(folder.write("m.pt", zip_of(members)));
    };
    EXPECT_THAT(zip({{"m/data.pkl", pickle}, {"m/data.pkl", pickle}}),
                HasSubstr("two zip entries"));
    EXPECT_THAT(zip({{"m/data.pkl", pickle, 0, 1}}), HasSubstr("encrypted"));
    EXPECT_THAT(zip({{"m/data.pkl", pickle, 12}}), HasSubstr("compression method 12"));
    EXPECT_THAT(zip({{"m/data.pkl", pickle}, {"m/data/0", six_floats, 0, 0, 25}}),
                HasSubstr("stored in 24 bytes, expected its size of 25"));
    EXPECT_THAT(zip({{"m/data.pkl", pickle}, {"m/data/0", six_floats, 0, 0, 24, 24, 0}}),
                HasSubstr("entry 'm/data/0' is not at byte 0"));
    EXPECT_THAT(zip({{"m/data.pkl", pickle}, {"m/data/0", six_floats, 0, 0, 24, 24, 1u << 31}}),
                HasSubstr("is not at byte 2147483648"));
    EXPECT_THAT(zip({{"m/data.pkl", pickle, 0, 0, 5000000, 5000000}}),
                HasSubstr("has 5000000 bytes"));
    EXPECT_THAT(zip({{"word/document.xml", "<x/>"}}), HasSubstr("expected data.pkl in a folder"));
    EXPECT_THAT(zip({{"m/data.pkl", pickle}, {"m/data/0", six_floats}, {"m/byteorder", "middle"}}),
                HasSubstr("neither 'little' nor 'big'"));
}

TEST(TorchZip, DoesNotNeedChecksumsOfStoredEntries) {
    const TemporaryFolder folder;
    std::string zip = torch_zip_of(dict(text("w") + tensor("0", 6, 0, {6}, {1})), {six_floats});
    const std::size_t central = zip.find("PK\x01\x02", zip.find("PK\x01\x02") + 1);
    zip.replace(central + 16, 4, "\0\0\0\0", 4);
    const auto file = open_checkpoint(folder.write("m.pt", zip));
    EXPECT_THAT(samples::values(file->tensor("w")), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(TorchZip, SharesTiedStorages) {
    const auto file = open_checkpoint(samples::folder() / "strided.pt");
    EXPECT_EQ(file->tensor("base").bytes.data(), file->tensor("tied").bytes.data());
    EXPECT_EQ(file->tensor("expanded").strides, (std::vector<std::int64_t>{0, 1}));
    EXPECT_TRUE(as_is<float>(file->tensor("base")).has_value());
    EXPECT_FALSE(as_is<float>(file->tensor("transposed")).has_value());
}

TEST(TorchLegacy, IsReadWhateverTheProtocolOfItsPickles) {
    for (const char* name : {"legacy.pt", "legacy_protocol4.pt", "legacy_views.pt"}) {
        const auto file = open_checkpoint(samples::folder() / name);
        EXPECT_EQ(file->format(), "torch legacy");
    }
    EXPECT_EQ(open_checkpoint(samples::folder() / "legacy.pt")->metadata()["epoch"].integer(), 4);
}

/// The output of torch.save with pickle_protocol=1 in the old layout: {"w": two numbers}.
std::string legacy_of_protocol_1() {
    const std::string q0("q\0", 2);
    const std::string id =
        "(" + text("storage") + "ctorch\nFloatStorage\n" + text("7") + text("cpu") + "K\x02NtQ";
    return "L119547037146038801333356L\n." + std::string("M\xe9\x03.") + "}" + q0 + "(" +
           text("protocol_version") + "M\xe9\x03" + text("little_endian") + "I01\nu." + "}" + q0 +
           text("w") + "ctorch._utils\n_rebuild_tensor_v2\n(" + id + std::string("K\0", 2) +
           "(K\x02t(K\x01tI00\nccollections\nOrderedDict\n(tRtRs." + "]" + q0 + text("7") + "a." +
           raw<std::int64_t>({2}) + raw<float>({1.5F, -2});
}

TEST(TorchLegacy, IsReadInProtocol1AndNamedInProtocol0) {
    const TemporaryFolder folder;
    std::string file = legacy_of_protocol_1();
    const auto opened = open_checkpoint(folder.write("m.pt", file));
    EXPECT_EQ(opened->format(), "torch legacy");
    EXPECT_THAT(samples::values(opened->tensor("w")), ElementsAre(1.5, -2));
    const std::size_t from = file.find("(X\7"), to = file.find("tQ") + 2;
    file.replace(from, to - from,
                 "P('storage', <class 'torch.FloatStorage'>, '7', 'cpu', 2, None)\n");
    EXPECT_THAT(refusal(folder.write("n.pt", file)), HasSubstr("saved with pickle protocol 0"));
}

TEST(TorchLegacy, RefusesViewsAndStoragesThatDoNotFit) {
    const TemporaryFolder folder;
    const std::string good = samples::read_file(samples::folder() / "legacy_views.pt");
    const auto with = [&](std::string_view from, std::string_view to) {
        std::string bad = good;
        const std::size_t at = bad.find(from);
        EXPECT_NE(at, std::string::npos);
        return refusal(folder.write("m.pt", bad.replace(at, from.size(), to)));
    };
    EXPECT_THAT(with("K\x03K\x03t", "K\x04K\x03t"), HasSubstr("view beyond its storage"));
    EXPECT_THAT(with("cpuK\x06", "cpuK\x07"), HasSubstr("elements, expected 7"));
    EXPECT_THAT(refusal(folder.write("m.pt", good + "x")), HasSubstr("1 bytes after its storages"));
    EXPECT_THAT(
        with(std::string_view("\x06\0\0\0\0\0\0\0", 8), std::string_view("\0\0\0\0\0\0\0\x80", 8)),
        HasSubstr("expected 6"));
}

TEST(TorchLegacy, ElementsAreLittleEndianWhateverMachineWroteThem) {
    const TemporaryFolder folder;
    std::string file = samples::read_file(samples::folder() / "legacy_views.pt");
    const std::size_t at = file.find("little_endian");
    const std::size_t flag = file.find('\x88', at);
    ASSERT_NE(flag, std::string::npos);
    file[flag] = '\x89';  // little_endian: False
    EXPECT_THAT(samples::values(open_checkpoint(folder.write("m.pt", file))->tensor("a")),
                ElementsAre(1, 2));
}

}  // namespace
}  // namespace tsdiag
