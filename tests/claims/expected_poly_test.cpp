#include "expected.hpp"

namespace tsdiag::test {

const std::vector<Expected>& expected_poly() {
    static const std::vector<Expected> table = {
        {"poly.thm4.1a", "from above", holds},
        {"poly.thm4.1a", "from below", holds},
        {"poly.thm4.1b", "as printed", holds},
        {"poly.thm4.1b", "sharp", holds},
        {"poly.thm4.1b", "by the norm", holds},
        {"poly.eq24", "(20), (21)", holds},
        {"poly.eq24", "(24), first entry", is_false},  // x = (0, 0): -1/8 is not -1/4
        {"poly.eq24", "(24), last entry", is_false},   // x = (0, 0): the sign
        {"poly.eq34", "(30)", holds},
        {"poly.eq34", "before (34)", is_false},  // A = 0, N = 2: 1/2 is not 1
        {"poly.eq34", "before (34), corrected", holds},
        {"poly.eq34", "(34)", holds},
        {"poly.eq34", "(38)", is_false},  // A = 0, N = 2: 2 is not 4
        {"poly.thm4.2", "elementwise, p = 1", asymptotically},
        {"poly.thm4.2", "elementwise, p = 2", asymptotically},
        {"poly.thm4.2", "elementwise, p = 3", asymptotically},
        {"poly.thm4.2", "matrix power, p = 2", is_false},  // exponent p
        {"poly.thm4.2", "matrix power, p = 3", is_false},
        {"poly.cor4.3", "elementwise, p = 1", asymptotically},
        {"poly.cor4.3", "elementwise, p = 2", asymptotically},
        {"poly.cor4.3", "elementwise, p = 3", asymptotically},
        {"poly.cor4.3", "matrix power, p = 2", is_false},  // exponent p - 1/2
        {"poly.cor4.3", "matrix power, p = 3", is_false},
        {"poly.cor4.3", "elementwise, from both sides, p = 2", asymptotically},
        {"poly.cor4.3", "elementwise, divided by N, p = 2", asymptotically},
        {"poly.cor4.3", "softmax, Q and K of variance 1/D", asymptotically},
        {"poly.thm4.4", "elementwise, p = 1", asymptotically},
        {"poly.thm4.4", "elementwise, p = 2", asymptotically},
        {"poly.thm4.4", "elementwise, p = 3", asymptotically},
        {"poly.thm4.4", "matrix power, p = 2", is_false},  // exponent p
        {"poly.thm4.4", "matrix power, p = 3", is_false},
        {"poly.thm4.4", "elementwise, spectral norm, p = 2", asymptotically},
        {"poly.cor4.5", "elementwise, p = 1", asymptotically},
        {"poly.cor4.5", "elementwise, p = 2", asymptotically},
        {"poly.cor4.5", "elementwise, p = 3", asymptotically},
        {"poly.cor4.5", "matrix power, p = 2", is_false},  // exponent p - 1/2
        {"poly.cor4.5", "matrix power, p = 3", is_false},
        {"poly.cor4.5-k", "elementwise, p = 1", asymptotically},
        {"poly.cor4.5-k", "elementwise, p = 2", asymptotically},
        {"poly.cor4.5-k", "elementwise, p = 3", asymptotically},
        {"poly.cor4.5-k", "matrix power, p = 2", is_false},  // exponent p
        {"poly.cor4.5-k", "matrix power, p = 3", is_false},
        {"poly.eq43", "p = 1", holds},
        {"poly.eq43", "p = 2", is_false},  // D = 1: 9 > 3
        {"poly.eq43", "p = 3", is_false},
        {"poly.eq43", "exact, p = 2", holds},
        {"poly.eq43", "X in both factors, p = 2", holds},
        {"poly.eq43", "approximation, p = 2, D = 64", holds},
        {"poly.eq55", "as printed", is_false},  // N = 2, D = d = 1: 8, not 6
        {"poly.eq55", "exact", holds},
        {"poly.eq56", "in N", asymptotically},
        {"poly.eq56", "in D", asymptotically},
        {"poly.eq56", "constant, N = D = 48", holds},
        {"poly.eq71", "p = 2", is_false},
        {"poly.eq71", "p = 3", is_false},
        {"poly.eq71", "p = 2, N = D = d = 48", is_false},  // p^2 is missing at every size
        {"poly.eq71", "exact, p = 2", holds},
    };
    return table;
}

}  // namespace tsdiag::test
