#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "edited.hpp"
#include "memory_file.hpp"
#include "recorder.hpp"
#include "support/naive.hpp"
#include "tsdiag/ops.hpp"

/// Swin: windows of a grid, shifted ones, patches that merge.
namespace tsdiag::test::swin {
namespace {

using naive::Matrix;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// The golden checkpoint in float64, whose weights are of order 1: two layers of windows of 3 x 3
/// patches, the second of them shifted by 1, and two of another stage.
struct GoldenSwin {
    Opened opened = Opened::from(golden / "swin");
    std::shared_ptr<const Weights> weights =
        checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false);

    ModelSpec spec(const std::string& variant = "softmax", AttentionOptions options = {}) const {
        ModelSpec s = opened.architecture.spec;
        for (BlockSpec& b : s.blocks) {
            b.attention.variant = variant;
            b.attention.options = options;
        }
        return s;
    }
    Model model(const ModelSpec& s) const { return Model(s, weights, cpu(), Type::f64); }
};

Input image(Index height, Index width, Type type = Type::f64, std::uint64_t seed = 7) {
    Input in;
    const std::vector<double> pixels =
        gaussian(height, 3 * width, Type::f64, seed).hidden.to_host<double>();
    in.image = Tensor::from_host(cpu(), {3, height, width}, std::span<const double>(pixels), type);
    return in;
}

Recorder run(const Model& model, const Input& input) {
    Recorder seen;
    model.run(std::span(&input, 1), seen);
    return seen;
}

Matrix matrix(const Weights& weights, const std::string& name) {
    return naive::matrix_of(weights.get(name));
}

Matrix affine(const Weights& weights, const std::string& at, const Matrix& x) {
    Matrix out = naive::product(x, naive::transposed(matrix(weights, at + ".weight")));
    const Matrix b = matrix(weights, at + ".bias");
    for (Index i = 0; i < out.rows; ++i)
        for (Index j = 0; j < out.cols; ++j) out(i, j) += b(0, j);
    return out;
}

/// A grid whose windows are turned by `shift`.
struct Windows {
    Index rows, cols, side, shift;
    Index count() const { return rows * cols; }

