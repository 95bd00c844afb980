#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "memory_file.hpp"
#include "recorder.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::test {
namespace {

using testing::HasSubstr;

/// Keeps all gradients: states under "layer.L.STAGE", parameters under their canonical names.
struct Gradients : Observer {
    std::map<std::string, Tensor> states, parameters;
    std::vector<double> losses;
    std::vector<std::string> order;
    Index sample = -1, attentions = 0;

    void begin_sample(Index s) override { sample = s; }
    void on_loss(double value) override { losses.push_back(value); }
    void on_gradient(const Gradient& e) override {
        const std::string layer = e.layer < 0 ? "" : "layer." + std::to_string(e.layer) + ".";
        if (e.tensor.empty()) {
            const std::string key = Recorder::key(e.layer, e.stage);
            EXPECT_TRUE(states.try_emplace(key, e.g).second || sample > 0) << key << " twice";
            states[key] = e.g;
            order.push_back(key);
        } else {
            const std::string key = layer + std::string(e.tensor);
            EXPECT_TRUE(parameters.try_emplace(key, e.g).second || sample > 0) << key << " twice";
            parameters[key] = e.g;
        }
    }
    bool wants_attention_gradient(Index) const override { return true; }
    void on_attention_gradient(const AttentionGradient& e) override {
        attentions += 1;
        EXPECT_FALSE(e.v.tracked() || e.output.tracked() || e.op.rows(0, 1).p.tracked());
    }
};

Gradients differentiate(const Model& model, const Input& input, const Loss& loss,
                        RunSettings settings = {}) {
    Gradients seen;
    model.differentiate(std::span(&input, 1), std::span(&loss, 1), seen, settings);
    return seen;
}

Tensor waves(Index rows, Index cols, double (*wave)(double)) {
    std::vector<double> values;
    for (Index i = 0; i < rows * cols; ++i) values.push_back(wave(double(i)));
    return Tensor::from_host(cpu(), {1, rows, cols}, std::span<const double>(values), Type::f64);
}

// --- Against PyTorch (tests/data/golden/make_gradients.py)

struct Line {
    std::string loss, kind, name;
    double norm = 0, waves = 0;
};

std::vector<Line> read_lines(const std::filesystem::path& path) {
    std::ifstream in(path);
    std::vector<Line> lines;
    std::string text;
    std::getline(in, text);
    while (std::getline(in, text)) {
        std::istringstream fields(text);
        Line line;
        std::string norm, second;
        std::getline(fields, line.loss, ',');
        std::getline(fields, line.kind, ',');
        std::getline(fields, line.name, ',');
        std::getline(fields, norm, ',');
        std::getline(fields, second, ',');
        line.norm = std::stod(norm);
        if (!second.empty()) line.waves = std::stod(second);
        lines.push_back(line);
    }
    return lines;
}

Loss loss_named(const std::string& name, const std::string& model, const Input& input,
                const ModelSpec& spec, Index n) {
    if (name == "square") return {.kind = Loss::Kind::square};
    if (name == "product")
        return {.kind = Loss::Kind::product, .cotangent = waves(n, spec.width, std::sin)};
    if (name == "classes")
        return {
            .kind = Loss::Kind::classes, .classifier = waves(5, spec.width, std::cos), .label = 2};
    if (model == "bert") return {.kind = Loss::Kind::tokens, .rows = {1, 4}, .targets = {3, 8}};
    Loss loss{.kind = Loss::Kind::tokens};
    for (Index i = 0; i + 1 < n; ++i) {
        loss.rows.push_back(i);
        loss.targets.push_back(input.ids[std::size_t(i) + 1]);
    }
    return loss;
}

class GoldenGradients : public testing::TestWithParam<const char*> {};

TEST_P(GoldenGradients, AreThoseOfAutograd) {
    const std::string name = GetParam();
    const Opened opened = Opened::from(golden / name);
    const auto arrays = open_checkpoint(golden / name / "golden.npz");
    Input input;
    if (arrays->has("ids")) {
        for (const double id : numbers(*arrays, "ids")) input.ids.push_back(Index(id));
    } else {
        const std::vector<double> pixels = numbers(*arrays, "image");
        const auto shape = arrays->tensor("image").shape;
        input.image = Tensor::from_host(cpu(), {shape[0], shape[1], shape[2]},
                                        std::span<const double>(pixels), Type::f64);
    }
    const Index n = arrays->tensor("embed").shape[0];
    const std::vector<Line> lines = read_lines(golden / name / "gradients.csv");
    ASSERT_GT(lines.size(), 50U);
    std::map<std::string, Gradients> found;
    for (const Line& line : lines) {
        SCOPED_TRACE(line.loss + " " + line.name);
        if (line.kind == "loss") {
            const ModelSpec& spec = opened.architecture.spec;
            found[line.loss] = differentiate(opened.model(Type::f64), input,
                                             loss_named(line.loss, name, input, spec, n));
            EXPECT_CLOSE(found[line.loss].losses.at(0), line.norm, rounding(1e4));
            continue;
        }
        const auto& list =
            line.kind == "state" ? found[line.loss].states : found[line.loss].parameters;
        ASSERT_TRUE(list.contains(line.name));
        const Tensor& g = list.at(line.name);
        // Two layers of sums of some 100 terms each, with cancellation.
        const Tolerance tolerance{.absolute = 1e-11 * (1 + line.norm), .reason = "rounding"};
        EXPECT_CLOSE(std::sqrt(squared_norm(g)), line.norm, tolerance);
        if (line.name != "embed.token" ||
            g.rows() == opened.architecture.spec.embedding.vocabulary) {
            EXPECT_CLOSE(dot(g, waves(g.rows(), g.cols(), std::cos)), line.waves, tolerance);
        }
    }
    // No parameters that the reference lacks, and in each case all parameters of the layers.
    for (const auto& [loss, gradients] : found) {
        for (const Parameter& p : parameters(opened.architecture.spec))
            EXPECT_TRUE(gradients.parameters.contains(p.name)) << p.name;
        for (const auto& [parameter, g] : gradients.parameters)
            EXPECT_TRUE(std::ranges::any_of(lines, [&](const Line& line) {
                return line.loss == loss && line.name == parameter;
            })) << parameter;
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenGradients, testing::Values("bert", "gpt2", "llama", "vit"),
                         [](const auto& test) { return std::string(test.param); });

// --- Against differences

/// Weights with t d added to one tensor.
class Moved final : public Weights {
  public:
    Moved(std::shared_ptr<const Weights> weights, std::string name, Tensor step)
        : weights_(std::move(weights)), name_(std::move(name)), step_(std::move(step)) {}
    bool has(std::string_view name) const override { return weights_->has(name); }
    Tensor get(std::string_view name) const override {
        const Tensor t = weights_->get(name);
        return name == name_ ? add(t, step_) : t;
    }
    std::vector<std::string> names() const override { return weights_->names(); }

  private:
    std::shared_ptr<const Weights> weights_;
    std::string name_;
    Tensor step_;
};

Tensor direction(Shape shape, std::uint64_t seed) {
    std::vector<double> values(std::size_t(shape.count()));
    Rng(seed).fill_normal(std::span<double>(values), 0, 1);
    return Tensor::from_host(cpu(), shape, std::span<const double>(values), Type::f64);
}

/// dL/dt of every parameter, or of those whose names begin with `only`, moved along a random
/// direction.
void expect_differences(const ModelSpec& spec, const std::shared_ptr<const Weights>& weights,
                        const Input& input, const Loss& loss, std::string_view only = "") {
    const Gradients found = differentiate(Model(spec, weights, cpu(), Type::f64), input, loss);
    std::size_t seen = 0, all = 0;
    for (const Parameter& p : parameters(spec)) {
        if (!p.name.starts_with(only)) continue;
        all += 1;
        SCOPED_TRACE(p.name);
        if (p.name.ends_with(".norm.mean") || p.name.ends_with(".norm.variance")) {
            EXPECT_FALSE(
                found.parameters.contains(p.name));  // of a batch norm: no gradient moves it
            seen += 1;
            continue;
        }
        const Tensor d = direction(p.shape, 3);
        const auto at = [&](double t) {
            const auto moved = std::make_shared<Moved>(weights, p.name, scale(d, t));
            return Model(spec, moved, cpu(), Type::f64)
                .step(input, loss, {.gradients = false})
                .loss;
        };
        if (p.name.find(".expert.") != std::string::npos && !found.parameters.contains(p.name)) {
            EXPECT_NEAR(derivative(at, 1e-5), 0, 1e-9);  // no token chose it
            seen += 1;
            continue;
        }
        ASSERT_TRUE(found.parameters.contains(p.name));
        const Tensor& g = found.parameters.at(p.name);
        if (g.shape() != p.shape) continue;  // unused rows of a table are left out
        seen += 1;
        // Truncation h^4 / 30 times fifth derivatives up to 1e13, as of an iteration for an inverse
        // or of columns of unit length; rounding of a loss of order 100 over h.
        EXPECT_CLOSE(dot(g, d), derivative(at, 1e-5),
                     {.relative = 1e-8, .absolute = 1e-8, .reason = "differences"});
    }
    EXPECT_GT(all, 3U);
    EXPECT_GE(seen + 3, all);
}

const std::string tiny = ",layers=2,d=8,heads=2,ffn=12";

TEST(Differentiate, AgreesWithDifferencesForEveryLayout) {
    for (const std::string text :
         {"post-norm,deesc=0.3,alpha=1.5",
          "post-norm,deesc=0.3,deesc_at=ffn,deesc_learned=1",
          "pre-norm,deesc=0.3,deesc_learned=1",
          "pre-norm,glu=1",
          "post-norm,step=contranorm:scale=0.7:learned=1:at=ffn",
          "pre-norm,causal=1,step=contranorm:identity=1:temperature=0.5",
          "pre-norm,attention=0:polynomial:p=2;1:softmax",
          "pre-norm,out_proj=1",
          "post-norm,attention=polynomial",
          "pre-norm,attention=norm_attention",
          "post-norm,attention=transnormer1",
          "post-norm,attention=linear",
          "pre-norm,attention=diag_attention,output_norm=layer",
          "post-norm,attention=transformer_ls,segment=2",
          "pre-norm,attention=transformer_ls,causal=1",
          "pre-norm,attention=polynomial,scale=learned,start=0.3",
          "post-norm,attention=0:polynomial:scale=learned:start=-1/4;1:softmax",
          "post-norm,attention=nystrom,landmarks=2,activation=polynomial,scale=learned,start=0.3",
          "pre-norm,attention=sink,start=0.3,causal=1",
          "post-norm,attention=sink,start=-1",
          "pre-norm,attention=reformer,chunk=2,rounds=1",
          "pre-norm,out_proj=1,attention=diag_attention:block=3+norm_attention",
          "post-norm,out_proj=1,attention=0:softmax+polynomial:p=2;1:softmax"}) {
        SCOPED_TRACE(text);
        const RandomModel drawn = random_model(text + tiny);
        const Input input = gaussian(6, 8);
        expect_differences(drawn.spec, random_weights(drawn, Rng(1), cpu(), Type::f64), input,
                           {.kind = Loss::Kind::product, .cotangent = direction({1, 6, 8}, 5)});
    }
}

TEST(Differentiate, AgreesWithDifferencesForFamilies) {
    for (const std::string text :
         {"bert-base,vocab=9,tokens=8", "gpt2,vocab=9,tokens=8", "pythia-160m,vocab=9,tokens=8",
          "llama-7b,vocab=9,tokens=8", "minicpm-2b,vocab=9,tokens=8",
          "llama-7b,vocab=9,tokens=8,attention=sink",
          "gpt2,vocab=9,tokens=8,attention=polynomial,scale=learned",
          "gpt2,vocab=9,tokens=8,attention=flash,group=3",
          "bert-base,vocab=9,tokens=8,attention=linformer,length=3",
          "bert-base,vocab=9,tokens=8,attention=linformer,length=3,per_head=1,shared=1",
          "bert-base,vocab=9,tokens=8,attention=transformer_ls,segment=2,rank=2",
          "gpt2,vocab=9,tokens=8,attention=transformer_ls,segment=2,rank=2,chunk=2",
          "bert-base,vocab=9,tokens=8,attention=flash_quad",
          "transformer-xl,vocab=9,act=gelu,placement=pre,clamp=2",
          "transformer-xl,vocab=9,act=gelu,deesc=0.7,deesc_at=ffn,deesc_mean=past"}) {
        SCOPED_TRACE(text);
        const RandomModel drawn = random_model(text + tiny);
        Input input;
        input.ids = {1, 5, 2, 8, 2};
        expect_differences(drawn.spec, random_weights(drawn, Rng(1), cpu(), Type::f64), input,
                           {.kind = Loss::Kind::tokens, .rows = {0, 2, 3}, .targets = {5, 0, 2}});
    }
}

/// Gated attention units, with the relative bias that all tokens of a group share.
TEST(Differentiate, AgreesWithDifferencesForGatedUnits) {
    for (const std::string text :
         {"flash,group=3", "flash,group=2,causal=1", "gau", "gau,causal=1"}) {
        SCOPED_TRACE(text);
        const RandomModel drawn = random_model(text + ",layers=2,d=8,ffn=12,vocab=9");
        Input input;
        input.ids = {1, 5, 2, 8, 2};
        expect_differences(drawn.spec, random_weights(drawn, Rng(1), cpu(), Type::f64), input,
                           {.kind = Loss::Kind::tokens, .rows = {0, 2, 3}, .targets = {5, 0, 2}});
    }
}

/// Caps of logits, norms in the branches, of 1 + w and of all heads, multipliers, steps in
/// parallel, mixtures of experts, clipped gates and sinks, latent keys.
TEST(Differentiate, AgreesWithDifferencesForDecoders) {
    for (const char* name : {"gemma2", "gemma3", "olmo2", "granite", "cohere2", "falcon-grouped",
                             "mixtral", "qwen2-moe", "olmoe", "gpt-oss", "deepseek-v2-groups",
                             "deepseek-v3", "llama4", "llama4-dense"}) {
        SCOPED_TRACE(name);
        const Opened opened = Opened::from(golden / name);
        Input input;
        for (Index i = 0; i < 12; ++i) input.ids.push_back((7 * i + 3) % 24);
        expect_differences(
            opened.architecture.spec,
            checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false), input,
            {.kind = Loss::Kind::tokens, .rows = {0, 5, 9}, .targets = {17, 9, 2}});
    }
}

/// The weights of the golden file are of order 1, so that no derivative is lost in the rounding of
/// the differences.
TEST(Differentiate, AgreesWithDifferencesForXcit) {
    const Opened opened = Opened::from(golden / "xcit/xcit.pth");
    const std::shared_ptr<const Weights> weights =
        checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false);
    const std::vector<double> pixels = gaussian(16, 3 * 24).hidden.to_host<double>();
    Input image;
    image.image = Tensor::from_host(cpu(), {3, 16, 24}, std::span<const double>(pixels), Type::f64);
    for (const bool softmax : {true, false}) {
        ModelSpec spec = opened.architecture.spec;
        spec.class_attention.all_normed = softmax;
        for (BlockSpec& b : spec.blocks) {
            b.attention.variant = softmax ? "softmax" : "polynomial";
            if (!softmax) b.attention.options = {{"scale", "none"}};
        }
        expect_differences(
            spec, weights, image,
            {.kind = Loss::Kind::classes, .classifier = direction({1, 5, 16}, 5), .label = 2});
    }
}

