#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "score.hpp"
#include "stored.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array option_list{
    AttentionOption{.name = "rounds",
                    .fallback = "8",
                    .numbers = true,
                    .whole = true,
                    .least = 1,
                    .most = 1000,
                    .description = "independent hashes; a token sees the keys of all of them"},
    AttentionOption{.name = "chunk",
                    .fallback = "64",
                    .numbers = true,
                    .whole = true,
                    .least = 1,
                    .description = "m, sorted tokens a chunk; the last one may be shorter"},
    AttentionOption{.name = "buckets",
                    .fallback = "2n/m",
                    .words = "2n/m",
                    .numbers = true,
                    .whole = true,
                    .least = 2,
                    .most = 1e5,
                    .description = "b of a round, even; 2n/m: rounded up to an even number"},
    AttentionOption{.name = "keys",
                    .fallback = "unit",
                    .words = "unit rms",
                    .description = "k = q/|q|, or q over the root of its mean square (rms: logits "
                                   "sqrt(d) times larger), as in the released code"},
    AttentionOption{
        .name = "across",
        .fallback = "0",
        .words = "0 1",
        .description = "1: a chunk sees keys of other buckets too, as in the released code"},
    AttentionOption{
        .name = "duplicates",
        .fallback = "0",
        .words = "0 1",
        .description = "1: a key seen in N rounds counts N times, as in later releases"},
    AttentionOption{.name = "seed",
                    .fallback = "0",
                    .numbers = true,
                    .whole = true,
                    .description = "of the rotations R, which a layer's heads share"}};

/// One hash of a head: its tokens sorted by bucket, then by position.
struct Round {
    std::vector<Index> bucket;        ///< of each token
    std::vector<Index> order, place;  ///< the token at each place, the place of each token
};

/// The largest of [x R, -x R], the first of equal ones, of each row x of (n, w).
std::vector<Index> buckets(std::span<const double> rows, std::span<const double> rotation,
                           Index w) {
    const auto width = static_cast<std::size_t>(w), half = rotation.size() / width;
    std::vector<Index> out;
    std::vector<double> turned(half);
    for (std::size_t at = 0; at < rows.size(); at += width) {
        std::ranges::fill(turned, 0.0);
        for (std::size_t c = 0; c < width; ++c)
            for (std::size_t b = 0; b < half; ++b)
                turned[b] += rows[at + c] * rotation[c * half + b];
        const auto most = std::ranges::max_element(turned),
                   least = std::ranges::min_element(turned);
        out.push_back(*most >= -*least ? most - turned.begin()
                                       : std::ssize(turned) + (least - turned.begin()));
    }
    return out;
}

Round sorted(std::vector<Index> bucket) {
    Round out{.bucket = std::move(bucket), .order = {}, .place = {}};
    out.order.resize(out.bucket.size());
    out.place.resize(out.bucket.size());
    std::iota(out.order.begin(), out.order.end(), Index{0});
    std::ranges::stable_sort(out.order, {},
                             [&](Index i) { return out.bucket[static_cast<std::size_t>(i)]; });
    for (std::size_t s = 0; s < out.order.size(); ++s)
        out.place[static_cast<std::size_t>(out.order[s])] = static_cast<Index>(s);
    return out;
}

/// Which keys a row sees.
struct Hashing {
    std::vector<std::vector<Round>> heads;
    Index chunk = 0;
    bool causal = false, across = false, duplicates = false;

    /// Added to the logits of token i: -inf where it does not see a key.
    ///
    /// The paper's sum over rounds of softmaxes weighted by exp(z_r - z), each logit less the log
    /// of the number N of rounds that show the key, is one softmax over the keys of all rounds.
    template <class T>
    void mask(Index head, Index i, std::span<T> out) const {
        const auto at = [](Index x) { return static_cast<std::size_t>(x); };
        std::ranges::fill(out, T(0));
        for (const Round& round : heads[at(head)]) {
            const Index own = round.bucket[at(i)], here = round.place[at(i)] / chunk;
            const Index end = std::min(std::ssize(out), (here + 1) * chunk);
            for (Index s = std::max<Index>(0, (here - 1) * chunk); s < end; ++s) {
                const Index j = round.order[at(s)];
                if ((!causal || j <= i) && (across || round.bucket[at(j)] == own)) out[at(j)] += 1;
            }
        }
        out[at(i)] = 0;
        const bool alone = std::ranges::all_of(out, [](T rounds) { return rounds == 0; });
        out[at(i)] = alone ? 1 : 0;
        for (T& e : out)
            e = e == 0 ? -std::numeric_limits<T>::infinity() : duplicates ? std::log(e) : T(0);
    }

