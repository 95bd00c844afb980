#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"
#include "unicode.hpp"

namespace tsdiag::tokenizer {
namespace {

enum class Behaviour { removed, isolated, contiguous, with_previous, with_next };

/// Parts of a piece that cover it, and which of them are matches.
struct Span {
    std::size_t begin = 0, end = 0;
    bool match = false;
};
using Finder = std::function<std::vector<Span>(std::string_view, const Limits&)>;

std::vector<Span> covering(const std::vector<Range>& found, std::size_t size) {
    std::vector<Span> all;
    std::size_t last = 0;
    for (const auto& [begin, end] : found) {
        if (last != begin) all.push_back({last, begin, false});
        all.push_back({begin, end, true});
        last = end;
    }
    if (last != size) all.push_back({last, size, false});
    return all;
}

/// Matches are the single characters that `is` takes.
template <class Is>
Finder by_character(Is is) {
    return [is](std::string_view text, const Limits&) {
        std::vector<Range> found;
        std::size_t at = 0;
        each_character(text, [&](std::uint32_t c, std::string_view bytes) {
            if (is(c)) found.emplace_back(at, at + bytes.size());
            at += bytes.size();
        });
        return covering(found, text.size());
    };
}

std::vector<Span> joined(std::vector<Span> spans, Behaviour behaviour) {
    std::vector<Span> all;
    bool previous = false;
    if (behaviour == Behaviour::with_next) {
        for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
            if (span->match && !previous && !all.empty())
                all.back().begin = span->begin;
            else
                all.push_back(*span);
            previous = span->match;
        }
        return {all.rbegin(), all.rend()};
    }
    for (const Span& span : spans) {
        const bool joins = behaviour == Behaviour::contiguous      ? span.match == previous
                           : behaviour == Behaviour::with_previous ? span.match && !previous
                                                                   : false;
        if (joins && !all.empty())
            all.back().end = span.end;
        else
            all.push_back(span);
        previous = span.match;
    }
    return all;
}

PreTokenizer dividing(Finder finder, Behaviour behaviour, bool invert = false) {
    return [finder = std::move(finder), behaviour, invert](Pieces& pieces) {
        std::vector<Pieces::Piece> divided;
        for (const Pieces::Piece& piece : pieces.list) {
            std::vector<Span> spans = finder(piece.text, *pieces.limits);
            for (Span& span : spans) span.match = span.match != invert;
            for (const Span& span : joined(std::move(spans), behaviour)) {
                if (span.begin == span.end || (span.match && behaviour == Behaviour::removed))
                    continue;
                divided.push_back({piece.text.substr(span.begin, span.end - span.begin),
                                   piece.first && span.begin == 0});
            }
        }
        pieces.list = std::move(divided);
    };
}

Finder by_pattern(Pattern pattern) {
    return [pattern = std::move(pattern)](std::string_view text, const Limits& limits) {
        return covering(pattern.matches(text, limits.deadline), text.size());
    };
}

PreTokenizer one_after_another(std::vector<PreTokenizer> all) {
    return [all = std::move(all)](Pieces& pieces) {
        for (const PreTokenizer& one : all) one(pieces);
    };
}

Behaviour behaviour_of(const Component& c, bool required) {
    const std::string word = required ? c.text("behavior") : c.text("behavior", "Isolated");
    if (word == "Removed") return Behaviour::removed;
    if (word == "Isolated") return Behaviour::isolated;
    if (word == "Contiguous") return Behaviour::contiguous;
    if (word == "MergedWithPrevious") return Behaviour::with_previous;
    if (word == "MergedWithNext") return Behaviour::with_next;
    c.refuse_value("behavior");
}

bool is_punctuation_of_bert(std::uint32_t c) {
    if (c < 0x80)
        return c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') &&
               !((c | 32) >= 'a' && (c | 32) <= 'z');
    return is_punctuation(c);
}

PreTokenizer metaspace(const std::string& mark, const std::string& scheme, bool split) {
    std::vector<PreTokenizer> all;
    all.push_back([mark, scheme](Pieces& pieces) {
        for (Pieces::Piece& piece : pieces.list) {
            std::string text;
            for (const char c : piece.text)
                if (c == ' ')
                    text += mark;
                else
                    text += c;
            const bool wanted = scheme == "always" || (scheme == "first" && piece.first);
            if (wanted && !text.starts_with(mark)) text.insert(0, mark);
            piece.text = pieces.keep(std::move(text));
        }
    });
    if (split) all.push_back(dividing(by_pattern(Pattern::of_text(mark)), Behaviour::with_next));
    return one_after_another(std::move(all));
}

PreTokenizer read_metaspace(const Component& c, bool first) {
    c.require_keys({"replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    const std::string mark = c.text("replacement", std::string(space_mark));
    if (mark.empty() || utf8_length(mark) != mark.size() || mark == " ")
        c.refuse_value("replacement");
    if (c.json().contains("str_rep") && c.text("str_rep") != mark) c.refuse_value("str_rep");
    const bool prefix = c.flag("add_prefix_space", true);
    const std::string scheme = c.text("prepend_scheme", prefix ? "always" : "never");
    if (scheme != "always" && scheme != "never" && scheme != "first")
        c.refuse_value("prepend_scheme");
    if (!prefix && scheme != "never") c.refuse_value("add_prefix_space");
    // what begins the text is not known after another one has removed parts of it
    if (scheme == "first" && !first) c.refuse_value("prepend_scheme");
    return metaspace(mark, scheme, c.flag("split", true));
}

PreTokenizer read_split(const Component& c) {
    c.require_keys({"pattern", "behavior", "invert"});
    return dividing(by_pattern(read_pattern(c)), behaviour_of(c, true), c.flag("invert", false));
}

PreTokenizer read_digits(const Component& c) {
    c.require_keys({"individual_digits"});
    const bool single = c.flag("individual_digits", false);
    return dividing(by_character(is_numeric), single ? Behaviour::isolated : Behaviour::contiguous);
}

/// Words of \w+ and of what is neither white space nor that; the rest goes.
PreTokenizer words_and_signs() {
    return dividing(
        [](std::string_view text, const Limits&) {
            std::vector<Span> all;
            int last = -1;
            std::size_t at = 0;
            each_character(text, [&](std::uint32_t c, std::string_view bytes) {
                const int kind = is_word(c) ? 0 : is_white_space(c) ? 1 : 2;
                if (kind != last) all.push_back({at, at, kind == 1});
                last = kind;
                at += bytes.size();
                all.back().end = at;
            });
            return all;
        },
        Behaviour::removed);
}

}  // namespace

PreTokenizer bert_words() {
    return one_after_another({dividing(by_character(is_white_space), Behaviour::removed),
                              dividing(by_character(is_punctuation_of_bert), Behaviour::isolated)});
}

PreTokenizer byte_level_words(bool prefix_space, bool divide) {
    std::vector<PreTokenizer> all;
    if (prefix_space)
        all.push_back([](Pieces& pieces) {
            for (Pieces::Piece& piece : pieces.list)
                if (!piece.text.starts_with(' '))
                    piece.text = pieces.keep(" " + std::string(piece.text));
        });
    if (divide)
        all.push_back(
            dividing(by_pattern(Pattern::of_regex(gpt2_words, "ByteLevel")), Behaviour::isolated));
    all.push_back([](Pieces& pieces) {
        for (Pieces::Piece& piece : pieces.list)
            piece.text = pieces.keep(byte_characters(piece.text));
    });
    return one_after_another(std::move(all));
}

PreTokenizer read_pre_tokenizer(const Component& c, bool& byte_level, bool first) {
    const std::string type = c.type();
    if (type == "Sequence") {
        c.require_keys({"pretokenizers"});
        std::vector<PreTokenizer> all;
        for (const Component& one : c.list("pretokenizers"))
            all.push_back(read_pre_tokenizer(one, byte_level, first && all.empty()));
        return one_after_another(std::move(all));
    }
    if (type == "ByteLevel") {
        c.require_keys({"add_prefix_space", "trim_offsets", "use_regex"});
        byte_level = true;
        return byte_level_words(c.flag("add_prefix_space", true), c.flag("use_regex", true));
    }
    if (type == "Metaspace") return read_metaspace(c, first);
    if (type == "Split") return read_split(c);
    if (type == "Digits") return read_digits(c);
    if (type == "Punctuation") {
        c.require_keys({"behavior"});
        return dividing(by_character(is_punctuation_of_bert), behaviour_of(c, false));
    }
    if (type == "CharDelimiterSplit") {
        c.require_keys({"delimiter"});
        if (c.text("delimiter").empty()) c.refuse_value("delimiter");
        return dividing(by_pattern(Pattern::of_text(c.text("delimiter"))), Behaviour::removed);
    }
    c.require_keys({});
    if (type == "BertPreTokenizer") return bert_words();
    if (type == "Whitespace") return words_and_signs();
    if (type == "WhitespaceSplit")
        return dividing(by_character(is_white_space), Behaviour::removed);
    c.refuse();
}

}  // namespace tsdiag::tokenizer
