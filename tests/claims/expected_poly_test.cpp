#include "expected.hpp"

namespace tsdiag::test {

const std::vector<Expected>& expected_poly() {
    static const std::vector<Expected> table = {
        {"poly.thm4.2", "elementwise, p = 1", asymptotically},
        {"poly.thm4.2", "elementwise, p = 2", asymptotically},
        {"poly.thm4.2", "elementwise, p = 3", asymptotically},
        {"poly.thm4.2", "matrix power, p = 2", is_false},  // exponent p
        {"poly.thm4.2", "matrix power, p = 3", is_false},
    };
    return table;
}

}  // namespace tsdiag::test