    /// The window of a token of the grid, and whether the turn carried it over the border.
    std::tuple<Index, Index, Index> place(Index token) const {
        const Index y = token / cols, x = token % cols;
        const Index down = (y + rows - shift) % rows, right = (x + cols - shift) % cols;
        return {down / side * cols + right / side, Index(y < shift), Index(x < shift)};
    }
    /// In one window, and neighbours in the image as well.
    bool sees(Index i, Index j) const {
        return std::get<0>(place(i)) == std::get<0>(place(j)) &&
               std::abs(i / cols - j / cols) < side && std::abs(i % cols - j % cols) < side;
    }
    /// Window by window, in a window first what the turn did not carry over the border.
    std::vector<Index> order() const {
        std::vector<Index> out;
        for (Index i = 0; i < count(); ++i) out.push_back(i);
        const auto key = [this](Index i) {
            const Index down = (i / cols + rows - shift) % rows;
            const Index right = (i % cols + cols - shift) % cols;
            return std::tuple(place(i), down, right);
        };
        std::ranges::sort(out, {}, key);
        return out;
    }
};

/// P of one head in the order of the image: the activation of what a token sees, 0 elsewhere.
template <class Activation>
Matrix attention_of(const Windows& w, const Matrix& q, const Matrix& k, const Matrix& table,
                    Index head, const Activation& activation) {
    Matrix p(w.count(), w.count());
    for (Index i = 0; i < w.count(); ++i) {
        std::vector<Index> seen;
        std::vector<double> logits;
        for (Index j = 0; j < w.count(); ++j) {
            if (!w.sees(i, j)) continue;
            double s = 0;
            for (Index c = 0; c < q.cols; ++c) s += q(i, c) * k(j, c) / std::sqrt(double(q.cols));
            const Index down = i / w.cols - j / w.cols, right = i % w.cols - j % w.cols;
            s += table((down + w.side - 1) * (2 * w.side - 1) + right + w.side - 1, head);
            seen.push_back(j);
            logits.push_back(s);
        }
        const std::vector<double> row = activation(logits);
        for (std::size_t j = 0; j < row.size(); ++j) p(i, seen[j]) = row[j];
    }
    return p;
}

std::vector<double> softmax(const std::vector<double>& s) {
    return naive::softmax(Matrix(1, Index(s.size()), s)).a;
}
std::vector<double> cube(const std::vector<double>& s) {
    std::vector<double> out;
    for (const double e : s) out.push_back(e * e * e / 3);  // 1/sqrt(N), N of a window of 3 x 3
    return out;
}

Matrix columns(const Matrix& x, Index first, Index count) {
    Matrix out(x.rows, count);
    for (Index i = 0; i < x.rows; ++i)
        for (Index j = 0; j < count; ++j) out(i, j) = x(i, first + j);
    return out;
}

/// The layer in loops over the tokens of the image: P of every head in the order of the windows,
/// and the branch.
template <class Activation>
void expect_layer(const GoldenSwin& m, const Recorder& seen, Index layer, const Windows& w,
                  Index heads, const Activation& activation) {
    const std::string at = "layer." + std::to_string(layer) + ".";
    const std::vector<double>& state = seen.states.at(at + "norm1");
    const Index n = w.count(), d = Index(state.size()) / n, width = d / heads;
    const Matrix x(n, d, state);
    const Matrix q = affine(*m.weights, at + "attn.q", x), k = affine(*m.weights, at + "attn.k", x),
                 v = affine(*m.weights, at + "attn.v", x),
                 table = matrix(*m.weights, at + "attn.relative");
    Matrix joined(n, d);
    std::vector<double> all;
    const std::vector<Index> order = w.order();
    for (Index h = 0; h < heads; ++h) {
        const Matrix p = attention_of(w, columns(q, h * width, width), columns(k, h * width, width),
                                      table, h, activation);
        for (const Index i : order)
            for (const Index j : order) all.push_back(p(i, j));
        const Matrix out = naive::product(p, columns(v, h * width, width));
        for (Index i = 0; i < n; ++i)
            for (Index c = 0; c < width; ++c) joined(i, h * width + c) = out(i, c);
    }
    EXPECT_ALL_CLOSE(seen.matrix.at(layer), all, rounding(1e4)) << layer;
    EXPECT_ALL_CLOSE(seen.states.at(at + "sa"), affine(*m.weights, at + "attn.o", joined).a,
                     rounding(1e4))
        << layer;
}

/// [SWIN] 3.2 without turning anything: a token sees those of its window that were its neighbours.
TEST(ShiftedWindows, AreThePapersFormula) {
    const GoldenSwin m;
    for (const auto& [rows, cols] : {std::pair<Index, Index>{6, 6}, {6, 12}, {12, 6}}) {
        const Recorder usual = run(m.model(m.spec()), image(2 * rows, 2 * cols));
        const Recorder power = run(m.model(m.spec("polynomial")), image(2 * rows, 2 * cols));
        for (const Index layer : {0, 1}) {
            const Windows w{rows, cols, 3, layer};
            expect_layer(m, usual, layer, w, 2, softmax);
            expect_layer(m, power, layer, w, 2, cube);
        }
        for (const Index layer : {2, 3}) {  // the grid has a side of one window: no shift
            const Windows w{rows / 2, cols / 2, 3, 0};
            expect_layer(m, usual, layer, w, 4, softmax);
            expect_layer(m, power, layer, w, 4, cube);
        }
    }
}

/// What the spectra and statistics rest on: the blocks that P says it has.
TEST(ShiftedWindows, BlocksOfPAreKnown) {
    class Blocks final : public Observer {
      public:
        bool wants_rows(Index) const override { return true; }
        void on_attention_rows(Index layer, const RowBlock& block) override {
            const Index side = layer < 2 ? 6 : 3;
            ASSERT_TRUE(block.over.order);
            EXPECT_EQ(*block.over.order, (Windows{side, side, 3, layer == 1}.order()));
        }
        bool wants_attention(Index) const override { return true; }
        void on_attention(const Attention& e) override {
            ASSERT_TRUE(e.over.order);
            EXPECT_EQ(std::ssize(*e.over.order), e.op.tokens());
            const Structure known = e.op.structure();
            std::vector<Index> sizes;
            for (const Index end : known.blocks)
                sizes.push_back(end - (sizes.empty() ? 0 : known.blocks[sizes.size() - 1]));
            all.push_back(sizes);
            EXPECT_TRUE(known.row_stochastic);
            EXPECT_FALSE(known.plain_logits);
            EXPECT_TRUE(known.constant_terms);
            for (const Estimate& second : second_eigenvalue(e.op)) {
                if (known.blocks.empty()) {
                    EXPECT_LT(second.value, 1);
                    continue;
                }
                EXPECT_EQ(second.value, 1);
                EXPECT_TRUE(second.converged);
                EXPECT_EQ(second.method, "blocks");
            }
            for (const Contraction& c : stationary_norm(e.op))
                EXPECT_EQ(c.why_not, known.blocks.empty() ? "" : "pi is not unique");
        }
        std::vector<std::vector<Index>> all;
    } blocks;
    const GoldenSwin m;
    const Input input = image(12, 12);
    m.model(m.spec()).run(std::span(&input, 1), blocks);
    // Shifted by 1, the upper left window of 2 x 2 is whole; others fall into 2 + 1 rows or
    // columns.
    EXPECT_THAT(blocks.all,
                ElementsAre(ElementsAre(9, 9, 9, 9), ElementsAre(9, 6, 3, 6, 3, 4, 2, 2, 1),
                            ElementsAre(), ElementsAre()));
}

/// Windows of one size go through a product at once where all heads are alike, else one by one;
/// with rows, a block of rows at a time.
TEST(ShiftedWindows, ProductsAreThoseOfTheMatrix) {
    class Products final : public Observer {
      public:
        bool wants_attention(Index) const override { return true; }
        void on_attention(const Attention& e) override {
            const Tensor v = random_tensor(cpu(), {e.op.heads(), e.op.tokens(), 3}, Type::f64,
                                           Law::normal, Rng(4), 0, 1);
            const Tensor whole = matmul(e.op.matrix(), v);
            EXPECT_TENSOR_NEAR(e.op.apply(v, e.op.tokens()), whole, rounding(1e3));
            EXPECT_TENSOR_NEAR(e.op.apply(v, 5, [](const RowBlock&) {}), whole, rounding(1e3));
            ++layers;
        }
        Index layers = 0;
    } products;
    const GoldenSwin m;
    const Input input = image(12, 24);
    for (const char* variant : {"softmax", "polynomial"})
        m.model(m.spec(variant)).run(std::span(&input, 1), products);
    // A scale of each head.
    class Scaled final : public Weights {
      public:
        explicit Scaled(std::shared_ptr<const Weights> all) : all_(std::move(all)) {}
        bool has(std::string_view name) const override {
            return name.ends_with("attn.scale") || all_->has(name);
        }
        Tensor get(std::string_view name) const override {
            if (!name.ends_with("attn.scale")) return all_->get(name);
            const std::vector<double> c{0.5, 2, -1, 0.25};
            const std::size_t heads =
                name.starts_with("layer.0") || name.starts_with("layer.1") ? 2 : 4;
            return Tensor::from_host(cpu(), {1, 1, Index(heads)},
                                     std::span<const double>(c.data(), heads), Type::f64);
        }
        std::vector<std::string> names() const override { return all_->names(); }

      private:
        std::shared_ptr<const Weights> all_;
    };
    ModelSpec learned = m.spec("polynomial", {{"scale", "learned"}});
    for (BlockSpec& block : learned.blocks)
        block.attention.own.push_back({"scale", {1, 1, block.attention.heads}, true});
    const Model scaled(learned, std::make_shared<Scaled>(m.weights), cpu(), Type::f64);
    scaled.run(std::span(&input, 1), products);
    EXPECT_EQ(products.layers, 12);
}

/// Of no softmax the spectrum is the union of those of the blocks.
TEST(ShiftedWindows, SpectrumOfAPolynomialIsThatOfAllBlocks) {
    class Spectra final : public Observer {
      public:
        bool wants_attention(Index) const override { return true; }
        void on_attention(const Attention& e) override {
            const std::vector<Estimate> found = second_eigenvalue(e.op);
            for (std::size_t k = 0; k < found.size(); ++k) {
                const Tensor p = e.op.matrix().batch_range(Index(k), 1);
                const auto whole = given_attention(p, false, "");
                // Without the structure, from the exact zeros of the whole matrix.
                EXPECT_CLOSE(found[k].value, second_eigenvalue(*whole)[0].value, rounding(1e6));
                if (e.layer < 2) {
                    EXPECT_EQ(found[k].method, "blocks");
                }
            }
        }
    } spectra;
    const GoldenSwin m;
    const Input input = image(12, 12);
    m.model(m.spec("polynomial")).run(std::span(&input, 1), spectra);
}

TEST(Stages, OfSwinHaveTheMerging) {
    const GoldenSwin m;
    const Recorder seen = run(m.model(m.spec()), image(12, 12));
    EXPECT_THAT(
        std::vector(seen.order.begin() + 8, seen.order.begin() + 17),
        ElementsAre("layer.1.in", "layer.1.norm1", "layer.1.sa", "layer.1.attn", "layer.1.norm2",
                    "layer.1.ffn", "layer.1.out", "layer.1.merge", "layer.2.in"));
    EXPECT_EQ(seen.order.front(), "embed");
    EXPECT_EQ(seen.order.back(), "final_norm");
    EXPECT_EQ(seen.pred.at("layer.1.merge"), "");
    EXPECT_EQ(seen.states.at("layer.1.out").size(), 36U * 8U);
    EXPECT_EQ(seen.states.at("layer.1.merge").size(), 9U * 16U);
    EXPECT_EQ(seen.states.at("layer.2.in"), seen.states.at("layer.1.merge"));
    EXPECT_EQ(seen.matrix.at(1).size(), 2U * 36U * 36U);
    EXPECT_EQ(seen.matrix.at(2).size(), 4U * 9U * 9U);
}

/// [SWIN] 3.1 in loops.
TEST(Merging, IsThePapersFormula) {
    const GoldenSwin m;
    const Recorder seen = run(m.model(m.spec()), image(12, 24));
    const Index cols = 12, d = 8;
    const Matrix x(72, d, seen.states.at("layer.1.out"));
    const Matrix gain = matrix(*m.weights, "layer.1.merge.norm.weight"),
                 offset = matrix(*m.weights, "layer.1.merge.norm.bias"),
                 map = matrix(*m.weights, "layer.1.merge.map.weight");
    Matrix joined(18, 4 * d);
    for (Index t = 0; t < 18; ++t) {
        const Index y = t / (cols / 2) * 2, c = t % (cols / 2) * 2;
        for (Index part = 0; part < 4; ++part)
            for (Index j = 0; j < d; ++j)
                joined(t, part * d + j) = x((y + part % 2) * cols + c + part / 2, j);
        double mean = 0, variance = 0;
        for (Index j = 0; j < 4 * d; ++j) mean += joined(t, j) / double(4 * d);
        for (Index j = 0; j < 4 * d; ++j) variance += std::pow(joined(t, j) - mean, 2) / (4 * d);
        for (Index j = 0; j < 4 * d; ++j)
            joined(t, j) =
                (joined(t, j) - mean) / std::sqrt(variance + 1e-5) * gain(0, j) + offset(0, j);
    }
    EXPECT_ALL_CLOSE(seen.states.at("layer.1.merge"),
                     naive::product(joined, naive::transposed(map)).a, rounding(1e3));
}

TEST(SwinModel, RunsEachSampleAsIfItWereAlone) {
    const GoldenSwin m;
    const Model model = m.model(m.spec());
    const std::vector<Input> inputs{image(12, 12, Type::f64, 1), image(12, 12, Type::f64, 2)};
    for (const Index batch : {1, 2}) {
        Recorder all;
        model.run(inputs, all, {.batch = batch});
        EXPECT_EQ(all.states, run(model, inputs[1]).states);
        EXPECT_EQ(all.matrix, run(model, inputs[1]).matrix);
    }
}

/// De-escalation acts on each layer's own tokens.
TEST(SwinModel, DeescalatesInEveryStage) {
    const GoldenSwin m;
    ModelSpec spec = m.spec();
    for (BlockSpec& b : spec.blocks) b.deesc.tau = 0.7;
    const Recorder seen = run(m.model(spec), image(12, 12));
    for (const auto& [layer, n, d] : {std::tuple<Index, Index, Index>{1, 36, 8}, {3, 9, 16}}) {
        const std::string at = "layer." + std::to_string(layer) + ".";
        const Matrix x(n, d, seen.states.at(at + "ffn"));
        Matrix mean = naive::mean_part(x);
        for (double& e : mean.a) e *= 0.7;
        EXPECT_ALL_CLOSE(seen.states.at(at + "deesc"), naive::subtract(x, mean).a, rounding(100));
    }
}

/// Steps of training and the reverse sweep see the same network.
TEST(SwinModel, StepsAreThoseOfTheSweep) {
    const GoldenSwin m;
    const Model model = m.model(m.spec());
    const Input input = image(12, 12);
    const std::vector<double> last = run(model, input).states.at("final_norm");
    double squares = 0;
    for (const double e : last) squares += e * e / 2;
    const StepResult step = model.step(input, {.kind = Loss::Kind::square});
    EXPECT_CLOSE(step.loss, squares, rounding(1e3));
    EXPECT_EQ(step.gradients.size(), parameters(m.spec()).size());
}

/// [SWIN] 3.3, and the numbers of parameters of its Table 1 in millions, which count the
/// classifier.
TEST(RandomModel, OfSwinHasThePapersSizes) {
    struct Size {
        const char* name;
        Index layers, d, heads;
        double millions, gigaflops;
    };
    for (const Size& size :
         {Size{"swin-tiny", 12, 96, 3, 29, 4.5}, Size{"swin-small", 24, 96, 3, 50, 8.7},
          Size{"swin-base", 24, 128, 4, 88, 15.4}}) {
        const RandomModel drawn = random_model(size.name);
        const ModelSpec& s = drawn.spec;
        EXPECT_EQ(std::ssize(s.blocks), size.layers) << size.name;
        EXPECT_EQ(s.width, size.d) << size.name;
        EXPECT_EQ(s.last_width(), 8 * size.d) << size.name;
        EXPECT_EQ(s.blocks.front().attention.heads, size.heads) << size.name;
        EXPECT_EQ(s.blocks.back().attention.heads, 8 * size.heads) << size.name;
        EXPECT_EQ(s.blocks.back().attention.head_dim, 32) << size.name;
        for (const BlockSpec& b : s.blocks) EXPECT_EQ(b.attention.windows.side, 7);
        EXPECT_EQ(s.blocks[1].attention.windows.shift, 3);
        EXPECT_EQ(s.blocks.back().attention.windows.shift, 0);  // one window
        double count = 1000.0 * double(s.last_width() + 1);
        for (const DrawnTensor& t : drawn.tensors) count += double(t.shape.count());
        EXPECT_CLOSE(count / 1e6, size.millions,
                     {.absolute = 0.85, .reason = "printed in millions"})
            << size.name;
        // It counts a product and a sum as one.
        EXPECT_CLOSE(forward_flops(s, s.embedding.image.patches()) / 2e9, size.gigaflops,
                     {.relative = 0.02, .reason = "printed to 0.1, with norms and activations"})
            << size.name;
    }
    EXPECT_EQ(random_model("swin-large").spec.last_width(), 1536);
}

TEST(RandomModel, OfSwinHasTheStagesThatItIsGiven) {
    const ModelSpec s =
        random_model("swin-tiny,depths=1-3-2,d=12,heads=2,ffn=18,image=32,window=4,patch=2").spec;
    EXPECT_EQ(s.blocks.size(), 6U);
    std::vector<Index> merges, heads, sides, shifts, ffn;
    for (const BlockSpec& b : s.blocks) {
        merges.push_back(b.merge.width);
        heads.push_back(b.attention.heads);
        sides.push_back(b.attention.windows.side);
        shifts.push_back(b.attention.windows.shift);
        ffn.push_back(b.ffn.width);
    }
    EXPECT_THAT(merges, ElementsAre(24, 0, 0, 48, 0, 0));
    EXPECT_THAT(heads, ElementsAre(2, 4, 4, 4, 8, 8));
    EXPECT_THAT(sides, ElementsAre(4, 4, 4, 4, 4, 4));
    EXPECT_THAT(shifts, ElementsAre(0, 0, 2, 0, 0, 0));
    EXPECT_THAT(ffn, ElementsAre(18, 36, 36, 36, 72, 72));
    EXPECT_EQ(s.width_of(0), 12);
    EXPECT_EQ(s.width_of(3), 24);
    EXPECT_EQ(s.last_width(), 48);
    EXPECT_THAT(s.name, HasSubstr("growing to d = 48, 8 heads"));
    EXPECT_THAT(s.provenance.recognised, Contains(HasSubstr("windows of 4 x 4 patches")));
    EXPECT_THAT(s.provenance.recognised,
                Contains(HasSubstr("merge by fours behind layers 0 to d = 24, 3")));
}

/// A learned scale starts at 1/sqrt(N), N the tokens of a window.
TEST(RandomModel, OfSwinLearnsAScaleOfItsWindows) {
    const RandomModel drawn = random_model("swin-tiny,attention=polynomial,scale=learned");
    Index scales = 0;
    for (const DrawnTensor& t : drawn.tensors) {
        if (!t.name.ends_with("attn.scale")) continue;
        ++scales;
        EXPECT_CLOSE(t.draw.spread, 1 / 7.0, rounding(1));
    }
    EXPECT_EQ(scales, 12);
}

TEST(RandomModel, OfSwinRefusesWhatItCannotBe) {
    const auto error = [](const std::string& keys) {
        return thrown<UsageError>([&] { random_model("swin-tiny," + keys); });
    };
    EXPECT_THAT(error("window=5"), HasSubstr("windows of 5 x 5 do not divide the 56 x 56"));
    EXPECT_THAT(error("image=80,depths=1-1,window=4"),
                HasSubstr("do not divide the 10 x 10 patches of stage 1"));
    EXPECT_THAT(error("image=36,depths=1-1,window=3"), HasSubstr("do not merge by twos"));
    EXPECT_THAT(error("heads=5"), HasSubstr("heads=5 does not divide d=96"));
    EXPECT_THAT(error("depths=2-x"), HasSubstr("such as 2-2-6-2"));
    EXPECT_THAT(error("depths=0"), HasSubstr("such as 2-2-6-2"));
    EXPECT_THAT(error("layers=4"), HasSubstr("pass depths="));
    EXPECT_THAT(error("kv_heads=1"), HasSubstr("unsupported kv_heads or head_dim"));
    EXPECT_THAT(error("image=225"), HasSubstr("patch does not divide image"));
    EXPECT_THAT(error("attention=linear"), HasSubstr("does not support windows of a grid"));
    EXPECT_THAT(error("causal=1"), HasSubstr("omit causal"));
    EXPECT_THAT(error("alibi=1"), HasSubstr("and alibi"));
    EXPECT_THAT(error("tokens=9"), HasSubstr("image= and patch="));
    EXPECT_THAT(error("depths=1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1"), HasSubstr("at most 20"));
}

TEST(SwinModel, RefusesImagesThatDoNotFit) {
    const GoldenSwin m;
    const auto error = [&](const Input& input) {
        return thrown<UsageError>([&] { run(m.model(m.spec()), input); });
    };
    EXPECT_THAT(error(image(12, 16)), HasSubstr("windows of 3 x 3 patches do not divide"));
    EXPECT_THAT(error(image(18, 18)), HasSubstr("layer 1: the patches of its grid of 9 x 9"));
    EXPECT_THAT(error(image(12, 13)), HasSubstr("or another multiple of the patch"));
    Input masked = gaussian(36, 8);
    masked.keep.assign(36, true);
    masked.keep[3] = false;
    EXPECT_THAT(error(masked), HasSubstr("the mask hides 1 of 36 tokens"));
    EXPECT_EQ(run(m.model(m.spec()), gaussian(36, 8)).ended, 4);
}

TEST(SwinModel, RefusesFilesThatItCannotRun) {
    const auto error = [](const Checkpoint& file, const std::string& config = "") {
        return thrown<FormatError>([&] { spec_of(file, config); });
    };
    const auto copied = [] {  // without the indices, whose values a copy lacks
        const auto file = copy_of("swin-authors/swin.pth");
        for (const std::string& name : std::vector(file->names()))
            if (name.ends_with("position_index")) file->remove(name);
        return file;
    };
    const auto file = copied();
    EXPECT_EQ(spec_of(*file).embedding.image.width, 16);  // by the windows of the last stage
    EXPECT_THAT(error(*file, R"({"image_size": 20})"), HasSubstr("the 5 x 5 patches of stage 1"));
    EXPECT_THAT(error(*file, R"({"image_size": 12})"), HasSubstr("do not divide"));
    EXPECT_THAT(error(*file, R"({"depths": [2, 2, 1]})"), HasSubstr("the tensors say 1-2-1"));
    EXPECT_THAT(error(*file, R"({"num_heads": [2, 2, 4]})"), HasSubstr("the tensors say 2-4-8"));
    EXPECT_THAT(error(*file, R"({"window_size": 3})"), HasSubstr("window_size = 3"));
    EXPECT_THAT(error(*file, R"({"mlp_ratio": 4})"), HasSubstr("mlp_ratio = 4"));
    EXPECT_THAT(error(*file, R"({"use_absolute_embeddings": true})"),
                HasSubstr("use_absolute_embeddings"));
    const auto table = copied();
    const std::string name = "layers.0.blocks.0.attn.relative_position_bias_table";
    table->remove(name);
    table->add(name, {9, 3});
    EXPECT_THAT(error(*table), HasSubstr("has 3 heads, which do not divide the width 8"));
    table->remove(name);
    table->add(name, {10, 2});
    EXPECT_THAT(error(*table), HasSubstr("no square of an odd number"));
    const auto index = copied();
    index->add("layers.0.blocks.0.attn.relative_position_index", {4, 4});
    EXPECT_THAT(error(*index), HasSubstr("is not the index of windows of 2 x 2"));
}

TEST(SwinModel, RefusesWhatOnlyTimmShifts) {
    const auto file = copy_of("swin-timm");
    for (const std::string& name : std::vector(file->names()))
        if (name.ends_with("position_index")) file->remove(name);
    const char* const wide = R"({"pretrained_cfg": {"input_size": [3, 8, 16]}})";
    EXPECT_NO_THROW(spec_of(*file, wide));
    // A second block in the last stage, whose grid is one window high and two wide.
    const std::string last =
        file->has("layers.2.blocks.0.norm1.weight") ? "layers.2." : "layers.1.";
    for (const std::string& name : std::vector(file->names()))
        if (name.starts_with(last + "blocks.0."))
            file->add(last + "blocks.1." + name.substr(last.size() + 9), file->tensor(name).shape);
    EXPECT_THAT(thrown<FormatError>([&] { spec_of(*file, wide); }),
                HasSubstr("timm shifts along one side alone"));
}

TEST(RandomWeights, OfSwinAreThoseOfItsCode) {
    const RandomModel drawn = random_model("swin-tiny,depths=1-1");
    const auto w = random_weights(drawn, Rng(3), cpu(), Type::f64);
    for (const char* name : {"layer.0.attn.q.weight", "layer.1.attn.relative", "embed.patch.weight",
                             "layer.0.merge.map.weight"}) {
        const std::vector<double> values = w->get(name).to_host<double>();
        EXPECT_CLOSE(naive::mean_square(values), 4e-4, sampling(std::ssize(values), 1.42 * 4e-4))
            << name;
    }
    EXPECT_EQ(naive::mean_square(w->get("layer.0.merge.norm.weight").to_host<double>()), 1);
    EXPECT_EQ(naive::mean_square(w->get("layer.0.merge.norm.bias").to_host<double>()), 0);
}

}  // namespace
}  // namespace tsdiag::test::swin
