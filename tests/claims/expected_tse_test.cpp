#include "expected.hpp"

namespace tsdiag::test {

const std::vector<Expected>& expected_tse() {
    static const std::vector<Expected> table = {
        {"tse.lemma2.4", "similar part", holds},
        {"tse.lemma2.4", "diverse part", holds},
    };
    return table;
}

}  // namespace tsdiag::test
