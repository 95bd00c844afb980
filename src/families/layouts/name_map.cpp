#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "relabelled.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/layouts.hpp"
#include "tsdiag/text.hpp"

/// A user's own names of tensors, mapped to those of a family: --map FILE.
namespace tsdiag {
namespace families {
namespace {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blank = " \t\r";
    const std::size_t first = text.find_first_not_of(blank);
    if (first == text.npos) return "";
    return text.substr(first, text.find_last_not_of(blank) + 1 - first);
}

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> out;
    for (std::string& word : split(text, ' '))
        if (!word.empty()) out.push_back(std::move(word));
    return out;
}

std::optional<Index> number_of(std::string_view text) {
    Index value = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end || value < 0) return std::nullopt;
    return value;
}

/// The numbers that the stars of `pattern` stand for in `name`; nullopt: it does not match.
std::optional<std::vector<std::string>> numbers_in(std::string_view pattern,
                                                   std::string_view name) {
    std::vector<std::string> out;
    std::size_t at = 0;
    for (const char c : pattern) {
        if (c != '*') {
            if (at >= name.size() || name[at++] != c) return std::nullopt;
            continue;
        }
        const std::size_t begin = at;
        while (at < name.size() && name[at] >= '0' && name[at] <= '9') ++at;
        if (at == begin) return std::nullopt;
        out.emplace_back(name.substr(begin, at - begin));
    }
    return at == name.size() ? std::optional(std::move(out)) : std::nullopt;
}

std::string with_numbers(std::string_view pattern, const std::vector<std::string>& numbers) {
    std::string out;
    std::size_t next = 0;
    for (const char c : pattern)
        if (c == '*')
            out += numbers[next++];
        else
            out += c;
    return out;
}

/// "A + B + C" as its names.
std::vector<std::string_view> names_joined(std::string_view text) {
    constexpr std::string_view plus = " + ";
    std::vector<std::string_view> out;
    for (std::size_t at = 0; at != text.npos;) {
        const std::size_t end = text.find(plus, at);
        out.push_back(trimmed(text.substr(at, end == text.npos ? end : end - at)));
        at = end == text.npos ? end : end + plus.size();
    }
    return out;
}

/// A line that names tensors.
struct MapLine {
    std::size_t number = 0;         ///< in the file, from 1
    std::vector<std::string> here;  ///< several: put one below the other
    std::string there;
    bool transposed = false;
    Index part = 0, parts = 0;  ///< part I of N, from 1; 0: the whole
    Index first = 0, end = -1;  ///< rows A:B; -1: all
};

class MapReader {
  public:
    MapReader(const Checkpoint& file, std::string_view name) : file_(file), name_(name) {}

    void read(std::string_view text, Json& config) {
        for (const std::string& line : split(text, '\n')) {
            ++number_;
            const std::string_view content = trimmed(
                std::string_view(line).substr(0, line.starts_with('#') ? 0 : line.find(" #")));
            if (content.empty()) continue;
            constexpr std::string_view arrow = " -> ", equals = "=";
            if (const std::size_t at = content.find(arrow); at != content.npos)
                read_names(trimmed(content.substr(0, at)), content.substr(at + arrow.size()));
            else if (const std::size_t sign = content.find(equals); sign != content.npos)
                read_key(trimmed(content.substr(0, sign)), trimmed(content.substr(sign + 1)),
                         config);
            else
                fail(fmt::format("'{}' is neither NAME -> NAME nor KEY = VALUE",
                                 visible(shortened(content, 80))));
        }
        if (lines_.empty()) throw FormatError(fmt::format("{}: has no line NAME -> NAME.", name_));
    }

    void apply(Relabelled& out) {
        std::map<std::string, Taken, std::less<>> taken;
        for (const MapLine& line : lines_) {
            number_ = line.number;
            bool found = false;
            for (const std::string& name : file_.names()) {
                const auto numbers = numbers_in(line.here.front(), name);
                if (!numbers) continue;
                found = true;
                take(line, name, *numbers, taken);
            }
            if (!found)
                fail(fmt::format("'{}' matches no tensor of {}", visible(line.here.front()),
                                 file_.source()));
        }
        for (const std::string& name : file_.names()) {
            const auto found = taken.find(name);
            if (found == taken.end()) {
                out.add(name, name);
                continue;
            }
            require_whole(name, found->second);
            for (auto& [there, parts] : found->second.views) out.add(there, std::move(parts));
        }
    }

