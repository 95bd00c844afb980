#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device_backend.hpp"
#include "emulated_stream.hpp"
#include "requests.hpp"
#include "runtime.hpp"
#include "support/table_differences.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/probe.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/weights.hpp"

/// Budgets: the requests of a layer to a device, counted on the emulated one.  They may fall, and
/// then the budget falls with them, but not grow.
namespace tsdiag {
namespace {

const Backend& device() {
    static const std::unique_ptr<Backend> one = gpu::make_backend(0);
    return *one;
}

class NoSink final : public Sink {
  public:
    void scalar(const Place&, std::string_view, const Value&) override {}
    void point(const Place&, std::string_view, double, const Value&) override {}
    void matrix(Map) override {}
};

struct Counts {
    Index kernels = 0, products = 0, allocations = 0, uploads = 0, downloads = 0, waits = 0;
    Index up = 0, down = 0;  ///< bytes
    bool operator==(const Counts&) const = default;
};
void PrintTo(const Counts& c, std::ostream* out) {
    *out << c.kernels << " kernels, " << c.products << " products, " << c.allocations
         << " allocations, " << c.uploads << " uploads, " << c.downloads << " downloads, "
         << c.waits << " waits, " << c.up << " bytes up, " << c.down << " bytes down";
}

/// Counts by name, as in gpu/requests.hpp, and "bytes up" and "bytes down".
using Requests = std::map<std::string, Index>;

Counts counts_of(const Requests& all) {
    Counts c;
    for (const auto& [name, count] : all) {
        if (name.ends_with("_kernel")) c.kernels += count;
        if (name.starts_with("product")) c.products += count;
        if (name == "allocation") c.allocations += count;
        if (name == "upload") c.uploads += count;
        if (name == "download") c.downloads += count;
        if (name == "wait") c.waits += count;
        if (name == "bytes up") c.up += count;
        if (name == "bytes down") c.down += count;
    }
    return c;
}

/// The requests of `function`, done for the second time.
template <class Function>
Requests asked(const Function& function) {
    function();
    const auto before = gpu::requests();
    function();
    Requests out;
    for (const auto& [name, now] : gpu::requests()) {
        const auto at = before.find(name);
        const gpu::Requests more = now - (at == before.end() ? gpu::RequestsOfAName() : at->second);
        out[name] = Index(more.count);
        if (name == "upload") out["bytes up"] = Index(more.bytes);
        if (name == "download") out["bytes down"] = Index(more.bytes);
    }
    return out;
}

/// A drawn model whose weights are on the device.
struct Drawn {
    explicit Drawn(const std::string& text) : drawn(random_model(text)) {
        weights = resident_weights(random_weights(drawn, Rng(1), device(), Type::f32));
    }
    Model model() const { return {drawn.spec, weights, device(), Type::f32}; }

