#include "pickle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "tsdiag/text.hpp"

namespace tsdiag::checkpoint {
namespace {

using Value = PickleValue;
using Kind = Value::Kind;

constexpr std::size_t most_values = std::size_t{1} << 22;
constexpr std::size_t free_values = std::size_t{1} << 19;  // for a pickle of any size
constexpr std::size_t longest_global = 1000;

/// Undoes the escapes of protocol 0: \uXXXX and \UXXXXXXXX of UNICODE, \n \t \r \\ \' \" \xXX of
/// STRING.
std::string unescaped(std::string_view s) {
    std::string out;
    for (std::size_t i = 0; i < s.size(); ++i) {
        const char next = s[i] == '\\' && i + 1 < s.size() ? s[i + 1] : '\0';
        const std::size_t digits = next == 'u' ? 4 : next == 'U' ? 8 : next == 'x' ? 2 : 0;
        std::uint32_t code = 0;
        if (digits > 0 && s.size() - i >= 2 + digits &&
            std::from_chars(&s[i + 2], s.data() + i + 2 + digits, code, 16).ptr ==
                s.data() + i + 2 + digits) {
            out += utf8(code & 0x1FFFFF);
            i += 1 + digits;
        } else if (next == '\\' || next == '\'' || next == '"') {
            out += next;
            ++i;
        } else if (next == 'n' || next == 't' || next == 'r') {
            out += next == 'n' ? '\n' : next == 't' ? '\t' : '\r';
            ++i;
        } else {
            out += s[i];
        }
    }
    return out;
}

/// The pickle virtual machine: a stack, marks into it, a memo.
class Reader {
  public:
    Reader(Bytes bytes, const std::string& where) : in_(bytes, where + " (pickle)") {}

    Pickle read() {
        none_ = make(Kind::none);
        for (const bool b : {false, true}) {
            boolean_[b] = make(Kind::boolean);
            boolean_[b]->integer = b;
        }
        while (step()) {
        }
        out_.root = pop();
        out_.size = in_.position();
        return std::move(out_);
    }

  private:
    [[noreturn]] void fail(std::string_view what) {
        refuse(in_.where(), fmt::format("{} at byte {}. The file is damaged; save it again.", what,
                                        in_.position()));
    }

    Value* make(Kind kind) {
        const std::size_t most = std::min(most_values, free_values + in_.position() / 2);
        if (out_.values.size() == most)
            refuse(in_.where(), fmt::format("contains more than {} Python values in {} bytes, "
                                            "expected a model. Save only the state_dict.",
                                            most, in_.position()));
        out_.values.emplace_back().kind = kind;
        return &out_.values.back();
    }
    void push(Value* value) { stack_.push_back(value); }
    Value* pop() {
        if (stack_.size() <= floor()) fail("pops a value from an empty stack");
        Value* value = stack_.back();
        stack_.pop_back();
        return value;
    }
    Value* top() {
        if (stack_.size() <= floor()) fail("uses the top of an empty stack");
        return stack_.back();
    }
    std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

    /// The values above the last mark, which is removed.
    std::vector<Value*> pop_mark() {
        if (marks_.empty()) fail("uses a mark that was never set");
        std::vector<Value*> above(stack_.begin() + std::ptrdiff_t(marks_.back()), stack_.end());
        stack_.resize(marks_.back());
        marks_.pop_back();
        return above;
    }

    void push_integer(std::int64_t i) {
        Value* value = make(Kind::integer);
        value->integer = i;
        push(value);
    }
    void push_real(double d) {
        Value* value = make(Kind::real);
        value->real = d;
        push(value);
    }
    void push_text(Kind kind, std::string text) {
        Value* value = make(kind);
        value->text = std::move(text);
        push(value);
    }
    void push_string(Kind kind, std::uint64_t length) {
        push_text(kind, std::string(text_of(in_.take_bytes(length))));
    }
    void push_items(Kind kind, const std::vector<Value*>& items) {
        Value* value = make(kind);
        value->items.assign(items.begin(), items.end());
        push(value);
    }
    void push_tuple(std::size_t count) {
        std::vector<Value*> items(count);
        for (std::size_t i = count; i-- > 0;) items[i] = pop();
        push_items(Kind::tuple, items);
    }
    void push_global(std::string_view module, std::string_view name) {
        if (module.size() + name.size() > longest_global)
            fail(fmt::format("names a class of {} bytes", module.size() + name.size()));
        push_text(Kind::global, fmt::format("{}.{}", module, name));
    }
    void push_object(Value* callee, Value* arguments) {
        Value* value = make(Kind::object);
        value->callee = callee;
        value->arguments = arguments;
        push(value);
    }
    void push_persistent(Value* id) {
        Value* value = make(Kind::persistent);
        value->callee = id;
        out_.persistent.push_back(value);
        push(value);
    }

