#include "bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "search.hpp"
#include "trials.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/parallel.hpp"
#include "witness.hpp"

namespace tsdiag::claim {

double tightness(const BoundSides& s, Relation relation) {
    if (relation == Relation::equal) {
        const double apart = std::abs(s.measured - s.bound);
        return apart == 0 ? 0 : s.room > 0 ? apart / s.room : INFINITY;
    }
    const double small = relation == Relation::at_most ? s.measured : s.bound;
    const double large = relation == Relation::at_most ? s.bound : s.measured;
    if (small <= 0) return large < small ? INFINITY : 0;
    return large > 0 ? small / large : INFINITY;
}

Rng trial_rng(const Check& how, std::string_view part, Index trial) {
    return how.rng.fork(part).fork(std::uint64_t(trial));
}

void refuse_nonfinite(const Check& how, std::string_view part, Index trial, double value) {
    throw NonFiniteError(
        fmt::format("{}: trial {} of '{}' with seed {} gives {}, expected a finite number; "
                    "reproduce it with --trial {}, or use other sizes or another --dist.",
                    how.claim, trial, part, how.seed, value, trial));
}

namespace {

/// The least significant excess: rounding to six digits and rounding errors of the formulas stay
/// well below it.
constexpr double least_excess = 1e-9;
constexpr std::size_t quantiles = 64;
/// Steps of one climb in `count` dimensions: increasing, then decreasing where a step is expensive
/// and a simplex hardly moves.
Index most_steps(Index count) {
    const double cost = std::pow(double(count), 1.5);
    return std::min(400 + 150 * std::min<Index>(count, 40), Index(400e3 / cost));
}
constexpr Index most_searched = 80;  // free numbers; a simplex in more dimensions hardly moves
constexpr Index most_shown = 1024;   // numbers of a draw without violation; its replay has them

struct Found {
    double ratio = -INFINITY;  ///< the largest
    Variables at;
    std::optional<Index> trial;
};

class BoundExamination {
  public:
    BoundExamination(const Bound& bound, const Check& how)
        : bound_(bound),
          how_(how),
          result_(
              begin(bound.reading, bound.formula, bound.role, how, bound.hypotheses, bound.given)) {
        const double own = bound.relation == Relation::at_most ? 0.99 : 1.01;
        const double mutant = bound.mutant.factor == 0 ? own : bound.mutant.factor;
        result_.mutant = described(mutant, bound.mutant);
        if (how.mutated) factor_ = mutant;
        for (const Condition& c : bound.conditions) result_.hypotheses.push_back({c.name, {}});
    }

    Reading run() {
        if (result_.verdict == Verdict::hypothesis_not_met) return std::move(result_);
        if (how_.rehearsal) {
            rehearse();
            return std::move(result_);
        }
        draw();
        if (!how_.only) search();
        decide();
        return std::move(result_);
    }

  private:
    std::optional<BoundSides> sides(const Variables& v) const {
        for (const Condition& c : bound_.conditions)
            if (!(c.missed(v) <= rounding_misses)) return {};
        std::optional<BoundSides> s = bound_.sides(v);
        if (s) s->bound *= factor_;
        return s;
    }
    double ratio(const Variables& v) const {
        const std::optional<BoundSides> s = sides(v);
        if (!s || !std::isfinite(s->measured) || !std::isfinite(s->bound)) return -INFINITY;
        return tightness(*s, bound_.relation);
    }
    bool breaks(double r) const { return r > 1 + bound_.accuracy; }
    Variables draw_at(const Rng& rng, const Sizes& sizes) const {
        return bound_.draw(rng, sizes, how_.distribution);
    }
    /// The tightness of one trial; nullopt where the statement is undefined.
    std::optional<double> trial(Index t) const {
        const std::optional<BoundSides> s =
            sides(draw_at(trial_rng(how_, bound_.reading, t), {how_.n, how_.d}));
        if (!s) return {};
        for (const double side : {s->measured, s->bound})
            if (!std::isfinite(side)) refuse_nonfinite(how_, bound_.reading, t, side);
        return tightness(*s, bound_.relation);
    }

