#pragma once
#include <cstddef>
#include <map>
#include <mutex>

namespace tsdiag {

/// A pool of freed tensor memory: fresh pages cost more than the work on them.  Pooled and used
/// bytes together never exceed the peak of used bytes by more than the slack.
class BlockPool {
  public:
    /// That of the CPU's tensors.
    static BlockPool& of_tensors();
    ~BlockPool();
    /// At least `bytes` bytes, aligned for every kernel; null when out of memory.
    void* take(std::size_t bytes);
    /// At first 0.  Without slack the pool does not raise the peak of a run, but blocks of one size
    /// are freed for those of another, over and over.
    void set_slack(std::size_t bytes);
    /// `bytes` as passed to `take`.
    void give(void* block, std::size_t bytes);
    /// Used and pooled bytes of blocks that are large enough to be pooled.
    std::size_t bytes() const;

  private:
    void drop_until(std::size_t most_kept);

    mutable std::mutex mutex_;
    std::multimap<std::size_t, void*> kept_;
    std::size_t kept_bytes_ = 0, live_bytes_ = 0, peak_bytes_ = 0;
    std::size_t slack_ = 0;
};

}  // namespace tsdiag