  private:
    /// What lines took of a tensor.
    struct Taken {
        bool transposed = false;
        Index rows = 0;                               ///< that it has, seen so
        std::vector<std::pair<Index, Index>> ranges;  ///< of rows
        std::vector<std::pair<std::string, std::vector<Relabelled::Part>>> views;
    };

    /// What `line` names of `name` and of the tensors with the same numbers that go below it.
    void take(const MapLine& line, const std::string& name, const std::vector<std::string>& numbers,
              std::map<std::string, Taken, std::less<>>& taken) const {
        std::vector<Relabelled::Part> parts;
        for (const std::string& pattern : line.here) {
            const std::string one = with_numbers(pattern, numbers);
            if (!file_.has(one))
                fail(fmt::format("{} has '{}', but not '{}'", file_.source(), visible(name),
                                 visible(one)));
            Taken& out = taken[one];
            const Index rows = rows_of(line, one);
            View view = view_of(line, one, rows);
            if (!out.ranges.empty() && out.transposed != line.transposed)
                fail(fmt::format("takes tensor '{}' {}, another line does not", visible(one),
                                 line.transposed ? "transposed" : "as it is"));
            out.transposed = line.transposed;
            out.rows = rows;
            out.ranges.emplace_back(view.length < 0 ? 0 : view.first,
                                    view.length < 0 ? rows : view.first + view.length);
            parts.push_back({one, std::move(view)});
        }
        taken[name].views.emplace_back(with_numbers(line.there, numbers), std::move(parts));
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw FormatError(fmt::format("{}: line {}: {}.", name_, number_, what));
    }

    void read_names(std::string_view here, std::string_view rest) {
        MapLine line;
        line.number = number_;
        std::vector<std::string> words = words_of(trimmed(rest));
        if (here.empty() || words.empty()) fail("has a name on one side only");
        line.there = words.front();
        for (const std::string_view one : names_joined(here)) {
            line.here.emplace_back(one);
            if (one.empty() || std::ranges::count(one, '*') != std::ranges::count(line.there, '*'))
                fail(fmt::format("'{}' and '{}' have different numbers of '*'", visible(one),
                                 visible(line.there)));
        }
        for (std::size_t i = 1; i < words.size(); ++i) {
            const std::size_t left = words.size() - i;
            if (words[i] == "transposed" && !line.transposed && line.parts == 0 && line.end < 0) {
                line.transposed = true;
            } else if (words[i] == "part" && left >= 4 && words[i + 2] == "of" && line.end < 0 &&
                       line.parts == 0) {
                const auto part = number_of(words[i + 1]), parts = number_of(words[i + 3]);
                if (!part || !parts || *part < 1 || *part > *parts || *parts < 2)
                    fail(fmt::format("'part {} of {}' is no part", visible(words[i + 1]),
                                     visible(words[i + 3])));
                line.part = *part;
                line.parts = *parts;
                i += 3;
            } else if (words[i] == "rows" && left >= 2 && line.end < 0 && line.parts == 0) {
                const std::vector<std::string> ends = split(words[i + 1], ':');
                const auto first = number_of(ends.front()), end = number_of(ends.back());
                if (ends.size() != 2 || !first || !end || *first >= *end)
                    fail(fmt::format("'rows {}' is not A:B with A below B", visible(words[i + 1])));
                line.first = *first;
                line.end = *end;
                ++i;
            } else {
                fail(
                    fmt::format("'{}' is none of transposed, part I of N, rows A:B, once each and "
                                "in this order",
                                visible(shortened(words[i], 60))));
            }
        }
        if (line.here.size() > 1 && (line.parts > 0 || line.end >= 0))
            fail("takes parts of tensors and puts them together; write two lines");
        lines_.push_back(std::move(line));
    }

    void read_key(std::string_view key, std::string_view word, Json& config) {
        if (key.empty() || word.empty()) fail("has a key or a value only");
        Json value;
        try {
            value = Json::parse(word, name_);
        } catch (const FormatError&) {
            value = Json(word);
        }
        if (!keys_.emplace(key).second)
            fail(fmt::format("the key '{}' stands in it twice", visible(key)));
        if (const Json& said = config[key]; !said.is_null() && !equal(said, value))
            fail(fmt::format("{} = {}, but the configuration says {}", visible(key), value.dump(),
                             said.dump()));
        config.set(std::string(key), std::move(value));
    }

