#include <gmock/gmock.h>

#include <cmath>

#include "memory_file.hpp"
#include "recorder.hpp"
#include "support/naive.hpp"
#include "tsdiag/ops.hpp"

/// Transformer-XL: its memory, its reader, its softmax in clusters.
namespace tsdiag::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

const std::string small = "transformer-xl,layers=3,d=8,heads=2,ffn=12,vocab=11";

/// A segment and the one before it are one causal sample.
TEST(Memory, GivesTheLastTokensTheStatesThatTheyHaveInTheWholeSample) {
    for (const std::string more : {",placement=post", ",placement=pre,clamp=2",
                                   ",deesc=0.7,deesc_at=ffn,deesc_mean=past,placement=post"}) {
        SCOPED_TRACE(more);
        const bool means = more.find("deesc") != std::string::npos;
        const std::vector<Input> inputs = {of_ids({3, 1, 4, 1, 5, 9, 2}),
                                           of_ids({2, 7, 1, 8, 2, 8, 1})};
        const Index m = 4, n = 3, d = 8, heads = 2;
        Recorder whole, parts;
        whole.rows = parts.rows = true;
        random(small + more, Type::f64).run(inputs, whole);
        random(small + more + ",memory=4", Type::f64).run(inputs, parts, {.batch = 2});
        EXPECT_EQ(parts.order.size(), whole.order.size());
        for (const auto& [key, all] : whole.states) {
            const std::vector<double>& found = parts.states.at(key);
            ASSERT_EQ(std::ssize(found), n * d) << key;
            // Means over the tokens so far begin anew with a segment.
            if (means && key != "embed" && key != "layer.0.in" && key != "layer.0.sa" &&
                key != "layer.0.attn" && key != "layer.0.norm1")
                continue;
            EXPECT_ALL_CLOSE(found, std::vector<double>(all.begin() + m * d, all.end()),
                             rounding(300))
                << key;
        }
        for (Index l = 0; l < (means ? 1 : 3); ++l) {
            const std::vector<double>&all = whole.matrix.at(l), &found = parts.matrix.at(l);
            ASSERT_EQ(std::ssize(found), heads * n * (m + n));
            for (Index k = 0; k < heads; ++k)
                for (Index i = 0; i < n * (m + n); ++i)
                    EXPECT_CLOSE(found[std::size_t(k * n * (m + n) + i)],
                                 all[std::size_t((k * (m + n) + m) * (m + n) + i)], rounding(300));
        }
    }
}

TEST(Memory, HasAPartOfTheLossOnlyInItsEffect) {
    const Model model = random(small + ",memory=3", Type::f64);
    const Input input = of_ids({3, 1, 4, 1, 5, 9});
    // The targets of tokens 0 to 2 do not count, those of 3 and 4 do.
    const auto loss = [&](std::vector<Index> targets) {
        return model
            .step(input, {.kind = Loss::Kind::tokens,
                          .rows = {0, 1, 2, 3, 4},
                          .targets = std::move(targets)})
            .loss;
    };
    EXPECT_EQ(loss({1, 4, 1, 5, 9}), loss({0, 0, 0, 5, 9}));
    EXPECT_NE(loss({1, 4, 1, 5, 9}), loss({1, 4, 1, 5, 8}));
    const Loss on_last{.kind = Loss::Kind::tokens, .rows = {3, 4}, .targets = {5, 9}};
    EXPECT_EQ(model.step(input, on_last, {.hits = true}).predictions, 2);
    EXPECT_NE(model.step(of_ids({3, 1, 6, 1, 5, 9}), on_last).loss,
              model.step(input, on_last).loss);
}

TEST(Memory, RefusesWhatCannotHaveOne) {
    const auto said = [](const std::string& text, const Input& input, const Loss& loss = {}) {
        return thrown<UsageError>([&] { random(text, Type::f64).step(input, loss); });
    };
    const std::string with = small + ",memory=3";
    EXPECT_THAT(said(with, of_ids({1, 2, 3})),
                HasSubstr("has 3 tokens, of which the first 3 are its"));
    Input masked = of_ids({1, 2, 3, 4});
    masked.keep = {true, true, false, true};
    EXPECT_THAT(said(with, masked), HasSubstr("a mask cannot be combined with a memory"));
    EXPECT_THAT(said(with, of_ids({1, 2, 3, 4, 5}),
                     {.kind = Loss::Kind::tokens, .rows = {0, 2}, .targets = {2, 4}}),
                HasSubstr("tokens beyond the memory"));
    for (const auto& [text, why] :
         {std::pair{"gpt2,layers=1,d=8,heads=2,vocab=9", "softmax attention"},
          std::pair{"bert-base,layers=1,d=8,heads=2,vocab=9,attention=transformer_xl",
                    "bidirectional transformer_xl attention"},
          std::pair{"llama-7b,layers=1,d=8,heads=2,vocab=9,attention=transformer_xl",
                    "rotary transformer_xl attention"}}) {
        RandomModel drawn = random_model(text);
        drawn.spec.memory_tokens = 2;
        EXPECT_THAT(thrown<UsageError>([&] {
                        Model(drawn.spec, random_weights(drawn, Rng(1), cpu(), Type::f64), cpu(),
                              Type::f64);
                    }),
                    HasSubstr(why));
    }
    EXPECT_THAT(thrown<UsageError>([] { random_model(small + ",memory=0"); }),
                HasSubstr("memory=0"));
    EXPECT_THAT(thrown<UsageError>([] { random_model(small + ",causal=0"); }),
                HasSubstr("causal=0"));
    EXPECT_THAT(thrown<UsageError>([] { random_model(small + ",attention=softmax"); }),
                HasSubstr("unsupported attention softmax"));
    EXPECT_THAT(thrown<UsageError>([] { random_model(small + ",deesc=1,deesc_mean=last"); }),
                HasSubstr("deesc_mean=last"));
}

