#pragma once
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "attention/cases.hpp"
#include "device_backend.hpp"
#include "runtime.hpp"

/// Shared by the tests of whole attentions on a device, emulated or not.
namespace tsdiag::test {

inline const Backend& device() {
    static const Backend& first = *gpu::make_backend(0).release();  // outlives every tensor
    return first;
}

inline Tensor moved(const Tensor& x) {
    return Tensor::from_host(device(), x.shape(), std::span<const double>(x.to_host<double>()),
                             x.type());
}

/// Skipped without a device.
class OnADevice : public testing::Test {
    void SetUp() override {
        std::string why;
        if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    }
};

}  // namespace tsdiag::test
