#pragma once
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What a Python source says of its classes, by its statements alone: nothing is executed.
namespace tsdiag::cli {

struct PythonClass {
    std::string name;
    std::vector<std::string> bases;  ///< "nn.Module"
    /// self.NAME = TEXT, in the order of the source; what is appended to it, too.
    std::vector<std::pair<std::string, std::string>> members;
    std::string forward;             ///< the statements of `forward`, a line each
    std::string text;                ///< all its statements, a line each
    std::vector<std::string> calls;  ///< the names that its statements call

    /// The text of a member; empty: there is none.
    std::string_view member(std::string_view name) const;
};

/// The classes of a source.  Comments and texts in triple quotes are left out, a statement that
/// goes over several lines is one.  What is no Python gives no class; nothing is refused.
/// Cost: O(bytes).
std::vector<PythonClass> python_classes(std::string_view source);

/// The names NAME of `text` that are called: NAME(...), the last part of a.b.NAME(...).
std::vector<std::string> called_in(std::string_view text);

/// The text between the bracket at `open` and the one that closes it; to the end where none does.
std::string_view bracketed(std::string_view text, std::size_t open);

/// The first name of `text` that has one of `parts` in it, whatever its case; empty: none has.
std::string name_with(std::string_view text, std::span<const std::string_view> parts);

/// Whether `word` stands in `text` as a whole name.
bool has_word(std::string_view text, std::string_view word);

}  // namespace tsdiag::cli