    void draw() {
        const Index first = how_.only.value_or(0);
        const Index count = how_.only ? 1 : how_.trials;
        auto ratios = std::vector<std::optional<double>>(std::size_t(count));
        in_parallel(count, [&](Index t) { ratios[std::size_t(t)] = trial(first + t); });
        std::vector<double> defined;
        for (Index t = 0; t < count; ++t) {
            const std::optional<double>& r = ratios[std::size_t(t)];
            if (!r) continue;
            defined.push_back(*r);
            if (*r > best_.ratio) best_ = {*r, {}, first + t};
        }
        result_.trials = Index(defined.size());
        undefined_ = count - result_.trials;
        if (best_.trial)
            best_.at = draw_at(trial_rng(how_, bound_.reading, *best_.trial), {how_.n, how_.d});
        if (best_.trial && breaks(best_.ratio)) try_witness(best_);
        trace(std::move(defined));
    }

    void trace(std::vector<double> ratios) {
        if (ratios.empty()) return;
        std::sort(ratios.begin(), ratios.end());
        Trace& t = result_.trace;
        t.x_title = "fraction of draws";
        t.y_title = bound_.relation == Relation::at_least  ? "bound / measured"
                    : bound_.relation == Relation::at_most ? "measured / bound"
                                                           : "difference / rounding";
        const std::size_t points = std::min(quantiles, ratios.size());
        for (std::size_t i = 0; i < points; ++i) {
            const std::size_t at = points == 1 ? 0 : i * (ratios.size() - 1) / (points - 1);
            if (!std::isfinite(ratios[at])) continue;
            t.x.push_back(double(at + 1) / double(ratios.size()));
            t.y.push_back(ratios[at]);
            t.claimed.push_back(1);
        }
    }

    /// The ends of many climbs at one size, the best first.
    std::vector<Found> climb_at(const Sizes& sizes, std::size_t which) {
        const Rng rng = how_.rng.fork(bound_.reading + "/search").fork(std::uint64_t(which));
        auto tops = std::vector<Best>(std::size_t(how_.climbs));
        const Variables pattern = draw_at(rng, sizes);
        const Index evaluations = most_steps(pattern.count());
        in_parallel(how_.climbs, [&](Index s) {
            Rng stream = rng.fork(std::uint64_t(s));
            Variables v = draw_at(stream, sizes);
            std::vector<double> x = v.flat();
            if (s % 2 == 1)  // bounds are loose or tight where entries differ widely in size
                for (double& entry : x) entry *= std::pow(10.0, 3 * stream.uniform() - 1.5);
            const auto f = [&](const std::vector<double>& at) {
                v.assign(at);
                return ratio(v);
            };
            tops[std::size_t(s)] = climb(f, std::move(x), evaluations);
        });
        std::sort(tops.begin(), tops.end(), better);
        std::vector<Found> found;
        for (const Best& top : tops) {
            found.push_back({top.value, pattern, {}});
            found.back().at.assign(top.x);
            result_.steps += top.steps;
        }
        return found;
    }

    std::vector<Sizes> search_sizes() const {
        if (how_.sizes_chosen && !bound_.search.empty()) return {{how_.n, how_.d}};
        return bound_.search;
    }

    void rehearse() const {
        const auto once = [&](const Sizes& at) {
            return [&, at] { (void)sides(draw_at(how_.rng, at)); };
        };
        double seconds = rehearsed(double(how_.trials), once({how_.n, how_.d}));
        for (const Sizes& at : search_sizes()) {
            const Variables v = draw_at(how_.rng, at);
            if (v.count() > most_searched) continue;
            seconds +=
                rehearsed(double(how_.climbs * most_steps(v.count())), [&] { (void)sides(v); });
        }
        how_.rehearsal->seconds += seconds;
        how_.rehearsal->most += seconds;
    }

