#include <gmock/gmock.h>

#include <limits>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

/// `trace.npz`: two states of 3 tokens, and one head whose P is not causal.
class TraceCommand : public testing::Test {
  protected:
    Finished probe(const Words& more = {}) {
        const std::vector<NamedArray> arrays = {{"hidden_states.0", {3, 2}, {}, x_},
                                                {"hidden_states.1", {3, 2}, {}, x_},
                                                {"attentions.0", {1, 3, 3}, {}, p_}};
        write_npz(folder / "trace.npz", arrays);
        Words words = {"probe", "trace.npz", "--no-report", "--out", "out"};
        words.insert(words.end(), more.begin(), more.end());
        return tsdiag(folder, words);
    }
    /// What `probe` says of a trace that it refuses.
    std::string refused(int code, const Words& more = {}) {
        const Finished found = probe(more);
        EXPECT_EQ(found.code, code) << found.err;
        EXPECT_THAT(found.out, IsEmpty());
        expect_one_sentence(found.err);
        EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("trace.npz"));
        return found.err;
    }

    TemporaryDirectory folder;
    std::vector<double> x_ = {1, 2, 3, 4, 5, 7};
    std::vector<double> p_ = {0.5, 0.25, 0.25, 0.25, 0.5, 0.25, 0.25, 0.25, 0.5};
};

TEST_F(TraceCommand, RunsWhatIsSound) { EXPECT_EQ(probe().code, 0); }

TEST_F(TraceCommand, NamesTheEntryThatIsNoNumber) {
    x_[3] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_THAT(refused(1), HasSubstr("'hidden_states.0': element (1, 1) is not finite"));
}

TEST_F(TraceCommand, NamesTheEntryThatIsNotCausal) {
    EXPECT_THAT(refused(1, {"--causal"}),
                HasSubstr("'attentions.0': entry (0, 0, 1) above the diagonal is not 0"));
}

TEST_F(TraceCommand, NamesAnAttentionThatDoesNotExist) {
    EXPECT_THAT(refused(2, {"--attention", "nonsense"}),
                HasSubstr("no attention is called 'nonsense'"));
}

}  // namespace
}  // namespace tsdiag::test
