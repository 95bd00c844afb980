#pragma once
#include <cstddef>
#include <map>
#include <mutex>

namespace tsdiag {

/// Memory of dropped tensors, kept for those to come: fresh pages cost more than the work on them.
/// What is kept and what is in use never take more together than what was once in use, so that the
/// peak of a run stays what it is without the pool.
class BlockPool {
  public:
    ~BlockPool();
    /// At least `bytes` bytes, aligned for every kernel; null where there are none left.
    void* take(std::size_t bytes);
    /// Of the size that it was taken with.
    void give(void* block, std::size_t bytes);
    /// In use and kept, of blocks that are large enough to be kept.
    std::size_t bytes() const;

  private:
    void drop_until(std::size_t most_kept);

    mutable std::mutex mutex_;
    std::multimap<std::size_t, void*> kept_;
    std::size_t kept_bytes_ = 0, live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace tsdiag
