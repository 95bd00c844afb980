#include "tsdiag/pictures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/files.hpp"
#include "support/pictures.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"

/// Beside Pillow, numpy and PyTorch: tests/data/pictures/make_pictures.py.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

fs::path folder() { return fs::path(test_data()) / "pictures"; }

const Checkpoint& expected() {
    static const std::unique_ptr<Checkpoint> file = open_checkpoint(folder() / "expected.npz");
    return *file;
}
std::vector<double> values_of(const std::string& name) {
    const RawTensor raw = expected().tensor(name);
    std::vector<double> out(std::size_t(raw.count()));
    widen(raw, std::span(out));
    return out;
}
std::vector<std::int64_t> shape_of(const std::string& name) {
    return expected().tensor(name).shape;
}
std::vector<double> bytes_of(const Picture& picture) {
    return {picture.pixels.begin(), picture.pixels.end()};
}
std::string error_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

/// The pictures whose library this build has.
std::vector<std::string> pictures_with(const std::string& prefix) {
    std::vector<std::string> out;
    for (const std::string& name : expected().names()) {
        if (!name.starts_with(prefix)) continue;
        [[maybe_unused]] const std::string ending = fs::path(name).extension().string();
#ifndef TSDIAG_PNG
        if (ending == ".png") continue;
#endif
#ifndef TSDIAG_JPEG
        if (ending == ".jpg") continue;
#endif
#ifndef TSDIAG_WEBP
        if (ending == ".webp") continue;
#endif
        out.push_back(name.substr(prefix.size()));
    }
    return out;
}

TEST(Decoders, GiveTheBytesOfPillow) {
    const std::vector<std::string> files = pictures_with("rgb/");
    EXPECT_GE(files.size(), 13u);  // PNG alone
    for (const std::string& file : files) {
        const Picture rgb = read_picture(folder() / file, 3);
        EXPECT_EQ(bytes_of(rgb), values_of("rgb/" + file)) << file;
        EXPECT_EQ(rgb.height, shape_of("rgb/" + file)[0]) << file;
        const Picture grey = read_picture(folder() / file, 1);
        EXPECT_EQ(grey.channels, 1);
        EXPECT_EQ(bytes_of(grey), values_of("grey/" + file)) << file;
    }
}

TEST(Decoders, TurnAPictureAsItsExifDataSay) {
    std::size_t turned = 0;
    for (const std::string& file : pictures_with("upright/")) {
        const Picture stored = read_picture(folder() / file, 3), shown = upright(stored);
        EXPECT_EQ(stored.orientation != 1, file.starts_with("turned")) << file;
        turned += stored.orientation != 1 ? 1 : 0;
        EXPECT_EQ(bytes_of(shown), values_of("upright/" + file)) << file;
        EXPECT_EQ(shown.height, shape_of("upright/" + file)[0]) << file;
        EXPECT_EQ(shown.orientation, 1);
    }
    EXPECT_GE(turned, 1u);
}

TEST(Decoders, TellWhatTheFileStores) {
    for (const auto& [file, stored, rgb] : {
             std::tuple("rgb.png", "PNG, RGB", true),
             {"rgba.png", "PNG, RGB with alpha", false},
             {"palette.png", "PNG, palette", false},
             {"grey.png", "PNG, grey", false},
             {"grey_alpha.png", "PNG, grey with alpha", false},
             {"rgb16.png", "PNG, RGB of 16 bits", false},
#ifdef TSDIAG_JPEG
             {"cmyk.jpg", "JPEG, CMYK", false},
             {"rgb.jpg", "JPEG, RGB", true},
             {"grey.jpg", "JPEG, grey", false},
#endif
#ifdef TSDIAG_WEBP
             {"alpha.webp", "WebP, RGB with alpha", false},
             {"lossy.webp", "WebP, RGB", true},
#endif
         }) {
        const Picture picture = read_picture(folder() / file, 3);
        EXPECT_EQ(picture.stored, stored);
        EXPECT_EQ(picture.rgb, rgb) << file;
    }
}

