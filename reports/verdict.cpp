#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "gradient_flow.hpp"
#include "head_classes.hpp"
#include "headline.hpp"
#include "rows.hpp"
#include "text.hpp"

/// The verdict: findings on the numbers of a run, in sentences that quote them.
namespace tsdiag {
namespace {

using namespace reports;
using Level = Finding::Level;

constexpr int first_layers = 3;          ///< their measured ratios predict the depth of saturation
constexpr std::size_t most_heads = 6;    ///< of more, the layers are named
constexpr std::size_t most_reasons = 3;  ///< reported for undefined numbers

/// The findings of one model, in the order of the page.
class ModelVerdict {
  public:
    ModelVerdict(const TableView& rows, const std::string& model, const RunRecord& run)
        : rows_(rows), model_(model), run_(run) {}

    std::vector<Finding> findings() {
        for (Finding& f : tokens_verdict(rows_, model_, run_)) {
            say(f.level, std::move(f.text), std::move(f.figure));
            found_.back().headline = f.headline;
        }
        if (const std::optional<Finding> input = random_ids(run_)) say(input->level, input->text);
        channels();
        predicted_depth();
        attention_rate();
        heads();
        gradients();
        below_rounding_numbers();
        undefined_numbers();
        bounded_numbers();
        second_opinions();
        return std::move(found_);
    }

  private:
    void say(Level level, std::string text, std::string figure = {}) {
        if (rows_.models().size() > 1) text = label(model_) + ": " + text;
        found_.push_back({level, std::move(text), std::move(figure)});
    }
    Depth depth(std::string_view metric, std::string_view stage) const {
        return rows_.depth(model_, metric, stage);
    }

    /// Are attention and feed-forward one step?
    bool is_parallel() const { return rows_.attention_stage(model_) == "ffn"; }

    void channels();
    void predicted_depth();
    void attention_rate();
    std::string predictions_in_words(const Depth& measured) const;
    std::optional<double> gain(const Depth& measured) const;
    void heads();
    void gradients();
    void below_rounding_numbers();
    void undefined_numbers();
    void bounded_numbers();
    void second_opinions();

