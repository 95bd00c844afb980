#include <gtest/gtest.h>

#include <functional>

#include "recorder.hpp"
#include "tsdiag/ops.hpp"

/// The law of batches: samples in a batch give the same values as each alone, bit for bit when
/// observed, within rounding in a training step, whose sums run over all.
namespace tsdiag::test {
namespace {

struct ModelCase {
    std::string name;
    std::function<Model(Type)> model;
    friend void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }
};

/// Every golden checkpoint, and every attention in a random model, pre-norm and post-norm.
std::vector<ModelCase> model_cases() {
    std::vector<ModelCase> out;
    for (const GoldenCheckpoint& c : golden_checkpoints())
        out.push_back({c.path, [c](Type type) {
                           return Opened::from(golden / c.path, c.options).model(type);
                       }});
    for (const AttentionEntry* entry : attentions())
        for (const char* placement : {"pre-norm", "post-norm"}) {
            std::string text = std::string(placement) +
                               ",layers=2,d=24,heads=3,attention=" + std::string(entry->name);
            if (entry->token_multiple) text += ",landmarks=4";
            out.push_back({std::string(placement) + "_" + std::string(entry->name),
                           [text](Type type) { return random(text, type); }});
        }
    for (const std::string text :
         {"post-norm,layers=2,d=24,heads=3,alibi=1",
          "pre-norm,layers=1,d=24,heads=1,attention=nystrom,landmarks=4,conv=3",
          "pre-norm,layers=1,d=24,heads=3,attention=nystrom,landmarks=4,conv=3",
          "pre-norm,layers=1,d=24,heads=3,attention=bigbird,block=1,random=2",
          "pre-norm,layers=1,d=24,heads=3,attention=informer,factor=1",
          "pre-norm,layers=1,d=24,heads=3,attention=skyformer,landmarks=5",
          "pre-norm,layers=1,d=24,heads=3,deesc=0.5",
          "pre-norm,layers=1,d=24,heads=3,step=contranorm",
          "pre-norm,layers=2,d=24,heads=3,out_proj=1,attention=diag_attention+norm_attention",
          "llama-7b,layers=2,d=24,heads=4,kv_heads=2,vocab=12,ffn=16"})
        out.push_back({text, [text](Type type) { return random(text, type); }});
    for (ModelCase& c : out)
        for (char& letter : c.name)
            if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    return out;
}

/// Six samples: four alike, one with a mask where the model takes one, one shorter.
std::vector<Input> samples_of(const ModelSpec& spec, Type type) {
    const Index n = fitting_tokens(spec, 12);
    std::vector<Input> out;
    for (std::uint64_t s = 0; s < 6; ++s) {
        const Index tokens = s == 5 ? fitting_tokens(spec, std::max<Index>(n / 2, 1)) : n;
        Input input;
        if (spec.embedding.vocabulary > 0) {
            for (Index i = 0; i < tokens; ++i)
                input.ids.push_back(
                    Index((7 * i * i + 5 * i + 3 * Index(s)) % spec.embedding.vocabulary));
            // Padding, which determines positions in some families, at a place that varies.
            if (spec.embedding.padding_id >= 0)
                input.ids[s % input.ids.size()] = spec.embedding.padding_id;
        } else if (spec.embedding.image.channels > 0) {
            const bool fixed = spec.embedding.positions == Positions::learned ||
                               spec.blocks.front().attention.windows.side > 0;
            const Shape shape{
                spec.embedding.image.channels,
                fixed ? spec.embedding.image.height : 2 * spec.embedding.image.patch_height,
                fixed ? spec.embedding.image.width : 3 * spec.embedding.image.patch_width};
            input.image = random_tensor(cpu(), shape, type, Law::normal, Rng(s), 0, 1);
        } else {
            input = gaussian(tokens, spec.width, type, s);
        }
        const bool gated = spec.blocks.front().attention.gated_unit;
        const bool mixes =
            attention(spec.blocks.front().attention.variant).token_multiple != nullptr;
        if (s == 4 && spec.embedding.image.channels == 0 && !gated && !mixes) {
            input.keep.assign(std::size_t(tokens), true);
            input.keep[1] = input.keep.back() = false;
        }
        out.push_back(std::move(input));
    }
    return out;
}

/// Records all events of each sample, in order.
class Diary final : public Observer {
  public:
    void begin_sample(Index sample) override { sample_ = sample; }
    void end_sample(Index sample) override { note(sample, "end", {}); }
    void on_hidden(const Hidden& e) override {
        note(sample_,
             std::to_string(e.layer) + " " + std::string(e.stage) + " " + std::string(e.pred), e.x);
    }
    bool wants_rows(Index) const override { return true; }
    void on_attention_rows(Index layer, const RowBlock& block) override {
        note(sample_, "rows " + std::to_string(layer) + " " + std::to_string(block.first), block.p);
        note(sample_, "slope", block.slope);
    }
    bool wants_attention(Index) const override { return true; }
    void on_attention(const Attention& e) override {
        note(sample_, "matrix " + std::to_string(e.layer), e.op.matrix());
        note(sample_, "input", e.input);
        note(sample_, "residual", e.residual);
        if (!e.projections) return;
        note(sample_, "q", e.projections->q);
        note(sample_, "k_raw", e.projections->k_raw);
    }

