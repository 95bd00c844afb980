#include "ranks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "command.hpp"
#include "interruption.hpp"
#include "json_outputs.hpp"
#include "split.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/memory.hpp"
#include "tsdiag/text.hpp"
#include "version.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view failed_word = "failed ", going_word = "going ";

/// The ranks of a machine share its cores, unless the launcher has bound each to its own.
void share_cores(const Ranks& ranks) {
    if (std::getenv("OMP_NUM_THREADS")) return;
    const Index cores = sysconf(_SC_NPROCESSORS_ONLN), participation = cores / ranks.local_size();
    use_threads(std::clamp<Index>(participation, 1, omp_get_max_threads()));
}

/// One device a rank, where the machine has several.
void share_devices(const Ranks& ranks) {
    constexpr const char* variable = "CUDA_VISIBLE_DEVICES";
    std::vector<std::string> devices;
    if (const char* given = std::getenv(variable)) {
        devices = tsdiag::split(given, ',');
    } else {
        std::error_code none;
        for (fs::directory_iterator at("/proc/driver/nvidia/gpus", none), end; !none && at != end;
             at.increment(none))
            devices.push_back(std::to_string(devices.size()));
    }
    if (devices.size() < 2 || ranks.local_size() < 2) return;
    setenv(variable, devices[std::size_t(ranks.local_rank()) % devices.size()].c_str(), 1);
}

/// The failure of the first rank that has one.
Failure first_failure(const std::vector<std::string>& texts) {
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (!texts[rank].starts_with(failed_word)) continue;
        const std::string text = texts[rank].substr(failed_word.size());
        const std::size_t space = text.find(' ');
        const std::string message = text.substr(space + 1);
        return {std::stoi(text.substr(0, space)),
                rank == 0 ? message : fmt::format("rank {}: {}", rank, message)};
    }
    return {failed, "a rank has failed"};
}

std::string text_of(const Failure& failure) {
    return fmt::format("{}{} {}", failed_word, failure.code, failure.message);
}

/// What the first of the ranks that cannot read its arguments fails with.
Failure arguments_failure(const Ranks& ranks, bool read, const Failure& unread) {
    const std::vector<std::string> texts =
        ranks.gather(read ? std::string(going_word) : text_of(unread));
    const bool fail = std::ranges::any_of(
        texts, [](const std::string& text) { return text.starts_with(failed_word); });
    return fail ? first_failure(texts) : Failure();
}

/// The units, by all ranks; returns the failure of the first, if any.
Failure compute(const Ranks& ranks, const Launcher& launcher, Command& command) {
    try {
        require_equal(ranks, "versions", version());
        const auto& words = command_line();
        require_equal(ranks, "arguments",
                      fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " ")));
        if (command.splitting()->options.parts > 0)
            throw UsageError(
                fmt::format("--part: {} has started {} ranks, which share the units by "
                            "themselves; leave it out.",
                            launcher.name, launcher.size));
        participation().ranks = &ranks;
        command.run();
        all_gather(ranks, "");
        return {};
    } catch (const RankFailed& other) {
        return first_failure(other.texts);
    } catch (...) {
        const Failure own = current_failure();
        ranks.add(0, 1);
        return first_failure(ranks.gather(text_of(own)));
    }
}

/// The result, by the first rank, of the units that are kept.
Failure conclude(Command& command, int& code) {
    participation().ranks = nullptr;
    participation().after_all = true;
    try {
        code = command.run();
        return {};
    } catch (...) {
        return current_failure();
    }
}

}  // namespace

std::vector<std::string> all_gather(const Ranks& ranks, const std::string& text) {
    std::vector<std::string> texts = ranks.gather(std::string(going_word) + text);
    for (std::string& one : texts) {
        if (one.starts_with(failed_word)) throw RankFailed{texts};
    }
    for (std::string& one : texts) one.erase(0, going_word.size());
    return texts;
}

void require_equal(const Ranks& ranks, const std::string& what, const std::string& text) {
    const std::vector<std::string> all = all_gather(ranks, text);
    for (std::size_t r = 1; r < all.size(); ++r)
        if (all[r] != all[0])
            throw UsageError(fmt::format("ranks 0 and {} have different {}: '{}' and '{}'.", r,
                                         what, all[0], all[r]));
}

int run_ranks(const Launcher& launcher, Command* command, const Failure& unread) {
    const bool first = launcher.rank == 0;
    if (command != nullptr && command->only_prints()) return first ? command->run() : 0;
    constexpr unsigned limit = 60;         // seconds
    if (command == nullptr) alarm(limit);  // a rank whose arguments only print never joins
    const Ranks ranks(launcher);
    alarm(0);
    share_cores(ranks);
    share_devices(ranks);
    int code = done;
    Failure failure = arguments_failure(ranks, command != nullptr, unread);
    const auto succeeds = [&] { return failure.code == done && failure.message.empty(); };
    if (succeeds() && command->splitting()) {
        share_machine_memory(ranks.local_size());
        failure = compute(ranks, launcher, *command);
    } else if (succeeds()) {
        say(fmt::format("tsdiag: {} is not split; it runs on rank 0 of {}.",
                        command_line().size() > 1 ? command_line()[1] : "this", ranks.size()));
    }
    if (succeeds() && first) failure = conclude(*command, code);
    if (failure.code != done) code = failure.code;
    ignore_interruptions();  // the launcher ends all ranks with the first
    if (first) tell(failure);
    return std::stoi(ranks.gather(std::to_string(code)).front());
}

}  // namespace tsdiag::cli
