#include "train/data.hpp"

#include "fuzz.hpp"

/// The files of `train --data`: text, and images of CIFAR and MNIST.

using namespace tsdiag;

void examine(std::string_view input) {
    const unsigned choice = fuzz::take_choice(input) % 3;
    std::string loss;
    fuzz::accepts([&] {
        if (choice == 0) {
            const auto data =
                training::open_data("chars:" + fuzz::folder().write("text", input), loss);
            data->description();
            data->words().dump();
            return;
        }
        const std::filesystem::path directory = fuzz::folder().path() / "images";
        std::filesystem::remove_all(directory);
        std::filesystem::create_directory(directory);
        if (choice == 1) {
            fuzz::folder().write("images/train.bin", input);
            fuzz::folder().write("images/test.bin", input);
        } else {
            const std::vector<std::string_view> files = fuzz::parts(input, 2);
            for (const char* part : {"train", "t10k"}) {
                fuzz::folder().write(fmt::format("images/{}-images-idx3-ubyte", part), files[0]);
                fuzz::folder().write(fmt::format("images/{}-labels-idx1-ubyte", part), files[1]);
            }
        }
        training::open_data("images:" + directory.string(), loss)->description();
    });
}
