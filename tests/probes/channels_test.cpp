#include <algorithm>
#include <set>

#include "by_hand.hpp"

/// P over channels: which metrics speak of it, and which of tokens.
namespace tsdiag::test {
namespace {

/// Those that let P act on tokens, or that count distances.
const std::set<std::string_view> of_tokens = {
    "omega", "mu1", "mu2", "est1", "est2", "est_mu", "jac_q_fro", "jac_k_fro", "local_auc"};

/// P of 5 channels between states of 7 tokens and 10 columns, with a loss.
Layer layer(bool channels) {
    Layer l{
        .op = std::make_shared<Made>(std::vector{random_attention(5, 3), random_attention(5, 4)})};
    l.input = tensor(gaussian(channels ? 7 : 5, 10, 1, 0.5));
    l.v = tensor({gaussian(5, 7, 5), gaussian(5, 7, 6)});
    l.output = tensor({gaussian(5, 7, 7), gaussian(5, 7, 8)});
    l.over.channels = channels;
    return l;
}

TEST(OverChannels, EveryMetricOfAHeadIsOfPAloneOrUndefined) {
    std::set<std::string_view> undefined;
    Index defined = 0;
    for (const ProbeEntry* entry : probes()) {
        const Table there = measure(entry->name, layer(true)),
                    tokens = measure(entry->name, layer(false));
        for (const Metric& m : entry->metrics) {
            SCOPED_TRACE(m.name);
            if (m.of == Of::curve) {
                EXPECT_TRUE(std::ranges::none_of(
                    there.curves(), [&](const CurveRow& row) { return row.curve == m.name; }));
            }
            if (m.of != Of::head || !there.find(head(1), m.name)) continue;
            if (reason(there, head(1), m.name) == "P is over channels") {
                EXPECT_EQ(reason(there, head(), m.name), "P is over channels");
                undefined.insert(m.name);
                continue;
            }
            const auto row = there.find(head(1), m.name), same = tokens.find(head(1), m.name);
            EXPECT_EQ(row->value, same->value);
            EXPECT_EQ(row->note, same->note);
            defined += row->value.has_value();
        }
    }
    EXPECT_EQ(undefined, of_tokens);
    EXPECT_GE(defined, 15);
}

}  // namespace
}  // namespace tsdiag::test