    /// Of the tensor as the line turns it.
    Index rows_of(const MapLine& line, const std::string& name) const {
        const RawTensor raw = file_.tensor(name);
        constexpr std::size_t matrix = 2;
        if (line.transposed && raw.shape.size() != matrix)
            fail(fmt::format("tensor '{}' is {}, and only a matrix is transposed", visible(name),
                             text(raw.shape)));
        if (raw.shape.empty()) return 1;
        return raw.shape[line.transposed ? 1 : 0];
    }

    View view_of(const MapLine& line, const std::string& name, Index rows) const {
        View view;
        if (line.transposed) view.axes = {1, 0};
        if (line.parts > 0) {
            if (rows % line.parts != 0)
                fail(fmt::format("the {} rows of tensor '{}' do not divide into {} parts", rows,
                                 visible(name), line.parts));
            view.length = rows / line.parts;
            view.first = (line.part - 1) * view.length;
        } else if (line.end >= 0) {
            view.first = line.first;
            view.length = line.end - line.first;
        }
        seen(file_.tensor(name), view,
             fmt::format("{}: line {}: tensor '{}'", name_, number_, visible(name)));
        return view;
    }

    /// A row that is taken twice would make two weights of one, and one that is not taken would be
    /// left out in silence.
    void require_whole(const std::string& name, Taken& taken) const {
        std::ranges::sort(taken.ranges);
        Index end = -1;
        for (const auto& [first, last] : taken.ranges) {
            if (first < end || (end >= 0 && first == last))
                throw FormatError(fmt::format(
                    "{}: gives two names to tensor '{}' or to rows of it.", name_, visible(name)));
            if (first > std::max<Index>(end, 0)) break;
            end = last;
        }
        if (end != taken.rows)
            throw FormatError(
                fmt::format("{}: takes rows of tensor '{}', but not row {} of its {}.", name_,
                            visible(name), std::max<Index>(end, 0), taken.rows));
    }

    const Checkpoint& file_;
    std::string name_;
    std::size_t number_ = 0;
    std::vector<MapLine> lines_;
    std::set<std::string, std::less<>> keys_;
};

}  // namespace
}  // namespace families

std::string draft_map(const Checkpoint& file) {
    struct Pattern {
        std::string name;
        std::size_t count = 0;
        std::string shape;
        bool same = true;  ///< all have that shape
    };
    std::vector<Pattern> patterns;
    std::map<std::string, std::size_t, std::less<>> known;
    for (const std::string& name : file.names()) {
        std::string pattern;
        for (const std::string& part : split(name, '.')) {
            const bool number = !part.empty() && families::number_of(part).has_value();
            pattern += (pattern.empty() ? "" : ".") + (number ? std::string("*") : part);
        }
        const auto [at, is_new] = known.emplace(pattern, patterns.size());
        if (is_new) patterns.push_back({std::move(pattern), 0, "", true});
        Pattern& p = patterns[at->second];
        std::string shape = families::text(file.tensor(name).shape);
        p.same = p.same && (p.count == 0 || p.shape == shape);
        p.shape = std::move(shape);
        ++p.count;
    }
    constexpr std::size_t most = 200;
    std::string out = "model_type = ?\n";
    for (std::size_t i = 0; i < std::min(most, patterns.size()); ++i)
        out += fmt::format(
            "{} -> ?  # {}{}\n", visible(patterns[i].name),
            patterns[i].same ? patterns[i].shape : "several shapes",
            patterns[i].count > 1 ? fmt::format(", {} of them", patterns[i].count) : "");
    if (patterns.size() > most) out += fmt::format("# and {} more\n", patterns.size() - most);
    return out;
}

std::shared_ptr<const Checkpoint> apply_map(std::shared_ptr<const Checkpoint> file,
                                            std::string_view map, std::string_view name,
                                            Json& config) {
    if (file->format().starts_with("gguf"))
        throw FormatError(fmt::format(
            "{}: a GGUF file names its tensors itself, and takes no --map", file->source()));
    families::MapReader reader(*file, name);
    reader.read(map, config);
    auto out = std::make_shared<families::Relabelled>(std::move(file));
    reader.apply(*out);
    return out;
}

}  // namespace tsdiag