/// A PNG file whose header tells another size.
std::string header_of(std::uint32_t width, std::uint32_t height) {
    std::string file = read_file(folder() / "rgb.png");
    for (std::size_t k = 0; k < 4; ++k) {
        file[16 + k] = char(width >> (24 - 8 * k) & 0xff);
        file[20 + k] = char(height >> (24 - 8 * k) & 0xff);
    }
    std::uint32_t crc = 0xffffffff;
    for (std::size_t i = 12; i < 29; ++i) {
        crc ^= std::uint32_t(static_cast<unsigned char>(file[i]));
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    crc = ~crc;
    for (std::size_t k = 0; k < 4; ++k) file[29 + k] = char(crc >> (24 - 8 * k) & 0xff);
    return file;
}

TEST(Decoders, RefuseInOneSentence) {
    const auto refused = [](const std::string& bytes) {
        return error_of([&] { decode_picture(bytes, "a.png", 3); });
    };
    EXPECT_THAT(refused("GIF89a"), HasSubstr("is no picture in PNG, JPEG or WebP"));
    EXPECT_THAT(refused(""), HasSubstr("is no picture"));
    EXPECT_THAT(error_of([] { read_picture(folder() / "grey16.png", 3); }),
                HasSubstr("16 bits, which Pillow would cut off"));
    EXPECT_THAT(refused(header_of(100'000, 100'000)), HasSubstr("100000 x 100000 pixels"));
    EXPECT_THAT(refused(header_of(65'000, 65'000)), HasSubstr("65000 x 65000 pixels"));
    EXPECT_THAT(refused(header_of(70'000, 1)), HasSubstr("70000 x 1 pixels"));
    const std::string good = read_file(folder() / "rgb.png");
    EXPECT_EQ(header_of(9, 13), good);
    EXPECT_THAT(refused(good.substr(0, 60)), HasSubstr("a chunk goes beyond the end of the file"));
    EXPECT_THAT(refused(good.substr(0, 36)), HasSubstr("the file ends too early"));
    // A chunk behind the header says that it has 1.6 GB.
    const std::string chunk{"\x64\0\0\0eXIfMM\0*", 12};
    EXPECT_THAT(refused(good.substr(0, 33) + chunk + good.substr(33)),
                HasSubstr("a chunk goes beyond the end of the file"));
    EXPECT_THAT(error_of([&] { decode_picture(good, "a.png", 3, 116); }),
                HasSubstr("9 x 13 pixels, expected at most 116"));
    EXPECT_THAT(error_of([&] { decode_picture(good, "a.png", 4); }), HasSubstr("4 are expected"));
#ifdef TSDIAG_WEBP
    EXPECT_THAT(error_of([] { read_picture(folder() / "animated.webp", 3); }),
                HasSubstr("an animation, expected one picture"));
#endif
}

TEST(Decoders, RefuseEveryFileThatIsCutOff) {
    for (const std::string& file : pictures_with("rgb/")) {
        const std::string good = read_file(folder() / file);
        // what stands behind the pixels (EXIF data, the end of the file) may be missing
        for (std::size_t length = 0; length < good.size() * 3 / 4; length += 1 + length / 16)
            EXPECT_NE(error_of([&] { decode_picture(good.substr(0, length), file, 3); }),
                      "accepted")
                << file << " of " << length << " bytes";
    }
}

TEST(Decoders, SurviveEveryFlippedByte) {
    for (const std::string& file : pictures_with("rgb/")) {
        const std::string good = read_file(folder() / file);
        for (std::size_t at = 0; at < good.size(); at += 1 + at / 32) {
            std::string bad = good;
            bad[at] = char(bad[at] ^ 0xa5);
            error_of([&] { upright(decode_picture(bad, file, 3, 1 << 16)); });
        }
    }
}

TEST(PictureFiles, AreTheVisibleOnesByName) {
    TemporaryDirectory place;
    for (const char* name : {"b.png", "a.JPG", "c.webp", ".hidden.png", "d.txt"})
        write_file(place / name, "");
    fs::create_directory(place / "e.png");
    std::vector<std::string> names;
    for (const fs::path& file : picture_files(place.path())) names.push_back(file.filename());
    EXPECT_EQ(names, (std::vector<std::string>{"a.JPG", "b.png", "c.webp"}));
    EXPECT_EQ(picture_files(place / "d.txt").size(), 1u);  // a file that is named
    EXPECT_THAT(error_of([&] { picture_files(place / "e.png"); }),
                HasSubstr("contains no picture"));
}

#ifdef TSDIAG_PNG
TEST(Resized, HasTheBytesOfPillow) {
    const Picture scene = read_picture(folder() / "scene.png", 3);
    std::size_t cases = 0;
    for (const std::string& name : expected().names()) {
        if (!name.starts_with("resized/")) continue;
        const std::vector<std::int64_t> shape = shape_of(name);
        for (const Resampling filter :
             {Resampling::nearest, Resampling::lanczos, Resampling::bilinear, Resampling::bicubic,
              Resampling::box, Resampling::hamming})
            if (name.ends_with("/" + std::string(tsdiag::name(filter)))) {
                EXPECT_EQ(bytes_of(resized(scene, shape[0], shape[1], filter)), values_of(name))
                    << name;
                ++cases;
            }
    }
    EXPECT_EQ(cases, 42u);
}

TEST(Resized, RefusesSizesBeyondTheLimit) {
    const Picture line{1, 1, 50'000, std::vector<std::uint8_t>(50'000)};
    EXPECT_THROW(resized(line, 224, 50'000 * 224, Resampling::bicubic), ShapeError);
    EXPECT_THROW(resized(line, 0, 5, Resampling::bicubic), ShapeError);
    Picture high = line;
    std::swap(high.height, high.width);
    EXPECT_THROW(resized(high, 1, 2000, Resampling::bicubic), ShapeError);  // between the passes
}

Json cases() { return Json::parse(read_file(folder() / "cases.json"), "cases.json"); }

TEST(Preprocessors, GiveTheNumbersOfTheirReference) {
    std::size_t checked = 0;
    const Json all = cases();
    for (const Json& one : all.array()) {
        const std::string& file = one["picture"].string();
        const std::vector<std::string> readable = pictures_with("rgb/");
        if (std::ranges::find(readable, file) == readable.end()) continue;
        const Preprocessor made =
            parse_preprocessor(one["config"].dump(), "p.json", one["family"].string());
        const Picture picture = made.apply(read_picture(folder() / file, 3));
        std::vector<double> found;
        for (Index c = 0; c < 3; ++c)
            for (std::size_t i = std::size_t(c); i < picture.pixels.size(); i += 3)
                found.push_back(made.value(c, picture.pixels[i]));
        const std::string name = "made/" + one["name"].string();
        ASSERT_EQ((std::vector<std::int64_t>{3, picture.height, picture.width}), shape_of(name))
            << name;
        const std::vector<double> wanted = values_of(name);
        // 0.00392156862745098 is 1/255 to its last digit
        for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_NEAR(found[i], wanted[i], 1e-14 * std::max(1.0, std::abs(wanted[i])))
                << name << " " << i;
        ++checked;
    }
    EXPECT_GE(checked, 3u);
}
#endif

TEST(Preprocessors, TellWhatTheyLack) {
    const Preprocessor made = parse_preprocessor(
        R"({"do_resize": true, "size": 224, "image_mean": [0.5], "image_std": 0.5})", "p.json",
        "vit");
    EXPECT_EQ(made.taken, std::vector<std::string>{"resample: that of ViTImageProcessor"});
    EXPECT_EQ(made.fit, Preprocessor::Fit::exact);
    EXPECT_EQ(made.filter, Resampling::bilinear);
    const Preprocessor large = parse_preprocessor(
        R"({"feature_extractor_type": "ConvNextFeatureExtractor", "size": 384})", "p.json", "");
    EXPECT_EQ(large.fit, Preprocessor::Fit::exact);  // from 384 on it is not cropped
    EXPECT_EQ(large.height, 384);
    EXPECT_EQ(large.crop_height, 0);
}

TEST(Preprocessors, RefuseByName) {
    const auto refused = [](const std::string& text) {
        return error_of([&] { parse_preprocessor(text, "p.json", ""); });
    };
    const std::string good =
        R"("size": {"height": 8, "width": 8}, "resample": 2, "image_mean": 0.5, "image_std": 0.5)";
    EXPECT_EQ(refused("{" + good + "}"), "accepted");
    for (const auto& [more, why] : std::initializer_list<std::pair<std::string, std::string>>{
             {R"("offset": true)", "has the key 'offset' (true)"},
             {R"("do_pad": true)", "has the key 'do_pad'"},
             {R"("crop_pct": 0.9)", "has the key 'crop_pct'"},
             {R"("auto_map": {"AutoImageProcessor": "x.Y"})", "has the key 'auto_map'"},
             {R"("do_flip_channel_order": true)", "has the key 'do_flip_channel_order'"},
             {R"("image_processor_type": "FuyuImageProcessor")", "image_processor_type is"},
             {R"("do_center_crop": true)", "says neither crop_size"},
             {R"("do_rescale": 1)", "do_rescale is 1, expected true or false"},
             {R"("rescale_factor": 0)", "rescale_factor is 0"}})
        EXPECT_THAT(refused("{" + good + ", " + more + "}"), HasSubstr(why));
    EXPECT_EQ(refused("{" + good + R"(, "do_pad": false, "size_divisor": null})"), "accepted");
    EXPECT_EQ(refused("{" + good + R"(, "processor_class": "X", "do_reduce_labels": true})"),
              "accepted");
    for (const auto& [size, why] : std::initializer_list<std::pair<std::string, std::string>>{
             {"8", "says neither what a size of one number means"},
             {"[8, 9]", "names for two different sides"},
             {"0", "pixels from 1 to 65535"},
             {"1e99", "pixels from 1 to 65535"},
             {R"({"height": 8})", "height and width, or shortest_edge"},
             {R"({"height": 8, "width": 8, "shortest_edge": 8})", "height and width, or"},
             {R"({"max_height": 8, "max_width": 8})", "no other keys"}})
        EXPECT_THAT(refused(R"({"resample": 2, "do_normalize": false, "size": )" + size + "}"),
                    HasSubstr(why));
    EXPECT_THAT(refused(R"({"size": {"height": 8, "width": 8}})"),
                HasSubstr("says neither resample"));
    EXPECT_THAT(refused(R"({"do_resize": false})"), HasSubstr("says neither image_mean"));
    EXPECT_THAT(refused(R"({"do_resize": false, "image_mean": 0, "image_std": 0})"),
                HasSubstr("image_std is 0, expected positive numbers"));
    EXPECT_THAT(refused(R"({"size": {"height": 8, "width": 8}, "resample": 6})"),
                HasSubstr("a filter of Pillow, 0 to 5"));
    EXPECT_THAT(refused("[]"), HasSubstr("is not a JSON object"));
    for (const auto& [timm, why] : std::initializer_list<std::pair<std::string, std::string>>{
             {R"({})", "input_size is null"},
             {R"({"input_size": [3, 8, 8], "crop_mode": "border"})", "center or squash"},
             {R"({"input_size": [3, 8, 16]})", "a square"},
             {R"({"input_size": [3, 8, 8], "interpolation": "random"})", "interpolation is"},
             {R"({"input_size": [3, 8, 8], "crop_pct": 1.5})", "crop_pct is 1.5"},
             {R"({"input_size": [3, 8, 8], "color_jitter": 1})", "the key 'color_jitter'"}})
        EXPECT_THAT(refused(R"({"pretrained_cfg": )" + timm + "}"), HasSubstr(why));
}

TEST(Preprocessors, ThatDoNotConvertTakeRgbAlone) {
    const Preprocessor made = parse_preprocessor(
        R"({"do_resize": false, "do_normalize": false, "do_convert_rgb": false})", "p.json", "");
    Picture picture{3, 1, 1, {1, 2, 3}};
    EXPECT_EQ(made.apply(picture).pixels, picture.pixels);
    picture.rgb = false;
    picture.stored = "JPEG, CMYK";
    EXPECT_THAT(error_of([&] { made.apply(picture); }), HasSubstr("is stored as JPEG, CMYK"));
    EXPECT_NO_THROW(made.require_channels(1));
}

TEST(Preprocessors, NeedMeansOfEveryChannel) {
    const Preprocessor made = parse_preprocessor(
        R"({"do_resize": false, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]})", "p.json", "");
    EXPECT_NO_THROW(made.require_channels(3));
    EXPECT_THAT(error_of([&] { made.require_channels(1); }), HasSubstr("has 3 means"));
}

}  // namespace
}  // namespace tsdiag::test
