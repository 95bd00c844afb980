#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"
#include "support/files.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/output.hpp"

/// Pictures in place of arrays: `--images`.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Words = std::vector<std::string>;

const fs::path pictures = fs::path(test_data()) / "pictures";

Json run_of(const fs::path& result) {
    return Json::parse(read_file(result / "run.json"), "run.json");
}

/// The golden ViT, whose images are 12 x 12, with a folder of pictures.
class Images : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directory(folder.path() / "model");
        fs::create_directory(folder.path() / "in");
        for (const char* file : {"config.json", "model.safetensors"})
            fs::copy_file(fs::path(test_data()) / "golden" / "vit" / file,
                          folder.path() / "model" / file);
    }
    /// One of tests/data/pictures/cases.json.
    static Json one_of(const std::string& name) {
        const Json all = Json::parse(read_file(pictures / "cases.json"), "cases.json");
        for (const Json& one : all.array())
            if (one["name"].string() == name) return one;
        return {};
    }
    void says(const std::string& config) {
        write_file(folder.path() / "model" / "preprocessor_config.json", config);
    }
    Finished probe(const Words& more, const std::string& out = "out") {
        Words words = {"probe", "model", "--no-report", "--force", "--out", out};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    void refused(const Words& more, int code, const std::string& why) {
        const Finished done = probe(more);
        EXPECT_EQ(done.code, code) << done.err;
        expect_one_sentence(done.err);
        EXPECT_THAT(done.err, HasSubstr(why));
    }
    std::string table(const std::string& out) {
        return read_file(folder.path() / out / "metrics.csv");
    }
    TemporaryDirectory folder;
};

TEST_F(Images, GiveTheNumbersOfTheArraysThatNumpyMakesOfThem) {
    for (const char* name : {"vit", "clip", "clip_by_default", "timm"}) {
        const Json one = one_of(name);
        fs::remove(folder.path() / "model" / "preprocessor_config.json");
        says(one["config"].dump());
        const fs::path picture = pictures / one["picture"].string();
        const Finished done = probe({"--images", picture.string()}, "pictures");
        if (done.err.find("was built without") != std::string::npos) continue;
        ASSERT_EQ(done.code, 0) << done.err;
        const auto file = open_checkpoint(pictures / "expected.npz");
        const RawTensor raw = file->tensor("made/" + std::string(name));
        std::vector<double> values(std::size_t(raw.count()));
        widen(raw, std::span(values));
        write_npy<double>(folder / "a.npy", "<f8", raw.shape, values);
        ASSERT_EQ(probe({"--input", "image:a.npy"}, "array").code, 0);
        EXPECT_EQ(table("pictures"), table("array")) << name;
        EXPECT_GT(table("pictures").size(), 1000u);
    }
}

TEST_F(Images, OfAFolderAreTheFirstByName) {
    says(one_of("vit")["config"].dump());
    for (const char* name : {"rgb.png", "palette.png", "scene.png"})
        fs::copy_file(pictures / name, folder.path() / "in" / name);
    write_file(folder / "in/notes.txt", "no picture");
    ASSERT_EQ(probe({"--images", "in"}).code, 0);
    const Json input = run_of(folder.path() / "out")["input"];
    EXPECT_EQ(input["kind"].string(), "pictures");
    EXPECT_EQ(input["samples"].integer(), 3);
    EXPECT_EQ(probe({"--images", "in", "--samples", "2"}).code, 0);
    const Json run = run_of(folder.path() / "out");
    const Json::Array& files = run["input"]["pictures"]["files"].array();
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files[0]["file"].string(), "palette.png");
    EXPECT_EQ(files[1]["file"].string(), "rgb.png");
    EXPECT_EQ(files[1]["sha256"].string(), sha256(read_file(pictures / "rgb.png")));
    EXPECT_EQ(files[1]["stored"].string(), "PNG, RGB");
    EXPECT_EQ(files[1]["height"].integer(), 13);
    EXPECT_EQ(files[1]["width"].integer(), 9);
    EXPECT_EQ(files[1]["made_height"].integer(), 12);
    EXPECT_EQ(files[1]["made_width"].integer(), 12);
    const Json& made = run["input"]["pictures"]["preprocessor"];
    EXPECT_EQ(made["sha256"].string(),
              sha256(read_file(folder.path() / "model" / "preprocessor_config.json")));
    EXPECT_EQ(made["steps"].array()[0].string(), "resized to 12 x 12, bilinear");
    EXPECT_TRUE(run["warnings"].array().empty());
    refused({"--images", "in", "--samples", "4"}, 2, "--samples 4: in contains 3");
}