    RandomModel drawn;
    std::shared_ptr<const Weights> weights;
};

std::vector<Input> inputs(Index samples, Index tokens, Index width) {
    auto out = std::vector<Input>(std::size_t(samples));
    for (Index s = 0; s < samples; ++s)
        out[std::size_t(s)].hidden =
            random_tensor(device(), {1, tokens, width}, Type::f32, Law::normal, Rng(s + 2), 0, 1);
    return out;
}

/// Of one layer: what three layers ask for more than one, halved.
template <class Of>
std::pair<Counts, Requests> of_a_layer(const Of& of) {
    const Requests one = of(1), three = of(3);
    Requests layer;
    for (const auto& [name, count] : three) {
        const auto at = one.find(name);
        const Index more = count - (at == one.end() ? 0 : at->second);
        if (more > 0) layer[name] = (more + 1) / 2;  // AdamW of many layers is one launch
    }
    return {counts_of(layer), layer};
}

std::string text_of(const Requests& all) {
    std::string out;
    for (const auto& [name, count] : all) out += fmt::format("{:5} {}\n", count, name);
    return out;
}

/// A layer of BERT's kind.
Requests probed(Index layers, Index samples, const std::vector<std::string>& metrics,
                const std::string& spectra = "auto", Index tokens = 12) {
    const Drawn drawn(fmt::format("bert-base,d=16,heads=2,ffn=32,layers={},vocab=9", layers));
    const Model model = drawn.model();
    const std::vector<Input> in = inputs(samples, tokens, 16);
    RunOptions options;
    options.probes = metrics;
    options.spectra = spectra;
    return asked([&] {
        NoSink sink;
        measure(model, in, {}, options, device(), Type::f32, sink);
    });
}

/// A step of training a layer of GPT-2's kind.
Requests trained(Index layers, Index samples, Index tokens) {
    const Drawn drawn(fmt::format("gpt2,d=16,heads=2,ffn=32,layers={},vocab=9", layers));
    const Model model = drawn.model();
    const std::vector<Input> in = inputs(samples, tokens, 16);
    const std::vector<Loss> losses(in.size(), {.kind = Loss::Kind::square});
    std::map<std::string, Tensor> moments;
    return asked([&] {
        const StepResult found = model.step(in, losses);
        std::vector<Tensor> gradients, parameters;
        std::vector<AdamWUpdate> updates;
        for (const auto& [name, g] : found.gradients) {
            gradients.push_back(contiguous(g));
            parameters.push_back(drawn.weights->get(name));
            Tensor& zero = moments[name];
            if (!zero.defined()) zero = zeros(device(), g.shape(), Type::f32);
            updates.push_back({parameters.back().view(),
                               zero.view(),
                               zero.view(),
                               gradients.back().view(),
                               {.eps = 1, .factor = 0}});
        }
        squared_norms(gradients);
        device().adamw(updates);
        first_nonfinite_later(parameters).get();
    });
}

void expect_within(const Counts& found, const Counts& most, const std::string& all) {
    EXPECT_LE(found.kernels, most.kernels) << all;
    EXPECT_LE(found.products, most.products) << all;
    EXPECT_LE(found.allocations, most.allocations) << all;
    EXPECT_LE(found.uploads, most.uploads) << all;
    EXPECT_LE(found.downloads, most.downloads) << all;
    EXPECT_LE(found.waits, most.waits) << all;
    EXPECT_LE(found.up, most.up) << all;
    EXPECT_LE(found.down, most.down) << all;
}

struct Budget {
    const char* name;
    Requests (*of)(Index layers, Index samples);
    Counts most;
    bool iterates = false;  ///< the counts depend on when iterations converge
};
void PrintTo(const Budget& b, std::ostream* out) { *out << b.name; }

const std::vector<std::string> statistics = {"t_sim",    "t_div",    "t_cos",       "fro",
                                             "xi1",      "xi2",      "xi_ratio",    "r",
                                             "attn_fro", "jac_fro",  "row_sum_dev", "entropy",
                                             "row_max",  "neg_mass", "local_auc",   "local_acc"};

/// The second comes from eigenvalues that the first has found.
const std::vector<std::string> both_ranks = {"stable_rank", "effective_rank"};

class EveryBudget : public testing::TestWithParam<Budget> {};

TEST_P(EveryBudget, HoldsWhateverTheBatch) {
    const Budget& b = GetParam();
    for (const Index samples : {1, 2, 8}) {
        const auto [found, all] = of_a_layer([&](Index layers) { return b.of(layers, samples); });
        const std::string text = fmt::format("{} samples:\n{}", samples, text_of(all));
        expect_within(found, b.most, text);
        if (samples == 8 && !b.iterates) {
            EXPECT_EQ(found, b.most) << "lower the budget\n" << text;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Layers, EveryBudget,
    testing::Values(Budget{"forward",
                           [](Index l, Index s) { return probed(l, s, {"fro"}); },
                           {.kernels = 8,
                            .products = 6,
                            .allocations = 14,
                            .downloads = 1,
                            .waits = 1,
                            .down = 1968}},
                    Budget{"statistics",
                           [](Index l, Index s) { return probed(l, s, statistics); },
                           {.kernels = 10,
                            .products = 6,
                            .allocations = 15,
                            .downloads = 1,
                            .waits = 1,
                            .down = 6064}},
                    Budget{"core",  // of few tokens: P is copied
                           [](Index l, Index s) { return probed(l, s, {"core"}); },
                           {.kernels = 15,
                            .products = 8,
                            .allocations = 22,
                            .downloads = 3,
                            .waits = 1,
                            .down = 15296}},
                    Budget{"iterated",  // core, as of more tokens
                           [](Index l, Index s) { return probed(l, s, {"core"}, "arnoldi"); },
                           {.kernels = 46,
                            .products = 8,
                            .allocations = 51,
                            .downloads = 6,
                            .waits = 1,
                            .down = 38080},
                           true},
                    Budget{"ranks",  // all samples at once
                           [](Index l, Index s) { return probed(l, s, {"effective_rank"}); },
                           {.kernels = 10,
                            .products = 7,
                            .allocations = 17,
                            .downloads = 2,
                            .waits = 1,
                            .down = 3440}},
                    Budget{"norms",  // of seven states, all samples at once
                           [](Index l, Index s) { return probed(l, s, both_ranks); },
                           {.kernels = 22,
                            .products = 13,
                            .allocations = 35,
                            .downloads = 8,
                            .waits = 1,
                            .down = 12272}},
                    Budget{"dobrushin",
                           [](Index l, Index s) { return probed(l, s, {"dobrushin"}); },
                           {.kernels = 16,
                            .products = 8,
                            .allocations = 22,
                            .downloads = 3,
                            .waits = 1,
                            .down = 4296}},
                    Budget{"contraction",  // of few tokens: P is copied
                           [](Index l, Index s) { return probed(l, s, {"delta_pi"}); },
                           {.kernels = 14,
                            .products = 8,
                            .allocations = 21,
                            .downloads = 3,
                            .waits = 1,
                            .down = 13376}},
                    Budget{"spectra",  // delta_pi beside core asks for nothing more
                           [](Index l, Index s) {
                               return probed(l, s, {"core", "delta_pi"});
                           },
                           {.kernels = 15,
                            .products = 8,
                            .allocations = 22,
                            .downloads = 3,
                            .waits = 1,
                            .down = 15296}},
                    Budget{"training",
                           [](Index l, Index s) { return trained(l, s, 12); },
                           {.kernels = 22, .products = 18, .allocations = 42, .down = 304}}),
    [](const auto& test) { return test.param.name; });

/// Metrics of the mixing of tokens and of derivatives of P, whose heads are those of all samples.
const std::vector<std::string> of_all_heads = {"omega",  "mu1",       "mu2",
                                               "est_mu", "jac_q_fro", "jac_k_fro"};

class EveryAttention : public testing::TestWithParam<const char*> {};

TEST_P(EveryAttention, IsAskedForAllSamplesAtOnce) {
    const auto counted = [](Index samples) {
        return of_a_layer([&](Index layers) {
            const Drawn drawn(fmt::format("{},layers={}", GetParam(), layers));
            const Model model = drawn.model();
            const std::vector<Input> in = inputs(samples, 12, drawn.drawn.spec.width);
            RunOptions options;
            options.probes = of_all_heads;
            options.batch = samples;
            return asked([&] {
                NoSink sink;
                measure(model, in, {}, options, device(), Type::f32, sink);
            });
        });
    };
    const auto [two, all_of_two] = counted(2);
    const auto [eight, all_of_eight] = counted(8);
    const std::string text = text_of(all_of_two) + "eight samples:\n" + text_of(all_of_eight);
    EXPECT_EQ(eight.kernels, two.kernels) << text;
    EXPECT_EQ(eight.products, two.products) << text;
    EXPECT_EQ(eight.allocations, two.allocations) << text;
    EXPECT_EQ(eight.downloads, two.downloads) << text;
    EXPECT_LE(eight.downloads, 4) << text;
    EXPECT_EQ(eight.uploads, 0) << text;
    EXPECT_LE(eight.waits, 1) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Families, EveryAttention,
    testing::Values("bert-base,d=16,heads=2,ffn=32,vocab=9",
                    "gpt2,d=16,heads=2,ffn=32,vocab=9",                              // causal
                    "qwen3-0.6b,d=16,heads=4,kv_heads=4,ffn=32,vocab=9,tokens=16"),  // q/k norm
    [](const auto& test) {
        const std::string name = test.param;
        return name.substr(0, name.find_first_of("-,."));
    });

Index copied_of(Index tokens, const char* metric) {
    return probed(2, 3, {metric}, "auto", tokens).at("bytes down");
}

TEST(EffectiveRank, CopiesTwoNumbersOfATokenAndNothingOfTheState) {
    for (const Index n : {6, 12})
        EXPECT_EQ(copied_of(n, "effective_rank") - copied_of(n, "fro"),
                  2 * 3 * (2 * n - 1) * Index(sizeof(double)))
            << n;
}

TEST(StableRank, CopiesTwoNumbersOfATokenAndNothingOfTheState) {
    const auto more = [](Index n) { return copied_of(n, "stable_rank") - copied_of(n, "fro"); };
    EXPECT_GT(more(6), 0);
    EXPECT_EQ(more(6) * (2 * 12 - 1), more(12) * (2 * 6 - 1));
}

TEST(Dobrushin, CopiesNothingOfPButItsStatistics) {
    EXPECT_EQ(copied_of(12, "dobrushin") - copied_of(12, "entropy"),
              copied_of(24, "dobrushin") - copied_of(24, "entropy"));
}

TEST(StationaryNorm, CopiesNumbersAndNotP) {
    constexpr Index n = 160, heads = 2 * 3 * 2;  // of layers and samples
    EXPECT_LT(copied_of(n, "delta_pi") - copied_of(n, "entropy"),
              heads * n * n * Index(sizeof(float)) / 4);
}

/// Five states (n, d) that differ in scale, one of few directions and one of 0.
std::vector<double> five_states(Index n, Index d) {
    std::vector<double> all =
        random_tensor(cpu(), {5, n, d}, Type::f64, Law::normal, Rng(7), 0, 1).to_host<double>();
    const auto size = std::size_t(n * d);
    for (std::size_t i = 0; i < size; ++i) {
        all[size + i] *= 1e-15;
        if (i % std::size_t(d) >= 2) all[2 * size + i] = 0;
        all[3 * size + i] = 0;
        all[4 * size + i] *= 1e15;
    }
    return all;
}

const ProbeEntry& probe_named(std::string_view name) {
    return **std::ranges::find(probes(), name, [](const ProbeEntry* e) { return e->name; });
}

/// A metric of states, which go together on a device.
Table measured(const Backend& backend, const char* probe, ProbeSettings settings,
               const Shape& shape, std::span<const double> states, Type type) {
    const ProbeEntry& entry = probe_named(probe);
    Table table;
    StatesTogether together{Tensor::from_host(backend, shape, states, type)};
    StatesTogether* const shared = backend.host_memory() ? nullptr : &together;
    for (Index s = 0; s < shape.batch; ++s) {
        const Tensor x = together.x.batch_range(s, 1);
        entry.make(settings)->on_hidden({s, "out", "", x, shared, s}, state_moments(x), table);
    }
    return table;
}

void expect_near(const Table& found, const Table& expected, Index count, double accuracy) {
    ASSERT_EQ(Index(found.metrics().size()), count);
    ASSERT_EQ(Index(expected.metrics().size()), count);
    for (std::size_t s = 0; s < std::size_t(count); ++s) {
        const auto &one = found.metrics()[s], &other = expected.metrics()[s];
        EXPECT_EQ(one.note, other.note) << s;
        ASSERT_EQ(one.value.has_value(), other.value.has_value()) << s << one.note << other.note;
        if (!one.value) continue;
        EXPECT_NEAR(*one.value, *other.value, accuracy * *other.value) << s;
    }
}

ProbeSettings stable_rank(Diagnostics* diagnostics = nullptr) {
    ProbeSettings settings;
    settings.metrics = {"stable_rank"};
    settings.diagnostics = diagnostics;
    return settings;
}

class EveryType : public testing::TestWithParam<Type> {};

/// Of few directions: the host finds that one's.
TEST_P(EveryType, EffectiveRanksAreThoseOfTheCpu) {
    for (const auto& [n, d] : {std::pair<Index, Index>{40, 25}, {25, 40}, {1, 7}}) {
        const std::vector<double> all = five_states(n, d);
        const auto on = [&, n = n, d = d](const Backend& backend) {
            return measured(backend, "rank", {}, {5, n, d}, all, GetParam());
        };
        // Gram matrix and tridiagonal form are rounded in another order; by their rounding errors
        // each may be off by 1e-7, or it is not used.
        expect_near(on(device()), on(cpu()), 5, 2e-7);
    }
}

/// By Gram matrices, and beyond 128 tokens and features by Lanczos.
TEST_P(EveryType, StableRanksAreThoseOfTheCpu) {
    for (const auto& [n, d] :
         {std::pair<Index, Index>{40, 25}, {25, 40}, {1, 7}, {7, 1}, {150, 130}, {130, 150}}) {
        const std::vector<double> all = five_states(n, d);
        Diagnostics diagnostics;
        const auto on = [&, n = n, d = d](const Backend& backend) {
            const bool here = backend.host_memory();
            return measured(backend, "similarity", stable_rank(here ? nullptr : &diagnostics),
                            {5, n, d}, all, GetParam());
        };
        const Table found = on(device());
        ASSERT_EQ(diagnostics.entries.size(), 4U);  // the state of 0 has none
        for (const Diagnostics::Entry& entry : diagnostics.entries) {
            const Estimate& e = entry.estimate;
            EXPECT_TRUE(e.converged && !e.on_host) << n << " x " << d;
            EXPECT_EQ(e.method, std::min(n, d) <= 128 ? "dense" : "golub-kahan");
        }
        expect_near(found, on(cpu()), 5, 4e-8);  // each norm is right to 1e-8
    }
}

/// All singular values of the first are equal; in the second the largest differ by 1e-5: Lanczos
/// cannot tell them apart, and need not.
TEST_P(EveryType, StableRanksOfClustersAreThoseOfTheCpu) {
    constexpr Index n = 140;
    std::vector<double> all(std::size_t(2 * n * n), 0.0);
    for (Index i = 0; i < n; ++i) {
        all[std::size_t(i * n + i)] = 1;
        all[std::size_t(n * n + i * n + i)] = i < 9 ? 1 - 1e-5 * double(i) : 1 / double(i);
    }
    const auto on = [&](const Backend& backend) {
        return measured(backend, "similarity", stable_rank(), {2, n, n}, all, GetParam());
    };
    const Table found = on(device());
    expect_near(found, on(cpu()), 2, 4e-8);
    EXPECT_NEAR(*found.metrics()[0].value, double(n), 1e-10 * double(n));
}

/// A state that is not finite costs the others nothing but being found alone.
TEST_P(EveryType, StableRanksBesideAStateThatIsNotFiniteAreTheirOwn) {
    for (const Index n : {20, 140}) {
        std::vector<double> all = five_states(n, n);
        all[std::size_t(2 * n * n + 5)] = std::numeric_limits<double>::quiet_NaN();
        const auto on = [&](const Backend& backend) {
            return measured(backend, "similarity", stable_rank(), {5, n, n}, all, GetParam());
        };
        expect_near(on(device()), on(cpu()), 5, 4e-8);
    }
}
INSTANTIATE_TEST_SUITE_P(Types, EveryType, testing::Values(Type::f32, Type::f64),
                         [](const auto& type) { return type.param == Type::f32 ? "f32" : "f64"; });

TEST(EffectiveRank, OfAllSamplesTakesTheMemoryThatIsPlanned) {
    constexpr Index samples = 8;
    for (const Type type : {Type::f32, Type::f64})
        for (const auto& [n, d] : {std::pair<Index, Index>{96, 64}, {64, 96}}) {
            const Tensor x =
                random_tensor(device(), {samples, n, d}, type, Law::normal, Rng(7), 0, 1e3);
            const StateMoments moments = state_moments(x.batch_range(0, 1));
            const MetricSizes sizes{
                .tokens = double(n), .width = double(d), .element = double(bytes_of(type))};
            const double planned = samples * find_metric("effective_rank")->bytes(sizes).of_sample;
            const auto suffice = [&](double bytes) {
                constexpr std::size_t page = 1 << 16;  // of numbers for the host
                const std::size_t taken = gpu::free_bytes() - std::size_t(bytes) - page;
                StatesTogether together{x};
                Table table;
                restart_shortages();
                setenv("TSDIAG_EMULATED_TAKEN", std::to_string(taken).c_str(), 1);
                for (const Index s : {0, 1})
                    probe_named("rank").make({})->on_hidden(
                        {0, "out", "", x.batch_range(s, 1), &together, s}, moments, table);
                unsetenv("TSDIAG_EMULATED_TAKEN");
                return shortages().empty();
            };
            EXPECT_TRUE(suffice(planned)) << n << " x " << d;
            EXPECT_FALSE(suffice(planned / 2)) << n << " x " << d;
            EXPECT_THAT(shortages(), testing::ElementsAre(testing::HasSubstr("by one, 1 time;")));
        }
    restart_shortages();
}

TEST(Training, CopiesANumberOfASampleAndNothingOfItsTokens) {
    const auto copied = [](const Requests& all) {
        return std::pair{all.at("bytes up"), all.at("bytes down")};
    };
    const auto [up, down] = copied(trained(2, 3, 12));
    EXPECT_EQ(copied(trained(2, 3, 24)), std::pair(up, down));
    EXPECT_EQ(copied(trained(2, 4, 12)), std::pair(up, down + Index(sizeof(double))));  // its loss
}

/// What a layer of BERT-base's sizes asks for, eight samples of 512 tokens with the statistics.
gpu::AllRequests of_bert_base() {
    const auto layers = [](Index count) {
        const Drawn drawn(fmt::format("bert-base,layers={},vocab=9", count));
        const Model model = drawn.model();
        const std::vector<Input> in = inputs(8, 512, 768);
        RunOptions options;
        options.probes = statistics;
        const auto before = [&] {
            NoSink sink;
            measure(model, in, {}, options, device(), Type::f32, sink);
            return gpu::requests();
        }();
        NoSink sink;
        measure(model, in, {}, options, device(), Type::f32, sink);
        gpu::AllRequests all = gpu::requests();
        for (const auto& [name, r] : before) {
            all[name].count -= r.count;
            all[name].bytes -= r.bytes;
            all[name].elements -= r.elements;
        }
        return all;
    };
    gpu::emulator::only_count(true);
    gpu::AllRequests one = layers(1), two = layers(2);
    gpu::emulator::only_count(false);
    for (const auto& [name, r] : one) {
        two[name].count -= r.count;
        two[name].bytes -= r.bytes;
        two[name].elements -= r.elements;
    }
    std::erase_if(two, [](const auto& x) { return x.second.count == 0; });
    return two;
}

TEST(Roofline, OfALayerIsInTheDocument) {
    const std::string file = TSDIAG_DOCUMENTS "/gpu.md";
    const auto text_of_file = [&] {
        std::ifstream in(file);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const gpu::AllRequests all = of_bert_base();
    const std::string begin = "<!-- roofline -->\n", end = "<!-- end -->\n";
    const std::string before = text_of_file();
    const std::size_t from = before.find(begin), to = before.find(end, from);
    ASSERT_NE(from, std::string::npos);
    ASSERT_NE(to, std::string::npos);
    std::string after = before;
    after.replace(from + begin.size(), to - from - begin.size(),
                  gpu::roofline(all, gpu::known_limits()));
    if (std::getenv("TSDIAG_WRITE_DOCUMENTS")) std::ofstream(file) << after;
    EXPECT_EQ(text_of_file(), after)
        << "run this test with TSDIAG_WRITE_DOCUMENTS=1 to write the table of docs/gpu.md anew";
}

TEST(Roofline, CountsProductsAndKnowsEveryKernel) {
    const gpu::AllRequests all = of_bert_base();
    // The six maps of 4096 rows, and the two products of 96 heads.
    const double maps = 4096.0 * 768 * (4 * 768 + 2 * 3072), heads = 2 * 96 * 512.0 * 512 * 64;
    EXPECT_EQ(all.at("product float32").elements, maps + heads);
    // A softmax reads and writes its own memory: the operand is counted once.
    EXPECT_EQ(all.at("softmax_kernel").bytes, 4.0 * 96 * 512 * 512);
    for (const auto& [name, r] : gpu::requests()) {
        if (name.ends_with("_kernel")) {
            EXPECT_NE(gpu::operations_of(name), nullptr) << name;
        }
    }
    const gpu::Limits limits{"slow", 10, 100, 50, 200, 100, 5};
    EXPECT_EQ(gpu::least_seconds("unary_kernel", {1, 40, 100, 0}, limits),
              100 * gpu::operations_of("unary_kernel")->of_element / 100);
    EXPECT_EQ(gpu::least_seconds("binary_kernel", {1, 40, 10, 0}, limits), 4);
    EXPECT_EQ(gpu::least_seconds("product float32", {1, 40, 1000, 0}, limits), 10);
    EXPECT_EQ(gpu::least_seconds("download", {1, 40, 0, 0}, limits), 8);
}

/// Three samples that go through the layers together, as those of one length do, have the numbers
/// of the CPU, where each goes alone.
class EveryModel : public testing::TestWithParam<const char*> {};

/// Of states from -size to size.
void expect_numbers_of_the_cpu(const char* text, const std::vector<Index>& lengths,
                               const char* probes = "all", Index numbers = 200, double size = 1) {
    const RandomModel drawn = random_model(text);
    const auto table_of = [&](const Backend& backend) {
        const Model model(drawn.spec, random_weights(drawn, Rng(1), backend, Type::f64), backend,
                          Type::f64);
        std::vector<Input> in(lengths.size());
        for (std::size_t s = 0; s < in.size(); ++s)
            in[s].hidden = random_tensor(backend, {1, lengths[s], drawn.spec.width}, Type::f64,
                                         Law::uniform, Rng(s + 2), -size, 2 * size);
        RunOptions options;
        options.probes = {probes};
        options.batch = 3;
        Table table;
        measure(model, in, {}, options, backend, Type::f64, table);
        return table;
    };
    const Table found = table_of(device()), expected = table_of(cpu());
    test::TableDifferences all;
    test::compare_rows(found.metrics(), expected.metrics(), all);
    test::compare_rows(found.curves(), expected.curves(), all);
    EXPECT_THAT(all.faults, testing::IsEmpty());
    EXPECT_GT(all.numbers, numbers);
}

/// The squares of P X lie below the range of float64.
TEST(Mixing, OfTinyProductsIsThatOfTheCpu) {
    expect_numbers_of_the_cpu("post-norm,d=16,heads=2,ffn=32,layers=1,attention=kernelized",
                              {6, 6, 6}, "mu2", 2, 60);
}

TEST_P(EveryModel, HasTheNumbersOfTheCpu) { expect_numbers_of_the_cpu(GetParam(), {12, 12, 12}); }

TEST_P(EveryModel, HasThoseOfSamplesOfSeveralLengths) {
    expect_numbers_of_the_cpu(GetParam(), {12, 9, 12});
}

INSTANTIATE_TEST_SUITE_P(
    Families, EveryModel,
    testing::Values("bert-base,d=16,heads=2,ffn=32,layers=2,vocab=9",
                    "gpt2,d=16,heads=2,ffn=32,layers=2,vocab=9",
                    "qwen3-0.6b,d=16,heads=4,kv_heads=2,ffn=32,layers=2,vocab=9,tokens=16",
                    "post-norm,d=16,heads=2,ffn=32,layers=2,attention=relu",
                    "pre-norm,d=16,heads=2,ffn=32,layers=2,attention=linear"),
    [](const auto& test) {
        std::string name = std::string(test.param).substr(0, std::string(test.param).find(','));
        std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
        return name;
    });

}  // namespace
}  // namespace tsdiag