/// Two stages: widths, heads and tokens differ, a shifted layer among them.
TEST(Differentiate, AgreesWithDifferencesForSwin) {
    const Opened opened = Opened::from(golden / "swin");
    const std::shared_ptr<const Weights> weights =
        checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false);
    const std::vector<double> pixels = gaussian(12, 3 * 12).hidden.to_host<double>();
    Input image;
    image.image = Tensor::from_host(cpu(), {3, 12, 12}, std::span<const double>(pixels), Type::f64);
    for (const bool softmax : {true, false}) {
        ModelSpec spec = opened.architecture.spec;
        for (BlockSpec& b : spec.blocks) {
            b.attention.variant = softmax ? "softmax" : "polynomial";
            if (!softmax) b.attention.options = {{"p", "2"}};
            b.deesc = {.tau = softmax ? 0 : 0.7};
        }
        expect_differences(
            spec, weights, image,
            {.kind = Loss::Kind::classes, .classifier = direction({1, 5, 16}, 5), .label = 2});
    }
}

/// What comes before is a constant: the parameters of the last layer, or of the only one with given
/// states, have no part in it.
TEST(Differentiate, HoldsAMemoryConstant) {
    for (const std::string text : {"transformer-xl,vocab=9,memory=3,act=gelu,placement=post",
                                   "transformer-xl,vocab=9,memory=3,act=gelu,placement=pre"})
        for (const bool deep : {false, true}) {
            SCOPED_TRACE(text);
            RandomModel drawn = random_model(text + (deep ? tiny : ",layers=1,d=8,heads=2,ffn=12"));
            drawn.spec.embedding.vocabulary = 0;
            expect_differences(drawn.spec, random_weights(drawn, Rng(1), cpu(), Type::f64),
                               gaussian(8, 8),
                               {.kind = Loss::Kind::product, .cotangent = direction({1, 5, 8}, 5)},
                               deep ? "layer.1." : "layer.0.");
        }
}

