#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/weights.hpp"

/// Measured rates of a device, each with the limit that bounds it, as one table.
///
///     tsdiag_device_benchmarks [DEVICE [tiny] [SECTION...]]
///
/// `tiny`: sizes for testing this program.  Sections: limits, statistics, forward, spectra,
/// streamed; all of them without any.  Limits that were not measured are missing.
namespace {

using namespace tsdiag;

struct Sizes {
    Index width, layers, heads, tokens, batch;  ///< a forward pass: BERT-large
    Index wide;                                 ///< side of the largest product
    Index copied;                               ///< numbers
    Index short_heads, short_tokens;            ///< squaring
    Index dense_heads;                          ///< of as many tokens, by the solver
    Index long_heads, long_tokens;              ///< Arnoldi on a P in memory
    Index streamed;                             ///< tokens of one head
};
constexpr Sizes whole{1024, 24,   16, 512, 32,   8192,  Index{1} << 29,
                      384,  1024, 16, 144, 4096, 131072};
constexpr Sizes tiny{8, 1, 2, 5, 2, 16, 1000, 2, 9, 2, 1, 12, 20};

class Bench {
  public:
    Bench(const Backend& backend, const Sizes& sizes) : device_(backend), s_(sizes) {}

    /// False: a section has another name.
    bool run(const std::vector<std::string>& chosen) {
        const std::pair<std::string, void (Bench::*)()> sections[] = {
            {"limits", &Bench::limits},
            {"statistics", &Bench::statistics},
            {"forward", &Bench::forward},
            {"spectra", &Bench::spectra},
            {"streamed", &Bench::streamed}};
        for (const std::string& name : chosen)
            if (std::ranges::none_of(sections, [&](const auto& s) { return s.first == name; }))
                return false;
        std::printf("%s\n\n| what | seconds | rate | of its limit |\n|---|---:|---:|---:|\n",
                    device_.description().c_str());
        for (const auto& [name, measure] : sections)
            if (chosen.empty() || std::ranges::find(chosen, name) != chosen.end())
                (this->*measure)();
        return true;
    }

  private:
    /// The median of some runs after a warm-up run.
    double seconds(const std::function<void()>& work, int runs = 5) const {
        std::vector<double> all;
        if (s_.copied == tiny.copied) runs = 0;
        for (int i = 0; i <= runs; ++i) {
            device_.synchronise();
            const auto start = std::chrono::steady_clock::now();
            work();
            device_.synchronise();
            const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
            if (i > 0 || runs == 0) all.push_back(taken.count());
        }
        std::ranges::sort(all);
        return all[all.size() / 2];
    }

    static void row(const std::string& what, double seconds, const std::string& rate = {},
                    const std::string& limit = {}) {
        std::printf("| %s | %.4g | %s | %s |\n", what.c_str(), seconds, rate.c_str(),
                    limit.c_str());
        std::fflush(stdout);
    }
    static std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

    Tensor normal(Shape shape, Type type, double deviation = 1) const {
        return random_tensor(device_, shape, type, Law::normal, Rng(1), 0, deviation);
    }

    void limits() {
        const Tensor x = normal({1, 1, s_.copied}, Type::f32);
        const double bytes = 8 * double(s_.copied);
        double t = seconds([&] { map(Unary::copy, x); });
        bandwidth_ = bytes / t;
        row("copy, read and written", t, fmt::format("{:.0f} GB/s", bandwidth_ / 1e9));
        for (const Type type : {Type::f32, Type::f64}) {
            const Tensor a = normal({1, s_.wide, s_.wide}, type);
            t = seconds([&] { matmul(a, a); });
            const double flops = 2 * double(s_.wide) * double(s_.wide) * double(s_.wide);
            row(fmt::format("product of two matrices of {}, {}", s_.wide,
                            type == Type::f32 ? "float32" : "float64"),
                t, fmt::format("{:.1f} TFLOP/s", flops / t / 1e12));
        }
    }

    void statistics() {
        const Shape shape{s_.short_heads, s_.short_tokens, s_.short_tokens};
        const double bytes = 4 * double(shape.count());
        const Tensor p = softmax_rows(normal(shape, Type::f32), {});
        const auto reads = [&](const char* what, double times, const std::function<void()>& work) {
            const double t = seconds(work), rate = times * bytes / t;
            row(what, t, fmt::format("{:.0f} GB/s", rate / 1e9),
                bandwidth_ > 0 ? percent(rate / bandwidth_) : "");
        };
        // Lower bound for the statistics: one read for the fields and one for the windows.
        reads("statistics of rows, P and its slope", 2,
              [&] { row_totals_later(p, p, true, 0, Visible()).get(); });
        reads("softmax, in place after a copy", 4, [&] { softmax_rows(map(Unary::copy, p), {}); });
        reads("layer norm", 2, [&] { layer_norm(p, {}, {}, 1e-5); });
    }

    /// All products of a layer; `heads`: what queries, keys and values are.
    void products_of_layer(const Tensor& x, const Tensor& heads, const Tensor& square,
                           const Tensor& up, const Tensor& down) const {
        for (int k = 0; k < 3; ++k) linear(x, square, {});
        matmul(matmul(heads, heads, Transpose::second), heads);
        linear(linear(linear(x, square, {}), up, {}), down, {});
    }