TEST(Deescalation, MayTakeTheMeanOverTheTokensSoFar) {
    Recorder seen;
    const Input input = gaussian(5, 8);
    random("post-norm,layers=1,d=8,heads=2,ffn=12,deesc=0.6,deesc_mean=past", Type::f64)
        .run(std::span(&input, 1), seen);
    const std::vector<double>&before = seen.states.at("layer.0.norm2"),
          &after = seen.states.at("layer.0.deesc");
    for (std::size_t c = 0; c < 8; ++c) {
        double sum = 0;
        for (std::size_t i = 0; i < 5; ++i) {
            sum += before[i * 8 + c];
            EXPECT_CLOSE(after[i * 8 + c], before[i * 8 + c] - 0.6 * sum / double(i + 1),
                         rounding(10));
        }
    }
}

Index parameters_of(const std::string& text) {
    Index sum = 0;
    for (const Parameter& p : parameters(random_model(text).spec)) sum += p.shape.count();
    return sum;
}

/// [TSE] 3.4: 151M for the original, 201M for 60 layers with a feed-forward step of 820.
TEST(TransformerXl, HasTheSizesOfThePaper) {
    EXPECT_EQ(std::llround(double(parameters_of("transformer-xl")) / 1e6), 151);
    EXPECT_EQ(std::llround(double(parameters_of("transformer-xl,layers=60,ffn=820")) / 1e6), 201);
    const ModelSpec s = random_model("transformer-xl-large").spec;
    EXPECT_EQ(s.blocks.size(), 18U);
    EXPECT_EQ(s.blocks[0].attention.head_dim, 64);
}

/// Names, shapes and values of a golden file.
std::shared_ptr<MemoryFile> filled_copy_of(const std::string& path) {
    const auto file = open_checkpoint(golden / path);
    auto out = std::make_shared<MemoryFile>();
    for (const std::string& name : file->names()) {
        out->add(name, file->tensor(name).shape);
        const std::vector<double> values = numbers(*file, name);
        std::copy(values.begin(), values.end(), out->values(name).begin());
    }
    return out;
}

DetectOptions options_of(const std::string& path) {
    DetectOptions options;
    options.config = read_json(golden / path / "config.json");
    return options;
}

/// log p(target) by definition: the first cluster's softmax, then the softmax inside a cluster.
double log_probability(const Checkpoint& file, const std::vector<double>& state,
                       const std::vector<Index>& ends, bool tables, Index target) {
    const auto matrix = [&](const std::string& name) {
        const RawTensor raw = file.tensor(name);
        return naive::Matrix(raw.shape[0], raw.shape[1], numbers(file, name));
    };
    const naive::Matrix x(1, std::ssize(state), state);
    const auto logits = [&](std::size_t i) {
        const std::string number = std::to_string(i);
        naive::Matrix at = x, table;
        if (tables) {
            const std::string own = "crit.out_projs." + number;
            at = naive::product(
                x, matrix(file.has(own) ? own : "transformer.word_emb.emb_projs." + number));
            table = matrix("transformer.word_emb.emb_layers." + number + ".weight");
        } else {
            table = matrix("transformer.word_emb.emb_layers.0.weight");
        }
        const std::vector<double> bias =
            numbers(file, "crit.out_layers." + (tables ? number : std::string("0")) + ".bias");
        const Index first = i == 0 ? 0 : ends[i - 1], skip = tables ? 0 : first;
        std::vector<double> out;
        for (Index w = 0; w < ends[i] - first; ++w) {
            double s = bias[std::size_t(skip + w)];
            for (Index c = 0; c < at.cols; ++c) s += at(0, c) * table(skip + w, c);
            out.push_back(s);
        }
        if (i > 0) return out;
        const naive::Matrix clusters = matrix("crit.cluster_weight");
        const std::vector<double> more = numbers(file, "crit.cluster_bias");
        for (Index k = 0; k < clusters.rows; ++k) {
            double s = more[std::size_t(k)];
            for (Index c = 0; c < at.cols; ++c) s += at(0, c) * clusters(k, c);
            out.push_back(s);
        }
        return out;
    };
    const auto log_share = [](const std::vector<double>& s, Index k) {
        double z = 0;
        for (const double e : s) z += std::exp(e);
        return s[std::size_t(k)] - std::log(z);
    };
    std::size_t i = 0;
    while (target >= ends[i]) ++i;
    if (i == 0) return log_share(logits(0), target);
    return log_share(logits(0), ends[0] + Index(i) - 1) +
           log_share(logits(i), target - ends[i - 1]);
}

