#include "headline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "text.hpp"

namespace tsdiag::reports {
namespace {

using Level = Finding::Level;

/// t_sim and t_div of a model over its measured layers.
class TokenCourse {
  public:
    TokenCourse(const TableView& rows, const std::string& model, const RunRecord& run)
        : sim_(rows.depth(model, metric::t_sim, "out")),
          div_(rows.depth(model, metric::t_div, "out")),
          sim_in_(rows.depth(model, metric::t_sim, "in")),
          div_in_(rows.depth(model, metric::t_div, "in")),
          ratios_(rows.depth(model, metric::xi_ratio, rows.attention_stage(model))),
          values_(defined(sim_)),
          run_(run) {
        if (rows.attention_stage(model) != "attn") ratios_.clear();  // a parallel block: one step
        for (const std::string& stage : rows.stages(model, metric::xi_ratio))
            if (stage != "attn" && stage != "embed" && stage != "class" && stage != "final_norm")
                other_ratios_.emplace_back(stage == "ffn"              ? "feed-forward"
                                           : stage.starts_with("norm") ? "norms"
                                                                       : stage,
                                           rows.depth(model, metric::xi_ratio, stage));
    }

    bool empty() const { return values_.empty(); }

    Finding headline() const {
        if (run_.input.tokens == 1)
            return {Level::note,
                    "There is one token, so similarity says nothing. Give more with --tokens."};
        const double end = values_.back().second;
        const auto above = first_above(sim_, saturated), near = first_above(sim_, mostly);
        if (above && input().value_or(0) > saturated)
            return {Level::warning, "Tokens are alike from the start: " + both_ends()};
        if (above && end > mostly)
            return {Level::warning,
                    "Tokens collapse: " + passing(*above, saturated) + shares(above->first)};
        if (above)
            return {Level::note, "Tokens collapse for a time: " + passing(*above, saturated)};
        if (near && input().value_or(0) > mostly)
            return {Level::note, fmt::format("Tokens are {:g} % alike from the start: {}",
                                             100 * mostly, both_ends())};
        if (near)
            return {Level::note,
                    fmt::format("Tokens become alike{}: {}{}", end > mostly ? "" : " for a time",
                                passing(*near, mostly), shares(near->first))};
        return {Level::good, "Tokens stay distinct: t_sim " + course() + "."};
    }

  private:
    Index first() const { return values_.front().first; }
    Index last() const { return values_.back().first; }
    std::optional<double> input() const { return value_at(sim_in_, first()); }
    std::string begin() const { return similarity_text(*input(), value_at(div_in_, first())); }
    std::string after(Index layer) const {
        return similarity_text(*value_at(sim_, layer), value_at(div_, layer));
    }
    std::string finish() const { return after(last()); }

    /// The last layer of the model, measured or not.
    Index end_of_model() const { return std::max(last(), run_.model.layers.value_or(0) - 1); }

    /// "layer 3 (of 0 to 11)".
    std::string place(Index layer) const {
        return fmt::format("layer {} (of 0 to {})", layer, end_of_model());
    }

    /// Where t_sim begins and ends, unless it is where the model does.
    std::string of_input() const {
        return first() == 0 ? "" : fmt::format(" in the input of layer {}", first());
    }
    std::string of_end() const {
        return last() == end_of_model() ? "" : fmt::format(" after layer {}", last());
    }

    std::string of_end_or(std::string_view otherwise) const {
        const std::string text = of_end();
        return text.empty() ? std::string(otherwise) : text;
    }

    /// "t_sim is 0.9950 in the input and 0.9960 at the end."
    std::string both_ends() const {
        return fmt::format("t_sim is {}{} and {}{}.", begin(),
                           first() == 0 ? " in the input" : of_input(), finish(),
                           of_end_or(" at the end"));
    }

    /// "after layer 10 (of 0 to 19) they are 99 % alike; t_sim goes from 0.0386 to 0.99997."
    std::string passing(const std::pair<Index, double>& at, double threshold) const {
        const std::string alike =
            fmt::format("after {} they are {:g} % alike; t_sim ", place(at.first), 100 * threshold);
        if (!input()) return alike + fmt::format("is {}{}.", finish(), of_end_or(" at the end"));
        return alike +
               fmt::format("goes from {}{} to {}{}.", begin(), of_input(), finish(), of_end());
    }

    std::string course() const {
        const auto most = std::ranges::max_element(values_, {}, [](auto& v) { return v.second; });
        const double end = values_.back().second;
        std::string text =
            !input() ? fmt::format("is {} after {}", finish(), place(last()))
            : begin() == finish()
                ? "stays at " + finish()
                : fmt::format("{} from {}{} to {}{}", end > *input() ? "rises" : "falls", begin(),
                              of_input(), finish(), of_end());
        if (most->first != last() && most->second > input().value_or(end) &&
            after(most->first) != finish())
            text += fmt::format(", at most {} after {}", after(most->first), place(most->first));
        return text;
    }

    /// t_sim / t_div; 0 where it is not defined.
    static double odds(const Depth& sim, const Depth& div, Index layer) {
        const auto s = value_at(sim, layer), d = value_at(div, layer);
        return s && d && *s > 0 && *d > 0 ? *s / *d : 0;
    }

