#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pattern.hpp"

/// The tokens of a model and what divides a word into them.
namespace tsdiag::tokenizer {

using Id = std::int64_t;
inline constexpr Id none = -1;
inline constexpr Id largest_id = (Id{1} << 31) - 1;

/// Tokens and their ids.
class Vocabulary {
  public:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view s) const {
            return std::hash<std::string_view>{}(s);
        }
    };
    Vocabulary() = default;
    Vocabulary(Vocabulary&&) = default;
    Vocabulary& operator=(Vocabulary&&) = default;
    /// A later token of the same text replaces the one before.  Throws `FormatError` naming the
    /// token where it is longer than 4096 bytes or the id is out of range.
    void add(std::string token, Id id, std::string_view source);
    Id find(std::string_view token) const;  ///< none: not in it
    std::string token(Id id) const;         ///< empty: not in it
    Id size() const { return size_; }       ///< the largest id + 1
    std::size_t count() const { return ids_.size(); }
    /// The id of <0xHH>, or none.
    Id of_byte(unsigned char byte) const;

    template <class F>
    void each(F&& f) const {
        for (const auto& [token, id] : ids_) f(std::string_view(token), id);
    }

  private:
    std::unordered_map<std::string, Id, Hash, std::equal_to<>> ids_;
    std::unordered_map<Id, std::string_view> tokens_;
    Id size_ = 0;
};

/// The tokens in order, to be followed byte by byte.
class PrefixIndex {
  public:
    PrefixIndex() = default;
    explicit PrefixIndex(const Vocabulary& vocabulary);
    /// The tokens that begin with the bytes followed so far.
    struct Place {
        std::size_t low = 0, high = 0, depth = 0;
        bool dead() const { return low == high; }
    };
    Place root() const { return {0, tokens_.size(), 0}; }
    void follow(Place& place, char byte) const;
    /// The id of the token that ends here, or none.
    Id at(const Place& place) const;

  private:
    std::vector<std::pair<std::string_view, Id>> tokens_;
    std::array<std::size_t, 257> first_{};  ///< where the tokens of each first byte begin
};

/// Divides a word into tokens.
class Model {
  public:
    virtual ~Model() = default;
    virtual void append(std::string_view word, const Deadline& deadline,
                        std::vector<Id>& out) const = 0;
    Vocabulary vocabulary;
    std::string kind;
    std::string source;  ///< names it in messages

  protected:
    [[noreturn]] void no_unknown(std::string_view part) const;
};

}  // namespace tsdiag::tokenizer