    /// Two's complement, little-endian, any length.
    void push_long(Bytes digits) {
        if (digits.size() <= 8) {
            std::uint64_t bits = 0;
            for (std::size_t i = 0; i < digits.size(); ++i)
                bits |= std::to_integer<std::uint64_t>(digits[i]) << (8 * i);
            if (!digits.empty() && digits.size() < 8 &&
                (digits.back() & std::byte{0x80}) != std::byte{0})
                bits |= ~std::uint64_t{0} << (8 * digits.size());
            return push_integer(std::int64_t(bits));
        }
        double value = (digits.back() & std::byte{0x80}) != std::byte{0} ? -1.0 : 0.0;
        for (std::size_t i = digits.size(); i-- > 0;)
            value = value * 256 + std::to_integer<int>(digits[i]);
        push_real(value);
    }
    void push_decimal(std::string_view line) {
        if (line == "00" || line == "01") return push(boolean_[line == "01"]);
        if (line.ends_with('L')) line.remove_suffix(1);
        std::int64_t i = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), i);
        if (error == std::errc() && end == line.data() + line.size()) return push_integer(i);
        push_decimal_real(line);
    }
    void push_decimal_real(std::string_view line) {
        double d = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), d);
        if (end != line.data() + line.size() || error == std::errc::invalid_argument)
            fail("contains an invalid number");
        push_real(d);
    }
    /// Doubles of pickles are big-endian.
    double take_big_endian_double() {
        std::uint64_t bits = 0;
        for (const std::byte b : in_.take_bytes(8)) bits = bits << 8 | std::to_integer<int>(b);
        return std::bit_cast<double>(bits);
    }

    void append(const std::vector<Value*>& items) {
        Value* to = top();
        if (!to->is(Kind::list) && !to->is(Kind::set) && !to->is(Kind::object))
            fail("appends to a value that is not a list");
        to->items.insert(to->items.end(), items.begin(), items.end());
    }
    void set_items(const std::vector<Value*>& items, Value* to) {
        if (!to->is(Kind::dict) && !to->is(Kind::object))
            fail("sets an item of a value that is not a dict");
        if (items.size() % 2 != 0) fail("sets a key without a value");
        for (std::size_t i = 0; i < items.size(); i += 2)
            to->pairs.emplace_back(items[i], items[i + 1]);
    }
    void build(Value* state) {
        Value* to = top();
        if (!to->is(Kind::object) && !to->is(Kind::dict) && !to->is(Kind::list))
            fail("sets the state of a value that is not an object");
        to->state = state;
    }

    void put(std::uint64_t key) { memo_[key] = top(); }
    void get(std::uint64_t key) {
        const auto found = memo_.find(key);
        if (found == memo_.end()) fail(fmt::format("uses memo {}, which was never stored", key));
        push(found->second);
    }
    std::uint64_t take_memo_line() {
        const std::string_view line = in_.take_line();
        std::uint64_t key = 0;
        if (std::from_chars(line.data(), line.data() + line.size(), key).ec != std::errc())
            fail("contains an invalid memo number");
        return key;
    }

    bool step();
    bool step_number(char code);
    bool step_text(char code);
    bool step_container(char code);
    bool step_object(char code);
    bool step_stack(char code);

    ByteReader in_;
    Pickle out_;
    std::vector<Value*> stack_;
    std::vector<std::size_t> marks_;
    std::unordered_map<std::uint64_t, Value*> memo_;
    Value* none_ = nullptr;
    Value* boolean_[2] = {};
};

/// Executes one instruction; false at STOP.
bool Reader::step() {
    const char code = in_.take<char>();
    if (code == '.') return false;
    if (step_number(code) || step_text(code) || step_container(code) || step_object(code) ||
        step_stack(code))
        return true;
    fail(fmt::format("contains the opcode 0x{:02x}, which checkpoints do not use,",
                     static_cast<unsigned char>(code)));
}

// A table, one line per instruction.
// clang-format off
bool Reader::step_number(char code) {
    switch (code) {
        case 'N': push(none_); return true;
        case '\x88': push(boolean_[1]); return true;
        case '\x89': push(boolean_[0]); return true;
        case 'J': push_integer(in_.take<std::int32_t>()); return true;
        case 'K': push_integer(in_.take<std::uint8_t>()); return true;
        case 'M': push_integer(in_.take<std::uint16_t>()); return true;
        case '\x8a': push_long(in_.take_bytes(in_.take<std::uint8_t>())); return true;
        case '\x8b': push_long(in_.take_bytes(in_.take<std::uint32_t>())); return true;
        case 'G': push_real(take_big_endian_double()); return true;
        case 'I':
        case 'L': push_decimal(in_.take_line()); return true;
        case 'F': push_decimal_real(in_.take_line()); return true;
        default: return false;
    }
}

