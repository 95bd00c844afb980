#include "checkpoint/samples.hpp"

namespace tsdiag {
namespace {

struct Expected {
    std::string file;
    Json tensors;  ///< [[name, {dtype, shape, values}], ...]
};

void PrintTo(const Expected& e, std::ostream* out) { *out << e.file; }

std::vector<Expected> all_expected() {
    std::vector<Expected> result;
    const auto path = samples::folder() / "expected.json";
    const Json json = Json::parse(samples::read_file(path), path.string());
    for (const auto& [file, tensors] : json.object()) result.push_back({file, tensors});
    return result;
}

class EverySample : public testing::TestWithParam<Expected> {};

double number(const Json& value) {
    if (!value.is_string()) return value.number();
    return value.string() == "nan" ? NAN : value.string() == "inf" ? INFINITY : -INFINITY;
}

TEST_P(EverySample, HoldsWhatItsWriterSays) {
    const auto file = open_checkpoint(samples::folder() / GetParam().file);
    const Json::Array& tensors = GetParam().tensors.array();
    std::vector<std::string> names;
    for (const Json& pair : tensors) names.push_back(pair.array()[0].string());
    EXPECT_EQ(file->names(), names);
    for (const Json& pair : tensors) {
        const std::string& name = pair.array()[0].string();
        const Json& expected = pair.array()[1];
        SCOPED_TRACE(name);
        const RawTensor tensor = file->tensor(name);
        EXPECT_EQ(tsdiag::name(tensor.dtype), expected["dtype"].string());
        std::vector<std::int64_t> shape;
        for (const Json& size : expected["shape"].array()) shape.push_back(size.integer());
        EXPECT_EQ(tensor.shape, shape);
        std::vector<testing::Matcher<double>> all;
        for (const Json& value : expected["values"].array())
            all.push_back(testing::NanSensitiveDoubleEq(number(value)));
        EXPECT_THAT(samples::values(tensor), testing::ElementsAreArray(all));
    }
}

TEST_P(EverySample, IsReadTheSameInFloatAsFarAsFloatGoes) {
    const auto file = open_checkpoint(samples::folder() / GetParam().file);
    for (const std::string& name : file->names()) {
        const RawTensor tensor = file->tensor(name);
        const std::vector<double> exact = samples::values(tensor);
        std::vector<float> narrow(exact.size());
        widen<float>(tensor, narrow);
        for (std::size_t i = 0; i < exact.size(); ++i)
            if (!std::isnan(exact[i])) {
                EXPECT_EQ(narrow[i], float(exact[i])) << name;
            }
        if (const auto in_place = as_is<float>(tensor)) {
            EXPECT_TRUE(std::equal(narrow.begin(), narrow.end(), in_place->begin(),
                                   [](float a, float b) { return a == b || (a != a && b != b); }))
                << name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, EverySample, testing::ValuesIn(all_expected()),
                         [](const auto& sample) {
                             std::string name = sample.param.file;
                             for (char& c : name)
                                 if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                             return name;
                         });

}  // namespace
}  // namespace tsdiag
