#include "expected.hpp"

namespace tsdiag::test {

const std::vector<Expected>& expected_tse() {
    static const std::vector<Expected> table = {
        {"tse.def1.1", "sum", holds},
        {"tse.def1.1", "t_sim at most 1", holds},
        {"tse.def1.1", "t_div at most 1", holds},
        {"tse.def1.1", "1 for equal rows", holds},
        {"tse.def1.1", "1 only for equal rows", holds},
        {"tse.eq1", "average over pairs", holds},
        {"tse.eq1", "identity", holds},
        {"tse.eq1", "range", holds},
        {"tse.eq3", "random weights", holds},
        {"tse.eq3", "any weights", is_false},  // W = -1
        {"tse.prop2.3", "rate", holds},
        {"tse.prop2.3", "above 1", holds},
        {"tse.prop2.3", "odds", holds},
        {"tse.lemma2.4", "(4)", holds},
        {"tse.lemma2.4", "similar part", holds},
        {"tse.lemma2.4", "diverse part", holds},
        {"tse.lemma2.4", "similar part, this d", holds},
        {"tse.lemma2.4", "diverse part, this d", holds},
        {"tse.eq11", "similar part", holds},
        {"tse.eq11", "diverse part", holds},
        {"tse.eq11", "columns that sum to 1", holds},
        {"tse.eq11", "X = e u^T", holds},
        {"tse.eq11", "ceiling of mu1", holds},
        {"tse.prop2.5", "identity", holds},
        {"tse.prop2.5", "means, at this d", holds},
        {"tse.prop2.5", "(15)", holds},
        {"tse.prop2.5", "gap is not negative", holds},
        {"tse.thm2.6", "every d", is_false},  // d = 1, W = -1 or 1
        {"tse.thm2.6", "this d", holds},
        {"tse.thm2.6", "d to infinity", asymptotically},
        {"tse.thm2.6", "uniform in +-1/sqrt(d), K by Remark A.4", is_false},  // variance 1/(3 d)
        {"tse.thm2.6", "right side above 1", holds},
        {"tse.thm2.6", "sub-gaussian norm 1/sqrt(d)", is_false},  // d Var <= ln 2
        {"tse.thm2.6", "sharp", holds},
        {"tse.thm2.6", "sharp, d = 1", holds},
        {"tse.cor2.7", "doubly stochastic P", holds},
        {"tse.cor2.7", "symmetric P", holds},
        {"tse.cor2.7", "bound, doubly stochastic P", holds},
        {"tse.cor2.7", "bound, symmetric P", holds},
        {"tse.cor2.7", "closer than (16), softmax P", holds},
        {"tse.cor2.7", "no escalation at |lambda2| = 1", is_false},  // blockdiag(J, J)/2
        {"tse.cor2.7", "estimate, softmax P, wide", holds},
        {"tse.cor2.7", "estimate, any P", is_false},  // the wrong sign
        {"tse.rem2.8", "limit", asymptotically},
        {"tse.rem2.8", "maximum", holds},
        {"tse.rem2.8", "rate 1/2", asymptotically},
        {"tse.rem2.8", "rate 1/2, d = 256", holds},
        {"tse.rem2.8", "as a ceiling", is_false},
        {"tse.prop2.9", "(18)", holds},
        {"tse.prop2.9", "(29), similar part", holds},
        {"tse.prop2.9", "(29), diverse part", holds},
        {"tse.prop2.9", "means, these heads", holds},
        {"tse.prop2.9", "bound of the similar part", holds},
        {"tse.prop2.9", "bound of the diverse part", holds},
        {"tse.prop2.9", "square of the mean delta", is_false},  // I and Pi1: 1/2 > 1/4
        {"tse.lemmaA1", "ratio", holds},
        {"tse.lemmaA1", "(24)", holds},
        {"tse.lemmaA1", "least gamma", holds},
        {"tse.lemmaA1", "least gamma, X near e u^T", holds},
        {"tse.lemmaA2", "entries -K and K", holds},
        {"tse.lemmaA2", "entries of --dist", holds},
        {"tse.lemmaA3", "entries -K and K", holds},
        {"tse.lemmaA3", "entries of --dist", holds},
        {"tse.eq27", "eps in (0, 1)", holds},
        {"tse.eq27", "entries of --dist", holds},
        {"tse.eq27", "every eps >= 0, any c", is_false},  // chi-square tails
        {"tse.lemmaA5", "deviation of xi1", asymptotically},
        {"tse.lemmaA5", "deviation of xi2", asymptotically},
        {"tse.lemmaA5", "eps in (0, 1), c = 1/8", holds},
        {"tse.lemmaA5", "eps in (0, 1)", asymptotically},
        {"tse.lemmaA5", "every eps", is_false},  // chi-square tails
        {"tse.lemmaA5", "variance of normal gains", holds},
        {"tse.sec2.2.1", "powers of one P", holds},
        {"tse.sec2.2.1", "plain products", is_false},  // two maps of three points
        {"tse.sec2.2.1", "with the residual", holds},
        {"tse.sec2.3-ffn", "equal tokens", holds},
        {"tse.sec2.3-ffn", "products with W", holds},
        {"tse.sec2.3-ffn", "tokens alike", holds},
        {"tse.sec2.3-ffn", "independent tokens", is_false},
        {"tse.sec2.3-ffn", "arc-cosine kernel", holds},
        {"tse.sec2.3-ln", "equal tokens", holds},
        {"tse.sec2.3-ln", "independent entries", holds},
        {"tse.sec2.3-ln", "any tokens", is_false},
        {"tse.sec2.5", "independent entries", asymptotically},
        {"tse.sec2.5", "attention has large gaps", holds},
        {"tse.sec2.5", "attention, n below the width of 512", asymptotically},
        {"tse.sec2.5", "attention, n beyond the width of 32", is_false},  // sqrt(1/n + 1/D)
        {"tse.eq20", "attention step", holds},
        {"tse.eq20", "feed-forward step", holds},
        {"tse.eq20", "feed-forward step, exactly", holds},
        {"tse.eq21", "portion", holds},
        {"tse.eq21", "the rest stays", holds},
        {"tse.eq21", "less similarity", holds},
        {"tse.eq21", "similarity", holds},
        {"tse.eq21", "diversity", holds},
    };
    return table;
}

}  // namespace tsdiag::test
