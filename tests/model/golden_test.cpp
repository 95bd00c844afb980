#include "recorder.hpp"

/// Forward parity with an independent implementation: tests/data/golden (make_golden.py).
namespace tsdiag::test {
namespace {

struct GoldenCase {
    std::string name;
    Json json;
    friend void PrintTo(const GoldenCase& c, std::ostream* out) { *out << c.name; }
};

std::vector<GoldenCase> golden_cases() {
    std::vector<GoldenCase> out;
    const Json manifest = read_json(golden / "manifest.json");
    for (const Json& c : manifest["cases"].array()) out.push_back({c["name"].string(), c});
    return out;
}

Opened open_case(const Json& c) {
    DetectOptions options;
    const Json& needs = c["needs"];
    if (needs["n_heads"].is_integer()) options.heads = needs["n_heads"].integer();
    if (needs["memory_tokens"].is_integer())
        options.memory_tokens = needs["memory_tokens"].integer();
    return Opened::from(golden / c["open"].string(), options);
}

Input read_input(const Checkpoint& arrays, Type type) {
    Input input;
    if (arrays.has("ids"))
        for (const double id : numbers(arrays, "ids")) input.ids.push_back(Index(id));
    if (arrays.has("image")) {
        const RawTensor raw = arrays.tensor("image");
        input.image = Tensor::from_host(cpu(), {raw.shape[0], raw.shape[1], raw.shape[2]},
                                        std::span<const double>(numbers(arrays, "image")), type);
    }
    if (arrays.has("hidden")) {
        const RawTensor raw = arrays.tensor("hidden");
        input.hidden = Tensor::from_host(cpu(), {1, raw.shape[0], raw.shape[1]},
                                         std::span<const double>(numbers(arrays, "hidden")), type);
    }
    if (arrays.has("mask"))
        for (const double keep : numbers(arrays, "mask")) input.keep.push_back(keep != 0);
    return input;
}

/// The kept rows of an array (n, d), or the kept rows and columns of one (h, n, n).
std::vector<double> kept(const std::vector<double>& values, const std::vector<Index>& shape,
                         const std::vector<bool>& keep) {
    if (keep.empty()) return values;
    const bool square = shape.size() == 3;
    const Index heads = square ? shape[0] : 1, n = shape[square ? 1 : 0], d = shape.back();
    std::vector<double> out;
    for (Index h = 0; h < heads; ++h)
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < d; ++j)
                if (keep[std::size_t(i)] && (!square || keep[std::size_t(j)]))
                    out.push_back(values[std::size_t((h * n + i) * d + j)]);
    return out;
}

class Golden : public testing::TestWithParam<GoldenCase> {
  protected:
    void compare(Type type, Tolerance tolerance) {
        const Json& c = GetParam().json;
        const Opened opened = open_case(c);
        const auto arrays = open_checkpoint(golden / c["golden"].string());
        const Input input = read_input(*arrays, type);
        Recorder seen;
        opened.model(type).run(std::span(&input, 1), seen);
        Index compared = 0;
        for (const std::string& name : arrays->names()) {
            if (name == "ids" || name == "image" || name == "hidden" || name == "mask") continue;
            const auto expected =
                kept(numbers(*arrays, name), arrays->tensor(name).shape, input.keep);
            std::vector<double> found;
            if (name.ends_with(".attentions"))
                found = seen.matrix[std::stoll(name.substr(6))];
            else if (seen.states.contains(name))
                found = seen.states[name];
            else
                FAIL() << "the model did not emit " << name;
            EXPECT_ALL_CLOSE(found, expected, tolerance) << name;
            ++compared;
        }
        EXPECT_EQ(std::ssize(seen.states) + std::ssize(seen.matrix), compared);
    }
};

TEST_P(Golden, IsReproducedInFloat64) {
    compare(Type::f64, {.relative = 1e-10, .reason = "rounding through the layers, float64"});
}
TEST_P(Golden, IsReproducedInFloat32) {
    compare(Type::f32, {.relative = 1e-5, .reason = "rounding through the layers, float32"});
}
TEST_P(Golden, IsDescribedByItsSpec) {
    const Json& c = GetParam().json;
    const ModelSpec spec = open_case(c).architecture.spec;
    EXPECT_EQ(spec.family, c["family"].string());
    EXPECT_EQ(std::ssize(spec.blocks), c["layers"].integer());
    EXPECT_EQ(spec.width, c["width"].integer());
    EXPECT_EQ(spec.blocks.front().attention.heads, c["heads"].integer());
    EXPECT_EQ(spec.final_norm, c["final_norm"].boolean());
    EXPECT_TRUE(spec.provenance.ignored.empty()) << spec.provenance.ignored.front();
    EXPECT_NO_THROW(spec.json().dump());
}
INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(golden_cases()), [](const auto& info) {
    std::string name = info.param.name;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace tsdiag::test
