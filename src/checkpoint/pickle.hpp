#pragma once
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "bytes.hpp"

/// Python pickles as inert trees.  Nothing is imported or called: a call is recorded as an `object`
/// that remembers what would have been called and with what.
namespace tsdiag::checkpoint {

struct PickleValue {
    enum class Kind {
        none,
        boolean,
        integer,
        real,
        text,  ///< UTF-8 as far as the file is
        bytes,
        tuple,
        list,
        dict,
        set,
        global,     ///< `text` is "module.name"
        object,     ///< what `callee` would return for `arguments`, plus `state`, `items`, `pairs`
        persistent  ///< `callee` is the persistent id
    };
    using Ref = const PickleValue*;

    Kind kind = Kind::none;
    std::int64_t integer = 0;  ///< also of a boolean
    double real = 0;           ///< also of integers beyond 64 bits, which are `real`
    std::string text;
    std::vector<Ref> items;                  ///< of tuple, list, set; appended to an object
    std::vector<std::pair<Ref, Ref>> pairs;  ///< of dict; set in an object
    Ref callee = nullptr;
    Ref arguments = nullptr;  ///< a tuple
    Ref state = nullptr;      ///< argument of BUILD

    bool is(Kind k) const { return kind == k; }
};

struct Pickle {
    std::deque<PickleValue> values;  ///< owns all; references may form cycles
    PickleValue::Ref root = nullptr;
    std::vector<PickleValue::Ref> persistent;  ///< every persistent object, in order of appearance
    std::size_t size = 0;                      ///< bytes up to and including STOP
};

/// Reads one pickle at the beginning of `bytes` (protocols 0 to 5).  Memory is bounded by a
/// constant times its length.  Throws `FormatError`; `where` names the file.
Pickle read_pickle(Bytes bytes, const std::string& where);

}  // namespace tsdiag::checkpoint
