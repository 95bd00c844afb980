#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <map>

#include "support/team.hpp"
#include "tsdiag/attention.hpp"

/// What ranks that share one P send, and how long a cluster would take (docs/cluster.md, "Model of
/// its time").
///
///     sequence [LATENCY BANDWIDTH]
///
/// The steps of a head run in threads in place of ranks, which count calls and bytes.  Seconds a
/// call and bytes a second (default 50e-6 and 1.2e9, of 10 Gbit/s) then predict.
namespace {

using namespace tsdiag;

constexpr Index width = 128;

/// P of n tokens whose rows nobody asks for.
class Sized final : public AttentionOperator {
  public:
    explicit Sized(Index n) : n_(n) {}
    RowBlock rows(Index, Index) const override { return {}; }
    Index heads() const override { return 1; }
    Index tokens() const override { return n_; }
    Type type() const override { return Type::f32; }
    const Backend& backend() const override { return cpu(); }

  private:
    Index n_;
};

struct Traffic {
    Index calls = 0;
    double bytes = 0;  ///< that the first member receives from the others
};

/// Counts what a member receives.  A call of a rank is preceded by one that tells of failures,
/// where it is an exchange.
class Counting final : public Team {
  public:
    Counting(const Team& inner, Traffic& traffic) : inner_(inner), traffic_(traffic) {}
    int size() const override { return inner_.size(); }
    int rank() const override { return inner_.rank(); }
    std::vector<std::string> gather(const std::string& own) const override {
        return counted(1, inner_.gather(own));
    }
    std::vector<std::string> exchange(const std::vector<std::string>& parts) const override {
        return counted(2, inner_.exchange(parts));
    }

  private:
    std::vector<std::string> counted(Index calls, std::vector<std::string> received) const {
        traffic_.calls += calls;
        for (int r = 0; r < size(); ++r)
            if (r != rank()) traffic_.bytes += double(received[std::size_t(r)].size());
        return received;
    }
    const Team& inner_;
    Traffic& traffic_;
};

/// Of P x: the rows of x are completed.  Of (Pi2 P)^T (Pi2 P) x: a sum over panels.
std::map<std::string, Traffic> traffic_of(Index n, int members) {
    std::map<std::string, Traffic> out;
    test::Threads(members).run([&](const Team& team) {
        std::map<std::string, Traffic> own;
        Sized p(n);
        {
            const Counting counting(team, own["P x"]);
            p.share(&counting);
            std::vector<double> x(std::size_t(n), 1.0);
            complete_rows(p, std::span(x));
        }
        {
            const Counting counting(team, own["normal"]);
            p.share(&counting);
            sum_over_rows(Panels(p), 96, std::size_t(n) + 1,
                          [](Index, Index, std::span<double>) {});
        }
        if (team.rank() == 0) out = own;
    });
    return out;
}

/// Entries of P a processor second of one product, on one thread: others may load the machine.
double measured_rate() {
    constexpr Index n = 8192;
    AttentionInput in;
    std::vector<float> values(std::size_t(n * width));
    Rng(1).fill_normal(values, 0, 1);
    in.q = in.k =
        Tensor::from_host(cpu(), {1, n, width}, std::span<const float>(values), Type::f32);
    in.scale = 1 / std::sqrt(double(width));
    const auto p = attention("softmax").make(in);
    double best = 0;
    for (int i = 0; i < 5; ++i) {
        const std::clock_t start = std::clock();
        sum_over_rows(
            Panels(*p), 96, std::size_t(n), [&](Index first, Index count, std::span<double> sum) {
                const Tensor rows = p->rows(first, count).p;
                const std::vector<double> ones(std::size_t(count), 1.0);
                add_normal_product(rows.view(), ones, 0, std::vector<double>(sum.size()), sum, 0);
            });
        const double taken = double(std::clock() - start) / CLOCKS_PER_SEC;
        best = std::max(best, double(n) * double(n) / taken);
    }
    return best;
}

}  // namespace

int main(int argc, char** argv) {
    const double latency = argc > 2 ? std::atof(argv[1]) : 50e-6,
                 bandwidth = argc > 2 ? std::atof(argv[2]) : 1.2e9;
    omp_set_num_threads(1);
    const double rate = measured_rate();
    fmt::print("one thread here: {:.3g} entries of P a second, w = {}\n", rate, width);
    fmt::print("{:>9} {:>6} {:>8} {:>7} {:>12} {:>12} {:>11} {:>11}\n", "tokens", "ranks", "step",
               "calls", "MB received", "compute, s", "between, s", "efficiency");
    for (const Index n : {Index{1} << 13, Index{1} << 17, Index{1} << 20})
        for (const int members : {2, 4, 8, 16, 32})
            for (const auto& [step, traffic] : traffic_of(n, members)) {
                const double whole = double(n) * double(n) / rate, compute = whole / members,
                             between = double(traffic.calls) * latency + traffic.bytes / bandwidth;
                fmt::print("{:9} {:6} {:>8} {:7} {:12.1f} {:12.3f} {:11.4f} {:11.3f}\n", n, members,
                           step, traffic.calls, traffic.bytes / 1e6, compute, between,
                           compute / (compute + between));
            }
}
