#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "bytes.hpp"

namespace tsdiag::checkpoint {

/// Limits the memory that a file may request beyond its own size, for inflated entries, copied
/// arrays, metadata and repeated views of the same elements.  A few bytes can request any amount;
/// regular files stay far below the limit.
class Budget {
  public:
    static constexpr std::uint64_t times_the_file = 64, at_least = 128u << 20;

    /// For a file of `size` bytes, called `where` in messages.
    Budget(std::string where, std::uint64_t size)
        : where_(std::move(where)), left_(at_least + times_the_file * size) {}

    /// Throws `FormatError` where `bytes` more exceed the limit; `what` names their purpose.
    void spend(std::uint64_t bytes, std::string_view what) {
        if (bytes > left_)
            refuse(where_, std::string(what) +
                               " makes the file unpack, copy and repeat more than " +
                               std::to_string(times_the_file) + " times its size and " +
                               std::to_string(at_least >> 20) +
                               " MiB, expected less for a checkpoint. It is damaged or malicious; "
                               "save only the state_dict again, without compression.");
        left_ -= bytes;
    }

  private:
    std::string where_;
    std::uint64_t left_;
};

}  // namespace tsdiag::checkpoint
