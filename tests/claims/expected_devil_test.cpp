#include "expected.hpp"

namespace tsdiag::test {

const std::vector<Expected>& expected_devil() {
    static const std::vector<Expected> table = {
        {"devil.eq59", "as printed", is_false},  // n = 2: 1/2 > sqrt(2)/4
        {"devil.eq59", "sharp", holds},
    };
    return table;
}

}  // namespace tsdiag::test
