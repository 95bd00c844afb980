#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>

#include "score.hpp"
#include "stored.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array reformer_options{
    whole_option("rounds", "8",
                 "independent hash rounds; a token attends to the keys of all rounds", 1, 100),
    whole_option("chunk", "64", "m, sorted tokens per chunk; the last chunk may be shorter", 1),
    or_word(
        "2n/m power",
        whole_option("buckets", "2n/m",
                     "b, the number per round, even; 2n/m: rounded up to an even number; power: "
                     "twice the whole chunks of n, down to a power of two, as in Hugging Face's "
                     "code",
                     2, 65536)),
    word_option("keys", "unit", "unit rms",
                "k = q/|q|, or q over the root of its mean square (rms: logits "
                "sqrt(d) times larger), as in the released code"),
    switch_option("across", "0",
                  "1: a chunk also attends to keys of other buckets, as in the released code"),
    switch_option("wrap", "0",
                  "1: the first chunk of a round looks at the last of the round before, as in the "
                  "released code"),
    switch_option("duplicates", "0",
                  "1: a key seen in N rounds counts N times, as in later releases"),
    whole_option(redraw_option, "1",
                 "updates of a training after which R is drawn again, "
                 "0: never; 1 as in the released code"),
    seed_option("seed of the rotations R, which the heads of a layer share")};

constexpr std::size_t at(Index x) { return std::size_t(x); }

/// One hash of a head: its tokens sorted by bucket, then by position.
struct Round {
    std::vector<Index> bucket;        ///< of each token
    std::vector<Index> order, place;  ///< the token at each place, and the inverse
};