    const TableView& rows_;
    const std::string& model_;
    const RunRecord& run_;
    std::vector<Finding> found_;
};

/// What multiplies on average: the geometric mean of `factors`; nullopt where there is none, or one
/// is not positive.
std::optional<double> mean_factor(const std::vector<double>& factors) {
    double sum = 0;
    for (const double factor : factors) {
        if (!(factor > 0)) return std::nullopt;
        sum += std::log(factor);
    }
    return factors.empty() ? std::nullopt : std::optional(std::exp(sum / double(factors.size())));
}

/// The mean factor 1 + `depth` over the layers where `mask` has a value; nullopt where one of them
/// has none.
std::optional<double> mean_gain(const Depth& depth, const Depth& mask) {
    std::vector<double> factors;
    for (const auto& [layer, measured] : defined(mask)) {
        const std::optional<double> v = value_at(depth, layer);
        if (!v) return std::nullopt;
        factors.push_back(1 + *v);
    }
    return mean_factor(factors);
}

void ModelVerdict::channels() {
    const std::string said = channels_of(rows_, model_);
    if (said.empty()) return;
    say(Level::note,
        fmt::format(
            "{} of each head and not over tokens. What is said of heads is of that matrix, not of "
            "how alike tokens become.",
            said));
}

void ModelVerdict::predicted_depth() {
    const auto ratios = defined(depth(metric::xi_ratio, rows_.attention_stage(model_)));
    const Depth in = depth(metric::t_sim, "in"), in_div = depth(metric::t_div, "in");
    // Only a run from layer 0 on has the input of the model.
    if (ratios.empty() || ratios.front().first != 0) return;
    const std::optional<double> sim = value_at(in, 0), div = value_at(in_div, 0);
    if (!sim || !div || *sim <= 0 || *div <= 0) return;
    const std::size_t used = std::min<std::size_t>(ratios.size(), first_layers);
    std::vector<double> first;
    for (std::size_t i = 0; i < used; ++i) first.push_back(ratios[i].second);
    const std::optional<double> factor = mean_factor(first);
    const double odds = *sim / *div, target = saturated / (1 - saturated);
    if (!factor || odds >= target) return;
    const char* step = is_parallel() ? "attention with feed-forward" : "attention";
    // The rate of all layers is told with its prediction.
    const bool all = used == ratios.size();
    const std::string rate =
        all ? fmt::format("At the rate of {}", step)
            : fmt::format("In the first {} layers {} multiplies similarity odds by {} on average",
                          used, step, number(*factor));
    if (*factor <= 1) {
        say(Level::note,
            fmt::format("{} t_sim would never pass {}.", all ? rate : rate + "; at this rate",
                        saturated),
            "escalation");
        return;
    }
    const double blocks = std::log(target / odds) / std::log(*factor);
    const auto above = first_above(depth(metric::t_sim, "out"), saturated);
    const std::size_t layers = defined(depth(metric::t_sim, "out")).size();
    std::string found;
    if (above)
        found = fmt::format("; measured: {}", above->first + 1);
    else if (ratios.size() > 1)
        found = fmt::format("; it does not in the {} layers measured", layers);
    say(Level::note,
        fmt::format("{} t_sim would pass {} after {:.{}f} layers{}.", all ? rate : rate + ":",
                    saturated, blocks, blocks < 100 ? 1 : 0, found),
        "escalation");
}

/// The mean factor 1 + a2 over the layers of `measured`.
std::optional<double> ModelVerdict::gain(const Depth& measured) const {
    const std::vector<std::optional<double>>& a2 = run_.model.a2;
    if (a2.empty() || rows_.models().size() > 1) return std::nullopt;
    std::vector<double> factors;
    for (const auto& [layer, ratio] : defined(measured)) {
        if (layer >= std::ssize(a2) || !a2[std::size_t(layer)]) return std::nullopt;
        factors.push_back(1 + *a2[std::size_t(layer)]);
    }
    return mean_factor(factors);
}

/// "est1, est2 need a post-norm layer": why there are no numbers of them, in a reader's terms where
/// those of the reason are not.
std::string why_lacking(const std::vector<std::string>& names, const std::string& reason) {
    constexpr std::size_t most = 4;
    std::string all;
    for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
        all += (i ? ", " : "") + names[i];
    if (names.size() > most) all += fmt::format(" and {} more", names.size() - most);
    const bool one = names.size() == 1;
    const char* needed = reason.starts_with("pre-norm")         ? "a post-norm layer"
                         : reason == "pi = e_1 is not positive" ? "attention that is not causal"
                                                                : nullptr;
    return needed ? fmt::format("{} {} {}", all, one ? "needs" : "need", needed)
                  : fmt::format("{} {} undefined ({})", all, one ? "is" : "are", reason);
}

std::string ModelVerdict::predictions_in_words(const Depth& measured) const {
    std::string text;
    const auto add = [&](std::string_view name, const std::optional<double>& factor) {
        if (factor)
            text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", number(*factor), name);
    };
    add("a2", gain(measured));
    for (const std::string_view name : {metric::est1, metric::est2, metric::est_mu})
        add(name, mean_gain(depth(name, "attn"), measured));
    return text.empty() ? "" : fmt::format(" Predicted: {}.", text);
}

void ModelVerdict::attention_rate() {
    const Depth measured = depth(metric::xi_ratio, rows_.attention_stage(model_));
    const auto values = defined(measured);
    if (values.empty()) return;
    std::vector<double> factors;
    for (const auto& [layer, ratio] : values) factors.push_back(ratio);
    const double mean = mean_factor(factors).value_or(0);
    const auto less = [](auto& a, auto& b) { return a.second < b.second; };
    const auto [least, most] = std::minmax_element(values.begin(), values.end(), less);
    const char* step = is_parallel() ? "step of attention with feed-forward" : "attention step";
    std::string text =
        values.size() == 1
            ? fmt::format("The {} of layer {} multiplies similarity odds by {}.", step,
                          values.front().first, number(mean))
            : fmt::format("Each {} multiplies similarity odds by {} on average ({} to {}).", step,
                          number(mean), number(least->second), number(most->second));
    const std::size_t raising = std::size_t(
        std::count_if(values.begin(), values.end(), [](auto& v) { return v.second > 1; }));
    if (raising > 0 && raising < values.size())
        text +=
            fmt::format(" It makes tokens more alike in {} of {} layers.", raising, values.size());
    say(mean > 1 ? Level::note : Level::good, text + predictions_in_words(measured), "escalation");
}

/// ", in 16 layers, most in layer 5 (4)": where many heads are.
std::string fullest_layer(const std::vector<HeadAt>& heads) {
    std::map<Index, std::size_t> layers;
    for (const HeadAt& at : heads) ++layers[at.first];
    const auto most = std::max_element(layers.begin(), layers.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    if (layers.size() == 1) return fmt::format(", all of them in layer {}", most->first);
    return fmt::format(", in {} layers, most in layer {} ({})", layers.size(), most->first,
                       most->second);
}

/// ": 0:3, 1:7 (layer:head)"; of many heads, in which layers they are.
std::string where_heads_are(const std::vector<HeadAt>& heads) {
    if (heads.size() > most_heads) return fullest_layer(heads);
    std::string text;
    for (const auto& [layer, head] : heads)
        text += fmt::format("{}{}:{}", text.empty() ? ": " : ", ", layer, head);
    return text + " (layer:head)";
}

void ModelVerdict::heads() {
    if (!run_.model.no_attention.empty()) return;
    const char* figures[] = {"heads_mixing", "accumulation", "accumulation"};
    std::vector<HeadClass> none;
    std::size_t i = 0;
    for (const HeadClass& c : head_classes(rows_, model_)) {
        const std::string figure = own_figure(rows_, model_, figures[i++]);
        const std::size_t n = c.members.size();
        if (c.measured == 0) continue;
        if (n == 0) {
            none.push_back(c);
        } else if (n == c.measured && n > 1) {
            say(Level::warning, fmt::format("All {} heads are {}.", n, c.name), figure);
        } else {
            const std::string who = c.measured == 1 ? std::string("The only head")
                                                    : fmt::format("{} of {} heads", n, c.measured);
            say(Level::note,
                fmt::format("{} {} {}{}.", who, n == 1 ? "is" : "are", c.name,
                            where_heads_are(c.members)),
                figure);
        }
    }
    // Metrics that are undefined in some heads leave fewer to one kind than to another.
    while (!none.empty()) {
        const std::size_t measured = none.front().measured;
        std::vector<std::string> kinds;
        std::erase_if(none, [&](const HeadClass& c) {
            if (c.measured == measured) kinds.push_back(c.name);
            return c.measured == measured;
        });
        const std::string last = kinds.back();
        kinds.pop_back();
        const std::string all =
            kinds.empty() ? last : fmt::format("{} or {}", fmt::join(kinds, ", "), last);
        say(Level::note,
            measured == 1 ? fmt::format("The only head is not {}.", all)
                          : fmt::format("None of the {} heads is {}.", measured, all),
            own_figure(rows_, model_, "heads_mixing"));
    }
}

void ModelVerdict::gradients() {
    const auto flow = gradient_flow(defined(depth(metric::grad_norm, "")));
    if (!flow) return;
    const bool right = !flow->stops() && !flow->explodes() && !flow->vanishes();
    say(right ? Level::note : Level::warning,
        fmt::format("{}: {}.", flow->course(), flow->numbers()), "gradient_norms");
}

/// Reasons that differ in their numbers alone are one.
std::string without_numbers(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t end = std::min(text.find_first_not_of("0123456789.e+-", i), text.size());
        const bool number = text.find_first_of("0123456789", i) < end;
        out += number ? '#' : text[i];
        i = number ? end : i + 1;
    }
    return out;
}

/// From which layer on a finer type is needed.
void ModelVerdict::below_rounding_numbers() {
    Index first = std::numeric_limits<Index>::max();
    std::size_t count = 0;
    std::string type;
    for (const MetricRow* row : rows_.all()) {
        if (row->model != model_ || row->value) continue;
        const std::size_t at = row->note.find(below_rounding);
        if (at == std::string::npos) continue;
        ++count;
        if (row->at.layer >= first) continue;
        first = row->at.layer;
        const std::string_view rest =
            std::string_view(row->note).substr(at + below_rounding.size());
        type = rest.substr(0, rest.find_first_of(",;"));
    }
    if (count == 0) return;
    const bool trace = run_.model.kind == "trace";
    say(Level::warning,
        fmt::format("From layer {} on, {} {} below the rounding of {} and left out.{}", first,
                    count, count == 1 ? "number is" : "numbers are", type,
                    type == "float64"   ? ""
                    : trace             ? " Save arrays of a finer type."
                    : type == "float32" ? " Use --dtype f64."
                                        : " Leave out --fast."));
}

void ModelVerdict::undefined_numbers() {
    struct Reason {
        std::string first = {};
        std::size_t count = 0;
        std::vector<std::string> metrics = {};
    };
    std::map<std::string, Reason> reasons;
    std::size_t undefined = 0, all = 0;
    for (const MetricRow* row_of_model : rows_.all()) {
        const MetricRow& row = *row_of_model;
        if (row.model != model_) continue;
        ++all;
        if (row.value || row.low || row.high) continue;
        ++undefined;
        Reason& reason = reasons[without_numbers(row.note)];
        if (++reason.count == 1) reason.first = row.note.empty() ? "no reason given" : row.note;
        if (std::ranges::find(reason.metrics, row.metric) == reason.metrics.end())
            reason.metrics.push_back(row.metric);
    }
    if (undefined == 0) return;
    std::vector<Reason> sorted;
    for (auto& [words, reason] : reasons) sorted.push_back(std::move(reason));
    std::ranges::sort(sorted, [](const Reason& a, const Reason& b) {
        return std::tie(b.count, a.first) < std::tie(a.count, b.first);  // the most frequent first
    });
    std::string text;
    for (std::size_t i = 0; i < std::min(sorted.size(), most_reasons); ++i)
        text += (i ? "; " : "") + why_lacking(sorted[i].metrics, sorted[i].first);
    if (sorted.size() > most_reasons)
        text += fmt::format("; and {}", counted(sorted.size() - most_reasons, "other reason"));
    say(Level::note, fmt::format("{} of {} numbers {} no value: {}.", undefined, all,
                                 undefined == 1 ? "has" : "have", text));
}

void ModelVerdict::bounded_numbers() {
    const auto bounded =
        std::count_if(rows_.all().begin(), rows_.all().end(), [&](const MetricRow* row) {
            return row->model == model_ && !row->value && (row->low || row->high);
        });
    if (bounded == 0) return;
    say(Level::note,
        fmt::format("{} {} not certified: metrics.csv has {} instead of {}.",
                    counted(std::size_t(bounded), "number"), bounded == 1 ? "is" : "are",
                    bounded == 1 ? "its interval" : "their intervals",
                    bounded == 1 ? "a value" : "values"));
}

void ModelVerdict::second_opinions() {
    const MetricRow* farthest = nullptr;
    std::size_t heads = 0;
    for (const MetricRow* row : rows_.all()) {
        if (row->model != model_ || row->metric != metric::lambda2_check || !row->value) continue;
        ++heads;
        if (!farthest || *row->value > *farthest->value) farthest = row;
    }
    if (heads == 0) return;
    const std::optional<double> asked = run_.settings.tolerance;
    const bool agrees = !asked || *farthest->value <= *asked;
    say(agrees ? Level::good : Level::warning,
        fmt::format("The library Spectra {} lambda2_abs of {}: the largest relative difference is "
                    "{}, in layer {}, head {}.",
                    agrees ? "confirms" : "does not confirm", counted(heads, "head"),
                    number(*farthest->value), farthest->at.layer, farthest->at.head));
}

}  // namespace

std::vector<Finding> verdict(const Table& table, const RunRecord& run) {
    const TableView rows(table);
    std::vector<Finding> all;
    // Assumptions about the model and omissions come before its numbers.
    add_doubts(run.model, all);
    for (const std::string& model : rows.models())
        for (Finding& f : ModelVerdict(rows, model, run).findings()) all.push_back(std::move(f));
    return by_severity(std::move(all));
}

std::vector<Finding> by_severity(std::vector<Finding> findings) {
    std::vector<Finding> ordered;
    const auto take = [&](auto wanted) {
        for (Finding& f : findings)
            if (wanted(f)) ordered.push_back(std::move(f));
        std::erase_if(findings, wanted);
    };
    take([](const Finding& f) { return f.headline; });
    take([](const Finding& f) { return f.level == Level::warning; });
    take([](const Finding& f) { return f.level == Level::note; });
    take([](const Finding&) { return true; });
    return ordered;
}

}  // namespace tsdiag
