#pragma once
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

/// The errors of the library.  A message is one sentence: where, what, found, expected, what to do.
namespace tsdiag {

class Error : public std::runtime_error {
  public:
    /// Bytes 0 of a name in it, which would end the message, are shown as \0.
    explicit Error(std::string message) : std::runtime_error(without_zeros(std::move(message))) {}

  private:
    static std::string without_zeros(std::string message) {
        for (std::size_t at; (at = message.find('\0')) != std::string::npos;)
            message.replace(at, 1, "\\0");
        return message;
    }
};

/// A malformed or unrecognised file.
class FormatError : public Error {
    using Error::Error;
};
/// Sizes that do not fit together.
class ShapeError : public Error {
    using Error::Error;
};
/// NaN or infinity where a finite number is needed.
class NonFiniteError : public Error {
    using Error::Error;
};
/// A device or a feature that this build or this machine lacks.
class NotAvailable : public Error {
    using Error::Error;
};
/// The machine or a device is out of memory.
class OutOfMemory : public Error {
    using Error::Error;
};
/// The caller requested something that does not exist or does not fit.
class UsageError : public Error {
    using Error::Error;
};

/// A fault of this library, not of its caller.
class BrokenInvariant : public Error {
    using Error::Error;
};

/// Throws `BrokenInvariant` naming the place and the invariant that `condition` states.
void check(bool condition, const char* what,
           std::source_location where = std::source_location::current());

}  // namespace tsdiag