/// argmax of [x R, -x R], the first of equal ones, for each row x of (n, w).
std::vector<Index> buckets(std::span<const double> rows, std::span<const double> rotation,
                           Index w) {
    const std::size_t width = at(w), half = rotation.size() / width;
    std::vector<Index> out;
    std::vector<double> turned(half);
    for (std::size_t row = 0; row < rows.size(); row += width) {
        std::ranges::fill(turned, 0.0);
        for (std::size_t c = 0; c < width; ++c)
            for (std::size_t b = 0; b < half; ++b)
                turned[b] += rows[row + c] * rotation[c * half + b];
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
    std::ranges::sort(out.order, {}, [&](Index i) { return std::pair(out.bucket[at(i)], i); });
    for (std::size_t s = 0; s < out.order.size(); ++s) out.place[at(out.order[s])] = Index(s);
    return out;
}

/// Which keys each token sees.
struct Hashing {
    std::vector<std::vector<Round>> heads;
    Index chunk = 0;
    bool causal = false, across = false, wrap = false, duplicates = false;
    std::vector<std::vector<bool>> alone = {};  ///< of each head, the tokens that see no other

    Index rounds() const { return std::ssize(heads.front()); }
    Index tokens() const { return std::ssize(heads.front().front().order); }
    Index chunks() const { return (tokens() + chunk - 1) / chunk; }

    /// A chunk of a round.
    struct Part {
        Index round = 0, chunk = 0;
        bool operator==(const Part&) const = default;
    };
    /// The chunk of token i.
    Part own(Index head, Index round, Index i) const {
        return {round, heads[at(head)][at(round)].place[at(i)] / chunk};
    }
    /// The chunk before; its number is -1 where there is none.
    Part before(Part part) const {
        if (part.chunk > 0 || !wrap || chunks() == 1) return {part.round, part.chunk - 1};
        return {(part.round + rounds() - 1) % rounds(), chunks() - 1};
    }
    /// The token at a place of a chunk; -1: none.
    Index token(Index head, Part part, Index a) const {
        const Index place = part.chunk * chunk + a;
        return part.chunk < 0 || place >= tokens()
                   ? -1
                   : heads[at(head)][at(part.round)].order[at(place)];
    }
    /// Whether token i in a round sees the key of token j in a chunk that it looks at.
    bool shown(Index head, Index round, Index i, Part there, Index j) const {
        const std::vector<Index>& bucket = heads[at(head)][at(round)].bucket;
        return (!causal || j <= i) &&
               (across || (round == there.round && bucket[at(i)] == bucket[at(j)]));
    }
    /// use(j) for each other token that token i sees in a round, once for each of its keys there.
    template <class Use>
    void each_seen(Index head, Index round, Index i, const Use& use) const {
        const Part here = own(head, round, i);
        for (const Part part : {before(here), here})
            for (Index a = 0; a < std::min(chunk, tokens()); ++a)
                if (const Index j = token(head, part, a);
                    j >= 0 && j != i && shown(head, round, i, part, j))
                    use(j);
    }
    void find_alone() {
        alone = stored::for_each_head<std::vector<bool>>(std::ssize(heads), [&](Index head) {
            std::vector<bool> out(at(tokens()), true);
            for (Index round = 0; round < rounds(); ++round)
                for (Index i = 0; i < tokens(); ++i)
                    each_seen(head, round, i, [&](Index) { out[at(i)] = false; });
            return out;
        });
    }
    /// N, how often token i sees the key of token j in all rounds.
    Index times(Index head, Index i, Index j) const {
        if (i == j) return alone[at(head)][at(i)] ? rounds() : 0;
        Index out = 0;
        for (Index round = 0; round < rounds(); ++round) {
            const Part here = own(head, round, i);
            for (const Part part : {before(here), here})
                if (part.chunk >= 0 && own(head, part.round, j) == part &&
                    shown(head, round, i, part, j))
                    ++out;
        }
        return out;
    }
};

/// Added to the logits of rows first, first + 1, ... of all heads: -inf where a key is not seen.
///
/// The paper's sum over rounds of softmaxes weighted by exp(z_r - z), each logit less log N, is one
/// softmax over the keys of all rounds.
Tensor mask(const Hashing& hashing, Index first, const Tensor& s) {
    const Index h = s.batch(), count = s.rows(), n = s.cols();
    const auto fill = [&]<class T>(std::span<T> out) {
#pragma omp parallel for schedule(static)
        for (Index r = 0; r < h * count; ++r) {
            const Index head = r / count, i = first + r % count;
            const std::span<T> row = out.subspan(at(r * n), at(n));
            std::ranges::fill(row, -std::numeric_limits<T>::infinity());
            const auto show = [&](Index j) {
                row[at(j)] = hashing.duplicates ? std::log(T(hashing.times(head, i, j))) : T(0);
            };
            for (Index round = 0; round < hashing.rounds(); ++round)
                hashing.each_seen(head, round, i, show);
            if (hashing.times(head, i, i) > 0) show(i);
        }
    };
    if (s.type() == Type::f32)
        return Tensor::filled(s.backend(), s.shape(), [&](std::span<float> x) { fill(x); });
    return Tensor::filled(s.backend(), s.shape(), [&](std::span<double> x) { fill(x); });
}

/// The chunks of all rounds of all heads, concatenated: their tokens as queries, those and the
/// previous chunk's as keys, and the number added to the logit of each such pair.
struct Chunks {
    std::vector<Index> queries, keys;  ///< head n + token; padding: that of token 0
    std::vector<double> added;         ///< `hidden` where a key is not seen

    Chunks(const Hashing& hashing, double hidden) {
        const Index n = hashing.tokens(), m = hashing.chunk, rounds = hashing.rounds(),
                    chunks = hashing.chunks(), all = std::ssize(hashing.heads) * rounds * chunks;
        queries.resize(at(all * m));
        keys.resize(at(all * 2 * m));
        added.resize(at(all * m * 2 * m));
#pragma omp parallel for schedule(static)
        for (Index part = 0; part < all; ++part) {
            const Index head = part / chunks / rounds;
            const Hashing::Part here{part / chunks % rounds, part % chunks},
                before = hashing.before(here);
            const auto key = [&](Index b) {
                return b < m ? hashing.token(head, before, b) : hashing.token(head, here, b - m);
            };
            for (Index b = 0; b < 2 * m; ++b)
                keys[at(part * 2 * m + b)] = head * n + std::max<Index>(0, key(b));
            for (Index a = 0; a < m; ++a) {
                const Index i = hashing.token(head, here, a);
                queries[at(part * m + a)] = head * n + std::max<Index>(0, i);
                for (Index b = 0; b < 2 * m; ++b) {
                    const Index j = key(b);
                    const bool shown =
                        i >= 0 && j >= 0 &&
                        (i == j || hashing.shown(head, here.round, i, b < m ? before : here, j));
                    const bool counted = !hashing.duplicates || i == j;
                    const Index seen = !shown ? 0 : counted ? hashing.times(head, i, j) : 1;
                    added[at((part * m + a) * 2 * m + b)] = seen == 0 ? hidden
                                                            : hashing.duplicates
                                                                ? 0
                                                                : -std::log(double(seen));
                }
            }
        }
    }
};

/// P v as in the paper: a softmax in each chunk of each round, rounds weighted by exp(z_r - z).
/// Empty where the chunks have more keys than there are tokens.
Tensor product(const Hashing& hashing, const AttentionInput& in, const Tensor& v) {
    const Index h = in.q.batch(), n = in.q.rows(), m = hashing.chunk, rounds = hashing.rounds();
    if (in.bias.defined() || 2 * m * rounds >= n) return {};
    const double hidden = in.q.type() == Type::f32
                              ? double(std::numeric_limits<float>::lowest()) / 4
                              : std::numeric_limits<double>::lowest() / 4;
    const Chunks chunks(hashing, hidden);
    const Index places = std::ssize(chunks.queries) / (h * rounds), all = h * rounds * places / m;
    const auto rows = [&](const Tensor& x, const std::vector<Index>& which) {
        return gather_rows(contiguous(x).reshape({1, h * n, x.cols()}), which)
            .reshape({all, std::ssize(which) / all, x.cols()});
    };
    const Tensor s = add(
        matmul(rows(in.q, chunks.queries), rows(in.k, chunks.keys), Transpose::second, in.scale),
        Tensor::from_host(in.q.backend(), {all, m, 2 * m}, std::span<const double>(chunks.added),
                          in.q.type()));
    const Tensor z = log_sum_exp(s).reshape({1, all * m, 1});
    const Tensor y =
        matmul(softmax_rows(s, {}), rows(repeat_batches(v, h / v.batch()), chunks.keys))
            .reshape({1, all * m, v.cols()});
    std::vector<Tensor> sums, parts;  // of each round, by tokens
    for (Index r = 0; r < rounds; ++r) {
        std::vector<Index> back;
        for (Index head = 0; head < h; ++head)
            for (const Index place : hashing.heads[at(head)][at(r)].place)
                back.push_back((head * rounds + r) * places + place);
        sums.push_back(gather_rows(z, back));
        parts.push_back(gather_rows(y, back));
    }
    const Tensor weights = softmax_rows(concat_cols(sums), {});  // (1, h n, rounds)
    Tensor out;
    for (Index r = 0; r < rounds; ++r) {
        const Tensor part = multiply(parts[at(r)], weights.col_range(r, 1));
        out = out.defined() ? add(out, part) : part;
    }
    return out.reshape({h, n, v.cols()});
}

Index buckets_of(const Options& options, Index n, Index chunk) {
    if (options.is("buckets", "2n/m")) return 2 * ((n + chunk - 1) / chunk);
    if (options.is("buckets", "power"))
        return Index(std::bit_floor(std::uint64_t(2 * std::max<Index>(1, n / chunk))));
    return options.count("buckets");
}

/// R of each round, (rounds, w, b/2): the parameter `rotations`, or drawn N(0, 1).
Tensor rotations(const Options& options, const AttentionInput& in, Index chunk) {
    const Index n = in.q.rows(), w = in.q.cols();
    if (const Tensor given = parameter(in, "rotations"); given.defined()) {
        if (given.rows() == w) return given;
        throw ShapeError(
            fmt::format("attention 'reformer': rotations have {} rows, expected the head width {}",
                        given.rows(), w));
    }
    const Index b = buckets_of(options, n, chunk);
    if (b % 2 != 0)
        throw UsageError(
            fmt::format("attention 'reformer': buckets={} is not even, but a rotation has two "
                        "buckets per column",
                        b));
    std::vector<double> values(at(options.count("rounds") * w * (b / 2)));
    options.rng(in).fill_normal(std::span<double>(values), 0, 1);
    return Tensor::from_host(cpu(), {options.count("rounds"), w, b / 2},
                             std::span<const double>(values), Type::f64);
}

/// The normalised queries.  1e-36 maps a query of zeros to a key of zeros, and is below rounding
/// where |q| is above 1e-9.
Tensor normalised(const Tensor& q, bool unit) {
    if (!unit) return rms_norm(q, {}, 1e-6);
    return scale(rms_norm(q, {}, 1e-36), 1 / std::sqrt(double(q.cols())));
}

/// In double on the host: a bucket depends on the bits of its key alone.
std::vector<std::vector<Round>> hashed(const Tensor& keys, const Tensor& rotations) {
    const std::vector<double> rows = keys.to_host<double>(), turns = rotations.to_host<double>();
    const std::size_t of_head = at(keys.rows() * keys.cols()),
                      of_round = at(rotations.rows() * rotations.cols());
    return stored::for_each_head<std::vector<Round>>(keys.batch(), [&](Index head) {
        std::vector<Round> out;
        for (std::size_t round = 0; round < turns.size(); round += of_round)
            out.push_back(sorted(buckets(std::span(rows).subspan(at(head) * of_head, of_head),
                                         std::span(turns).subspan(round, of_round), keys.cols())));
        return out;
    });
}

}  // namespace

