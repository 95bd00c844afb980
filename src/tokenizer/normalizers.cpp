#include <array>

#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "unicode.hpp"

namespace tsdiag::tokenizer {
namespace {

template <class Keep>
std::string filtered(std::string_view text, Keep&& keep) {
    std::string out;
    out.reserve(text.size());
    each_character(text, [&](std::uint32_t c, std::string_view bytes) {
        if (keep(c)) out += bytes;
    });
    return out;
}

/// Those that BERT puts spaces around.
bool is_chinese(std::uint32_t c) {
    constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 8> blocks{{{0x4e00, 0x9fff},
                                                                             {0x3400, 0x4dbf},
                                                                             {0x20000, 0x2a6df},
                                                                             {0x2a700, 0x2b73f},
                                                                             {0x2b740, 0x2b81f},
                                                                             {0x2b920, 0x2ceaf},
                                                                             {0xf900, 0xfaff},
                                                                             {0x2f800, 0x2fa1f}}};
    for (const auto& [low, high] : blocks)
        if (c >= low && c <= high) return true;
    return false;
}

/// Without characters that are `dropped`, and with spaces for those that are `space`.
template <class Dropped, class Space>
std::string with_spaces(std::string_view text, Dropped&& dropped, Space&& space) {
    std::string out;
    out.reserve(text.size());
    each_character(text, [&](std::uint32_t c, std::string_view bytes) {
        if (!dropped(c)) out += space(c) ? " " : bytes;
    });
    return out;
}

std::string cleaned(std::string_view text) {
    const auto white = [](std::uint32_t c) { return c == '\t' || c == '\n' || c == '\r'; };
    return with_spaces(
        text, [&](std::uint32_t c) { return c == 0 || c == 0xfffd || (is_other(c) && !white(c)); },
        [&](std::uint32_t c) { return white(c) || is_white_space(c); });
}

/// Control characters out, other kinds of white space to spaces, as in SentencePiece's nmt rules.
std::string nmt(std::string_view text) {
    return with_spaces(
        text,
        [](std::uint32_t c) {
            return (c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
                   c == 0x8f || c == 0x9f;
        },
        [](std::uint32_t c) {
            return c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                   (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                   c == 0xfeff || c == 0xfffd;
        });
}

void strip(std::string& text, bool left, bool right) {
    std::size_t begin = text.size(), end = 0, at = 0;
    each_character(text, [&](std::uint32_t c, std::string_view bytes) {
        if (!is_white_space(c)) {
            begin = std::min(begin, at);
            end = at + bytes.size();
        }
        at += bytes.size();
    });
    if (!left) begin = 0;
    if (!right) end = text.size();
    text = begin < end ? text.substr(begin, end - begin) : "";
}

Normalizer replacing(Pattern pattern, std::string content) {
    return [pattern = std::move(pattern), content = std::move(content)](std::string& text,
                                                                        const Limits& limits) {
        const std::vector<Range> found = pattern.matches(text, limits.deadline);
        if (found.empty()) return;
        limits.growth.require(text.size() + found.size() * content.size());
        std::string out;
        std::size_t last = 0;
        for (const auto& [begin, end] : found) {
            out.append(text, last, begin - last);
            out += content;
            last = end;
        }
        out.append(text, last);
        text = std::move(out);
    };
}

Normalizer unicode_form(Form form) {
    return [form](std::string& text, const Limits& limits) {
        text = normalised(text, form);
        limits.growth.require(text.size());
    };
}

Normalizer in_sequence(std::vector<Normalizer> all) {
    return [all = std::move(all)](std::string& text, const Limits& limits) {
        for (const Normalizer& one : all) one(text, limits);
    };
}

Normalizer read_bert_normalizer(const Component& c) {
    c.require_keys({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    const bool lower = c.flag("lowercase", true);
    return bert_normalizer(c.flag("clean_text", true), c.flag("handle_chinese_chars", true),
                           c.flag("strip_accents", lower), lower);
}

}  // namespace

Normalizer bert_normalizer(bool clean, bool chinese, bool strip_accents, bool lower) {
    return [=](std::string& text, const Limits& limits) {
        if (clean) text = cleaned(text);
        if (chinese) {
            std::string out;
            each_character(text, [&](std::uint32_t c, std::string_view bytes) {
                const bool spaced = is_chinese(c);
                if (spaced) out += ' ';
                out += bytes;
                if (spaced) out += ' ';
            });
            text = std::move(out);
        }
        if (strip_accents)
            text = filtered(normalised(text, Form::nfd),
                            [](std::uint32_t c) { return c < 0x80 || !is_nonspacing_mark(c); });
        if (lower) text = lower_case(text);
        limits.growth.require(text.size());
    };
}

Pattern read_pattern(const Component& holder) {
    const Json& json = holder.json()["pattern"];
    const Component pattern = holder.member("pattern");
    if (json.is_object() && json.object().size() == 1) {
        if (json["String"].is_string() && !json["String"].string().empty())
            return Pattern::of_text(json["String"].string());
        if (json["Regex"].is_string())
            return Pattern::of_regex(json["Regex"].string(), pattern.where());
    }
    holder.refuse_value("pattern");
}

Normalizer read_normalizer(const Component& c) {
    const std::string type = c.type();
    if (type == "Sequence") {
        c.require_keys({"normalizers"});
        std::vector<Normalizer> all;
        for (const Component& one : c.list("normalizers")) all.push_back(read_normalizer(one));
        return in_sequence(std::move(all));
    }
    if (type == "BertNormalizer") return read_bert_normalizer(c);
    if (type == "Replace") {
        c.require_keys({"pattern", "content"});
        return replacing(read_pattern(c), c.text("content"));
    }
    if (type == "Prepend") {
        c.require_keys({"prepend"});
        return [prefix = c.text("prepend")](std::string& text, const Limits&) {
            if (!text.empty()) text.insert(0, prefix);
        };
    }
    if (type == "Strip") {
        c.require_keys({"strip_left", "strip_right"});
        return [left = c.flag("strip_left", true), right = c.flag("strip_right", true)](
                   std::string& text, const Limits&) { strip(text, left, right); };
    }
    if (type == "Precompiled") {
        c.require_keys({"precompiled_charsmap"});
        return precompiled(bytes_of_base64(c.text("precompiled_charsmap"), c.where()), c.where());
    }
    c.require_keys({});
    if (type == "NFC") return unicode_form(Form::nfc);
    if (type == "NFD") return unicode_form(Form::nfd);
    if (type == "NFKC") return unicode_form(Form::nfkc);
    if (type == "NFKD") return unicode_form(Form::nfkd);
    if (type == "Lowercase")
        return [](std::string& text, const Limits&) { text = lower_case(text); };
    if (type == "StripAccents")
        return [](std::string& text, const Limits&) {
            text = filtered(text, [](std::uint32_t u) { return u < 0x80 || !is_mark(u); });
        };
    if (type == "Nmt") return [](std::string& text, const Limits&) { text = nmt(text); };
    if (type == "ByteLevel")
        return [](std::string& text, const Limits& limits) {
            text = byte_characters(text);
            limits.growth.require(text.size());
        };
    c.refuse();
}

}  // namespace tsdiag::tokenizer
