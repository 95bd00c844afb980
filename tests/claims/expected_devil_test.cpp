#include "expected.hpp"

namespace tsdiag::test {

const std::vector<Expected>& expected_devil() {
    static const std::vector<Expected> table = {
        {"devil.eq7", "general", holds},
        {"devil.eq7", "softmax", holds},
        {"devil.eq7", "linear", holds},
        {"devil.eq7", "linear, a score of 0", holds},
        {"devil.eq9", "entries", holds},
        {"devil.eq9", "as a matrix", holds},
        {"devil.eq11", "entries", holds},
        {"devil.eq11", "sharp", holds},
        {"devil.prop3.1", "for every M", holds},
        {"devil.prop3.1", "only as the sum vanishes", holds},
        {"devil.propD4", "as printed", holds},
        {"devil.propD4", "sharp", holds},
        {"devil.propD5", "loss", holds},
        {"devil.propD5", "classifier", holds},
        {"devil.propD5", "second layer", holds},
        {"devil.propD5", "first layer, as printed", is_false},  // W1 = 10, W2 = 0.1: 1.76 > 0.028
        {"devil.propD5", "first layer, h(W1)", holds},
        {"devil.propD5", "loss, sharp", holds},
        {"devil.propD6", "as printed", holds},
        {"devil.propD6", "from below", holds},
        {"devil.eq48-linear", "as printed", is_false},  // n = 2: 1/2 > sqrt(2)/4
        {"devil.eq48-linear", "sharp", holds},
        {"devil.eq53", "entries", holds},
        {"devil.eq53", "sharp, diagonal", holds},
        {"devil.eq53", "sharp, off the diagonal", holds},
        {"devil.eq57", "norm", holds},
        {"devil.eq57", "sharp", holds},
        {"devil.eq59", "as printed", is_false},  // n = 2: 1/2 > sqrt(2)/4
        {"devil.eq59", "sharp", holds},
        {"devil.eq59", "of a row", holds},
        {"devil.eq60", "for every M", holds},
        {"devil.eq60", "homogeneous", holds},
        {"devil.eq60", "equal tokens", is_false},  // equal values: no gradient
        {"devil.eq61", "as printed", holds},
        {"devil.eq61", "sharp", holds},
        {"devil.eq61", "by row", holds},
    };
    return table;
}

}  // namespace tsdiag::test