    void forward() {
        const Index d = s_.width;
        const std::string text =
            fmt::format("bert-large,layers={},d={},heads={},vocab=64", s_.layers, d, s_.heads);
        const RandomModel drawn = random_model(text);
        const std::shared_ptr<const Weights> weights =
            resident_weights(random_weights(drawn, Rng(1), device_, Type::f32));
        const Model model(drawn.spec, weights, device_, Type::f32);
        std::vector<Input> inputs(std::size_t(s_.batch));
        for (Input& input : inputs)
            for (Index i = 0; i < s_.tokens; ++i) input.ids.push_back(i % 64);
        Observer nobody;
        RunSettings together;
        together.batch = s_.batch;
        const double whole = seconds([&] { model.run(inputs, nobody, together); }, 3);

        const Tensor x = normal({s_.batch, s_.tokens, d}, Type::f32),
                     heads = normal({s_.batch * s_.heads, s_.tokens, d / s_.heads}, Type::f32),
                     square = normal({1, d, d}, Type::f32), up = normal({1, 4 * d, d}, Type::f32),
                     down = normal({1, d, 4 * d}, Type::f32);
        const double products = seconds(
            [&] {
                for (Index i = 0; i < s_.layers; ++i) products_of_layer(x, heads, square, up, down);
            },
            3);
        const double flops = double(s_.batch) * forward_flops(drawn.spec, s_.tokens);
        const auto rate = [&](double t) { return fmt::format("{:.1f} TFLOP/s", flops / t / 1e12); };
        const std::string size = fmt::format("BERT-large sizes, {} x {}", s_.batch, s_.tokens);
        row(size + ": products alone", products, rate(products));
        row(size + ": forward", whole, rate(whole), percent(products / whole));
        RunOptions options;
        options.probes = {"attn_fro", "jac_fro", "entropy", "row_max", "local_auc"};
        Table table("benchmark");
        const double measured =
            seconds([&] { measure(model, inputs, {}, options, device_, Type::f32, table); }, 1);
        row(size + ": with the statistics of all heads", measured, rate(measured),
            fmt::format("{:.2f} of the forward pass", measured / whole));
    }

    std::unique_ptr<AttentionOperator> heads(Index count, Index n) const {
        AttentionInput input;
        input.q = normal({count, n, 64}, Type::f32);
        input.k = random_tensor(device_, {count, n, 64}, Type::f32, Law::normal, Rng(2), 0, 1);
        input.scale = 1.0 / 8;
        return attention("softmax").make(std::move(input));
    }

    void spectra() {
        for (const auto& [count, n] : {std::pair{s_.short_heads, s_.short_tokens},
                                       std::pair{s_.long_heads, s_.long_tokens}}) {
            const auto p = heads(count, n);
            p->matrix();
            std::vector<Estimate> found;
            const double second = seconds([&] { found = second_eigenvalue(*p, 1e12); }, 1);
            row(fmt::format("|lambda_2| of {} heads, n = {} ({})", count, n, found[0].method),
                second, fmt::format("{:.3g} ms a head", 1e3 * second / double(count)),
                fmt::format("{} of {} certain",
                            std::ranges::count(found, true, &Estimate::converged), count));
            const double norm = seconds([&] { centred_norm(*p, 1e12); }, 1);
            row(fmt::format("delta of {} heads, n = {}", count, n), norm,
                fmt::format("{:.3g} ms a head", 1e3 * norm / double(count)));
        }
        for (const Index count : {Index{1}, s_.dense_heads}) {
            const auto p = heads(count, s_.short_tokens);
            p->matrix();
            const auto dense = [&](const char* what, auto&& of) {
                const double t = seconds([&] { of(*p, 1e12, usual_accuracy, "dense"); }, 1);
                row(fmt::format("{} of {} heads, n = {} (dense)", what, count, s_.short_tokens), t,
                    fmt::format("{:.3g} ms a head", 1e3 * t / double(count)));
            };
            dense("|lambda_2|", [](auto&&... in) { return second_eigenvalue(in...); });
            dense("delta", [](auto&&... in) { return centred_norm(in...); });
        }
    }

    void streamed() {
        constexpr double memory = 6e9;
        const auto p = heads(1, s_.streamed);
        const Tensor v = normal({1, s_.streamed, 64}, Type::f32);
        const double rows = seconds(
            [&] {
                p->apply(v, p->rows_at_once(memory),
                         [](const RowBlock& block) { row_statistics(block); });
            },
            1);
        row(fmt::format("one head, n = {}: P V and statistics of rows", s_.streamed), rows);
        row(fmt::format("one head, n = {}: |lambda_2|, streamed", s_.streamed),
            seconds([&] { second_eigenvalue(*p, memory); }, 1));
        row(fmt::format("one head, n = {}: delta, streamed", s_.streamed),
            seconds([&] { centred_norm(*p, memory); }, 1));
    }

    const Backend& device_;
    Sizes s_;
    double bandwidth_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
    const std::string device = argc > 1 ? argv[1] : "cuda";
    std::vector<std::string> sections(argv + std::min(argc, 2), argv + argc);
    const bool small = !sections.empty() && sections.front() == "tiny";
    if (small) sections.erase(sections.begin());
    if (Bench(open_backend(device), small ? tiny : whole).run(sections)) return 0;
    std::fprintf(stderr, "there is no such section\n");
    return 2;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