    /// Of rows first, first + 1, ... of all heads, for logits like `s`.
    Tensor mask(Index first, const Tensor& s) const {
        const Index h = s.batch(), count = s.rows(), n = s.cols();
        const auto fill = [&]<class T>(std::span<T> out) {
#pragma omp parallel for schedule(static)
            for (Index r = 0; r < h * count; ++r)
                mask(r / count, first + r % count,
                     out.subspan(static_cast<std::size_t>(r * n), static_cast<std::size_t>(n)));
        };
        if (s.type() == Type::f32)
            return Tensor::filled(s.backend(), s.shape(), [&](std::span<float> x) { fill(x); });
        return Tensor::filled(s.backend(), s.shape(), [&](std::span<double> x) { fill(x); });
    }
};

/// R of each round, (rounds, w, b/2): the parameter `rotations`, or drawn N(0, 1).
Tensor rotations(const Options& options, const AttentionInput& in, Index chunk) {
    const Index n = in.q.rows(), w = in.q.cols();
    if (const Tensor given = parameter(in, "rotations"); given.defined()) {
        if (given.rows() == w) return given;
        throw ShapeError(fmt::format(
            "attention 'reformer': rotations of {} rows for heads of width {}", given.rows(), w));
    }
    const Index b =
        options.is("buckets", "2n/m") ? 2 * ((n + chunk - 1) / chunk) : options.count("buckets");
    if (b % 2 != 0)
        throw UsageError(fmt::format(
            "attention 'reformer': buckets={} is not even, and a rotation has two to a column", b));
    std::vector<double> values(static_cast<std::size_t>(options.count("rounds") * w * (b / 2)));
    options.rng(in).fill_normal(std::span<double>(values), 0, 1);
    return Tensor::from_host(cpu(), {options.count("rounds"), w, b / 2},
                             std::span<const double>(values), Type::f64);
}

/// The normalised queries.  A query of zeros has a key of zeros: 1e-36 is below rounding for every
/// other one that is not as good as 0.
Tensor normalised(const Tensor& q, bool unit) {
    if (!unit) return rms_norm(q, {}, 1e-6);
    return scale(rms_norm(q, {}, 1e-36), 1 / std::sqrt(double(q.cols())));
}

/// In double on the host, so that no bucket follows the device or the batch.
std::vector<std::vector<Round>> hashed(const Tensor& keys, const Tensor& rotations) {
    const std::vector<double> rows = keys.to_host<double>(), turns = rotations.to_host<double>();
    const auto of_head = static_cast<std::size_t>(keys.rows() * keys.cols()),
               of_round = static_cast<std::size_t>(rotations.rows() * rotations.cols());
    return stored::for_each_head<std::vector<Round>>(keys.batch(), [&](Index head) {
        std::vector<Round> out;
        for (std::size_t at = 0; at < turns.size(); at += of_round)
            out.push_back(sorted(
                buckets(std::span(rows).subspan(static_cast<std::size_t>(head) * of_head, of_head),
                        std::span(turns).subspan(at, of_round), keys.cols())));
        return out;
    });
}

}  // namespace

extern const AttentionEntry reformer;
const AttentionEntry reformer = {
    .name = "reformer",
    .description =
        "P = softmax of S = scale q k^T over the keys that a token sees, k = q/|q|, the input's k "
        "is not used: in each round tokens are hashed to the largest of [q R, -q R], sorted by "
        "hash and position and cut into chunks of m; a token sees keys of its own hash in its "
        "chunk and the one before, in any round, and itself where it sees no other",
    .source = "[REFORMER]",
    .options = option_list,
    .facts = {.row_stochastic = Holds::always, .slope = Holds::never, .window = false},
    .make = [](AttentionInput in) {
        const Options options(reformer, in.options);
        require_fit(in);
        refuse_window(reformer, in);
        in.k = normalised(in.q, options.is("keys", "unit"));
        Hashing hashing{.heads = {},
                        .chunk = options.count("chunk"),
                        .causal = in.causal,
                        .across = options.is("across", "1"),
                        .duplicates = options.is("duplicates", "1")};
        hashing.heads = hashed(in.k.detached(), rotations(options, in, hashing.chunk));
        ScoreRule rule;
        rule.row_stochastic = true;
        rule.plain_logits = false;
        rule.fill = [shared = std::make_shared<const Hashing>(std::move(hashing))](
                        Logits logits, RowBlock& block) {
            const Tensor s = std::move(logits).biased();
            block.p = softmax_rows(add(s, shared->mask(block.first, s)), block.visible);
            block.divided = true;
            block.why_no_slope = "the keys are the normalised queries";
        };
        return score_attention(std::move(in), std::move(rule));
    }};

}  // namespace tsdiag::variants