TEST_F(Images, WithoutAPreprocessorAreMadeAsPublishedModelsOfTheFamilyHaveIt) {
    ASSERT_EQ(probe({"--images", (pictures / "scene.png").string()}, "assumed").code, 0);
    const Json run = run_of(folder.path() / "assumed");
    ASSERT_EQ(run["warnings"].array().size(), 1u);
    EXPECT_THAT(run["warnings"].array()[0].string(),
                HasSubstr("No preprocessor_config.json says how pictures are made"));
    says(one_of("vit")["config"].dump());
    ASSERT_EQ(probe({"--images", (pictures / "scene.png").string()}, "told").code, 0);
    EXPECT_EQ(table("assumed"), table("told"));
    fs::rename(folder.path() / "model" / "preprocessor_config.json", folder.path() / "p.json");
    ASSERT_EQ(
        probe({"--images", (pictures / "scene.png").string(), "--preprocessor", "p.json"}, "named")
            .code,
        0);
    EXPECT_EQ(table("named"), table("told"));
    EXPECT_TRUE(run_of(folder.path() / "named")["warnings"].array().empty());
    const Finished other = tsdiag(folder, {"probe", "random:xcit-nano,layers=1,image=32,patch=4",
                                           "--images", (pictures / "scene.png").string()});
    EXPECT_EQ(other.code, 2);
    EXPECT_THAT(other.err, HasSubstr("name one with --preprocessor FILE"));
}

TEST_F(Images, ThatAreTurnedAreSaidToBe) {
    says(one_of("vit")["config"].dump());
    ASSERT_EQ(probe({"--images", (pictures / "turned.png").string()}).code, 0);
    const Json input = run_of(folder.path() / "out")["input"];
    EXPECT_EQ(input["pictures"]["files"].array()[0]["orientation"].integer(), 6);
    EXPECT_THAT(input["defaults"].dump(), HasSubstr("1 of 1 turned upright"));
}

TEST_F(Images, ThatCannotBeAreRefusedInOneSentence) {
    says(one_of("vit")["config"].dump());
    const std::string good = read_file(pictures / "rgb.png");
    write_file(folder / "cut.png", good.substr(0, good.size() / 2));
    write_file(folder / "text.png", "a text\n\x1b[31m");
    refused({"--images", "cut.png"}, 1, "cut.png: cannot be read as PNG");
    refused({"--images", "text.png"}, 1, "text.png: is no picture in PNG, JPEG or WebP");
    refused({"--images", "none.png"}, 1, "none.png: ");
    refused({"--images", "in"}, 1, "contains no picture");
    refused({"--images", (pictures / "grey16.png").string()}, 1, "grey values of 16 bits");
    refused({"--images", "cut.png", "--input", "gaussian"}, 2, "expected one of them");
    refused({"--images", "cut.png", "--text", "a"}, 2, "expected one of them");
    refused({"--preprocessor", "p.json"}, 2, "has no effect without --images");
    refused({"--images", "cut.png", "--tokens", "7"}, 2, "omit --tokens");
    const std::string rgb = (pictures / "rgb.png").string();
    says(R"({"size": 24, "resample": 2, "image_mean": 0.5, "image_std": 0.5})");
    refused({"--images", rgb}, 1, "makes it 24 x 24 pixels, but the model takes 12 x 12");
    says(R"({"size": 12, "resample": 2, "image_mean": 0.5, "image_std": 0.5, "offset": 1})");
    refused({"--images", rgb}, 1, "has the key 'offset'");
    says(R"({"size": 12, "resample": 2, "image_mean": [0, 0], "image_std": 0.5})");
    refused({"--images", rgb}, 1, "has 2 means, but the model takes 3 channels");
    const Finished tokens =
        tsdiag(folder, {"probe", "random:gpt2,layers=1,d=16,heads=2", "--images", rgb});
    EXPECT_EQ(tokens.code, 2);
    EXPECT_THAT(tokens.err, HasSubstr("takes tokens, not images"));
}

TEST_F(Images, OfOtherContentsAreMeasuredAgain) {
    says(one_of("vit")["config"].dump());
    const auto part = [&](const char* which) {
        for (const char* name : {"rgb.png", "scene.png"})
            fs::copy_file(pictures / (std::string(name) == which ? "palette.png" : name),
                          folder.path() / "in" / name, fs::copy_options::overwrite_existing);
        return probe({"--images", "in", "--probes", "t_sim", "--part", "1/2"}, "parts");
    };
    ASSERT_EQ(part("").code, 0);
    part("rgb.png");  // another picture under the same name
    const Finished whole = probe({"--images", "in", "--probes", "t_sim"}, "parts");
    ASSERT_EQ(whole.code, 0) << whole.err;
    ASSERT_EQ(probe({"--images", "in", "--probes", "t_sim"}, "alone").code, 0);
    EXPECT_EQ(table("parts"), table("alone"));
}

}  // namespace
}  // namespace tsdiag::test
