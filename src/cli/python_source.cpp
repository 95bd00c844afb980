#include "python_source.hpp"

#include <algorithm>
#include <optional>

namespace tsdiag::cli {
namespace {

bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}
/// The name at the beginning.
std::string_view name_at(std::string_view text) {
    std::size_t end = 0;
    while (end < text.size() && in_name(text[end])) ++end;
    return text.substr(0, end);
}

struct Statement {
    std::size_t indent = 0;
    std::string text;
};

/// Divides a source into statements.
class Statements {
  public:
    explicit Statements(std::string_view source) : source_(source) {}

    std::optional<Statement> next() {
        while (at_ < source_.size()) {
            Statement one = read();
            one.text = trimmed(one.text);
            if (!one.text.empty()) return one;
        }
        return std::nullopt;
    }

  private:
    Statement read() {
        if (!same_line_) pass_indent();
        Statement out{indent_, {}};
        std::size_t depth = 0;
        for (; at_ < source_.size(); ++at_) {
            const char c = source_[at_];
            if (depth == 0 && (c == '\n' || c == ';')) break;
            if (c == '\n') {
                out.text += ' ';
            } else if (c == '\\' && source_.substr(at_ + 1, 1) == "\n") {
                ++at_;
            } else if (c == '#') {
                at_ = std::min(source_.find('\n', at_), source_.size()) - 1;
            } else if (c == '"' || c == '\'') {
                quoted(c, out.text);
            } else {
                if (std::string_view("([{").find(c) != std::string_view::npos) ++depth;
                if (std::string_view(")]}").find(c) != std::string_view::npos && depth > 0) --depth;
                out.text += c;
            }
        }
        same_line_ = at_ < source_.size() && source_[at_] == ';';
        ++at_;
        return out;
    }
    void pass_indent() {
        constexpr std::size_t tab = 8;
        indent_ = 0;
        for (; at_ < source_.size() && (source_[at_] == ' ' || source_[at_] == '\t'); ++at_)
            indent_ += source_[at_] == '\t' ? tab - indent_ % tab : 1;
    }
    /// Passes over a text in quotes, which is kept if it is short; leaves its last quote.
    void quoted(char quote, std::string& to) {
        constexpr std::size_t longest = 40;
        const std::string three(3, quote);
        if (source_.substr(at_, 3) == three) {
            const std::size_t end = source_.find(three, at_ + 3);
            at_ = end == source_.npos ? source_.size() : end + 2;
            to += "\"\"";
            return;
        }
        const std::size_t first = at_++;
        for (; at_ < source_.size() && source_[at_] != quote && source_[at_] != '\n'; ++at_)
            if (source_[at_] == '\\') ++at_;
        at_ = std::min(at_, source_.size());
        const std::string_view all = source_.substr(first + 1, at_ - first - 1);
        to += '"';
        if (all.size() <= longest) to += all;
        to += '"';
        if (at_ < source_.size() && source_[at_] == '\n') --at_;  // never closed
    }

    std::string_view source_;
    std::size_t at_ = 0, indent_ = 0;  ///< of the line
    bool same_line_ = false;           ///< the next statement stands behind a semicolon
};

/// A class statement "class A(B, C):"; nullopt for another.
std::optional<PythonClass> class_of(std::string_view text) {
    constexpr std::string_view word = "class ";
    if (!text.starts_with(word)) return std::nullopt;
    text = trimmed(text.substr(word.size()));
    PythonClass out;
    out.name = name_at(text);
    text.remove_prefix(out.name.size());
    if (!text.starts_with('(')) return out;
    for (std::string_view rest = bracketed(text, 0); !rest.empty();) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        out.bases.emplace_back(trimmed(rest.substr(0, comma)));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return out;
}

/// self.NAME = TEXT, self.NAME: TYPE = TEXT, self.NAME.append(TEXT)
void add_member(std::string_view text, PythonClass& to) {
    constexpr std::string_view self = "self.", append = ".append(";
    if (!text.starts_with(self)) return;
    text.remove_prefix(self.size());
    const std::string name(name_at(text));
    std::string_view rest = trimmed(text.substr(name.size()));
    if (rest.starts_with(append)) {
        for (auto& [known, its] : to.members)
            if (known == name) its += " " + std::string(rest);
        return;
    }
    if (rest.starts_with(':')) {
        const std::size_t equals = rest.find('=');
        if (equals == rest.npos) return;
        rest.remove_prefix(equals);
    }
    if (!rest.starts_with('=') || rest.starts_with("==")) return;
    to.members.emplace_back(name, trimmed(rest.substr(1)));
}

}  // namespace

std::string_view PythonClass::member(std::string_view wanted) const {
    const auto found =
        std::ranges::find(members, wanted, &std::pair<std::string, std::string>::first);
    return found == members.end() ? std::string_view() : std::string_view(found->second);
}

std::vector<PythonClass> python_classes(std::string_view source) {
    std::vector<PythonClass> out;
    Statements statements(source);
    std::size_t class_indent = 0, forward_indent = 0;
    bool inside = false, in_forward = false;
    while (const std::optional<Statement> one = statements.next()) {
        if (inside && one->indent <= class_indent) inside = in_forward = false;
        if (in_forward && one->indent <= forward_indent) in_forward = false;
        if (std::optional<PythonClass> found = class_of(one->text)) {
            out.push_back(std::move(*found));
            class_indent = one->indent;
            inside = true;
            in_forward = false;
            continue;
        }
        if (!inside) continue;
        for (std::string& name : called_in(one->text)) out.back().calls.push_back(std::move(name));
        out.back().text += one->text + "\n";
        if (in_forward) out.back().forward += one->text + "\n";
        if (one->text.starts_with("def forward(")) {
            in_forward = true;
            forward_indent = one->indent;
        }
        add_member(one->text, out.back());
    }
    return out;
}

std::vector<std::string> called_in(std::string_view text) {
    std::vector<std::string> out;
    for (std::size_t at = text.find('('); at != text.npos; at = text.find('(', at + 1)) {
        std::size_t first = at;
        while (first > 0 && in_name(text[first - 1])) --first;
        if (first < at) out.emplace_back(text.substr(first, at - first));
    }
    return out;
}

std::string_view bracketed(std::string_view text, std::size_t open) {
    std::size_t depth = 0;
    for (std::size_t at = open; at < text.size(); ++at) {
        if (std::string_view("([{").find(text[at]) != std::string_view::npos) ++depth;
        if (std::string_view(")]}").find(text[at]) != std::string_view::npos && --depth == 0)
            return text.substr(open + 1, at - open - 1);
    }
    return text.substr(std::min(open + 1, text.size()));
}

std::string name_with(std::string_view text, std::span<const std::string_view> parts) {
    for (std::size_t at = 0; at < text.size(); ++at) {
        const std::string_view name = name_at(text.substr(at));
        if (name.empty()) continue;
        at += name.size();
        std::string small(name);
        std::ranges::transform(small, small.begin(), [](char c) {
            return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
        });
        if (std::ranges::any_of(parts, [&](std::string_view part) {
                return small.find(part) != std::string::npos;
            }))
            return std::string(name);
    }
    return {};
}

bool has_word(std::string_view text, std::string_view word) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        if ((at == 0 || !in_name(text[at - 1])) && (end == text.size() || !in_name(text[end])))
            return true;
    }
    return false;
}

}  // namespace tsdiag::cli
