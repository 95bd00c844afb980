#include "pattern.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"
#include "unicode.hpp"
#ifdef TSDIAG_ICU
#include <unicode/uregex.h>
#include <unicode/ustring.h>

#include <new>

#include "utf16.hpp"
#endif

namespace tsdiag::tokenizer {
namespace {

[[noreturn]] void took_too_long(std::string_view what) {
    throw FormatError(fmt::format(
        "The text takes too long to divide: {}; pass ids with --input ids:FILE.", what));
}

std::vector<Range> occurrences(std::string_view wanted, std::string_view text) {
    std::vector<Range> found;
    for (std::size_t at = text.find(wanted); at != text.npos && !wanted.empty();
         at = text.find(wanted, at + wanted.size()))
        found.emplace_back(at, at + wanted.size());
    return found;
}

}  // namespace

Deadline::Deadline(std::size_t bytes)
    : end_(std::chrono::steady_clock::now() + std::chrono::seconds(3 + bytes / 200'000)) {}

void Deadline::require(std::string_view what) const {
    if (over()) took_too_long(what);
}

Pattern Pattern::of_text(std::string text) {
    Pattern p;
    p.text_ = std::move(text);
    return p;
}

#ifdef TSDIAG_ICU

namespace {

constexpr std::int32_t most_stack = 64 << 20;  ///< bytes of ICU's own stack of states

using Opened = std::unique_ptr<URegularExpression, void (*)(URegularExpression*)>;

UBool U_CALLCONV in_time(const void* context, std::int32_t) {
    return !static_cast<const Deadline*>(context)->over();
}

constexpr std::string_view backtracks = "a regular expression of the tokenizer backtracks on it";

/// What is wrong with a regular expression.
std::string_view fault(UErrorCode status) {
    switch (status) {
        case U_REGEX_MISMATCHED_PAREN:
            return "a parenthesis without its other half";
        case U_REGEX_MISSING_CLOSE_BRACKET:
            return "a set without its closing bracket";
        case U_REGEX_BAD_INTERVAL:
        case U_REGEX_MAX_LT_MIN:
        case U_REGEX_NUMBER_TOO_BIG:
            return "a wrong number of repetitions";
        case U_REGEX_INVALID_RANGE:
            return "a range that ends before it begins";
        case U_REGEX_LOOK_BEHIND_LIMIT:
            return "a look-behind of unlimited length";
        case U_REGEX_INVALID_BACK_REF:
        case U_REGEX_INVALID_CAPTURE_GROUP_NAME:
            return "a reference to a group that is not there";
        case U_REGEX_BAD_ESCAPE_SEQUENCE:
            return "an unknown escape";
        default:
            return "a part that cannot be read";
    }
}

void require_success(UErrorCode status, const std::string& where) {
    if (U_SUCCESS(status)) return;
    if (status == U_MEMORY_ALLOCATION_ERROR) throw std::bad_alloc();
    if (status == U_REGEX_STOPPED_BY_CALLER || status == U_REGEX_TIME_OUT)
        took_too_long(backtracks);
    if (status == U_REGEX_STACK_OVERFLOW)
        throw FormatError(fmt::format(
            "{}: needs too much memory for this text; pass ids with --input ids:FILE.", where));
    throw FormatError(
        fmt::format("{}: the regular expression has {}, expected one that can be searched for; "
                    "pass ids with --input ids:FILE.",
                    where, fault(status)));
}

}  // namespace

struct Pattern::Compiled {
    explicit Compiled(URegularExpression* opened) : regex(opened, uregex_close) {}
    Opened regex;
};

Pattern Pattern::of_regex(std::string_view source, const std::string& where) {
    const std::u16string wide = to_utf16(icu_syntax(source, where));
    UErrorCode status = U_ZERO_ERROR;
    Pattern p;
    p.where_ = where;
    p.regex_ = std::make_shared<Compiled>(
        uregex_open(wide.data(), std::int32_t(wide.size()), 0, nullptr, &status));
    require_success(status, where);
    return p;
}

std::vector<Range> Pattern::matches(std::string_view text, const Deadline& deadline) const {
    if (!regex_) return occurrences(text_, text);
    std::vector<Range> found;
    if (text.empty()) return found;
    const std::u16string wide = to_utf16(text);
    UErrorCode status = U_ZERO_ERROR;
    const Opened own(uregex_clone(regex_->regex.get(), &status), uregex_close);
    require_success(status, where_);
    URegularExpression* regex = own.get();
    uregex_setStackLimit(regex, most_stack, &status);
    uregex_setMatchCallback(regex, in_time, &deadline, &status);
    uregex_setText(regex, wide.data(), std::int32_t(wide.size()), &status);
    BytesBefore bytes(wide);
    std::size_t last = std::string_view::npos;
    for (std::size_t count = 1; uregex_findNext(regex, &status); ++count) {
        const std::size_t begin = bytes.at(std::size_t(uregex_start(regex, 0, &status)));
        const std::size_t end = bytes.at(std::size_t(uregex_end(regex, 0, &status)));
        // ICU takes the time of each match alone
        if (count % 256 == 0) deadline.require(backtracks);
        if (begin == end && begin == last) continue;
        found.emplace_back(begin, end);
        last = end;
    }
    require_success(status, where_);
    return found;
}

#else

struct Pattern::Compiled {};

Pattern Pattern::of_regex(std::string_view source, const std::string& where) {
    icu_syntax(source, where);
    lacks_unicode(where);
}

std::vector<Range> Pattern::matches(std::string_view text, const Deadline&) const {
    return occurrences(text_, text);
}

#endif

}  // namespace tsdiag::tokenizer
