#include "tsdiag/adapter.hpp"

#include <cmath>

#include "listed.hpp"
#include "samples.hpp"
#include "support/near.hpp"
#include "support/packers.hpp"
#include "tsdiag/layouts.hpp"

/// Matrices that an adapter changes, against three loops in float64.
namespace tsdiag {
namespace {

using samples::message_of;
using samples::TemporaryFolder;
using test::Array;
using testing::HasSubstr;
using Doubles = std::vector<double>;

constexpr std::int64_t outputs = 70, inputs = 96, rank = 4;

/// Neither small numbers of bits nor a pattern.
Doubles numbers(std::int64_t count, double seed) {
    Doubles out(std::size_t(count), 0.0);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::sin(seed + 1.7 * double(i));
    return out;
}

/// Of a matrix of `outputs` and `inputs`, its change, and the lengths of DoRA.
struct Case {
    Doubles weight = numbers(outputs * inputs, 1), a = numbers(rank * inputs, 2),
            b = numbers(outputs * rank, 3), lengths = numbers(outputs, 4);
    double scale = 1;
    bool dora = false;

    /// Of output `o` and input `i`.
    Doubles changed() const {
        Doubles out(weight.size());
        for (std::int64_t o = 0; o < outputs; ++o) {
            double squares = 0;
            for (std::int64_t i = 0; i < inputs; ++i) {
                double sum = 0;
                for (std::int64_t k = 0; k < rank; ++k)
                    sum += b[std::size_t(o * rank + k)] * a[std::size_t(k * inputs + i)];
                double& value = out[std::size_t(o * inputs + i)];
                value = weight[std::size_t(o * inputs + i)] + scale * sum;
                squares += value * value;
            }
            for (std::int64_t i = 0; dora && i < inputs; ++i)
                out[std::size_t(o * inputs + i)] *= lengths[std::size_t(o)] / std::sqrt(squares);
        }
        return out;
    }
};

Doubles turned(const Doubles& matrix, std::int64_t rows, std::int64_t columns) {
    Doubles out(matrix.size());
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c)
            out[std::size_t(c * rows + r)] = matrix[std::size_t(r * columns + c)];
    return out;
}

Array array(const std::string& name, std::vector<std::int64_t> shape, const Doubles& values) {
    return {name, "F64", std::move(shape), test::bytes_of(values)};
}

template <class T>
std::vector<T> read(const RawTensor& tensor) {
    std::vector<T> values(std::size_t(tensor.count()));
    widen<T>(tensor, values);
    return values;
}

Json config() { return Json().set("peft_type", "LORA").set("r", rank).set("lora_alpha", 6); }

class AdapterTest : public testing::Test {
  protected:
    std::shared_ptr<const Checkpoint> applied(const std::vector<Array>& base,
                                              const std::vector<Array>& adapter, const Json& said) {
        const std::string number = std::to_string(written_++);  // the others may be mapped
        const auto model = folder.write("model" + number, test::safetensors(base)),
                   change = folder.write("adapter" + number, test::safetensors(adapter));
        return apply_adapter(open_checkpoint(model),
                             {"adapter_config.json", said, open_checkpoint(change)}, notes,
                             warnings);
    }
    std::vector<Array> pair_of(const std::string& module, const Case& of) const {
        std::vector<Array> out{
            array("base_model.model." + module + ".lora_A.weight", {rank, inputs}, of.a),
            array("base_model.model." + module + ".lora_B.weight", {outputs, rank}, of.b)};
        if (of.dora)
            out.push_back(array("base_model.model." + module + ".lora_magnitude_vector", {outputs},
                                of.lengths));
        return out;
    }
    const TemporaryFolder folder;
    std::vector<std::string> notes, warnings;

