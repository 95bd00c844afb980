#pragma once
#include <string>
#include <vector>

#include "command.hpp"
#include "failure.hpp"
#include "tsdiag/cluster.hpp"
#include "tsdiag/team.hpp"

/// A command that a launcher has started as several ranks.
namespace tsdiag::cli {

/// Runs it as one of the ranks; returns the exit code, the same on each.  A rank without a command
/// has failed to read its arguments, with `unread`, in which all end.
int run_ranks(const Launcher& launcher, Command* command, const Failure& unread);

/// What the ranks say at one point of a command; collective.  Throws `RankFailed` where one of them
/// has failed before it.
std::vector<std::string> all_gather(const Ranks& ranks, const std::string& text);

/// The ranks as a team: what one of them fails with ends the calls of the others.
class RankTeam final : public Team {
  public:
    explicit RankTeam(const Ranks& ranks) : ranks_(ranks) {}
    int size() const override { return ranks_.size(); }
    int rank() const override { return ranks_.rank(); }
    std::vector<std::string> gather(const std::string& own) const override {
        return all_gather(ranks_, own);
    }
    std::vector<std::string> exchange(const std::vector<std::string>& parts) const override {
        all_gather(ranks_, "");
        return ranks_.exchange(parts);
    }

  private:
    const Ranks& ranks_;
};

/// Throws `UsageError` where the ranks differ in `text`: "ranks 0 and 3 have different WHAT: ...".
void require_equal(const Ranks& ranks, const std::string& what, const std::string& text);

/// Another rank has failed; what it says is in `texts`, by rank.
struct RankFailed {
    std::vector<std::string> texts;
};

}  // namespace tsdiag::cli
