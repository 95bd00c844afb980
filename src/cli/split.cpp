#include "split.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "command.hpp"
#include "machine.hpp"
#include "ranks.hpp"
#include "terminal.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/text.hpp"
#include "version.hpp"

namespace tsdiag::cli {

Participation& participation() {
    static Participation one;
    return one;
}

namespace {

namespace fs = std::filesystem;

/// The words of the command line, without the program and what splits it.
std::vector<std::string> unsplit_words() {
    std::vector<std::string> words;
    for (std::size_t i = 1; i < command_line().size(); ++i) {
        const std::string& word = command_line()[i];
        if (word == "--part")
            ++i;
        else if (!word.starts_with("--part="))
            words.push_back(word);
    }
    return words;
}

/// Names and sizes: to read all files of a set of data would take as long as to train on it.
std::string folder_digest(const fs::path& folder) {
    std::vector<std::string> lines;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file())
            lines.push_back(fmt::format("{} {}", entry.path().lexically_relative(folder).string(),
                                        entry.file_size()));
    std::ranges::sort(lines);
    return sha256(fmt::format("{}", fmt::join(lines, "\n")));
}

/// `of_folder`: the digest of a folder.
std::string named_digest(const std::string& argument,
                         const std::function<std::string(const fs::path&)>& of_folder) {
    for (const std::string& name : {argument, argument.substr(argument.find(':') + 1)}) {
        std::error_code failed;
        if (name.empty()) continue;
        if (fs::is_directory(name, failed)) return of_folder(name);
        if (fs::is_regular_file(name, failed)) return contents_digest(name);
    }
    return argument;
}

/// More than there are units says that the ranks shared nothing.
std::string computed_by(const Participation::Computed& computed) {
    const std::vector<Index>& ranks = computed.by_rank;
    const auto [least, most] = std::ranges::minmax(ranks);
    const Index sum = std::reduce(ranks.begin(), ranks.end());
    if (computed.together)
        return fmt::format("{} computed by {} ranks together", sum, ranks.size());
    return fmt::format("{} computed by {} ranks, {} to {} each", sum, ranks.size(), least, most);
}

}  // namespace

std::string model_digest(const std::string& argument) {
    return named_digest(local_model(argument), contents_digest);
}
std::string data_digest(const std::string& argument) {
    return named_digest(argument, folder_digest);
}

bool makes_result(const SplitOptions& options) {
    return options.parts == 0 && (!participation().ranks || participation().ranks->rank() == 0);
}

SplitJob::SplitJob(const SplitOptions& options, const std::string& result,
                   const std::string& settings, const std::string& device)
    : options_(options) {
    const std::string numerics = options.mixed ? "mixed" : numerics_of(device);
    const RunRecord::Measured now = measured_now();
    store_ = std::make_unique<UnitStore>(result,
                                         JobTitle{unsplit_words(),
                                                  commit() + "\n" + settings,
                                                  numerics,
                                                  {.date = now.date, .processor = now.processor}});
    first_counter_ = participation().counters;
    if (participation().ranks) agree(result);
    if (options.parts == 0 && !participation().ranks) store_->set_best_effort();
    known_ = store_->read();
    if (options.parts > 0)
        units_ = std::make_unique<JobUnits>(*store_, tickets_of_part(options.part, options.parts));
    else if (participation().ranks)
        units_ = std::make_unique<JobUnits>(
            *store_, [this](Index stage, Index count) { return count_ticket(stage, count); });
    else
        units_ = std::make_unique<JobUnits>(*store_, participation().merges);
}

RunRecord::Measured SplitJob::measured() const {
    const JobBegin& begun = store_->title().begun;
    return {.date = begun.date, .commit = commit(), .processor = begun.processor};
}

void SplitJob::share_units() {
    // Where last digits differ, so may the number of steps.
    if (!participation().ranks || options_.mixed) return;
    team_ = std::make_unique<RankTeam>(*participation().ranks);
    units_->set_team(team_.get());
}

void SplitJob::agree(const std::string& result) {
    const Ranks& ranks = *participation().ranks;
    const JobTitle& title = store_->title();
    require_equal(ranks, "processors, whose last digits differ (--mixed allows that)",
                  title.numerics);
    require_equal(ranks, "models, data or settings", title.settings_digest());
    require_equal(ranks, "folders for the result", units_folder(result).string());
    if (first_counter_ > 1) return;  // seen with the first job
    if (const auto without = first_without(ranks, units_folder(result).string()))
        throw UsageError(
            fmt::format("{}: is not the same folder on rank {}; choose an --out that "
                        "all machines share.",
                        result, *without));
}

SplitJob::~SplitJob() {
    participation().counters = std::max(participation().counters, first_counter_ + counters_);
    if (finished_) return;
    try {
        store_->flush("failed");
    } catch (const Error&) {  // the failure that ended the job is told
    }
}

Index SplitJob::count_ticket(Index stage, Index count) {
    const Ranks& ranks = *participation().ranks;
    Index seen = counters_;
    while (seen <= stage && !counters_.compare_exchange_weak(seen, stage + 1)) {
    }
    const Index ticket = ranks.add(int(first_counter_ + stage), 1);
    return ranks.add(0, 0) > 0 ? count : ticket;  // another rank has failed
}

void SplitJob::finish(const std::string& result, bool quiet) {
    store_->flush("done");
    finished_ = true;
    if (participation().ranks) {
        std::vector<Index>& computed = participation().computed.emplace_back().by_rank;
        for (const std::string& count :
             all_gather(*participation().ranks, std::to_string(store_->computed())))
            computed.push_back(std::stoll(count));
        participation().computed.back().together =
            team_ && units_->all() < participation().ranks->size();
    }
    if (quiet || (participation().ranks && participation().ranks->rank() > 0)) return;
    say_parts();
    if (options_.parts == 0) return;
    print(
        fmt::format("part {} of {}: {} computed, {} known before; when all parts have ended: "
                    "tsdiag merge {}\n",
                    options_.part, options_.parts, counted(std::size_t(store_->computed()), "unit"),
                    known_, printable(result)));
}

void SplitJob::say_parts() const {
    if (const Index parts = units_->reused_parts(); parts > 0)
        print(fmt::format("{} reused from an earlier run\n", counted(std::size_t(parts), "layer")));
}

void SplitJob::finish_result(bool quiet) {
    finished_ = true;
    const Index reused = units_->reused(), all = reused + store_->computed();
    std::string by;
    if (participation().after_all) {
        by = computed_by(participation().computed.front());
        participation().computed.pop_front();
        if (store_->computed() > 0)
            say(fmt::format(
                "tsdiag: {} of {} units of the ranks are not in {}; they were computed again.",
                store_->computed(), all, printable(store_->folder().string())));
    }
    store_->remove();
    if (quiet) return;
    say_parts();
    if (reused == 0) return;
    if (participation().merges)
        print(fmt::format("{} merged\n", counted(std::size_t(reused), "unit")));
    else if (participation().after_all)
        print(fmt::format("{}, {}\n", counted(std::size_t(all), "unit"), by));
    else
        print(fmt::format("{} of {} reused from an earlier run\n", reused,
                          counted(std::size_t(all), "unit")));
}

}  // namespace tsdiag::cli