/// Ids of the memory alone have no gradient of their embedding.
TEST(Differentiate, GivesIdsOfAMemoryNoGradient) {
    const Model model = random("transformer-xl,vocab=9,memory=3" + tiny, Type::f64);
    Input input;
    input.ids = {7, 8, 7, 1, 2, 3};
    const Gradients found = differentiate(
        model, input, {.kind = Loss::Kind::product, .cotangent = direction({1, 3, 8}, 5)});
    const Tensor& g = found.parameters.at("embed.token");
    const Index rows = g.rows();  // of the ids in ascending order, or of all
    EXPECT_EQ(squared_norm(g.row_range(rows == 9 ? 7 : rows - 2, 2)), 0);
    EXPECT_GT(squared_norm(g), 0);
}

/// The tables of an adaptive softmax are those of the embedding.
TEST(Differentiate, AddsTheUsesOfTablesInClusters) {
    const Opened opened = Opened::from(golden / "transformer-xl");
    Input input;
    input.ids = {3, 17, 9, 14, 8};
    expect_differences(
        opened.architecture.spec,
        checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false), input,
        {.kind = Loss::Kind::tokens, .rows = {0, 1, 3}, .targets = {17, 9, 2}});
}

/// Layers that share their parameters have one gradient, the sum over their uses.
TEST(Differentiate, AddsTheUsesOfSharedParameters) {
    const Opened opened = Opened::from(golden / "albert");
    const ModelSpec& spec = opened.architecture.spec;
    ASSERT_TRUE(std::ranges::any_of(spec.blocks, [](const BlockSpec& b) { return b.shares >= 0; }));
    const std::shared_ptr<const Weights> weights =
        checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false);
    Input input;
    input.ids = {3, 1, 7, 7, 2};
    expect_differences(spec, weights, input, {.kind = Loss::Kind::square});
}

