#include "tsdiag/pictures.hpp"

#include "fuzz.hpp"

/// Pictures, and the files that say what is done to them.

using namespace tsdiag;

void examine(std::string_view input) {
    constexpr std::uint64_t pixels = 1 << 20;
    const unsigned choice = fuzz::take_choice(input);
    fuzz::accepts([&] {
        if (choice % 2 == 0) {
            const Index channels = choice % 4 == 0 ? 3 : 1;
            const Picture picture = upright(decode_picture(input, "picture", channels, pixels));
            if (std::ssize(picture.pixels) != channels * picture.height * picture.width)
                std::abort();
            resized(picture, 7, 5, Resampling(choice / 4 % 6));
            return;
        }
        constexpr std::string_view families[] = {"vit", "deit", "swin", ""};
        const Preprocessor made =
            parse_preprocessor(input, "preprocessor_config.json", families[choice / 2 % 4]);
        made.json().dump();
        Picture picture{3, 9, 14, std::vector<std::uint8_t>(3 * 9 * 14, 100)};
        if (std::max({made.height * made.width, made.side * made.side,
                      made.crop_height * made.crop_width}) > Index(pixels))
            return;
        made.require_channels(3);
        picture = made.apply(picture);
        for (const std::uint8_t byte : {0, 100, 255}) made.value(2, byte);
    });
}
