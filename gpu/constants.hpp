#pragma once
#include <algorithm>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "array.hpp"

namespace tsdiag::gpu {

/// Arrays of the host that kernels read, such as positions and frequencies: the last ones stay on
/// the device, so that each is uploaded once and not at every call.
class Constants {
  public:
    /// The same numbers on the device, until this thread has asked for `most` others.
    template <class T>
    static const T* on_device(std::span<const T> values) {
        if (values.empty()) return nullptr;
        thread_local std::map<int, Constants> own;  // by device
        return reinterpret_cast<const T*>(own[selected()].find(std::as_bytes(values)));
    }
    Constants() { settle(); }  // the stream is made before, and so destroyed after it

  private:
    static constexpr std::size_t most = 32;
    struct Entry {
        std::vector<std::byte> host;
        Array<std::byte> device;
    };

    const std::byte* find(std::span<const std::byte> values) {
        const auto same = [&](const Entry& e) { return std::ranges::equal(e.host, values); };
        if (const auto at = std::ranges::find_if(last_, same); at != last_.end()) {
            last_.splice(last_.begin(), last_, at);
        } else {
            last_.push_front({{values.begin(), values.end()}, Array<std::byte>(values)});
            if (last_.size() > most) last_.pop_back();  // freed behind the kernels that read it
        }
        return last_.front().device.data();
    }

    std::list<Entry> last_;
};

}  // namespace tsdiag::gpu