/// A table that all layers read has one gradient, told with the layer that holds it.
TEST(Differentiate, AddsTheUsesOfATableOfAllLayers) {
    for (const char* name : {"mpnet", "deberta", "deberta-v3", "bert-relative-key-query"}) {
        SCOPED_TRACE(name);
        const Opened opened = Opened::from(golden / name);
        const std::shared_ptr<const Weights> weights =
            checkpoint_weights(opened.file, opened.architecture, cpu(), Type::f64, false);
        Input input;
        input.ids = {3, 1, 7, 7, 2};
        expect_differences(opened.architecture.spec, weights, input, {.kind = Loss::Kind::square});
    }
}

TEST(Differentiate, TellsStatesOfTheSweepLastLayerFirst) {
    const Gradients seen = differentiate(random("pre-norm" + tiny, Type::f64), gaussian(5, 8),
                                         {.kind = Loss::Kind::square});
    const std::vector<std::string> layer = {"in", "norm1", "sa", "attn", "norm2", "ffn", "out"};
    std::vector<std::string> expected;
    for (const std::string at : {"layer.1.", "layer.0."})
        for (const std::string& stage : layer) expected.push_back(at + stage);
    EXPECT_EQ(seen.order, expected);
    EXPECT_EQ(seen.attentions, 2);
    EXPECT_TENSOR_NEAR(seen.states.at("layer.1.in"), seen.states.at("layer.0.out"), exactly);
}

