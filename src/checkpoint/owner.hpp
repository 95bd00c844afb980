#pragma once
#include <memory>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// Keeps the bytes of a tensor alive and can verify them.  `RawTensor::owner` hides its type;
/// `owner_of` recovers it.
class Owner {
  public:
    Owner() = default;
    virtual ~Owner() = default;
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;

    /// Do the bytes belong to a mapped file, so that pages can be dropped and read again?
    virtual bool mapped() const { return false; }
    /// Throws `FormatError` where the bytes do not match their checksum, if the file has one.
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

/// Null where the owner is plain memory.
inline const Owner* owner_of(const RawTensor& tensor) {
    const Delete* found = std::get_deleter<Delete>(tensor.owner);
    return found == nullptr ? nullptr : found->owner;
}

/// Must be called before elements are read.
inline void verify(const RawTensor& tensor) {
    if (const Owner* owner = owner_of(tensor)) owner->verify();
    if (tensor.packed)
        for (const RawTensor& part : tensor.packed->parts()) verify(part);
}

}  // namespace tsdiag::checkpoint
