#include <fmt/format.h>

#include "summary.hpp"
#include "terminal.hpp"

namespace tsdiag::cli {
namespace {

/// Of the forward pass: what costs less is not listed by name.
constexpr double least_share = 0.005;

using Rows = std::vector<std::vector<std::string>>;

class Costs {
  public:
    explicit Costs(double forward) : forward_(forward) {}

    void add(const std::string& what, double seconds, double processor) {
        const std::string share =
            forward_ > 0 ? fmt::format("{:.3f}", processor / forward_) : std::string("-");
        rows_.push_back(
            {what, fmt::format("{:.3f}", seconds), fmt::format("{:.3f}", processor), share});
    }
    bool small(double processor) const { return processor < least_share * forward_; }
    const Rows& rows() const { return rows_; }

  private:
    double forward_;
    Rows rows_{{"cost", "seconds", "processor seconds", "forward passes"}};
};

}  // namespace

std::string costs(const Profile& profile) {
    const std::vector<Profile::Total> all = profile.totals();
    Costs table(profile.forward());
    double seconds = 0, processor = 0;
    for (const Cost cost :
         {Cost::phase, Cost::forward, Cost::backward, Cost::shared, Cost::metric}) {
        Profile::Total group{cost, std::string(name(cost))}, small{cost, "others"};
        for (const Profile::Total& t : all) {
            if (t.cost != cost) continue;
            for (Profile::Total* sum : {&group, &small}) {
                if (sum == &small && !table.small(t.processor)) continue;
                sum->seconds += t.seconds;
                sum->processor += t.processor;
            }
        }
        if (group.seconds == 0) continue;
        table.add(group.name, group.seconds, group.processor);
        for (const Profile::Total& t : all)
            if (t.cost == cost && !table.small(t.processor))
                table.add("  " + t.name, t.seconds, t.processor);
        if (small.seconds > 0) table.add("  others", small.seconds, small.processor);
        seconds += group.seconds;
        processor += group.processor;
    }
    table.add("all", seconds, processor);
    const std::string text = aligned(table.rows(), 1);
    const std::size_t end = text.find('\n');
    return styled(text.substr(0, end), Style::bold) + text.substr(end);
}

}  // namespace tsdiag::cli