  private:
    int written_ = 0;
};

/// Two sums of the same terms, which a compiler may contract.
void expect_rounded(const Doubles& found, const Doubles& expected) {
    EXPECT_ALL_CLOSE(found, expected, test::rounding(rank + 2), Type::f64);
}

TEST_F(AdapterTest, LoraAddsTheScaledProduct) {
    Case of;
    of.scale = 6.0 / rank;
    const auto file =
        applied({array("q.weight", {outputs, inputs}, of.weight)}, pair_of("q", of), config());
    const Doubles found = read<double>(file->tensor("q.weight")), expected = of.changed();
    expect_rounded(found, expected);
    const std::vector<float> rounded = read<float>(file->tensor("q.weight"));
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(rounded[i], float(found[i])) << i;
    EXPECT_THAT(notes.back(), HasSubstr("LoRA of rank 4, alpha 6, scale 1.5, on 1 matrix (q)"));
    EXPECT_TRUE(warnings.empty());
}

TEST_F(AdapterTest, RsLoraDividesByTheRoot) {
    Case of;
    of.scale = 6 / std::sqrt(double(rank));
    const auto file = applied({array("q.weight", {outputs, inputs}, of.weight)}, pair_of("q", of),
                              config().set("use_rslora", true));
    expect_rounded(read<double>(file->tensor("q.weight")), of.changed());
    EXPECT_THAT(notes.back(), HasSubstr("rsLoRA of rank 4, alpha 6, scale 3"));
}

TEST_F(AdapterTest, AWeightThatIsStoredTurnedIsChangedTurned) {
    Case of;
    of.scale = 6.0 / rank;
    for (const bool said : {true, false}) {
        const auto file =
            applied({array("q.weight", {inputs, outputs}, turned(of.weight, outputs, inputs))},
                    pair_of("q", of), config().set("fan_in_fan_out", said));
        expect_rounded(read<double>(file->tensor("q.weight")),
                       turned(of.changed(), outputs, inputs));
        EXPECT_EQ(warnings.empty(), said);
    }
    EXPECT_THAT(warnings.back(), HasSubstr("fan_in_fan_out of the adapter is false"));
}

TEST_F(AdapterTest, DoraScalesEachOutputToItsLength) {
    Case of;
    of.scale = 6.0 / rank;
    of.dora = true;
    const Json said = config().set("use_dora", true);
    // Norms are sums of all inputs.
    const auto near = test::rounding(inputs + rank);
    const auto file =
        applied({array("q.weight", {outputs, inputs}, of.weight)}, pair_of("q", of), said);
    EXPECT_ALL_CLOSE(read<double>(file->tensor("q.weight")), of.changed(), near, Type::f64);
    const auto other =
        applied({array("q.weight", {inputs, outputs}, turned(of.weight, outputs, inputs))},
                pair_of("q", of), said);
    EXPECT_ALL_CLOSE(read<double>(other->tensor("q.weight")), turned(of.changed(), outputs, inputs),
                     near, Type::f64);
    EXPECT_THAT(notes.back(), HasSubstr("DoRA of rank 4"));
}

/// lora_embedding_A is (rank, words), lora_embedding_B (width, rank), the embedding (words, width).
TEST_F(AdapterTest, AnEmbeddingIsChangedTurned) {
    Case of;
    of.scale = 6.0 / rank;
    const auto file =
        applied({array("words.weight", {inputs, outputs}, turned(of.weight, outputs, inputs))},
                {array("base_model.model.words.lora_embedding_A", {rank, inputs}, of.a),
                 array("base_model.model.words.lora_embedding_B", {outputs, rank}, of.b)},
                config());
    expect_rounded(read<double>(file->tensor("words.weight")),
                   turned(of.changed(), outputs, inputs));
    EXPECT_EQ(read<double>(file->tensor("words.weight.before_adapter")),
              turned(of.weight, outputs, inputs));
}

/// Parts that processes have saved are no quantised matrix.
TEST_F(AdapterTest, AMatrixThatIsPutTogetherIsChanged) {
    Case of;
    of.scale = 6.0 / rank;
    for (double& number : of.weight) number = double(float(number));
    const std::vector<float> floats(of.weight.begin(), of.weight.end());
    constexpr std::int64_t first = 30;
    const auto middle = floats.begin() + first * inputs;
    const std::shared_ptr<const Checkpoint> parts = open_checkpoint(folder.write(
        "parts",
        test::safetensors(
            {{"top", "F32", {first, inputs}, test::bytes_of(std::vector(floats.begin(), middle))},
             {"bottom",
              "F32",
              {outputs - first, inputs},
              test::bytes_of(std::vector(middle, floats.end()))}})));
    const auto base =
        std::make_shared<checkpoint::ListedCheckpoint>(parts->format(), parts->source());
    base->add("q.weight", stacked({parts->tensor("top"), parts->tensor("bottom")}, "parts", "q"));
    const std::shared_ptr<const Checkpoint> change =
        open_checkpoint(folder.write("change", test::safetensors(pair_of("q", of))));
    const auto file =
        apply_adapter(base, {"adapter_config.json", config(), change}, notes, warnings);
    expect_rounded(read<double>(file->tensor("q.weight")), of.changed());
}

TEST_F(AdapterTest, PartsOfAMatrixAreThoseOfTheWhole) {
    Case of;
    of.dora = true;
    for (const bool stored_turned : {false, true}) {
        const std::int64_t rows = stored_turned ? inputs : outputs,
                           columns = stored_turned ? outputs : inputs;
        const Doubles weight = stored_turned ? turned(of.weight, outputs, inputs) : of.weight;
        const auto file = applied({array("q.weight", {rows, columns}, weight)}, pair_of("q", of),
                                  config().set("use_dora", true));
        const RawTensor whole = file->tensor("q.weight");
        const Doubles all = read<double>(whole);
        RawTensor row = whole, column = whole;
        row.offset = 7 * columns, row.shape = {1, columns};
        column.offset = 5, column.shape = {rows, 1};
        const Doubles of_row = read<double>(row), of_column = read<double>(column);
        for (std::int64_t c = 0; c < columns; ++c)
            ASSERT_EQ(of_row[std::size_t(c)], all[std::size_t(7 * columns + c)]);
        for (std::int64_t r = 0; r < rows; ++r)
            ASSERT_EQ(of_column[std::size_t(r)], all[std::size_t(r * columns + 5)]);
    }
}

/// PEFT: re.match(rf"(.*\.)?({key})$", name), the first key that fits.
TEST_F(AdapterTest, PatternsFitTheEndsOfNames) {
    const std::vector<std::pair<const char*, bool>> patterns = {{"q", true},
                                                                {"layers.1.q", true},
                                                                {"model.layers.1.q", true},
                                                                {"^model.*q", true},
                                                                {R"(layers\.[0-9]+.q)", true},
                                                                {"(k|q)", true},
                                                                {"^layers.1.q", false},
                                                                {"ayers.1.q", false},
                                                                {"layers.1", false},
                                                                {"layers.[^1].q", false},
                                                                {"", false}};
    for (const auto& [pattern, fits] : patterns) {
        Case of;
        of.scale = (fits ? 10.0 : 6.0) / rank;
        const auto file =
            applied({array("model.layers.1.q.weight", {outputs, inputs}, of.weight)},
                    pair_of("model.layers.1.q", of),
                    config().set("alpha_pattern", Json().set(pattern, 10).set("(q)", 6)));
        SCOPED_TRACE(pattern);
        expect_rounded(read<double>(file->tensor("model.layers.1.q.weight")), of.changed());
    }
    Case of;
    const auto with_pattern = [&](const char* pattern) {
        return message_of<FormatError>([&] {
            applied({array("q.weight", {outputs, inputs}, of.weight)}, pair_of("q", of),
                    config().set("rank_pattern", Json().set(pattern, rank)));
        });
    };
    for (const char* pattern : {"q{1}", "(?i)Q", R"(\bq)", "(q*)*", "q)", "[q", "*q"})
        EXPECT_THAT(with_pattern(pattern), HasSubstr("an expression that is not understood"))
            << pattern;
}

/// The last number behind a name, whatever list it is of; a whole name is of any layer.
TEST_F(AdapterTest, LayersAreThoseThatPeftReads) {
    constexpr const char* module = "t.block.3.layer.0.q";
    const auto takes = [&](const char* target, Json layers, const Json& lists) {
        const Case of;
        const Json said = config()
                              .set("target_modules", Json::Array{target})
                              .set("layers_to_transform", std::move(layers))
                              .set("layers_pattern", lists);
        try {
            applied({array(std::string(module) + ".weight", {outputs, inputs}, of.weight)},
                    pair_of(module, of), said);
            return true;
        } catch (const FormatError& error) {
            EXPECT_THAT(error.what(), HasSubstr("leaves the module out"));
            return false;
        }
    };
    EXPECT_TRUE(takes("q", 0, Json()));
    EXPECT_FALSE(takes("q", 3, Json()));
    EXPECT_FALSE(takes("q", 0, "block"));
    for (const Json& lists : {Json("block"), Json("t?.block"), Json(Json::Array{"h", "block"})})
        EXPECT_TRUE(takes("q", Json::Array{2, 3}, lists));
    EXPECT_TRUE(takes("q", 0, "3.layer"));
    EXPECT_FALSE(takes("q", 3, "t.block"));  // no name before it
    EXPECT_FALSE(takes("q", 3, Json::Array{"h"}));
    EXPECT_TRUE(takes(module, 7, Json()));
    EXPECT_FALSE(takes("k", 0, Json()));
}

TEST_F(AdapterTest, ASquareMatrixIsStoredAsThoseBesideIt) {
    constexpr std::int64_t n = 6;
    const Doubles weight = numbers(n * n, 1), a = numbers(rank * n, 2), b = numbers(n * rank, 3);
    const auto change = [&](std::vector<std::int64_t> beside, std::int64_t bias, bool said) {
        std::vector<Array> base{array("h.0.p.weight", {n, n}, weight)};
        if (bias > 0) {
            base.push_back(array("h.0.p.bias", {n}, numbers(n, 5)));
            const std::int64_t count = beside[0] * beside[1];
            base.push_back(array("h.0.fc1.weight", std::move(beside), numbers(count, 6)));
            base.push_back(array("h.0.fc1.bias", {bias}, numbers(bias, 7)));
        }
        const auto file = applied(base,
                                  {array("base_model.model.h.0.p.lora_A.weight", {rank, n}, a),
                                   array("base_model.model.h.0.p.lora_B.weight", {n, rank}, b)},
                                  config().set("fan_in_fan_out", said));
        Doubles out = read<double>(file->tensor("h.0.p.weight"));
        for (std::size_t i = 0; i < out.size(); ++i) out[i] -= weight[i];
        return out;
    };
    Doubles upright(n * n, 0.0);
    for (std::int64_t o = 0; o < n; ++o)
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t k = 0; k < rank; ++k)
                upright[std::size_t(o * n + i)] +=
                    1.5 * b[std::size_t(o * rank + k)] * a[std::size_t(k * n + i)];
    // What is subtracted again is of modulus 1.
    const test::Tolerance near{.absolute = 1e-14, .reason = "a difference of numbers near 1"};
    for (const bool said : {false, true}) {
        EXPECT_ALL_CLOSE(change({9, n}, 9, said), upright, near, Type::f64);
        EXPECT_ALL_CLOSE(change({n, 9}, 9, said), turned(upright, n, n), near, Type::f64);
        EXPECT_ALL_CLOSE(change({}, 0, said), upright, near, Type::f64);  // no Conv1D lacks a bias
    }
}

}  // namespace
}  // namespace tsdiag