TEST(AdaptiveSoftmax, IsThatOfItsDefinition) {
    for (const std::string path : {"transformer-xl", "transformer-xl-memory"}) {
        const Opened opened = Opened::from(golden / path);
        const bool tables = opened.architecture.spec.embedding.clusters.there();
        EXPECT_EQ(tables, path == "transformer-xl");
        ASSERT_EQ(opened.architecture.spec.head.cluster_ends, (std::vector<Index>{9, 15, 24}));
        EXPECT_EQ(opened.architecture.spec.head.first_map, tables);
        const Input input = of_ids({3, 17, 9, 14});
        Recorder seen;
        const Model model = opened.model(Type::f64);
        model.run(std::span(&input, 1), seen);
        const std::vector<double>& out = seen.states.at("layer.2.out");
        double sum = 0;
        for (const Index target : {0, 8, 9, 14, 15, 23}) {
            const Loss loss{.kind = Loss::Kind::tokens, .rows = {1}, .targets = {target}};
            const double expected = log_probability(
                *opened.file, {out.begin() + 12, out.begin() + 24}, {9, 15, 24}, tables, target);
            EXPECT_CLOSE(model.step(input, loss, {.gradients = false}).loss, -expected,
                         rounding(1000));
            sum += std::exp(expected);
        }
        EXPECT_LT(sum, 1);
    }
}

/// A softmax whose tables are not those of the embedding is none that is known.
TEST(AdaptiveSoftmax, IsLeftOutWhereItIsNotTied) {
    const auto file = filled_copy_of("transformer-xl");
    file->add("crit.out_layers.1.weight", {6, 4}, 0.25F);
    EXPECT_TRUE(detect(*file, options_of("transformer-xl")).spec.head.cluster_ends.empty());
    file->values("crit.out_layers.1.weight") =
        file->values("transformer.word_emb.emb_layers.1.weight");
    EXPECT_FALSE(detect(*file, options_of("transformer-xl")).spec.head.cluster_ends.empty());
}

TEST(TransformerXl, IsReadByItsNamesAlone) {
    const ModelSpec s = detect(*filled_copy_of("transformer-xl"), {}).spec;
    EXPECT_EQ(s.family, "transformer_xl");
    EXPECT_EQ(s.embedding.clusters.ends, (std::vector<Index>{9, 15, 24}));
    EXPECT_EQ(s.embedding.clusters.divisor, 2);
    for (const char* line : {"same_length", "mem_len", "clamp_len", "pre_lnorm"})
        EXPECT_THAT(s.provenance.defaults, Contains(HasSubstr(line)));
    EXPECT_EQ(s.blocks[0].attention.window, 1600);
    EXPECT_EQ(s.blocks[0].attention.options.at("clamp"), "1000");
}

TEST(TransformerXl, RefusesWhatItDoesNotUnderstand) {
    const auto refused = [](const char* key, const Json& value) {
        DetectOptions options = options_of("transformer-xl");
        options.config.set(key, value);
        return thrown<FormatError>([&] { detect(*filled_copy_of("transformer-xl"), options); });
    };
    EXPECT_THAT(refused("attn_type", Json(Index{2})), HasSubstr("attn_type = 2"));
    EXPECT_THAT(refused("ext_len", Json(Index{8})), HasSubstr("ext_len = 8"));
    EXPECT_THAT(refused("div_val", Json(Index{4})), HasSubstr("div_val = 4"));
    EXPECT_THAT(refused("cutoffs", Json(Json::Array{Index{9}, Index{16}})),
                HasSubstr("its tables end at 9, 15, 24"));
    EXPECT_THAT(refused("cutoffs", Json(Json::Array{Index{16}, Index{9}})),
                HasSubstr("expected ascending values"));
    EXPECT_THAT(refused("mem_len", Json(Index{0})), HasSubstr("mem_len is 0"));
    const auto file = filled_copy_of("transformer-xl");
    file->remove("transformer.word_emb.emb_projs.0");
    EXPECT_THAT(thrown<FormatError>([&] { detect(*file, options_of("transformer-xl")); }),
                HasSubstr("emb_projs.0' is missing"));
}

}  // namespace
}  // namespace tsdiag::test
