#include <gmock/gmock.h>

#include <cmath>

#include "edited.hpp"
#include "memory_file.hpp"
#include "recorder.hpp"
#include "support/naive.hpp"
#include "tsdiag/ops.hpp"

/// XCiT: attention over channels, local patch interaction, class attention.
namespace tsdiag::test::xcit {
namespace {

using naive::Matrix;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string small = ",layers=2,d=16,heads=2,ffn=24,image=32,patch=8";

/// The golden checkpoint in float64, whose weights are of order 1, with another attention.
struct Model16 {
    Opened opened = Opened::from(golden / "xcit/xcit.pth");
    std::shared_ptr<const Weights> weights =
        checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false);

    ModelSpec spec(const std::string& variant = "softmax", AttentionOptions options = {}) const {
        ModelSpec s = opened.architecture.spec;
        s.embedding.image.height = 24;  // 3 x 4 patches
        s.embedding.image.width = 32;
        for (BlockSpec& b : s.blocks) {
            b.attention.variant = variant;
            b.attention.options = options;
        }
        return s;
    }
    Model model(const ModelSpec& s) const { return Model(s, weights, cpu(), Type::f64); }
};

Recorder run(const Model& model, const Input& input) {
    Recorder seen;
    model.run(std::span(&input, 1), seen);
    return seen;
}

std::string run_error(const Model& model, const Input& input) {
    return thrown<UsageError>([&] { run(model, input); });
}

Matrix matrix(const Weights& weights, const std::string& name) {
    return naive::matrix_of(weights.get(name));
}

/// Rows of X W^T + b of one head, as columns of unit length where asked for.
Matrix projected(const Weights& weights, const std::string& at, const Matrix& x, Index head,
                 Index width, bool unit) {
    const Matrix w = matrix(weights, at + ".weight"), b = matrix(weights, at + ".bias");
    Matrix out(x.rows, width);
    for (Index c = 0; c < width; ++c) {
        double squares = 0;
        for (Index i = 0; i < x.rows; ++i) {
            out(i, c) = b(0, head * width + c);
            for (Index j = 0; j < x.cols; ++j) out(i, c) += x(i, j) * w(head * width + c, j);
            squares += out(i, c) * out(i, c);
        }
        for (Index i = 0; unit && i < x.rows; ++i) out(i, c) /= std::sqrt(squares);
    }
    return out;
}

struct Activation {
    const char* variant;
    AttentionOptions options;
    Matrix (*apply)(const Matrix& s);
};

Matrix power(const Matrix& s, int p, double c) {
    Matrix out = s;
    for (double& e : out.a) e = c * std::pow(e, p);
    return out;
}

const std::vector<Activation> activations{
    {"softmax", {}, [](const Matrix& s) { return naive::softmax(s); }},
    {"polynomial",
     {{"p", "3"}, {"scale", "1/14"}},
     [](const Matrix& s) { return power(s, 3, 1 / 14.0); }},
    {"polynomial", {{"p", "2"}, {"scale", "none"}}, [](const Matrix& s) { return power(s, 2, 1); }},
    {"polynomial", {{"p", "1"}}, [](const Matrix& s) { return power(s, 1, 0.5); }},  // 4 channels
};

/// [XCIT] (2) in loops: P of every head, and the branch behind its projection.
TEST(CrossCovariance, IsThePapersFormula) {
    const Model16 m;
    const Index n = 12, d = 16, heads = 4, width = d / heads;
    for (const Activation& a : activations) {
        SCOPED_TRACE(a.variant);
        const Recorder seen = run(m.model(m.spec(a.variant, a.options)), gaussian(n, d));
        for (Index layer = 0; layer < 2; ++layer) {
            const std::string at = "layer." + std::to_string(layer) + ".";
            const Matrix x(n, d, seen.states.at(at + "norm1"));
            const Matrix t = matrix(*m.weights, at + "attn.temperature");
            Matrix joined(n, d);
            std::vector<double> all;
            for (Index h = 0; h < heads; ++h) {
                const auto part = [&](const char* name, bool unit) {
                    return projected(*m.weights, at + "attn." + name, x, h, width, unit);
                };
                Matrix s = naive::product(naive::transposed(part("q", true)), part("k", true));
                for (double& e : s.a) e *= t(0, h);
                const Matrix p = a.apply(s);
                all.insert(all.end(), p.a.begin(), p.a.end());
                const Matrix out = naive::product(part("v", false), naive::transposed(p));
                for (Index i = 0; i < n; ++i)
                    for (Index c = 0; c < width; ++c) joined(i, h * width + c) = out(i, c);
            }
            EXPECT_ALL_CLOSE(seen.matrix.at(layer), all, rounding(1e3));
            Matrix branch = projected(*m.weights, at + "attn.o", joined, 0, d, false);
            const Matrix gamma = matrix(*m.weights, at + "scale1");
            for (Index i = 0; i < n; ++i)
                for (Index c = 0; c < d; ++c) branch(i, c) *= gamma(0, c);
            EXPECT_ALL_CLOSE(seen.states.at(at + "sa"), branch.a, rounding(1e3));
        }
    }
}

/// P is a sum over tokens: their order does not change it, and moves the branch's rows with them.
TEST(CrossCovariance, DoesNotSeeTheOrderOfTheTokens) {
    const Model16 m;
    const Index n = 12, d = 16;
    const Input input = gaussian(n, d);
    std::vector<Index> turned;
    for (Index i = 0; i < n; ++i) turned.push_back((5 * i + 3) % n);
    Input other;
    other.hidden = gather_rows(input.hidden, turned);
    for (const Activation& a : activations) {
        const Model model = m.model(m.spec(a.variant, a.options));
        const Recorder one = run(model, input), two = run(model, other);
        EXPECT_ALL_CLOSE(two.matrix.at(0), one.matrix.at(0), rounding(1e3));
        const std::vector<double>& from = one.states.at("layer.0.sa");
        std::vector<double> moved;
        for (const Index i : turned)
            moved.insert(moved.end(), from.begin() + i * d, from.begin() + (i + 1) * d);
        EXPECT_ALL_CLOSE(two.states.at("layer.0.sa"), moved, rounding(1e3));
    }
}

/// Columns of Q and K are of unit length, so their scale does not matter.
TEST(CrossCovariance, DoesNotSeeTheLengthOfQueriesAndKeys) {
    class Longer final : public Weights {
      public:
        explicit Longer(std::shared_ptr<const Weights> all) : all_(std::move(all)) {}
        bool has(std::string_view name) const override { return all_->has(name); }
        Tensor get(std::string_view name) const override {
            const bool longer =
                name.find("attn.q.") != name.npos || name.find("attn.k.") != name.npos;
            return longer && name.starts_with("layer.") ? scale(all_->get(name), 37)
                                                        : all_->get(name);
        }
        std::vector<std::string> names() const override { return all_->names(); }

      private:
        std::shared_ptr<const Weights> all_;
    };
    const Model16 m;
    const Input input = gaussian(12, 16);
    const Model longer(m.spec(), std::make_shared<Longer>(m.weights), cpu(), Type::f64);
    const Recorder one = run(m.model(m.spec()), input), two = run(longer, input);
    EXPECT_ALL_CLOSE(two.states.at("layer.1.out"), one.states.at("layer.1.out"), rounding(1e4));
}

TEST(CrossCovariance, RowsAreOfTheChannelsAndSayIt) {
    class Rows final : public Observer {
      public:
        bool wants_rows(Index) const override { return true; }
        void on_attention_rows(Index, const RowBlock& block) override {
            EXPECT_TRUE(block.over.channels);
            EXPECT_EQ(block.p.cols(), 4);
            ++blocks;
        }
        bool wants_attention(Index) const override { return true; }
        void on_attention(const Attention& e) override {
            EXPECT_TRUE(e.over.channels);
            EXPECT_EQ(e.op.tokens(), 4);
            EXPECT_EQ(e.input.rows(), 12);
            EXPECT_EQ(e.projections, nullptr);
            EXPECT_TRUE(std::isnan(e.a2));
            EXPECT_STREQ(e.why_no_estimate, "P is over channels");
        }
        Index blocks = 0;
    } rows;
    const Model16 m;
    const Input input = gaussian(12, 16);
    m.model(m.spec()).run(std::span(&input, 1), rows);
    EXPECT_GE(rows.blocks, 2);
}

TEST(Stages, OfXcitHaveTheLocalStepAndClassAttention) {
    const Recorder seen = run(random("xcit-nano" + small, Type::f64), gaussian(16, 16));
    EXPECT_THAT(
        std::vector(seen.order.begin(), seen.order.begin() + 9),
        ElementsAre("layer.0.in", "layer.0.norm1", "layer.0.sa", "layer.0.attn", "layer.0.norm3",
                    "layer.0.local", "layer.0.norm2", "layer.0.ffn", "layer.0.out"));
    EXPECT_THAT(std::vector(seen.order.end() - 2, seen.order.end()),
                ElementsAre("layer.1.class", "final_norm"));
    EXPECT_EQ(seen.pred.at("layer.0.local"), "attn");
    EXPECT_EQ(seen.pred.at("layer.0.ffn"), "local");
    EXPECT_EQ(seen.pred.at("layer.1.class"), "");
    EXPECT_EQ(seen.states.at("layer.1.class").size(), 17U * 16U);
    const Recorder without =
        run(random("xcit-nano,class_attention=0" + small, Type::f64), gaussian(16, 16));
    EXPECT_EQ(without.states.at("final_norm").size(), 16U * 16U);
    EXPECT_FALSE(without.states.contains("layer.1.class"));
}

/// Each token of a branch sees its neighbours on the grid alone, two steps far.
TEST(LocalInteraction, ReachesTwoPlacesOnTheGrid) {
    const Model model =
        random("xcit-nano,layers=1,d=16,heads=2,ffn=24,image=56,patch=8", Type::f64);
    const Index side = 7, d = 16, changed = 3 * side + 3;
    Input one = gaussian(side * side, d);
    std::vector<double> values = one.hidden.to_host<double>();
    const Recorder before = run(model, one);
    values[std::size_t(changed * d)] += 1;
    one.hidden =
        Tensor::from_host(cpu(), {1, side * side, d}, std::span<const double>(values), Type::f64);
    const Recorder after = run(model, one);
    const auto branch = [&](const Recorder& seen, std::size_t i) {
        return seen.states.at("layer.0.local")[i] - seen.states.at("layer.0.attn")[i];
    };
    // What attention carries everywhere is of the size of its weights, 0.02 squared and less.
    for (Index y = 0; y < side; ++y)
        for (Index x = 0; x < side; ++x) {
            double most = 0;
            for (Index c = 0; c < d; ++c) {
                const auto i = std::size_t((y * side + x) * d + c);
                most = std::max(most, std::abs(branch(after, i) - branch(before, i)));
            }
            const bool near = std::abs(y - 3) <= 2 && std::abs(x - 3) <= 2;
            EXPECT_EQ(most > 1e-3, near) << y << " " << x << ": " << most;
        }
}

TEST(LocalInteraction, NeedsAGrid) {
    const Model model = random("xcit-nano" + small, Type::f64);
    EXPECT_THAT(run_error(model, gaussian(15, 16)), HasSubstr("neither the 16 patches"));
    EXPECT_EQ(run(model, gaussian(9, 16)).ended, 2);  // a square
    Input masked = gaussian(16, 16);
    masked.keep.assign(16, true);
    masked.keep[3] = false;
    EXPECT_THAT(run_error(model, masked), HasSubstr("the mask hides 1 of 16 tokens"));
}

TEST(Xcit, RunsEachSampleAsIfItWereAlone) {
    const Model model = random("xcit-nano" + small, Type::f64);
    const std::vector<Input> inputs{gaussian(16, 16, Type::f64, 1), gaussian(16, 16, Type::f64, 2)};
    for (const Index batch : {1, 2}) {
        Recorder all;
        model.run(inputs, all, {.batch = batch});
        EXPECT_EQ(all.states, run(model, inputs[1]).states);
        EXPECT_EQ(all.matrix, run(model, inputs[1]).matrix);
    }
}

TEST(Xcit, TakesImagesOfOtherSizes) {
    const Model model = random("xcit-nano" + small, Type::f64);
    const auto image = [](Index rows, Index cols) {
        Input in;
        const std::vector<double> pixels = gaussian(rows, 3 * cols).hidden.to_host<double>();
        in.image =
            Tensor::from_host(cpu(), {3, rows, cols}, std::span<const double>(pixels), Type::f64);
        return in;
    };
    EXPECT_EQ(run(model, image(16, 40)).states.at("embed").size(), 10U * 16U);
    EXPECT_THAT(run_error(model, image(16, 36)), HasSubstr("or another multiple of the patch"));
}

/// The last state that a loss sees is the class token.
TEST(Xcit, LossesAreOfTheClassToken) {
    const Model16 m;
    const Model model = m.model(m.spec());
    const Input input = gaussian(12, 16);
    const std::vector<double> last = run(model, input).states.at("final_norm");
    double squares = 0;
    for (std::size_t c = 0; c < 16; ++c) squares += last[c] * last[c] / 2;
    EXPECT_CLOSE(model.step(input, {.kind = Loss::Kind::square}).loss, squares, rounding(100));
    const StepResult step = model.step(input, {.kind = Loss::Kind::square});
    for (const auto& [name, g] : step.gradients)
        EXPECT_FALSE(name.ends_with(".mean") || name.ends_with(".variance")) << name;
}

TEST(RandomWeights, OfXcitAreThoseOfItsCode) {
    const RandomModel drawn = random_model("xcit-small,layers=1,d=128,heads=4");
    const auto w = random_weights(drawn, Rng(3), cpu(), Type::f64);
    const auto expect_variance = [&](const char* name, double variance) {
        const std::vector<double> values = w->get(name).to_host<double>();
        EXPECT_CLOSE(naive::mean_square(values), variance,
                     sampling(std::ssize(values), 1.42 * variance))
            << name;
    };
    expect_variance("layer.0.attn.q.weight", 4e-4);
    expect_variance("class.1.ffn.up.weight", 4e-4);
    expect_variance("class.token", 4e-4);
    expect_variance("embed.patch.0.weight", 1.0 / (3 * 9 * 3));
    expect_variance("embed.patch.3.weight", 1.0 / (3 * 9 * 64));
    expect_variance("layer.0.local.conv1.weight", 1.0 / (3 * 9));
    expect_variance("layer.0.local.conv2.bias", 1.0 / (3 * 9));
    expect_variance("embed.position_map.weight", 1.0 / (3 * 64));
    for (const char* name : {"layer.0.attn.temperature", "layer.0.local.norm.variance",
                             "embed.patch.1.norm.weight", "layer.0.local.scale", "class.0.scale2"})
        EXPECT_EQ(naive::mean_square(w->get(name).to_host<double>()), 1) << name;
    for (const char* name : {"layer.0.local.norm.mean", "embed.patch.1.norm.bias",
                             "layer.0.attn.q.bias", "class.0.ffn.down.bias"})
        EXPECT_EQ(naive::mean_square(w->get(name).to_host<double>()), 0) << name;
    const RandomModel deep = random_model("xcit-medium,layers=1,d=64,heads=2");
    for (const DrawnTensor& t : deep.tensors)
        if (t.name.ends_with("scale1")) {
            EXPECT_EQ(t.draw.spread, 1e-5);
        }
}

/// [XCIT] Table 1, and the numbers of parameters that it has beside them, in millions, which count
/// the classifier.
TEST(RandomModel, OfXcitHasThePapersSizes) {
    struct Size {
        const char* name;
        Index layers, d, heads;
        double millions;
    };
    for (const Size& size :
         {Size{"xcit-nano", 12, 128, 4, 3}, Size{"xcit-tiny", 12, 192, 4, 7},
          Size{"xcit-tiny-24", 24, 192, 4, 12}, Size{"xcit-small", 12, 384, 8, 26},
          Size{"xcit-small-24", 24, 384, 8, 48}, Size{"xcit-medium", 24, 512, 8, 84},
          Size{"xcit-large", 24, 768, 16, 189}}) {
        const RandomModel drawn = random_model(size.name);
        EXPECT_EQ(std::ssize(drawn.spec.blocks), size.layers) << size.name;
        EXPECT_EQ(drawn.spec.width, size.d) << size.name;
        EXPECT_EQ(drawn.spec.blocks[0].attention.heads, size.heads) << size.name;
        double count = 1000.0 * double(size.d + 1);
        for (const DrawnTensor& t : drawn.tensors) count += double(t.shape.count());
        EXPECT_CLOSE(count / 1e6, size.millions,
                     {.absolute = 0.55, .reason = "printed in millions"})
            << size.name;
    }
}

TEST(RandomModel, OfXcitRefusesWhatItCannotBe) {
    const auto error = [](const std::string& keys) {
        return thrown<UsageError>([&] { random_model("xcit-nano," + keys); });
    };
    EXPECT_THAT(error("attention=linear"), HasSubstr("attention=linear does not support channels"));
    EXPECT_THAT(error("causal=1"), HasSubstr("omit causal"));
    EXPECT_THAT(error("alibi=1"), HasSubstr("and alibi"));
    EXPECT_THAT(error("output_norm=rms"), HasSubstr("no output norm"));
    EXPECT_THAT(error("patch=12"), HasSubstr("patch=12 is not 2, 4, 8 or 16"));
    EXPECT_THAT(error("image=100"), HasSubstr("patch does not divide image"));
    EXPECT_THAT(error("d=20,heads=2"), HasSubstr("d=20 is not a multiple of 8"));
    EXPECT_THAT(error("kv_heads=2"), HasSubstr("unsupported kv_heads or head_dim"));
    EXPECT_THAT(error("head_dim=8"), HasSubstr("unsupported kv_heads or head_dim"));
    EXPECT_THAT(error("tokens=9"), HasSubstr("image= and patch="));
    EXPECT_THAT(error("attention=0-5:softmax;6-11:relu"), HasSubstr("attention=relu"));
}

TEST(Xcit, SaysWhatItsFileDoesNotShow) {
    const ModelSpec authors = spec_of(*copy_of("xcit/xcit.pth"));
    EXPECT_EQ(authors.embedding.image.convolutions, 3);
    EXPECT_EQ(authors.embedding.image.patch_height, 8);
    EXPECT_EQ(authors.embedding.image.width, 224);
    EXPECT_EQ(authors.embedding.positions, Positions::fourier);
    EXPECT_TRUE(authors.class_attention.all_normed);
    EXPECT_THAT(authors.provenance.warnings, Contains(HasSubstr("tokens_norm = true")));
    EXPECT_THAT(authors.provenance.defaults, Contains(HasSubstr("image_size 224 x 224")));
    EXPECT_FALSE(
        spec_of(*copy_of("xcit/xcit.pth"), R"({"tokens_norm": false})").class_attention.all_normed);

    const auto timm = copy_of("xcit-timm");
    EXPECT_FALSE(
        spec_of(*timm, R"({"architecture": "xcit_nano_12_p16_224"})").class_attention.all_normed);
    EXPECT_TRUE(
        spec_of(*timm, R"({"architecture": "xcit_tiny_12_p16_224"})").class_attention.all_normed);
    const ModelSpec large = spec_of(*timm, R"({"architecture": "xcit_nano_12_p16_384",
                           "pretrained_cfg": {"input_size": [3, 384, 352]}})");
    EXPECT_EQ(large.embedding.image.height, 384);
    EXPECT_EQ(large.embedding.image.width, 352);
    EXPECT_THAT(large.provenance.warnings, Not(Contains(HasSubstr("tokens_norm"))));
}