TEST(Differentiate, RunsEachSampleAsIfItWereAlone) {
    const Model model = random("gpt2,vocab=9,tokens=8" + tiny, Type::f64);
    std::vector<Input> inputs(3);
    inputs[0].ids = {1, 2, 3, 4};
    inputs[1].ids = {8, 2, 3};
    inputs[2].ids = {5, 5, 1, 0, 2};
    const std::vector<Loss> losses(3,
                                   {.kind = Loss::Kind::tokens, .rows = {0, 1}, .targets = {2, 3}});
    for (const Index memory : {Index{0}, Index{1}, Index{3000}}) {  // all, one, some at once
        Gradients all;
        model.differentiate(inputs, losses, all, {.memory = memory});
        const Gradients last = differentiate(model, inputs[2], losses[2]);
        EXPECT_EQ(all.sample, 2);
        ASSERT_EQ(all.losses.size(), 3U);
        EXPECT_EQ(all.losses[2], last.losses[0]);
        for (const auto& [name, g] : last.parameters)
            EXPECT_TENSOR_NEAR(all.parameters.at(name), g, exactly) << name;
    }
}

TEST(Differentiate, LeavesMaskedTokensOut) {
    const Model model = random("bert-base,vocab=9,tokens=8" + tiny, Type::f64);
    Input one, other;
    one.ids = {1, 5, 2, 8};
    other.ids = {1, 5, 7, 8};
    one.keep = other.keep = {true, true, false, true};
    const Loss loss{.kind = Loss::Kind::tokens, .rows = {2}, .targets = {4}};
    const Gradients a = differentiate(model, one, loss), b = differentiate(model, other, loss);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.states.at("layer.0.in").rows(), 3);
    EXPECT_TENSOR_NEAR(a.states.at("embed"), b.states.at("embed"), exactly);
}

