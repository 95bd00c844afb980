#pragma once
#include <map>
#include <mutex>

#include "runtime.hpp"

namespace tsdiag::gpu {

/// The handle of a library for this thread and the selected device, made by `create`; a thread that
/// ends returns its own for reuse.  Never destroyed: the driver may be gone before static objects
/// are.
template <class Handle>
Handle handle_of_thread(Handle (*create)()) {
    struct Idle {
        std::mutex mutex;
        std::multimap<int, Handle> handles;
    };
    static Idle& idle = *new Idle;
    struct Borrowed {
        std::map<int, Handle> handles;

        Borrowed() { settle(); }  // the stream is made before, and so destroyed after it
        Borrowed(const Borrowed&) = delete;
        Borrowed& operator=(const Borrowed&) = delete;
        ~Borrowed() {
            settle();  // the next thread has a stream of its own
            const std::lock_guard lock(idle.mutex);
            idle.handles.insert(handles.begin(), handles.end());
        }
    };
    thread_local Borrowed own;
    const int device = selected();
    if (const auto found = own.handles.find(device); found != own.handles.end())
        return found->second;
    const auto take = [&] {
        const std::lock_guard lock(idle.mutex);
        const auto found = idle.handles.find(device);
        if (found == idle.handles.end()) return create();
        const Handle handle = found->second;
        idle.handles.erase(found);
        return handle;
    };
    return own.handles.emplace(device, take()).first->second;
}

}  // namespace tsdiag::gpu
