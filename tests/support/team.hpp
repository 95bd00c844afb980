#pragma once
#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tsdiag/team.hpp"

/// Members of a team as threads of this process.
namespace tsdiag::test {

class Threads {
  public:
    explicit Threads(int size)
        : size_(size),
          barrier_(size),
          sent_(std::size_t(size), std::vector<std::string>(std::size_t(size))) {}

    /// work(team) by each member; work must not throw.
    void run(const std::function<void(const Team&)>& work) {
        std::vector<std::thread> all;
        for (int rank = 0; rank < size_; ++rank)
            all.emplace_back([&, rank] { work(Member(*this, rank)); });
        for (std::thread& one : all) one.join();
    }

  private:
    class Member final : public Team {
      public:
        Member(Threads& all, int rank) : all_(all), rank_(rank) {}
        int size() const override { return all_.size_; }
        int rank() const override { return rank_; }
        std::vector<std::string> gather(const std::string& own) const override {
            return exchange(std::vector<std::string>(std::size_t(size()), own));
        }
        std::vector<std::string> exchange(const std::vector<std::string>& parts) const override {
            all_.sent_[std::size_t(rank_)] = parts;
            all_.barrier_.arrive_and_wait();
            std::vector<std::string> received;
            for (const auto& from : all_.sent_) received.push_back(from[std::size_t(rank_)]);
            all_.barrier_.arrive_and_wait();
            return received;
        }

      private:
        Threads& all_;
        int rank_;
    };
    int size_;
    std::barrier<> barrier_;
    std::vector<std::vector<std::string>> sent_;
};

}  // namespace tsdiag::test