TEST(Differentiate, TellsOnlyTheLayersAskedFor) {
    const Model model = random("gpt2,vocab=9,tokens=8,layers=3,d=8,heads=2,ffn=12", Type::f64);
    Input input;
    input.ids = {1, 2, 3, 4};
    const Loss loss{.kind = Loss::Kind::square};
    const Gradients all = differentiate(model, input, loss),
                    some = differentiate(model, input, loss, {.first_layer = 1, .last_layer = 1});
    EXPECT_EQ(some.losses, all.losses);
    EXPECT_FALSE(some.states.contains("layer.0.in") || some.states.contains("layer.2.in"));
    EXPECT_TENSOR_NEAR(some.states.at("layer.1.in"), all.states.at("layer.1.in"), exactly);
    EXPECT_TENSOR_NEAR(some.parameters.at("embed.position"), all.parameters.at("embed.position"),
                       exactly);
}

TEST(Differentiate, SaysWhatALossCannotBe) {
    const Model encoder = random("post-norm" + tiny, Type::f64);
    const Loss tokens{.kind = Loss::Kind::tokens, .rows = {0}, .targets = {1}};
    const auto error = [](const Model& model, const Input& input, const Loss& loss) {
        return thrown<UsageError>([&] { differentiate(model, input, loss); });
    };
    EXPECT_THAT(error(encoder, gaussian(3, 8), tokens), HasSubstr("has no vocabulary"));
    EXPECT_THAT(error(encoder, gaussian(3, 8),
                      {.kind = Loss::Kind::product, .cotangent = direction({1, 2, 8}, 1)}),
                HasSubstr("is (2, 8), expected (3, 8)"));
    Input one;
    one.ids = {1};
    EXPECT_THAT(
        error(random("gpt2,vocab=9,tokens=8" + tiny, Type::f64), one, {.kind = Loss::Kind::tokens}),
        HasSubstr("lm needs two tokens"));
    Gradients seen;
    EXPECT_THROW(encoder.differentiate(std::span(&one, 1), {}, seen), UsageError);
}

TEST(OutputHead, IsFoundByItsNames) {
    const OutputHead bert = Opened::from(golden / "bert").architecture.spec.head;
    EXPECT_TRUE(bert.transform && bert.bias);
    EXPECT_FALSE(bert.matrix);
    EXPECT_TRUE(Opened::from(golden / "llama").architecture.spec.head.matrix);
    const OutputHead none = Opened::from(golden / "gpt2").architecture.spec.head;
    EXPECT_FALSE(none.matrix || none.bias || none.transform);
    // The file contains the head as well, as the same matrix under a second name.
    EXPECT_FALSE(Opened::from(golden / "gpt2-prefixed").architecture.spec.head.matrix);
}

}  // namespace
}  // namespace tsdiag::test