    void search() {
        const std::vector<Sizes> sizes = search_sizes();
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            if (draw_at(how_.rng, sizes[i]).count() > most_searched) continue;
            const std::vector<Found> tops = climb_at(sizes[i], i);
            searched_ +=
                fmt::format("{}n={} d={}", searched_.empty() ? "" : ", ", sizes[i].n, sizes[i].d);
            if (!confirmed_ || witness_.trial)  // the first size with a violation is the smallest
                for (const Found& found : tops)
                    if (!breaks(found.ratio) || try_witness(found)) break;
            const Found& top = tops.front();
            if (top.ratio > best_.ratio && (confirmed_ || !breaks(top.ratio))) best_ = top;
        }
    }

    /// Keeps `found` as the witness where the excess is more than rounding.
    bool try_witness(const Found& found) {
        const double excess = std::min(found.ratio - 1, 1.0);
        const double least = 1 + std::max(0.7 * excess, std::max(bound_.accuracy, least_excess));
        const auto strength = [&](const Variables& v) { return ratio(v); };
        std::optional<Variables> plain = plain_witness(found.at, strength, least);
        if (!plain) return false;
        confirmed_ = true;
        witness_ = {ratio(*plain), std::move(*plain), found.trial};
        return true;
    }

    void decide() {
        if (best_.ratio == -INFINITY) {
            result_.note = "the statement is undefined for all draws";
            return;
        }
        result_.verdict = confirmed_            ? Verdict::false_as_stated
                          : breaks(best_.ratio) ? Verdict::not_decided
                                                : Verdict::holds;
        const Found& shown = confirmed_ ? witness_ : best_;
        if (const std::optional<BoundSides> s = sides(shown.at)) {
            result_.measured = s->measured;
            result_.bound = s->bound;
        }
        if (confirmed_ || shown.at.count() <= most_shown)
            result_.witness = bound_.shown ? bound_.shown(shown.at) : shown.at.named();
        if (std::isfinite(best_.ratio)) result_.tightness = best_.ratio;
        if (shown.trial) result_.replay = Replay{how_.seed, bound_.reading, *shown.trial};
        result_.note = note();
    }

    std::string note() const {
        std::string text;
        const auto add = [&](const std::string& more) {
            text += (text.empty() ? "" : "; ") + more;
        };
        if (how_.only) add(fmt::format("trial {} only", *how_.only));
        if (undefined_ > 0) add(fmt::format("undefined in {} draws", undefined_));
        if (!searched_.empty()) add("searched at " + searched_);
        if (searched_.empty() && !bound_.search.empty() && !how_.only)
            add("too many variables for a search");
        if (!confirmed_ && breaks(best_.ratio)) add("violated by less than the rounding error");
        if (!std::isfinite(best_.ratio) && confirmed_) add("measured / bound is unbounded");
        return text;
    }

    const Bound& bound_;
    const Check& how_;
    Reading result_;
    double factor_ = 1;  ///< multiplies the claimed side: a mutant's, or 1
    Found best_, witness_;
    bool confirmed_ = false;
    Index undefined_ = 0;
    std::string searched_;
};

}  // namespace

Reading examine_bound(const Bound& bound, const Check& how) {
    return BoundExamination(bound, how).run();
}

Bound scaled(Bound bound, const char* name, double scale) {
    bound.sides = [sides = bound.sides, name, scale](const Variables& v) {
        Variables other = v;
        other.set(name, scale * v(name));
        std::optional<BoundSides> s = sides(other);
        if (s) s->measured *= scale;
        return s;
    };
    return bound;
}

std::vector<Reading> examine_bounds(const std::vector<Bound>& bounds, const Check& how) {
    std::vector<Reading> readings;
    for (const Bound& bound : bounds) readings.push_back(examine_bound(bound, how));
    return readings;
}

Reading control(const Bound& broken, std::string_view change, const Check& how) {
    return examine_control(broken, change, examine_bound, how);
}

}  // namespace tsdiag::claim