TEST(Xcit, RefusesWhatItCannotRun) {
    const auto error = [](const Checkpoint& file, const std::string& config = "") {
        return thrown<FormatError>([&] { spec_of(file, config); });
    };
    const auto file = copy_of("xcit/xcit.pth");
    EXPECT_THAT(error(*file, R"({"image_size": 100})"), HasSubstr("not a multiple of the patch"));
    EXPECT_THAT(error(*file, R"({"patch_size": 16})"), HasSubstr("patch_size = 16"));
    EXPECT_THAT(error(*file, R"({"num_heads": 8})"), HasSubstr("num_heads = 8"));
    EXPECT_THAT(error(*file, R"({"model_args": {"eta": 1}})"), HasSubstr("model_args with 'eta'"));
    EXPECT_THAT(thrown<UsageError>([&] { spec_of(*file, R"({"tsdiag": {"placement": "post"}})"); }),
                HasSubstr("are pre-norm"));
    EXPECT_THAT(
        thrown<UsageError>([&] { spec_of(*file, R"({"tsdiag": {"attention": "linear"}})"); }),
        HasSubstr("does not support channels"));
    const auto wide = copy_of("xcit/xcit.pth");
    wide->remove("blocks.0.local_mp.conv1.weight");
    wide->add("blocks.0.local_mp.conv1.weight", {16, 1, 5, 5});
    EXPECT_THAT(error(*wide), HasSubstr("is 5 x 5, expected 3 x 3"));
    const auto heads = copy_of("xcit/xcit.pth");
    heads->remove("blocks.0.attn.temperature");
    heads->add("blocks.0.attn.temperature", {3, 1, 1});
    EXPECT_THAT(error(*heads), HasSubstr("has 3 heads, which do not divide the width 16"));
    const auto half = copy_of("xcit/xcit.pth");
    for (const std::string& name : std::vector(half->names()))
        if (name.starts_with("cls_attn_blocks.0.")) half->remove(name);
    EXPECT_THAT(error(*half), HasSubstr("cls_attn_blocks."));
    const auto body = copy_of("xcit/xcit.pth");
    for (const std::string& name : std::vector(body->names()))
        if (name.starts_with("cls_")) body->remove(name);
    const ModelSpec s = spec_of(*body);
    EXPECT_EQ(s.class_attention.layers, 0);
    EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr("no class attention")));
}

}  // namespace
}  // namespace tsdiag::test::xcit
