#pragma once
#include <memory>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// What keeps the bytes of a tensor alive, where more can be asked of it.  `RawTensor::owner` hides
/// its type; `owner_of` finds it again.
class Owner {
  public:
    Owner() = default;
    virtual ~Owner() = default;
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;

    /// Are the bytes those of a file, which can be read again when they are needed?
    virtual bool mapped() const { return false; }
    /// Throws `FormatError` where the bytes are not those that were saved, as far as the file
    /// tells.
    virtual void verify() const {}
};

struct Delete {
    const Owner* owner;
    void operator()(const Owner*) const { delete owner; }
};

template <class T>
std::shared_ptr<const T> own(const T* owner) {
    return std::shared_ptr<const T>(owner, Delete{owner});
}

/// Null where the owner is another: memory.
inline const Owner* owner_of(const RawTensor& tensor) {
    const Delete* found = std::get_deleter<Delete>(tensor.owner);
    return found == nullptr ? nullptr : found->owner;
}

/// To be called before elements are read.
inline void verify(const RawTensor& tensor) {
    if (const Owner* owner = owner_of(tensor)) owner->verify();
}

}  // namespace tsdiag::checkpoint
