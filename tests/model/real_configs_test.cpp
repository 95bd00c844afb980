#include <gmock/gmock.h>

#include <map>

#include "families/engine/names.hpp"
#include "real_decoders.hpp"
#include "recorder.hpp"

/// Configurations as published run unchanged; those of other models do not.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A checkpoint with the right names and shapes at full size, all elements of which are equal.
class Shapes final : public Checkpoint {
  public:
    void add(const std::string& name, std::vector<std::int64_t> shape) {
        if (shapes_.emplace(name, std::move(shape)).second) names_.push_back(name);
    }
    const std::vector<std::string>& names() const override { return names_; }
    RawTensor tensor(std::string_view name) const override {
        RawTensor out;
        out.dtype = DType::f32;
        out.shape = shapes_.at(std::string(name));
        out.strides.assign(out.shape.size(), 0);
        out.bytes = std::as_bytes(std::span(one_.get(), 1));
        out.owner = one_;
        return out;
    }
    const Json& metadata() const override { return metadata_; }
    std::string_view format() const override { return "shapes"; }
    std::string source() const override { return "shapes.file"; }

  private:
    std::vector<std::string> names_;
    std::map<std::string, std::vector<std::int64_t>> shapes_;
    std::shared_ptr<float> one_ = std::make_shared<float>(0.5F);
    Json metadata_ = Json::Object();
};

/// Tensors with the names and shapes of the family of `random`; DeiT's has a second leading token.
std::shared_ptr<Shapes> file_of(const char* random, bool distilled) {
    ModelSpec spec = random_model(random).spec;
    const auto out = std::make_shared<Shapes>();
    for (const ArchitectureEntry* entry : architectures()) {
        if (entry->name != spec.family) continue;
        std::map<std::string, Parameter> known;
        for (const Parameter& p : parameters(spec)) known.emplace(p.name, p);
        for (const auto& [canonical, source] : entry->names(spec)) {
            std::vector<std::int64_t> shape =
                families::whole_shape(spec, known.at(canonical), source);
            if (distilled && canonical == "embed.position") shape[1] += 1;
            out->add(source.file_name, shape);
        }
    }
    if (distilled) out->add("embeddings.distillation_token", {1, 1, spec.width});
    return out;
}

class EveryRealConfig : public testing::TestWithParam<RealConfig> {};

TEST_P(EveryRealConfig, RunsByItsName) {
    DetectOptions options;
    options.config = Json::parse(GetParam().config, GetParam().model);
    const bool distilled = options.config["model_type"].string() == "deit";
    const auto file = file_of(GetParam().random, distilled);
    ModelSpec found;
    try {
        found = detect(*file, options).spec;
    } catch (const Error& e) {
        FAIL() << GetParam().model << ": " << e.what();
    }
    EXPECT_THAT(found.provenance.warnings, IsEmpty());
    EXPECT_THAT(found.provenance.ignored, IsEmpty());
    const ModelSpec drawn = random_model(GetParam().random).spec;
    EXPECT_EQ(found.blocks.size(), drawn.blocks.size());
    EXPECT_EQ(found.blocks[0].attention.heads, drawn.blocks[0].attention.heads);
    EXPECT_EQ(found.blocks[0].attention.kv_heads, drawn.blocks[0].attention.kv_heads);
    EXPECT_EQ(found.blocks[0].attention.qkv_bias, drawn.blocks[0].attention.qkv_bias);
    if (found.family == "llama4") {
        const Json read = found.json()["blocks"], made = drawn.json()["blocks"];
        for (std::size_t l = 0; l < drawn.blocks.size(); ++l)
            EXPECT_EQ(read.array()[l].dump(), made.array()[l].dump()) << l;
    }
}

std::string word(const char* text) {
    std::string out = text;
    std::ranges::replace_if(
        out, [](char c) { return !std::isalnum(std::uint8_t(c)); }, '_');
    return out;
}
INSTANTIATE_TEST_SUITE_P(Hub, EveryRealConfig, testing::ValuesIn(real_configs),
                         [](const auto& info) { return word(info.param.model); });
INSTANTIATE_TEST_SUITE_P(Decoders, EveryRealConfig, testing::ValuesIn(real_decoders),
                         [](const auto& info) { return word(info.param.model); });

class EveryImpostor : public testing::TestWithParam<Impostor> {};

TEST_P(EveryImpostor, IsRefusedByTheKeyThatTells) {
    DetectOptions options;
    options.config = Json::parse(GetParam().config, GetParam().model);
    const auto file = file_of(GetParam().random, false);
    try {
        detect(*file, options);
        FAIL() << GetParam().model << " was read";
    } catch (const FormatError& e) {
        EXPECT_THAT(e.what(), HasSubstr(GetParam().key));
    }
}
INSTANTIATE_TEST_SUITE_P(Hub, EveryImpostor, testing::ValuesIn(impostors),
                         [](const auto& info) { return word(info.param.model); });

}  // namespace
}  // namespace tsdiag::test
