#pragma once
#include <span>
#include <string>
#include <vector>

/// Processes that compute one thing together.
namespace tsdiag {

/// Its members pass through the same calls in the same order, with the same numbers.  Every member
/// function is collective but for `size` and `rank`, and throws where another member has failed.
class Team {
  public:
    virtual ~Team() = default;
    virtual int size() const = 0;
    virtual int rank() const = 0;  ///< of this process
    /// The bytes of each member, by rank.
    virtual std::vector<std::string> gather(const std::string& own) const = 0;
    /// Part r goes to member r; returns what each member has sent here, by rank.
    virtual std::vector<std::string> exchange(const std::vector<std::string>& parts) const = 0;
};

template <class T>
std::string bytes_of_all(std::span<const T> values) {
    return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
/// The values that `bytes_of_all` made them of.
template <class T>
std::vector<T> values_of_bytes(const std::string& bytes) {
    auto values = std::vector<T>(bytes.size() / sizeof(T));
    bytes.copy(reinterpret_cast<char*>(values.data()), values.size() * sizeof(T));
    return values;
}

/// A sum of vectors, in an order that does not depend on who has them: in rounds, in each by rank.
/// A member keeps its share of the sum until `total`.  Communication of a member: a round 2 `size`
/// numbers, the total `size`.
class TeamSum {
  public:
    /// `team` null: this process alone, which has all vectors.
    TeamSum(const Team* team, std::size_t size);
    /// Adds a vector of each of the members 0 ... members - 1; those of the others are ignored.
    void add(std::span<const double> own, int members = 1);
    std::vector<double> total() const;

  private:
    std::size_t begin(int rank) const;  ///< of a member's share
    const Team* team_;
    std::size_t size_;
    std::vector<double> share_;
};

}  // namespace tsdiag
