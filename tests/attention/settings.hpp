#pragma once
#include <ostream>
#include <string>

#include "attention/cases.hpp"
#include "attention/sizes.hpp"

namespace tsdiag::test {

/// An entry of the list, and how it is called.
struct Setting {
    Case variant;
    Type type = Type::f64;
    bool causal = false;
    Index window = 0;
    Index key_heads = heads;
};

/// Keeps messages short: the name of a failed test says the rest.
inline void PrintTo(const Setting& s, std::ostream* out) { *out << s.variant.title; }

/// Part of the name of a test.
inline std::string title(const Setting& s, const char* type = "") {
    return s.variant.title + type + (s.causal ? "_causal" : "") + (s.window ? "_window" : "") +
           (s.key_heads < heads ? "_grouped" : "");
}

}  // namespace tsdiag::test
