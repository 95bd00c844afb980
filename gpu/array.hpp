#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::gpu {

inline OutOfMemory out_of_memory(std::string_view device, std::size_t bytes) {
    return OutOfMemory(fmt::format(
        "{} is out of memory: {} bytes were requested, {} are free; lower --tokens or --memory",
        device, bytes, free_bytes()));
}

/// A device array for the duration of a call.
template <class T>
class Array {
  public:
    explicit Array(std::size_t count) : count_(count), data_(allocate(count * sizeof(T))) {
        if (data_ == nullptr && count > 0) throw out_of_memory("the device", count * sizeof(T));
    }
    explicit Array(std::span<const T> values) : Array(values.size()) {
        to_device(data_, values.data(), values.size_bytes());
    }
    Array(Array&& other) noexcept
        : count_(other.count_), data_(std::exchange(other.data_, nullptr)) {}
    ~Array() { release(data_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* data() const { return static_cast<T*>(data_); }
    std::vector<T> host() const {
        std::vector<T> values(count_);
        to_host(values.data(), data_, count_ * sizeof(T));
        return values;
    }

  private:
    std::size_t count_;
    void* data_;
};

}  // namespace tsdiag::gpu
