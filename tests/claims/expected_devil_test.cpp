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
        {"devil.eq11", "by the least score", holds},
        {"devil.eq11", "sharp", holds},
        {"devil.prop3.1", "for every M", holds},
        {"devil.prop3.1", "only as the sum vanishes", holds},
        {"devil.propD4", "as printed", holds},
        {"devil.propD4", "sharp", holds},
        {"devil.propD5", "loss", holds},
        {"devil.propD5", "loss, with the = of (63)", is_false},  // at most sqrt(2)
        {"devil.propD5", "classifier", holds},
        {"devil.propD5", "second layer", holds},
        {"devil.propD5", "first layer, as printed", is_false},  // W1 = 10, W2 = 0.1: 1.76 > 0.028
        {"devil.propD5", "first layer, h(W1)", holds},
        {"devil.propD5", "loss, sharp", holds},
        {"devil.propD6", "as printed", holds},
        {"devil.propD6", "from below", holds},
        {"devil.eq43", "as printed", holds},
        {"devil.eq47", "softmax", holds},
        {"devil.eq47", "linear", holds},
        {"devil.eq47", "f(x) = 1 + x^2", holds},
        {"devil.eq48-linear", "as printed", is_false},  // n = 2: 1/2 > sqrt(2)/4
        {"devil.eq48-linear", "sharp", holds},
        {"devil.eq48-linear", "row of U, a step of (48)", is_false},  // s = (1, 1): sqrt(2)/4
        {"devil.eq49", "derivative", holds},
        {"devil.eq49", "gradient, (50)", holds},
        {"devil.eq52", "as printed", holds},
        {"devil.eq53", "entries", holds},
        {"devil.eq53", "sharp, diagonal", holds},
        {"devil.eq53", "sharp, off the diagonal", holds},
        {"devil.eq53-steps", "first equality", is_false},   // t = (1, 1): 1/2 is not -1/2
        {"devil.eq53-steps", "second equality", is_false},  // the sign of t_j t_k
        {"devil.eq53-steps", "third line", holds},
        {"devil.eq53-steps", "fourth line", is_false},  // t = (1, 0): 2 > 3/2
        {"devil.eq53-steps", "absolute values", holds},
        {"devil.eq55", "k from 1 to n, as printed", is_false},
        {"devil.eq55", "k from 1 to d", holds},
        {"devil.eq57", "norm", holds},
        {"devil.eq57", "Frobenius norm", holds},
        {"devil.eq57", "sharp", holds},
        {"devil.eq57", "sharp, Frobenius norm", holds},
        {"devil.eq58", "by inputs", holds},
        {"devil.eq58", "by scores", holds},
        {"devil.eq59", "as printed", is_false},  // n = 2: 1/2 > sqrt(2)/4
        {"devil.eq59", "sharp", holds},
        {"devil.eq59", "of a row", holds},
        {"devil.eq59", "row of U, a step of (48)", is_false},  // s = 0: sqrt(2)/4
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