bool Reader::step_text(char code) {
    switch (code) {
        case 'X': push_string(Kind::text, in_.take<std::uint32_t>()); return true;
        case '\x8c': push_string(Kind::text, in_.take<std::uint8_t>()); return true;
        case '\x8d': push_string(Kind::text, in_.take<std::uint64_t>()); return true;
        case 'T': push_string(Kind::text, in_.take<std::uint32_t>()); return true;
        case 'U': push_string(Kind::text, in_.take<std::uint8_t>()); return true;
        case 'B': push_string(Kind::bytes, in_.take<std::uint32_t>()); return true;
        case 'C': push_string(Kind::bytes, in_.take<std::uint8_t>()); return true;
        case '\x8e':
        case '\x96': push_string(Kind::bytes, in_.take<std::uint64_t>()); return true;
        case 'V': push_text(Kind::text, unescaped(in_.take_line())); return true;
        case 'S': {
            const std::string_view quoted = in_.take_line();
            if (quoted.size() < 2 || quoted.front() != quoted.back())
                fail("contains a string without quotes");
            push_text(Kind::text, unescaped(quoted.substr(1, quoted.size() - 2)));
            return true;
        }
        default: return false;
    }
}

bool Reader::step_container(char code) {
    switch (code) {
        case ')': push_tuple(0); return true;
        case '\x85': push_tuple(1); return true;
        case '\x86': push_tuple(2); return true;
        case '\x87': push_tuple(3); return true;
        case 't': push_items(Kind::tuple, pop_mark()); return true;
        case ']':
            push_items(Kind::list, {});
            return true;
        case 'l': push_items(Kind::list, pop_mark()); return true;
        case '\x8f':
            push_items(Kind::set, {});
            return true;
        case '\x91': push_items(Kind::set, pop_mark()); return true;
        case '}': push(make(Kind::dict)); return true;
        case 'd': {
            Value* dict = make(Kind::dict);
            set_items(pop_mark(), dict);
            push(dict);
            return true;
        }
        case 'a':
            append({pop()});
            return true;
        case 'e':
        case '\x90': append(pop_mark()); return true;
        case 's': {
            Value* value = pop();
            Value* key = pop();
            set_items({key, value}, top());
            return true;
        }
        case 'u': {
            const std::vector<Value*> items = pop_mark();
            set_items(items, top());
            return true;
        }
        default: return false;
    }
}

bool Reader::step_object(char code) {
    switch (code) {
        case 'c': {
            const std::string_view module = in_.take_line();
            push_global(module, in_.take_line());
            return true;
        }
        case '\x93': {
            const Value* name = pop();
            const Value* module = pop();
            if (!name->is(Kind::text) || !module->is(Kind::text)) fail("names no class");
            push_global(module->text, name->text);
            return true;
        }
        case 'R':
        case '\x81': {
            Value* arguments = pop();
            push_object(pop(), arguments);
            return true;
        }
        case '\x92': {
            pop();  // the keyword arguments
            Value* arguments = pop();
            push_object(pop(), arguments);
            return true;
        }
        case 'i': {
            const std::string_view module = in_.take_line();
            push_global(module, in_.take_line());
            Value* callee = pop();
            push_items(Kind::tuple, pop_mark());
            push_object(callee, pop());
            return true;
        }
        case 'o': {
            std::vector<Value*> items = pop_mark();
            if (items.empty()) fail("creates an object without a class");
            Value* callee = items.front();
            items.erase(items.begin());
            push_items(Kind::tuple, items);
            push_object(callee, pop());
            return true;
        }
        case 'b': build(pop()); return true;
        case 'Q': push_persistent(pop()); return true;
        case 'P': {
            push_text(Kind::text, std::string(in_.take_line()));
            push_persistent(pop());
            return true;
        }
        default: return false;
    }
}

bool Reader::step_stack(char code) {
    switch (code) {
        case '\x80':
            if (const int protocol = in_.take<std::uint8_t>(); protocol > 5)
                fail(fmt::format("has protocol {}, expected 0 to 5,", protocol));
            return true;
        case '\x95': in_.take<std::uint64_t>(); return true;  // the length of a frame: no need of it
        case '(': marks_.push_back(stack_.size()); return true;
        case '0':
            if (!marks_.empty() && stack_.size() == marks_.back())
                marks_.pop_back();
            else
                pop();
            return true;
        case '1': pop_mark(); return true;
        case '2': push(top()); return true;
        case 'q': put(in_.take<std::uint8_t>()); return true;
        case 'r': put(in_.take<std::uint32_t>()); return true;
        case 'p': put(take_memo_line()); return true;
        case '\x94': put(memo_.size()); return true;
        case 'h': get(in_.take<std::uint8_t>()); return true;
        case 'j': get(in_.take<std::uint32_t>()); return true;
        case 'g': get(take_memo_line()); return true;
        default: return false;
    }
}

// clang-format on

}  // namespace

Pickle read_pickle(Bytes bytes, const std::string& where) { return Reader(bytes, where).read(); }

}  // namespace tsdiag::checkpoint
