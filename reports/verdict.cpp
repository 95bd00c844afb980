#include <fmt/format.h>

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
constexpr std::size_t most_heads = 6;    ///< more are only counted
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
        random_ids();
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

    void random_ids();
    void channels();
    void predicted_depth();
    void attention_rate();
    std::string estimates_in_words(const Depth& measured) const;
    std::string gain_in_words(const Depth& measured) const;
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

/// The mean of `depth` over the layers where `mask` has a value; nullopt where one of them has
/// none.
std::optional<double> mean_over(const Depth& depth, const Depth& mask) {
    double sum = 0;
    std::size_t count = 0;
    for (const auto& [layer, measured] : defined(mask)) {
        const std::optional<double> v = value_at(depth, layer);
        if (!v) return std::nullopt;
        sum += *v;
        ++count;
    }
    return count ? std::optional(sum / double(count)) : std::nullopt;
}

void ModelVerdict::random_ids() {
    if (run_.input.kind == "ids:random" && run_.model.trained.value_or(false))
        say(Level::warning,
            "The input is random token ids, which are not language: what a trained model does with "
            "text may differ. Give token ids of real text with --input ids:FILE.");
}

void ModelVerdict::channels() {
    const std::string said = channels_of(rows_, model_);
    if (said.empty()) return;
    say(Level::note,
        fmt::format(
            "{} of each head and not over tokens: eigenvalues, norms, entropies and what is "
            "said of heads are of that matrix and tell nothing of how alike tokens become.",
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
    double log_ratio = 0;
    for (std::size_t i = 0; i < used; ++i) {
        if (ratios[i].second <= 0) return;
        log_ratio += std::log(ratios[i].second) / double(used);
    }
    const double odds = *sim / *div, target = saturated / (1 - saturated);
    if (odds >= target) return;
    const std::string identity =
        fmt::format("Attention multiplies the odds t_sim/t_div by xi_ratio, {} in {}",
                    number(std::exp(log_ratio)),
                    used == 1 ? std::string("the first layer")
                              : fmt::format("the first {} layers (geometric mean)", used));
    if (log_ratio <= 0) {
        say(Level::note,
            fmt::format("{}: by itself it never brings the input's odds of {} to {} (t_sim = {}).",
                        identity, number(odds), number(target), saturated),
            "escalation");
        return;
    }
    const double blocks = std::log(target / odds) / log_ratio;
    std::string text = fmt::format(
        "{}: at that rate the input's odds of {} pass {} (t_sim = {}) after {:.1f} layers",
        identity, number(odds), number(target), saturated, blocks);
    if (const auto above = first_above(depth(metric::t_sim, "out"), saturated))
        text += fmt::format("; with all steps of a layer it took {}.",
                            counted(std::size_t(above->first) + 1, "layer"));
    else
        text += fmt::format("; that did not happen in the {} measured.",
                            counted(defined(depth(metric::t_sim, "out")).size(), "layer"));
    say(Level::note, std::move(text), "escalation");
}

std::string ModelVerdict::gain_in_words(const Depth& measured) const {
    const std::vector<std::optional<double>>& a2 = run_.model.a2;
    if (a2.empty() || rows_.models().size() > 1) return {};
    double sum = 0, least = 0, most = 0;
    std::size_t count = 0;
    for (const auto& [layer, ratio] : defined(measured)) {
        if (layer >= std::ssize(a2) || !a2[std::size_t(layer)]) return {};
        const double v = 1 + *a2[std::size_t(layer)];
        least = count ? std::min(least, v) : v;
        most = count ? std::max(most, v) : v;
        sum += v;
        ++count;
    }
    if (number(least) == number(most)) return fmt::format("; 1 + a2 is {}", number(least));
    return fmt::format("; 1 + a2 is {} on average, from {} to {}", number(sum / double(count)),
                       number(least), number(most));
}

std::string ModelVerdict::estimates_in_words(const Depth& measured) const {
    const std::size_t layers = defined(measured).size();
    std::string text;
    std::map<std::string, std::vector<std::string>> missing;  // why -> which
    for (const std::string_view name : {metric::est1, metric::est2, metric::est_mu}) {
        const Depth estimate = depth(name, "attn");
        if (const auto mean = mean_over(estimate, measured)) {
            text += fmt::format("{}1 + {} = {}", text.empty() ? "" : ", ", name, number(1 + *mean));
        } else if (const std::string why = rows_.reason(model_, name); !why.empty()) {
            std::size_t lacking = 0;
            for (const auto& [layer, v] : defined(measured)) lacking += !value_at(estimate, layer);
            const std::string where =
                lacking == layers ? "" : fmt::format(" in {} of {} layers", lacking, layers);
            missing[fmt::format("undefined{} ({})", where, why)].emplace_back(name);
        }
    }
    if (!text.empty())
        text = fmt::format(" The estimates give{} {}.",
                           layers > 1 ? ", as means over the same layers," : "", text);
    for (const auto& [why, names] : missing)
        text += fmt::format(" {} {} {}.", fmt::join(names, " and "),
                            names.size() == 1 ? "is" : "are", why);
    return text;
}

void ModelVerdict::attention_rate() {
    const Depth measured = depth(metric::xi_ratio, rows_.attention_stage(model_));
    const auto values = defined(measured);
    if (values.empty()) return;
    const double mean = *mean_over(measured, measured);
    const auto less = [](auto& a, auto& b) { return a.second < b.second; };
    const auto [least, most] = std::minmax_element(values.begin(), values.end(), less);
    std::string text = fmt::format("The attention step's xi_ratio = xi1/xi2 is {}", number(mean));
    if (values.size() > 1)
        text += fmt::format(" on average over {} layers, from {} in layer {} to {} in layer {}",
                            values.size(), number(least->second), least->first,
                            number(most->second), most->first);
    else
        text += fmt::format(" in layer {}", values.front().first);
    text += gain_in_words(measured);
    const std::size_t raising = std::size_t(
        std::count_if(values.begin(), values.end(), [](auto& v) { return v.second > 1; }));
    if (values.size() > 1)
        text +=
            fmt::format(". It exceeds 1 (tokens become more alike) in {}",
                        raising == values.size() ? std::string("every layer")
                        : raising == 0           ? std::string("no layer")
                                       : fmt::format("{} of {} layers", raising, values.size()));
    say(mean > 1 ? Level::note : Level::good, text + "." + estimates_in_words(measured),
        "escalation");
}

/// "0:3, 1:7 and 4 more", as LAYER:HEAD.
std::string head_list(const std::vector<HeadAt>& heads) {
    std::string text;
    const std::size_t shown = heads.size() > most_heads ? most_heads - 1 : heads.size();
    for (std::size_t i = 0; i < shown; ++i)
        text += fmt::format("{}{}:{}", i ? ", " : "", heads[i].first, heads[i].second);
    if (shown < heads.size()) text += fmt::format(" and {} more", heads.size() - shown);
    return text;
}

/// ", 5 of them in layer 3": the layer with the most heads, of many.
std::string fullest_layer(const std::vector<HeadAt>& heads) {
    if (heads.size() <= most_heads) return {};
    std::map<Index, std::size_t> layers;
    for (const HeadAt& at : heads) ++layers[at.first];
    const auto most = std::max_element(layers.begin(), layers.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    if (layers.size() == 1) return fmt::format(", all of them in layer {}", most->first);
    return fmt::format(", in {} layers, most in layer {} ({})", layers.size(), most->first,
                       most->second);
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
            say(Level::warning, fmt::format("All {} heads are {} ({}).", n, c.name, c.criterion),
                figure);
        } else {
            const std::string who = c.measured == 1 ? std::string("The only head")
                                                    : fmt::format("{} of {} heads", n, c.measured);
            say(Level::note,
                fmt::format("{} {} {} ({}){}: {} (layer:head).", who, n == 1 ? "is" : "are", c.name,
                            c.criterion, fullest_layer(c.members), head_list(c.members)),
                figure);
        }
    }
    if (none.empty()) return;
    std::string kinds;
    for (std::size_t k = 0; k < none.size(); ++k)
        kinds += fmt::format("{}{} ({})",
                             k == 0                ? ""
                             : k + 1 < none.size() ? ", "
                                                   : " or ",
                             none[k].name, none[k].criterion);
    const std::size_t measured = none.front().measured;
    say(Level::note,
        measured == 1 ? fmt::format("The only head is not {}.", kinds)
                      : fmt::format("None of the {} heads is {}.", measured, kinds),
        own_figure(rows_, model_, "heads_mixing"));
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
        fmt::format("From layer {} on, {} {} below the rounding of {} and left out{}.", first,
                    count, count == 1 ? "number is" : "numbers are", type,
                    type == "float64"   ? ""
                    : trace             ? "; arrays of a finer type have them"
                    : type == "float32" ? "; --dtype f64 has them"
                                        : "; products without --fast have them"));
}

void ModelVerdict::undefined_numbers() {
    struct Reason {
        std::string first = {};
        std::size_t count = 0;
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
    }
    if (undefined == 0) return;
    std::vector<std::pair<std::string, std::size_t>> sorted;
    for (const auto& [words, reason] : reasons) sorted.emplace_back(reason.first, reason.count);
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
        return std::tie(b.second, a.first) <
               std::tie(a.second, b.first);  // the most frequent first
    });
    std::string text;
    for (std::size_t i = 0; i < std::min(sorted.size(), most_reasons); ++i)
        text += fmt::format("{}\"{}\" ({})", i ? ", " : "", sorted[i].first, sorted[i].second);
    if (sorted.size() > most_reasons)
        text += fmt::format(" and {}", counted(sorted.size() - most_reasons, "other reason"));
    say(Level::note, fmt::format("{} of {} numbers {} undefined: {}.", undefined, all,
                                 undefined == 1 ? "is" : "are", text));
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
        fmt::format("lambda2_abs of {}, found again by the library Spectra, {}: the farthest "
                    "differs by {} of its value, in layer {}, head {}.",
                    counted(heads, "head"), agrees ? "is the same" : "is not the same everywhere",
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
