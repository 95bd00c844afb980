#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "array.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::gpu {

/// Numbers that kernels leave for the host.  All that a thread has asked for are copied together,
/// when the first is read.
class Numbers {
  public:
    struct Sizes {
        std::size_t counters = 0;  ///< 0 at first, not copied
        std::size_t flags = 0;     ///< 0 at first
        std::size_t results = 0;
    };

    /// Memory for counters, flags and results, in this order; what is copied lies together: flags
    /// are handed out from the last one on.
    class Page {
      public:
        explicit Page(const Sizes& sizes)
            : sizes_(sizes), device_(sizes.counters + sizes.flags + sizes.results) {
            const std::size_t zeros = sizes.counters + sizes.flags;
            if (zeros > 0) clear(device_.data(), zeros * sizeof(double));
        }
        bool read() const { return read_; }
        bool has_room(const Sizes& more) const {
            return used_.counters + more.counters <= sizes_.counters &&
                   used_.flags + more.flags <= sizes_.flags &&
                   used_.results + more.results <= sizes_.results;
        }
        void fetch() {
            begin_ = sizes_.counters + sizes_.flags - used_.flags;
            host_.resize(used_.flags + used_.results);
            to_host(host_.data(), device_.data() + begin_, host_.size() * sizeof(double));
            read_ = true;
        }

      private:
        friend class Numbers;
        Sizes sizes_, used_;
        Array<double> device_;
        bool read_ = false;
        std::size_t begin_ = 0;  ///< of what was copied
        std::vector<double> host_;
    };
    /// Some numbers of a page.
    class Slice {
      public:
        double* device() const { return page_->device_.data() + at_; }
        template <class T>
        T* device_as() const {
            static_assert(sizeof(T) % sizeof(double) == 0);
            return reinterpret_cast<T*>(device());
        }
        /// Copies them with all others of the thread, unless that was done.
        const double* host() const {
            if (!page_->read()) Numbers::of_thread().fetch();
            if (!page_->read()) throw BrokenInvariant("numbers of another thread's device");
            return page_->host_.data() + (at_ - page_->begin_);
        }

      private:
        friend class Numbers;
        Slice(std::shared_ptr<Page> page, std::size_t at) : page_(std::move(page)), at_(at) {}
        std::shared_ptr<Page> page_;
        std::size_t at_;
    };

    static Numbers& of_thread() {
        thread_local std::map<int, Numbers> own;  // by device
        return own[selected()];
    }
    Numbers() { settle(); }  // the stream is made before, and so destroyed after it

    Slice results(std::size_t count) {
        const auto page = open({.results = count});
        const std::size_t before = std::exchange(page->used_.results, page->used_.results + count);
        return {page, page->sizes_.counters + page->sizes_.flags + before};
    }
    Slice flags(std::size_t count) {
        const auto page = open({.flags = count});
        page->used_.flags += count;
        return {page, page->sizes_.counters + page->sizes_.flags - page->used_.flags};
    }
    Slice counters(std::size_t count) {
        const auto page = open({.counters = count});
        const std::size_t before =
            std::exchange(page->used_.counters, page->used_.counters + count);
        return {page, before};
    }

  private:
    /// The last page, or a new one, with room for these and, unless memory is short, for what is
    /// usually copied at once.
    std::shared_ptr<Page> open(const Sizes& more) {
        if (!open_.empty() && open_.back()->has_room(more)) return open_.back();
        static constexpr std::size_t most = 2048;  // beside a large request
        const auto with = [](std::size_t own, std::size_t usual) {
            return own + std::min(usual, most);
        };
        try {
            open_.push_back(std::make_shared<Page>(Sizes{with(more.counters, usual_.counters),
                                                         with(more.flags, usual_.flags),
                                                         with(more.results, usual_.results)}));
        } catch (const OutOfMemory&) {
            open_.push_back(std::make_shared<Page>(more));
        }
        return open_.back();
    }
    void fetch() {
        Sizes all;
        for (const std::shared_ptr<Page>& page : open_) {
            page->fetch();
            all.counters += page->used_.counters;
            all.flags += page->used_.flags;
            all.results += page->used_.results;
        }
        last_[turn_++ % last_.size()] = all;
        usual_ = {};
        for (const Sizes& one : last_)
            usual_ = {std::max(usual_.counters, one.counters), std::max(usual_.flags, one.flags),
                      std::max(usual_.results, one.results)};
        open_.clear();
    }

    std::vector<std::shared_ptr<Page>> open_;
    std::array<Sizes, 8> last_ = {};  ///< of the last copies; those of a layer differ
    std::size_t turn_ = 0;
    Sizes usual_;
};

}  // namespace tsdiag::gpu
