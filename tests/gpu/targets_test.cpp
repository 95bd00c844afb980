#include "targets.hpp"

#include <gtest/gtest.h>

/// The devices that compiled code supports.
namespace tsdiag::gpu {
namespace {

TEST(Targets, AreThoseThatNvidiaPromises) {
    struct Case {
        const char* targets;
        Capability device;
        bool runs;
    };
    for (const Case& c : {
             Case{"80-real,90", {7, 5}, false},
             {"80-real,90", {8, 0}, true},
             {"80-real,90", {8, 9}, true},
             {"80-real,90", {9, 0}, true},
             {"80-real,90", {10, 0}, true},  // from the intermediate code of 90
             {"80-real,90", {12, 1}, true},
             {"80-real", {9, 0}, false},
             {"86-real", {8, 0}, false},  // a later minor version
             {"86-real", {8, 9}, true},
             {"80-virtual", {7, 5}, false},
             {"80-virtual", {9, 0}, true},
             {"80", {7, 5}, false},
             {"80", {9, 0}, true},
             {"90a", {9, 0}, true},
             {"90a-real", {10, 0}, false},
             {"100f-real", {10, 3}, true},
             {"100f-real", {12, 0}, false},
             {"120-real", {12, 0}, true},
             {"120-real", {10, 0}, false},
             {"", {7, 5}, true},  // unknown: found out at the first launch
         })
        EXPECT_EQ(runs_on(c.targets, c.device), c.runs)
            << c.targets << " on " << c.device.major << "." << c.device.minor;
}

TEST(Targets, AreNamedWithTheDeviceThatHasNone) {
    EXPECT_EQ(why_no_code("80-real,90", "Tesla T4", {7, 5}),
              "Tesla T4 has compute capability 7.5, for which the library has no code (it was "
              "built for 80-real,90)");
    EXPECT_EQ(why_no_code("80-real,90", "NVIDIA H100", {9, 0}), "");
}

}  // namespace
}  // namespace tsdiag::gpu
