#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Writes GGUF files, by the published description of the format.
namespace tsdiag::test {

template <class T>
std::string little(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

class GgufWriter {
  public:
    std::uint32_t version = 3;
    std::size_t alignment = 32;
    std::uint64_t first_offset = 0;  ///< a lie where it is not 0

    void key(const std::string& name, std::uint32_t type, const std::string& value) {
        keys_ += text(name) + little(type) + value;
        ++count_;
    }
    void number(const std::string& name, std::uint32_t value) { key(name, 4, little(value)); }
    void real(const std::string& name, float value) { key(name, 6, little(value)); }
    void flag(const std::string& name, bool value) { key(name, 7, std::string(1, char(value))); }
    void word(const std::string& name, const std::string& value) { key(name, 8, text(value)); }
    void texts(const std::string& name, std::uint64_t length) {
        std::string all = little<std::uint32_t>(8) + little(length);
        for (std::uint64_t i = 0; i < length; ++i) all += text(std::to_string(i));
        key(name, 9, all);
    }
    void list(const std::string& name, const std::vector<std::string>& texts) {
        std::string all = little<std::uint32_t>(8) + little(std::uint64_t(texts.size()));
        for (const std::string& one : texts) all += text(one);
        key(name, 9, all);
    }
    void list(const std::string& name, const std::vector<float>& numbers) {
        std::string all = little<std::uint32_t>(6) + little(std::uint64_t(numbers.size()));
        for (const float one : numbers) all += little(one);
        key(name, 9, all);
    }
    void list(const std::string& name, const std::vector<std::int32_t>& numbers) {
        std::string all = little<std::uint32_t>(5) + little(std::uint64_t(numbers.size()));
        for (const std::int32_t one : numbers) all += little(one);
        key(name, 9, all);
    }
    /// `shape`: as PyTorch has it, the innermost dimension last.
    void tensor(const std::string& name, const std::vector<std::int64_t>& shape, std::uint32_t type,
                const std::string& bytes) {
        tensors_.push_back({name, shape, type, bytes});
    }
    void floats(const std::string& name, const std::vector<std::int64_t>& shape,
                std::span<const float> values) {
        const auto bytes = std::as_bytes(values);
        tensor(name, shape, 0, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }

    std::string bytes() const {
        std::string head = "GGUF" + little(version) + little(std::uint64_t(tensors_.size())) +
                           little(count_) + keys_;
        std::string data;
        std::uint64_t lie = first_offset;
        for (const Entry& t : tensors_) {
            head += text(t.name) + little(std::uint32_t(t.shape.size()));
            for (std::size_t k = t.shape.size(); k-- > 0;) head += little(t.shape[k]);
            head += little(t.type) + little(std::uint64_t(data.size()) + lie);
            lie = 0;
            data += t.bytes;
            pad(data);
        }
        pad(head);
        return head + data;
    }

    static std::string text(const std::string& value) {
        return little(std::uint64_t(value.size())) + value;
    }

  private:
    struct Entry {
        std::string name;
        std::vector<std::int64_t> shape;
        std::uint32_t type;
        std::string bytes;
    };
    void pad(std::string& to) const {
        to.resize((to.size() + alignment - 1) / alignment * alignment);
    }

    std::string keys_;
    std::uint64_t count_ = 0;
    std::vector<Entry> tensors_;
};

/// The value of a half by its definition.
inline double half_value(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 0 ? mantissa : mantissa + 1024;
    for (int e = exponent == 0 ? 1 : exponent; e < 25; ++e) value /= 2;
    for (int e = 25; e < exponent; ++e) value *= 2;
    return (bits & 0x8000) != 0 ? -value : value;
}

}  // namespace tsdiag::test
