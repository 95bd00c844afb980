#include "train/data.hpp"

#include "fuzz.hpp"

/// The files of `train --data`: text, tables, and images of CIFAR, MNIST, PNG and JPEG.

using namespace tsdiag;

namespace {

/// Tables of ListOps, AAN and GLUE, images of Pathfinder and Tiny-ImageNet.
void open_set(unsigned choice, const std::filesystem::path& directory, std::string_view input) {
    const auto write = [&](const char* name) {
        fuzz::folder().write(std::string("images/") + name, input);
    };
    const char* kind = "";
    if (choice == 3) {
        kind = "listops";
        for (const char* name : {"basic_train.tsv", "basic_test.tsv"}) write(name);
    } else if (choice == 4) {
        kind = "aan";
        for (const char* name : {"new_aan_pairs.train.tsv", "new_aan_pairs.test.tsv"}) write(name);
    } else if (choice == 5) {
        kind = "glue";
        for (const char* name : {"train.tsv", "dev.tsv"}) write(name);
    } else if (choice == 6) {
        kind = "pathfinder";
        fuzz::folder().write("images/metadata/0.npy", "imgs a.png 0 1\nimgs a.png 1 0\n");
        write("imgs/a.png");
    } else {
        kind = "images";
        fuzz::folder().write("images/wnids.txt", "n1\n");
        fuzz::folder().write("images/val/val_annotations.txt", "a.JPEG\tn1\n");
        for (const char* name : {"train/n1/images/a.JPEG", "val/images/a.JPEG"}) write(name);
    }
    std::string loss;
    training::open_data(kind + (":" + directory.string()), loss)->description();
}

}  // namespace

void examine(std::string_view input) {
    const unsigned choice = fuzz::take_choice(input) % 8;
    std::string loss;
    fuzz::accepts([&] {
        if (choice == 0) {
            const auto data =
                training::open_data("chars:" + fuzz::folder().write("text", input), loss);
            data->description();
            data->words({}).dump();
            return;
        }
        const std::filesystem::path directory = fuzz::folder().path() / "images";
        std::filesystem::remove_all(directory);
        for (const char* part : {"imgs", "metadata", "train/n1/images", "val/images"})
            std::filesystem::create_directories(directory / part);
        if (choice > 2) {
            open_set(choice, directory, input);
            return;
        }
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
