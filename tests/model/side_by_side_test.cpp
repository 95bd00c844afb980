#include <gmock/gmock.h>

#include "memory_file.hpp"
#include "recorder.hpp"
#include "tsdiag/ops.hpp"

/// Two attentions of one layer, concatenated.  [DEVIL] Table 12
namespace tsdiag::test::side_by_side_list {
namespace {

using testing::HasSubstr;

/// The weights of the first or second attention alone.
class Half final : public Weights {
  public:
    Half(std::shared_ptr<const Weights> all, Index half) : all_(std::move(all)), half_(half) {}
    bool has(std::string_view name) const override { return all_->has(name); }
    Tensor get(std::string_view name) const override {
        const Tensor t = all_->get(name);
        for (const char* part : {".q.", ".k.", ".v."})
            if (name.find(part) != name.npos)
                return contiguous(name.ends_with("bias")
                                      ? t.col_range(half_ * t.cols() / 2, t.cols() / 2)
                                      : t.row_range(half_ * t.rows() / 2, t.rows() / 2));
        if (name.ends_with("attn.o.weight"))
            return contiguous(t.col_range(half_ * t.cols() / 2, t.cols() / 2));
        return t;
    }
    std::vector<std::string> names() const override { return all_->names(); }

  private:
    std::shared_ptr<const Weights> all_;
    Index half_;
};

/// The branch is the sum of the two branches, each of its own rows of the output projection, and P
/// has the heads of the first, then those of the second.
TEST(SideBySide, IsBothAttentionsWithTheirOwnWeights) {
    for (const auto& [keys, first, second] :
         {std::array<std::string, 3>{"pre-norm,layers=1,d=8,heads=2,ffn=12,out_proj=1",
                                     "diag_attention:block=3", "norm_attention"},
          {"post-norm,layers=1,d=8,heads=2,ffn=12,out_proj=1", "softmax", "polynomial:p=2"},
          {"transnormer1-lm,layers=1,d=8,heads=2,ffn=12,vocab=9,tokens=9", "diag_attention",
           "norm_attention"},
          {"transnormer2-lm,layers=1,d=8,heads=2,ffn=12,vocab=9,tokens=9", "norm_attention",
           "diag_attention"}}) {
        SCOPED_TRACE(keys);
        const RandomModel both = random_model(keys + ",attention=" + first + "+" + second);
        const std::shared_ptr<const Weights> weights =
            random_weights(both, Rng(4), cpu(), Type::f64);
        Input input;
        if (both.spec.embedding.vocabulary > 0)
            input.ids = {3, 5, 2, 8, 4, 3, 7};
        else
            input = gaussian(7, 8);
        const auto run = [&](const ModelSpec& spec, std::shared_ptr<const Weights> of) {
            Recorder seen;
            Model(spec, std::move(of), cpu(), Type::f64).run(std::span(&input, 1), seen);
            return seen;
        };
        const Recorder seen = run(both.spec, weights);
        const Recorder one = run(random_model(keys + ",attention=0-0:" + first).spec,
                                 std::make_shared<Half>(weights, 0)),
                       two = run(random_model(keys + ",attention=0-0:" + second).spec,
                                 std::make_shared<Half>(weights, 1));
        std::vector<double> p = one.matrix.at(0);
        p.insert(p.end(), two.matrix.at(0).begin(), two.matrix.at(0).end());
        EXPECT_ALL_CLOSE(seen.matrix.at(0), p, rounding(1e3));
        std::vector<double> sum = one.states.at("layer.0.sa");
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += two.states.at("layer.0.sa")[i];
        EXPECT_ALL_CLOSE(seen.states.at("layer.0.sa"), sum, rounding(1e3));
    }
}

/// The Jacobian exists where both divide their rows, or neither does.
TEST(SideBySide, HasOneSlopeWhereBothAreOfOneKind) {
    class Rows final : public Observer {
      public:
        bool wants_rows(Index) const override { return true; }
        void on_attention_rows(Index, const RowBlock& block) override {
            slope = block.slope.defined();
            why = block.why_no_slope;
            heads = block.p.batch();
        }
        bool slope = false;
        std::string why;
        Index heads = 0;
    };
    const auto rows = [](const std::string& attention) {
        const Model model =
            random("pre-norm,layers=1,d=8,heads=2,out_proj=1,attention=" + attention, Type::f64);
        const Input input = gaussian(7, 8);
        Rows seen;
        model.run(std::span(&input, 1), seen);
        EXPECT_EQ(seen.heads, 4);
        return seen;
    };
    EXPECT_TRUE(rows("softmax+diag_attention:block=2").slope);
    EXPECT_TRUE(rows("polynomial+norm_attention").slope);
    const Rows mixed = rows("softmax+polynomial");
    EXPECT_FALSE(mixed.slope);
    EXPECT_THAT(mixed.why, HasSubstr("only one divides its rows"));
}

TEST(SideBySide, RefusesWhatItCannotBe) {
    const auto error = [](const std::string& text) {
        return thrown<UsageError>([&] { random_model(text); });
    };
    EXPECT_THAT(error("pre-norm,out_proj=1,attention=relu+relu+relu"), HasSubstr("at most 2"));
    EXPECT_THAT(error("pre-norm,attention=relu+softmax"), HasSubstr("pass out_proj=1"));
    EXPECT_THAT(error("pre-norm,out_proj=1,attention=relu+sofmax"), HasSubstr("'softmax'"));
    EXPECT_THAT(error("pre-norm,out_proj=1,attention=relu+transnormer1"), HasSubstr("is a plan"));
    EXPECT_THAT(error("swin-tiny,attention=softmax+polynomial"),
                HasSubstr("one attention a layer"));
    EXPECT_THAT(error("xcit-nano,attention=softmax+polynomial"),
                HasSubstr("one attention a layer"));
    EXPECT_THAT(error("transnormer1-lm,attention=softmax+norm_attention"),
                HasSubstr("unsupported attention softmax"));
    const RandomModel drawn =
        random_model("pre-norm,layers=1,d=8,heads=2,out_proj=1,attention=relu+softmax");
    const auto weights = random_weights(drawn, Rng(1), cpu(), Type::f32);
    EXPECT_THAT(
        thrown<NotAvailable>([&] { write_model(drawn.spec, *weights, testing::TempDir()); }),
        HasSubstr("side by side"));
    EXPECT_THAT(drawn.spec.provenance.recognised,
                testing::Contains(HasSubstr("beside softmax attention")));
    EXPECT_EQ(drawn.spec.blocks[0].attention.heads, 4);
}

}  // namespace
}  // namespace tsdiag::test::side_by_side_list