    std::map<Index, std::vector<std::pair<std::string, std::vector<double>>>> said;

  private:
    void note(Index sample, std::string what, const Tensor& x) {
        said[sample].emplace_back(std::move(what),
                                  x.defined() ? x.to_host<double>() : std::vector<double>());
    }
    Index sample_ = -1;
};

class EveryBatch : public testing::TestWithParam<ModelCase> {};

TEST_P(EveryBatch, SaysWhatItsSamplesSayAlone) {
    for (const Type type : {Type::f32, Type::f64}) {
        const Model model = GetParam().model(type);
        const std::vector<Input> inputs = samples_of(model.spec(), type);
        Diary alone;
        model.run(inputs, alone, {});
        ASSERT_EQ(alone.said.size(), inputs.size());
        for (const Index batch : {2, 3, 64}) {
            Diary together;
            model.run(inputs, together, {.batch = batch});
            ASSERT_EQ(together.said.size(), inputs.size());
            for (const auto& [sample, expected] : alone.said) {
                const auto& found = together.said[sample];
                ASSERT_EQ(found.size(), expected.size());
                for (std::size_t i = 0; i < found.size(); ++i) {
                    EXPECT_EQ(found[i].first, expected[i].first);
                    EXPECT_TRUE(found[i].second == expected[i].second)
                        << "sample " << sample << ", " << found[i].first << ", batches of "
                        << batch;
                }
            }
        }
    }
}

/// A loss for each sample, on a number of tokens that varies between samples.
std::vector<Loss> losses_of(const Model& model, const std::vector<Input>& inputs) {
    const ModelSpec& spec = model.spec();
    std::vector<Loss> out;
    for (std::size_t s = 0; s < inputs.size(); ++s) {
        Loss loss{.kind = Loss::Kind::square};
        if (spec.embedding.vocabulary > 0 && spec.embedding.width == spec.width)
            loss = {.kind = Loss::Kind::tokens, .rows = {0, 2}, .targets = {1, Index(s)}};
        if (loss.kind == Loss::Kind::tokens && s % 2 == 0) {
            loss.rows.push_back(1);
            loss.targets.push_back(2);
        }
        out.push_back(std::move(loss));
    }
    return out;
}

TEST_P(EveryBatch, StepsAsTheSumOfItsSamples) {
    const Model model = GetParam().model(Type::f64);
    const std::vector<Input> inputs = samples_of(model.spec(), Type::f64);
    const std::vector<Loss> losses = losses_of(model, inputs);
    StepSettings settings{.hits = true, .dropout = 0.2};
    for (std::size_t s = 0; s < inputs.size(); ++s) settings.rngs.push_back(Rng(s).fork("dropout"));
    const StepResult together = model.step(inputs, losses, settings);

    double loss = 0;
    Index predictions = 0, correct = 0;
    std::map<std::string, Tensor> sums;
    for (std::size_t s = 0; s < inputs.size(); ++s) {
        StepSettings own = settings;
        own.rngs = {settings.rngs[s]};
        const StepResult one = model.step(inputs[s], losses[s], own);
        loss += one.loss;
        predictions += one.predictions;
        correct += one.correct;
        for (const auto& [name, g] : one.gradients)
            sums[name] = sums.contains(name) ? add(sums[name], g) : g;
    }
    EXPECT_TRUE(close(together.loss, loss, rounding(64)));
    EXPECT_EQ(together.predictions, predictions);
    EXPECT_EQ(together.correct, correct);
    ASSERT_EQ(together.gradients.size(), sums.size());
    for (const auto& [name, g] : together.gradients) {
        ASSERT_TRUE(sums.contains(name)) << name;
        const double error = double(squared_norm(subtract(g, sums[name])));
        // The same products in another order, and gradients that may cancel: relative to the norm.
        EXPECT_LE(std::sqrt(error), 1e-11 * std::sqrt(double(squared_norm(sums[name]))) + 1e-13)
            << name;
    }
}
INSTANTIATE_TEST_SUITE_P(Models, EveryBatch, testing::ValuesIn(model_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tsdiag::test