    /// Sum of ln xi_ratio of a step over the layers up to `end`; none where one of them is missing.
    static std::optional<double> growth(const Depth& ratios, Index end) {
        double sum = 0;
        for (Index layer = 0; layer <= end; ++layer) {
            const std::optional<double> ratio = value_at(ratios, layer);
            if (!ratio || *ratio <= 0) return std::nullopt;
            sum += std::log(*ratio);
        }
        return sum;
    }

    /// The sums of the other steps, by what a reader calls them; none where one is not known.
    std::optional<std::map<std::string, double>> other_growths(Index end) const {
        std::map<std::string, double> out;
        for (const auto& [name, ratios] : other_ratios_) {
            const std::optional<double> grown = growth(ratios, end);
            if (!grown) return std::nullopt;
            out[name] += *grown;
        }
        return out;
    }

    static std::string percent(double share) {
        return fmt::format("{:.0f} %", std::round(100 * share) + 0.0);
    }

    /// " Attention causes 87 % of it, feed-forward 13 %, norms 0 %.": of the rise of
    /// ln(t_sim/t_div) from the input of layer 0 to layer `end`, the shares of the steps, sum_l ln
    /// xi_ratio, by odds(Y) = xi_ratio odds(X).  Of means over several samples the identity holds
    /// nearly: "about", and the shares are those of the sum of all steps.  The other steps are left
    /// out where they and attention are not all of the rise.  Empty unless the odds at least double
    /// and every layer has a ratio.
    std::string shares(Index end) const {
        const double first_odds = odds(sim_in_, div_in_, 0), last_odds = odds(sim_, div_, end);
        if (first_odds == 0 || last_odds < 2 * first_odds) return {};
        const std::optional<double> part = growth(ratios_, end);
        if (!part) return {};
        const bool one = run_.input.samples.value_or(1) == 1 && run_.input.trials.value_or(1) == 1;
        const auto others = other_growths(end);
        double rise = std::log(last_odds / first_odds), sum = *part;
        for (const auto& [name, grown] : others.value_or(std::map<std::string, double>()))
            sum += grown;
        const bool whole = others && std::abs(sum - rise) <= (one ? 0.05 : 0.1) * rise;
        if (whole && !one) rise = sum;
        const double share = *part / rise;
        // what exceeds the rise may be due to the means
        if (!whole && !one && (share < 0 || share > 1)) return {};
        std::string rest;
        if (whole)
            for (const auto& [name, grown] : *others)
                rest += fmt::format(", {} {}", name, percent(grown / rise));
        const char* about = one ? "" : "about ";
        if (share < -0.005)
            return fmt::format(" Attention works against it, other steps cause it{}.", rest);
        if (share > 1.05)
            return fmt::format(
                " Attention alone would go {}{:.2g} times as far; other steps take the rest back.",
                about, share);
        return fmt::format(" Attention causes {}{} of it{}.", about, percent(share), rest);
    }

    Depth sim_, div_, sim_in_, div_in_, ratios_;
    std::vector<std::pair<std::string, Depth>> other_ratios_;  ///< by what a reader calls the step
    std::vector<std::pair<Index, double>> values_;
    const RunRecord& run_;
};

}  // namespace

std::string remedy(const RunRecord& run) {
    const std::string& drawn = run.model.deescalated;
    const bool training = !run.model.described;
    if (run.model.deescalates || (training && drawn.empty())) return {};
    return fmt::format(
        "A remedy is de-escalation ([TSE] (21)): each block subtracts a part of the mean token. {}",
        drawn.empty() ? std::string("See it in training: `tsdiag figure tse.fig6`.")
                      : fmt::format("Try it: `tsdiag {} {}`{}.", training ? "train" : "probe",
                                    drawn, training ? " with the other options as they were" : ""));
}

void add_doubts(const RunRecord::Model& model, std::vector<Finding>& findings) {
    if (!model.no_attention.empty())
        findings.push_back({.level = Level::warning,
                            .text = model.no_attention + ". Numbers of P and of its heads are "
                                                         "those of that matrix.",
                            .headline = true});
    for (const std::string& line : model.warnings)
        findings.push_back({.level = Level::warning, .text = line + "."});
}

std::optional<Finding> random_ids(const RunRecord& run) {
    if (run.input.kind != "ids:random" || !run.model.trained.value_or(false)) return std::nullopt;
    return Finding{.level = Level::warning,
                   .text =
                       "The input is random token ids, which are not language. Give real text "
                       "with --text or --input ids:FILE."};
}

std::vector<Finding> tokens_verdict(const TableView& rows, const std::string& model,
                                    const RunRecord& run) {
    const TokenCourse tokens(rows, model, run);
    if (tokens.empty()) return {};
    std::vector<Finding> out{tokens.headline()};
    out.front().headline = true;
    if (out.front().level == Level::warning)
        if (const std::string text = remedy(run); !text.empty()) out.push_back({Level::note, text});
    for (Finding& f : out) f.figure = "similarity";
    return out;
}

}  // namespace tsdiag::reports
