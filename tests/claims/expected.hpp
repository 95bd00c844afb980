#pragma once
#include <string_view>
#include <vector>

#include "tsdiag/claim.hpp"

/// The expected outcomes of examinations, where they are known.
namespace tsdiag::test {

struct Expected {
    std::string_view claim, reading;
    Verdict verdict;
};

constexpr Verdict holds = Verdict::holds, is_false = Verdict::false_as_stated,
                  asymptotically = Verdict::holds_asymptotically, ambiguous = Verdict::ambiguous,
                  undecided = Verdict::not_decided;

const std::vector<Expected>& expected_devil();
const std::vector<Expected>& expected_poly();
const std::vector<Expected>& expected_tse();

}  // namespace tsdiag::test