extern const AttentionEntry reformer = {
    .name = "reformer",
    .description =
        "P = softmax of S = scale q k^T over the keys that a token attends to, k = q/|q|; the "
        "input's k is unused. In each round tokens are hashed to the largest of [q R, -q R], "
        "sorted by hash and position and cut into chunks of m; a token attends to keys of its own "
        "hash in its chunk and the previous one, in any round, and to itself if there is no other",
    .source = "[REFORMER]",
    .options = reformer_options,
    .facts = {.row_stochastic = Holds::always, .slope = Holds::never, .window = false},
    .make = [](AttentionInput in) {
        const Options options(reformer, in.options);
        admit(reformer, in);
        in.k = normalised(in.q, options.is("keys", "unit"));
        Hashing made{.heads = {},
                     .chunk = options.count("chunk"),
                     .causal = in.causal,
                     .across = options.is("across", "1"),
                     .wrap = options.is("wrap", "1"),
                     .duplicates = options.is("duplicates", "1")};
        made.heads = hashed(in.k.detached(), rotations(options, in, made.chunk));
        made.find_alone();
        const auto hashing = std::make_shared<const Hashing>(std::move(made));
        ScoreRule rule;
        rule.row_stochastic = true;
        rule.plain_logits = false;
        rule.product = [=](const Tensor& v) { return product(*hashing, in, v); };
        rule.fill = [=](Logits logits, RowBlock& block) {
            const Tensor s = std::move(logits).biased();
            block.p = softmax_rows(add(s, mask(*hashing, block.first, s)), block.visible);
            block.divided = true;
            block.why_no_slope = "the keys are the normalised queries";
        };
        return score_attention(std::move(in), std::move(rule));
    }};

}  // namespace tsdiag::variants
