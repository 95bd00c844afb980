#pragma once
#include <string>

/// Ranks of tiktoken for the tests.
namespace tsdiag::test {

/// A file of so many ranks, at least 65792: the 256 bytes, then all pairs of bytes, then triples,
/// each in the order of its bytes.  A line a token, its bytes in base64 and its rank.
inline std::string ranks_of_all_pairs(int count) {
    constexpr const char* digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    constexpr int bytes = 256, pairs = bytes * bytes;
    std::string out;
    for (int rank = 0; rank < count; ++rank) {
        const int length = rank < bytes ? 1 : rank < bytes + pairs ? 2 : 3;
        const unsigned value = unsigned(length == 1   ? rank
                                        : length == 2 ? rank - bytes
                                                      : rank - bytes - pairs);
        const unsigned bits = value << (24 - 8 * length);  // of three bytes
        for (int i = 0; i < 4; ++i) out += i <= length ? digits[bits >> (18 - 6 * i) & 63] : '=';
        out += ' ' + std::to_string(rank) + '\n';
    }
    return out;
}

}  // namespace tsdiag::test
