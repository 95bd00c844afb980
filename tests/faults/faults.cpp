#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "cli/program.hpp"
#include "support/places.hpp"
#include "tsdiag/output.hpp"

/// Checks the state that the program leaves when it is killed, stopped, or finds the disk full.
///
///     faults [--seconds S] [--rounds N] [--seed K] [--kind TEXT]
///
/// For S seconds, and N rounds at least.  Each round picks a command, a fault (one whose name has
/// TEXT) and its place, by the seed; it ends with a table of the rounds, and with exit code 1 where
/// any requirement was violated:
///
///  - the folder holds the complete old or new result, and the user's files unchanged;
///  - the next command on it succeeds and leaves no hidden files;
///  - a resumed training is bit-identical to one that was not interrupted;
///  - a command goes on with the units that it had finished, to the same tables;
///  - a fault other than a signal is reported in one sentence, with exit code 1 or 2.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;
using Files = std::map<std::string, std::string>;

constexpr const char* tiny = "random:gpt2,layers=2,d=8,heads=2,vocab=16,tokens=8";

Files contents(const fs::path& folder) {
    Files out;
    std::error_code failed;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, failed))
        if (entry.is_regular_file())
            out[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
    return out;
}

const Files mine = {{"notes.txt", "mine"}, {"figures/photo.png", "mine"}, {"a/b/c", "mine"}};

/// A command that is run over an earlier result; `words` end with the seed, or name what it reads:
/// "@result" and "@run" stand for a result and a training of that seed.
struct Command {
    const char* name;
    Words words;
    std::string folder;   ///< of the result, in `out`
    const char* decides;  ///< the file that distinguishes the old result from the new
    bool force = false;
    bool inside = false;  ///< run inside the folder: committed file by file
};

std::vector<Command> commands() {
    Command probe{
        "probe", {"probe", tiny, "--tokens", "4", "-q", "--no-report"}, "", "metrics.csv"};
    Command page{"probe, with a report", {"probe", tiny, "--tokens", "4", "-q"}, "", "metrics.csv"};
    Command figure{
        "figure", {"figure", "tse.fig2", "--trials", "2", "-q"}, "tse.fig2", "metrics.csv"};
    for (const char* key : {"d=16", "heads=2", "ffn=8", "tokens=8", "layers=2"})
        figure.words.insert(figure.words.end(), {"--reading", key});
    Command init{"init", {"init", tiny}, "", "model.safetensors", true};
    Command check{"check", {"check", "devil.eq59", "--trials", "20", "-q"}, "", "claims.csv"};
    Command inside = probe;
    inside.name = "probe, in its own folder";
    inside.inside = true;
    const Command parquet{
        "export to Parquet", {"export", "@result", "--to", "parquet"}, "", "metrics.parquet"};
    const Command events{"export to TensorBoard",
                         {"export", "@result", "--to", "tensorboard"},
                         "",
                         "events.out.tfevents.0.tsdiag"};
    const Command compare{"compare", {"compare", "@result", "@other", "-q"}, "", "compare.csv"};
    const Command watch{
        "watch",
        {"watch", "@run", "--once", "--settle", "0", "--samples", "2", "--no-report", "-q"},
        "",
        "metrics.csv"};
    return {probe, page, figure, init, check, parquet, events, compare, watch, inside};
}

class Faults {
  public:
    /// Restricted to the kinds of faults whose name contains `kind`.
    Faults(unsigned seed, std::string kind) : random_(seed), chosen_(std::move(kind)) {}

    void run_until(Clock::time_point end, long least_rounds) {
        const std::vector<std::pair<const char*, std::function<void()>>> kinds = {
            {"killed at a change of a file", [&] { over_a_result("kill"); }},
            {"disk full from a change on", [&] { over_a_result("full"); }},
            {"killed in the middle of a write", [&] { over_a_result("torn"); }},
            {"power cut", [&] { over_a_result("power"); }},
            {"disk full for a moment", [&] { over_a_result("once"); }},
            {"killed at a random moment", [&] { signalled(SIGKILL); }},
            {"SIGTERM, SIGINT", [&] { signalled(pick(2) ? SIGTERM : SIGINT); }},
            {"SIGTERM at a change of a file", [&] { over_a_result("term"); }},
            {"report killed, power cut, disk full", [&] { report(); }},
            {"export of a file", [&] { one_file(); }},
            {"merge", [&] { merge(); }},
            {"train killed and resumed", [&] { training("kill"); }},
            {"train, disk full, resumed", [&] { training(pick(2) ? "full" : "torn"); }},
            {"train, power cut, resumed", [&] { training("power"); }},
            {"train --force killed, power cut", [&] { begun_anew(); }},
            {"units, killed and gone on", [&] { units(); }},
            {"units, power cut and gone on", [&] { cut_units(); }},
            {"units, a rank stopped for a while", [&] { stopped(); }},
            {"two processes", [&] { together(); }},
            {"little memory", [&] { memory(); }}};
        // A slow machine goes on after `end`, at most to the last kind, until both ends were seen.
        long rounds = 0;
        for (std::size_t i = 0;
             Clock::now() < end || (rounds < least_rounds && (rounds > 0 || i < kinds.size())) ||
             (i < kinds.size() && !both_ends());
             ++i) {
            const auto& [kind, run] = kinds[i % kinds.size()];
            kind_ = kind;
            if (kind_.find(chosen_) == std::string::npos) continue;
            const Clock::time_point begin = Clock::now();
            run();
            ++rounds_[kind_], ++rounds;
            seconds_[kind_] += std::chrono::duration<double>(Clock::now() - begin).count();
        }
    }

    int summary() const {
        long rounds = 0, broken = 0;
        for (const auto& [kind, count] : rounds_) {
            const long bad = failed_.contains(kind) ? failed_.at(kind) : 0;
            fmt::print("{:34} {:5} rounds, {:3} failed, {:6.1f} s\n", kind, count, bad,
                       seconds_.at(kind));
            rounds += count;
            broken += bad;
        }
        fmt::print("{} rounds, {} signals that ended a process, {} faults met in words\n", rounds,
                   killed_, reported_);
        const bool good = broken == 0 && !rounds_.empty() && both_ends() &&
                          std::ranges::all_of(rounds_, [](const auto& r) { return r.second > 0; });
        fmt::print("faults: {}\n", good ? "PASS" : "FAIL");
        return good ? 0 : 1;
    }

  private:
    /// Whether a process was killed, and another told what stopped it; not asked of chosen kinds.
    bool both_ends() const { return !chosen_.empty() || (killed_ > 0 && reported_ > 0); }

    Words shim(const std::string& fault, long at) const {
        return {"LD_PRELOAD=" + fault_shim(), "TSDIAG_FAULT=" + fault,
                "TSDIAG_FAULT_AT=" + std::to_string(at), "OMP_NUM_THREADS=1"};
    }
    long pick(long below) { return std::uniform_int_distribution<long>(0, below - 1)(random_); }

    void require(bool good, const std::string& what, const std::string& detail = {}) {
        if (good) return;
        ++failed_[kind_];
        fmt::print("FAILED: {}: {}: {} {}\n", kind_, what_, what, detail);
        std::fflush(stdout);
    }
    /// Does the fault end the process?
    static bool kills(const std::string& fault) {
        return fault == "kill" || fault == "torn" || fault == "power";
    }
    std::string any_fault() {
        const char* faults[] = {"kill", "torn", "power", "full", "once", "term"};
        return faults[pick(6)];
    }
    /// True on success; else it must have been killed, or report in one sentence why it stopped.
    bool ended_well(const Finished& found, bool may_be_killed) {
        if (found.code == 128 + SIGKILL && may_be_killed) return ++killed_, false;
        if (found.code == 0) return true;
        ++reported_;
        require(found.code == 1 || found.code == 2 || found.code == 130,
                fmt::format("exit code {}", found.code), found.err);
        require(found.err.starts_with("tsdiag: ") && std::ranges::count(found.err, '\n') == 1,
                "not one sentence", found.err);
        return false;
    }

    /// Counts the file changes of the command, whose result a power cut after its end must leave.
    long changes(const std::string& key, const fs::path& at, const Words& words) {
        if (!counted_.contains(key)) {
            const TemporaryDirectory count;
            Words environment = shim("none", -1);
            environment.push_back("TSDIAG_FAULT_COUNT=" + (count / "n"));
            Running(at, words, environment).wait();
            std::istringstream in(read_file(count / "n"));
            long changes = 0, names = -1;
            in >> changes >> names >> std::ws;
            const std::string files(std::istreambuf_iterator<char>(in), {});
            what_ = key;
            require(files.empty() && names == 0, "a power cut after its end takes",
                    fmt::format("{} names, {}", names, files));
            counted_[key] = std::max(1L, changes);
        }
        return counted_[key];
    }

    /// Results and trainings by their seeds.
    const fs::path& read_by_commands() {
        const fs::path& folder = inputs_.path();
        if (fs::exists(folder / "run2")) return folder;
        for (const char* seed : {"1", "2", "3"}) {
            Words words = commands()[0].words;
            const std::string result = seed[0] == '3' ? "other" : std::string("result") + seed;
            words.insert(words.end(), {"--seed", seed, "-o", result});
            require(Running(folder, words).wait().code == 0, "a result to be read");
            if (seed[0] == '3') continue;
            words = train_words(folder / (std::string("run") + seed));
            words.insert(words.end(), {"--seed", seed});
            require(Running(folder, words).wait().code == 0, "a training to be read");
        }
        return folder;
    }

    Words full_words(const Command& c, const fs::path& out, const char* seed) {
        Words words = c.words;
        bool reads = false;
        for (std::string& word : words) {
            if (!word.starts_with('@')) continue;
            reads = true;
            word = (read_by_commands() / word.substr(1)).string() + (word == "@other" ? "" : seed);
        }
        if (!reads && (words.front() != "check" || seed != std::string("1")))
            words.insert(words.end(), {"--seed", seed});
        words.insert(words.end(), {"-o", out.string()});
        if (c.force) words.emplace_back("--force");
        return words;
    }

    /// The distinguishing file of the result with each seed.
    const std::pair<std::string, std::string>& results(const Command& c) {
        auto& found = results_[c.name];
        if (found.first.empty()) {
            const TemporaryDirectory folder;
            for (const char* seed : {"1", "2"}) {
                const fs::path out = folder.path() / seed;
                Running(folder.path(), full_words(c, out, seed)).wait();
                (seed[0] == '1' ? found.first : found.second) =
                    read_file(out / c.folder / c.decides);
            }
            require(!found.first.empty() && found.first != found.second, "the two results differ");
        }
        return found;
    }

    struct Place {
        TemporaryDirectory folder;
        fs::path out, result;
    };
    /// A folder with the result of seed 1 and files of its user.
    void prepare(const Command& c, Place& place) {
        what_ = c.name;
        place.out = place.folder.path() / "out";
        place.result = place.out / c.folder;
        Running(place.folder.path(), full_words(c, place.out, "1")).wait();
        for (const auto& [name, text] : mine) {
            fs::create_directories((place.result / name).parent_path());
            write_file(place.result / name, text);
        }
    }
    void require_mine(const fs::path& result, const char* when) {
        for (const auto& [name, text] : mine)
            require(read_file(result / name) == text, fmt::format("{} is gone {}", name, when));
    }
    /// Is it of a checkpoint's own tables, which `watch` keeps, in a folder that is whole?
    static bool is_of_a_part(const fs::path& file) {
        const fs::path folder = file.parent_path(), name = file.filename();
        if (folder.parent_path().filename() != "checkpoints") return false;
        const Manifest manifest = Manifest::of(folder);
        const auto owns = [&](const auto& entry) { return manifest.owns(folder, entry.first); };
        return !manifest.empty() && std::ranges::all_of(manifest.entries(), owns) &&
               (name == Manifest::file || manifest.lists(name.string()));
    }
    /// Requires one complete result; returns whether it is the new one.
    bool require_whole(const Command& c, const fs::path& result, const char* when) {
        const std::string decides = read_file(result / c.decides);
        const bool is_new = decides == results(c).second;
        require(is_new || decides == results(c).first, fmt::format("neither result {}", when));
        const Manifest manifest = Manifest::of(result);
        require(!manifest.empty(), fmt::format("no manifest {}", when));
        std::set<std::string> known{Manifest::file};
        for (const std::string& name : manifest.names(result)) {
            known.insert(name);
            require(manifest.owns(result, name),
                    fmt::format("{} is not that of the manifest {}", name, when));
        }
        for (const auto& [name, text] : contents(result)) {
            if (name.find(".tsdiag-") != name.npos) continue;  // see require_nothing_hidden
            require(known.contains(name) || mine.contains(name) || is_of_a_part(result / name),
                    fmt::format("{} is left {}", name, when));
        }
        return is_new;
    }
    void require_nothing_hidden(const fs::path& folder, std::string_view when) {
        for (const auto& entry : fs::recursive_directory_iterator(folder)) {
            const std::string name = entry.path().filename().string();
            // A command of a second or more keeps its units for the next.
            const bool kept = when == "at once" && name.ends_with(".tsdiag-units");
            const bool hidden = name.find(".tsdiag-") != name.npos || name.ends_with(".tmp") ||
                                name.ends_with(".part");
            require(kept || !hidden, fmt::format("{} is left {}", name, when));
        }
    }

    void over_a_result(const std::string& fault) {
        const std::vector<Command> all = commands();
        const Command& c = all[std::size_t(pick(long(all.size())))];
        Place place;
        prepare(c, place);
        const fs::path at = c.inside ? place.out : place.folder.path();
        const Words words = full_words(c, place.out, "2");
        long most = 0;
        {
            Place other;
            if (!counted_.contains(c.name)) prepare(c, other);
            most = changes(c.name, c.inside ? other.out : other.folder.path(),
                           full_words(c, other.out, "2"));
        }
        const long when = 1 + pick(most);
        const Finished found = Running(at, words, shim(fault, when)).wait();
        what_ = fmt::format("{}, change {} of {}", c.name, when, most);
        const bool done = ended_well(found, kills(fault));
        require_mine(place.result, "at once");
        if (!c.inside) {
            const bool is_new = require_whole(c, place.result, "at once");
            require(!done || is_new, "done, and the old result is there");
        }
        if (found.code != 128 + SIGKILL && !c.inside)
            require_nothing_hidden(place.folder.path(), "at once");
        const Finished next = Running(place.folder.path(), words).wait();
        require(next.code == 0, "the next run fails", next.err);
        require_mine(place.result, "later");
        require(require_whole(c, place.result, "later"), "the next run left the old result");
        require_nothing_hidden(place.folder.path(), "later");
    }

    void signalled(int number) {
        const std::vector<Command> all = commands();
        const Command& c = all[std::size_t(pick(long(all.size()) - 1))];
        Place place;
        prepare(c, place);
        const Words words = full_words(c, place.out, "2");
        double& usual = usual_[c.name];
        if (usual == 0) {
            const Clock::time_point begin = Clock::now();
            Place other;
            prepare(c, other);
            usual = std::chrono::duration<double>(Clock::now() - begin).count();
        }
        const double after = usual * double(pick(1000)) / 1000;
        Running running(place.folder.path(), words);
        std::this_thread::sleep_for(std::chrono::duration<double>(after));
        running.signal(number);
        const Finished found = running.wait();
        what_ = fmt::format("{}, after {:.3f} s", c.name, after);
        if (number == SIGKILL)
            killed_ += found.code == 128 + SIGKILL;
        else  // before main, a signal ends the process
            require(found.code == 130 || found.code == 0 || found.code == 128 + number,
                    fmt::format("exit code {}", found.code), found.err);
        require_mine(place.result, "at once");
        require_whole(c, place.result, "at once");
        if (found.code == 130 || found.code == 0)
            require_nothing_hidden(place.folder.path(), "at once");
        require(Running(place.folder.path(), words).wait().code == 0, "the next run fails");
        require_nothing_hidden(place.folder.path(), "later");
    }

    void report() {
        const Command c = commands()[1];
        Place place;
        prepare(c, place);
        const Words words = {"report", place.out.string()};
        const bool inside = pick(2) == 1;
        const fs::path at = inside ? place.out : place.folder.path();
        const long most = changes(inside ? "report." : "report", at, words), when = 1 + pick(most);
        const char* faults[] = {"kill", "power", "full"};
        const std::string fault = faults[pick(3)];
        const std::string page = read_file(place.out / "report.html");
        const Finished found = Running(at, words, shim(fault, when)).wait();
        what_ = fmt::format("report{}, change {} of {}", inside ? " inside" : "", when, most);
        ended_well(found, kills(fault));
        require_mine(place.result, "at once");
        require(read_file(place.out / "metrics.csv") == results(c).first, "the table is gone");
        const Finished next = Running(at, words).wait();
        require(next.code == 0, "the next report fails", next.err);
        require(read_file(place.out / "report.html") == page, "another page");
        require_mine(place.result, "later");
        require_whole(c, place.result, "later");
        require_nothing_hidden(place.folder.path(), "later");
    }

    Words train_words(const fs::path& out) const {
        return {"train",
                "random:gpt2,layers=1,d=8,heads=2",
                "--data",
                "copy:3",
                "--tokens",
                "5",
                "--steps",
                "6",
                "--save-every",
                "2",
                "--eval-every",
                "2",
                "--probe-every",
                "3",
                "--probes",
                "t_sim,local_acc",
                "-q",
                "-o",
                out.string()};
    }
    Files trained(const fs::path& run) const {
        Files out;
        for (const auto& [name, text] : contents(run))
            if (name != "run.json" && name != "report.html" && name != "files.sha256" &&
                !name.starts_with("figures/") && !mine.contains(name))
                out[name] = text;
        return out;
    }
    const Files& whole_training() {
        if (whole_training_.empty()) {
            const TemporaryDirectory folder;
            Running(folder.path(), train_words(folder / "run")).wait();
            whole_training_ = trained(folder / "run");
            require(whole_training_.size() > 10, "a training leaves its files");
        }
        return whole_training_;
    }
    /// Resumes, or starts where there is no checkpoint yet, until the training is finished.
    void require_trained(const fs::path& folder, const fs::path& out) {
        Words words = train_words(out);
        const bool saved = fs::exists(out / "checkpoints/step-2/training.safetensors") ||
                           fs::exists(out / "checkpoints/step-4/training.safetensors") ||
                           fs::exists(out / "checkpoints/step-6/training.safetensors");
        words.emplace_back(saved ? "--resume" : "--force");
        const Finished next = Running(folder, words).wait();
        require(next.code == 0, "it cannot be gone on with", next.err);
        const Files now = trained(out);
        for (const auto& [name, text] : whole_training())
            require(now.contains(name) && now.at(name) == text, name + " is another");
        for (const auto& [name, text] : now)
            require(whole_training().contains(name), name + " is left");
        require_nothing_hidden(folder, "later");
    }
    void training(const std::string& fault) {
        const TemporaryDirectory folder;
        const fs::path out = folder.path() / "run";
        whole_training();
        long most = 0;
        {
            const TemporaryDirectory other;
            most = changes("train", other.path(), train_words(other / "run"));
        }
        const long first = 1 + pick(most);
        ended_well(Running(folder.path(), train_words(out), shim(fault, first)).wait(),
                   fault != "full");
        what_ = fmt::format("train, change {} of {}", first, most);
        if (fs::exists(out / "checkpoints") && pick(2)) {  // interrupted a second time
            Words again = train_words(out);
            again.emplace_back("--resume");
            const long second = 1 + pick(most / 2);
            what_ += fmt::format(", then {}", second);
            ended_well(Running(folder.path(), again, shim(fault, second)).wait(), fault != "full");
        }
        require_trained(folder.path(), out);
    }

    void begun_anew() {
        const TemporaryDirectory folder;
        const fs::path out = folder.path() / "run";
        Running(folder.path(), train_words(out)).wait();
        for (const auto& [name, text] : mine) {
            fs::create_directories((out / name).parent_path());
            write_file(out / name, text);
        }
        Words words = train_words(out);
        words.emplace_back("--force");
        const long when = 1 + pick(80);  // the commit starts here
        what_ = fmt::format("train --force, change {}", when);
        ended_well(Running(folder.path(), words, shim(pick(2) ? "kill" : "power", when)).wait(),
                   true);
        require_mine(out, "at once");
        require_trained(folder.path(), out);
        require_mine(out, "later");
    }

    /// Signals one process of the program that has the mark in its environment; -1: there is none.
    pid_t signal_one(const std::string& mark, int signal) {
        std::vector<pid_t> found;
        std::error_code failed;
        for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
            const std::string name = entry.path().filename().string();
            if (name.find_first_not_of("0123456789") != name.npos) continue;
            if (fs::read_symlink(entry.path() / "exe", failed) != fs::canonical(program_file()))
                continue;
            if (read_file(entry.path() / "environ").find(mark) != std::string::npos)
                found.push_back(pid_t(std::stol(name)));
        }
        if (found.empty()) return -1;
        const pid_t one = found[std::size_t(pick(long(found.size())))];
        ::kill(one, signal);
        if (signal == SIGKILL) ++killed_;
        return one;
    }

    /// A command of some seconds, alone or as ranks: trials, or one sequence by all ranks together.
    struct Job {
        Words words;
        std::string table, expected = {};
    };
    Running start(const Job& job, const TemporaryDirectory& folder, int ranks,
                  const std::string& mark) {
        std::string line = "OMP_NUM_THREADS=1 " + mark + " ";
        if (ranks > 1)
            line += fmt::format(
                "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {} "
                "--oversubscribe -n {} ",
                mpirun_file(), ranks);
        line += "\"$TSDIAG\"";
        for (const std::string& word : job.words) line += " " + word;
        return Running::shell(folder.path(), line + " --out out");
    }
    Job& any_job() {
        static std::vector<Job> jobs;
        if (jobs.empty()) {
            Words words = {"figure", "tse.fig2", "--trials", "400", "-q", "--seed", "5"};
            for (const char* key : {"d=32", "heads=2", "ffn=32", "tokens=32", "layers=6"})
                words.insert(words.end(), {"--reading", key});
            jobs.push_back({words, "out/tse.fig2/metrics.csv"});
            jobs.push_back({{"probe", "random:post-norm,layers=8,d=32,heads=4", "--tokens", "1000",
                             "--memory", "120M", "--no-report", "-q"},
                            "out/metrics.csv"});
        }
        Job& job = jobs[std::size_t(pick(long(jobs.size())))];
        if (job.expected.empty()) {
            const TemporaryDirectory folder;
            start(job, folder, 1, "A=1").wait();
            job.expected = read_file(folder / job.table);
        }
        return job;
    }

    /// It is killed now and then until it succeeds.
    void units() {
        const Job& job = any_job();
        const TemporaryDirectory folder;
        int kills = 0;
        const int most = 1 + int(pick(3)), ranks = 1 + int(pick(3));
        for (bool kills_now = true; kills_now;) {
            kills_now = kills < most;
            const std::string mark = fmt::format("TSDIAG_MARK=m{}x", pick(1000000000));
            Running running = start(job, folder, ranks, mark);
            if (kills_now) {
                std::this_thread::sleep_for(std::chrono::milliseconds(pick(3000)));
                signal_one(mark, SIGKILL);
                ++kills;
            }
            const Finished found = running.wait();
            what_ = fmt::format("{} ranks, {} kills", ranks, kills);
            if (found.code == 0) break;
            require(kills_now, "it failed by itself", found.err);
        }
        require(read_file(folder / job.table) == job.expected,
                "another table than that of one process");
        require_nothing_hidden(folder.path(), "later");
    }

    /// The machine loses its power now and then until it succeeds.
    void cut_units() {
        const Job& job = any_job();
        const TemporaryDirectory folder;
        Words words = job.words;
        words.insert(words.end(), {"--out", "out"});
        static std::map<std::string, long> counts;
        if (!counts.contains(job.table)) {
            const TemporaryDirectory other;
            counts[job.table] = changes("units of " + job.table, other.path(), words);
        }
        Finished found;
        int cuts = 0;
        do {
            const bool cut = cuts < 2;
            const long when = 1 + pick(counts[job.table]);
            found = Running(folder.path(), words, shim(cut ? "power" : "none", when)).wait();
            cuts += cut ? 1 : 0;
            what_ = fmt::format("{} power cuts, the last at change {}", cuts, when);
        } while (found.code == 128 + SIGKILL && ++killed_ > 0);
        require(found.code == 0, "it failed by itself", found.err);
        require(read_file(folder / job.table) == job.expected,
                "another table than that of one process");
        require_nothing_hidden(folder.path(), "later");
    }

    /// One of the ranks sleeps longer than the others work; nobody takes its unit away.
    void stopped() {
        const Job& job = any_job();
        const TemporaryDirectory folder;
        const int ranks = 1 + int(pick(3));
        const std::string mark = fmt::format("TSDIAG_MARK=s{}x", pick(1000000000));
        Running running = start(job, folder, ranks, mark);
        std::this_thread::sleep_for(std::chrono::milliseconds(pick(3000)));
        const pid_t one = signal_one(mark, SIGSTOP);
        const long seconds = 1 + pick(10);
        std::this_thread::sleep_for(std::chrono::seconds(seconds));
        if (one > 0) ::kill(one, SIGCONT);
        const Finished found = running.wait();
        what_ = fmt::format("{} ranks, {} s", ranks, seconds);
        require(found.code == 0, "it failed", found.err);
        require(read_file(folder / job.table) == job.expected,
                "another table than that of one process");
        require_nothing_hidden(folder.path(), "later");
    }

    void together() {
        const Command c = commands()[0];
        Place place;
        prepare(c, place);
        Running one(place.folder.path(), full_words(c, place.out, "2"));
        const TemporaryDirectory elsewhere;  // for the standard output of the other
        std::this_thread::sleep_for(std::chrono::duration<double>(0.001 * double(pick(200))));
        Running two(elsewhere.path(), full_words(c, place.out, "1"));
        const Finished a = one.wait(), b = two.wait();
        require(a.code == 0 || b.code == 0, "neither is done", a.err + b.err);
        for (const Finished* found : {&a, &b})
            if (found->code != 0) {
                ++reported_;
                require(
                    found->code == 2 && found->err.find("is writing there") != std::string::npos,
                    fmt::format("exit code {}", found->code), found->err);
            }
        require_mine(place.result, "later");
        require_whole(c, place.result, "later");
        require_nothing_hidden(place.folder.path(), "later");
    }

    /// `export` of one file over an earlier one.
    void one_file() {
        const Place place;
        const fs::path out = place.folder.path() / "table";
        const auto words = [&](const char* seed) -> Words {
            return {"export",    (read_by_commands() / "result").string() + seed,
                    "--to",      "jsonl",
                    "--force",   "-o",
                    out.string()};
        };
        what_ = "export to JSON lines";
        std::string expected[2];
        for (const int k : {1, 0}) {
            Running(place.folder.path(), words(k == 0 ? "1" : "2")).wait();
            expected[k] = read_file(out);
        }
        require(!expected[0].empty() && expected[0] != expected[1], "the two files differ");
        write_file(place.folder / "notes.txt", "mine");
        long most = 0;
        {
            const TemporaryDirectory other;
            Words count = words("2");
            count.back() = other / "table";
            most = changes("export of a file", other.path(), count);
        }
        const std::string fault = any_fault();
        const long when = 1 + pick(most);
        what_ += fmt::format(", {} at change {} of {}", fault, when, most);
        const Finished found = Running(place.folder.path(), words("2"), shim(fault, when)).wait();
        ended_well(found, kills(fault));
        const std::string now = read_file(out);
        require(now == expected[1] || (now == expected[0] && found.code != 0),
                "neither the old file nor the new one");
        if (found.code != 128 + SIGKILL) require_nothing_hidden(place.folder.path(), "at once");
        const Finished next = Running(place.folder.path(), words("2")).wait();
        require(next.code == 0, "the next run fails", next.err);
        require(read_file(out) == expected[1], "the next run left the old file");
        require(read_file(place.folder / "notes.txt") == "mine", "notes.txt is gone");
    }

    /// `merge` of two parts over an earlier result.
    void merge() {
        const Command c = commands()[pick(2)];
        Place place;
        prepare(c, place);
        Words part = full_words(c, place.out, "2");
        part.insert(part.end(), {"--trials", "3"});
        static std::map<std::string, std::string> expected;
        if (expected[c.name].empty()) {
            const TemporaryDirectory other;
            Words whole = part;
            *(std::ranges::find(whole, "-o") + 1) = other / "out";
            require(Running(other.path(), whole).wait().code == 0, "a whole result");
            expected[c.name] = read_file(other.path() / "out" / c.decides);
        }
        const auto parts = [&](const fs::path& out) {
            for (const char* one : {"1/2", "2/2"}) {
                Words words = part;
                *(std::ranges::find(words, "-o") + 1) = out.string();
                words.insert(words.end(), {"--part", one});
                const Finished done = Running(place.folder.path(), words).wait();
                require(done.code == 0, "a part", done.err);
            }
        };
        const std::string key = std::string("merge of ") + c.name;
        if (!counted_.contains(key)) {
            const TemporaryDirectory other;
            parts(other.path() / "out");
            changes(key, other.path(), {"merge", other / "out"});
        }
        parts(place.out);
        const std::string fault = any_fault();
        const long when = 1 + pick(counted_[key]);
        what_ = fmt::format("{}, {} at change {} of {}", key, fault, when, counted_[key]);
        const Words words = {"merge", place.out.string()};
        const Finished found = Running(place.folder.path(), words, shim(fault, when)).wait();
        ended_well(found, kills(fault));
        require_mine(place.result, "at once");
        const auto is_merged = [&] {
            return read_file(place.result / c.decides) == expected[c.name];
        };
        require(is_merged() || read_file(place.result / c.decides) == results(c).first,
                "neither result at once");
        const Finished next = Running(place.folder.path(), words).wait();
        // Once its result is in place the units are gone, and nothing is left to merge.
        require(next.code == 0 || (next.code == 1 && is_merged()), "the next merge fails",
                next.err);
        require(is_merged(), "it is not merged");
        require_mine(place.result, "later");
        require_nothing_hidden(place.folder.path(), "later");
    }

    void memory() {
        const Command c = commands()[std::size_t(pick(2))];
        Place place;
        prepare(c, place);
        const long megabytes = 150 + pick(1850);
        std::string line = fmt::format("ulimit -v {}; exec \"$TSDIAG\"", megabytes * 1024);
        for (const std::string& word : full_words(c, place.out, "2")) line += " '" + word + "'";
        const Finished found = Running::shell(place.folder.path(), line).wait();
        what_ = fmt::format("{}, {} MB of addresses", c.name, megabytes);
        // Below some size the loader or OpenMP report it with their own messages.
        require(found.code < 128, fmt::format("exit code {}", found.code), found.err);
        require(found.code == 0 || !found.err.empty(), "nothing is said");
        require_mine(place.result, "at once");
        require_whole(c, place.result, "at once");
        require_nothing_hidden(place.folder.path(), "at once");
    }

    std::mt19937_64 random_;
    std::string kind_, what_, chosen_;
    std::map<std::string, long> rounds_, failed_, counted_;
    std::map<std::string, double> seconds_, usual_;
    std::map<std::string, std::pair<std::string, std::string>> results_;
    Files whole_training_;
    TemporaryDirectory inputs_;  ///< what commands read
    long killed_ = 0, reported_ = 0;
};

}  // namespace
}  // namespace tsdiag::test

int main(int argc, char** argv) {
    double seconds = 120;
    long rounds = 0;
    unsigned seed = 1;
    std::string kind;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (argv[i] == std::string_view("--seconds")) seconds = std::stod(argv[i + 1]);
        if (argv[i] == std::string_view("--rounds")) rounds = std::stol(argv[i + 1]);
        if (argv[i] == std::string_view("--seed")) seed = unsigned(std::stoul(argv[i + 1]));
        if (argv[i] == std::string_view("--kind")) kind = argv[i + 1];
    }
    tsdiag::test::Faults faults(seed, kind);
    faults.run_until(std::chrono::steady_clock::now() +
                         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                             std::chrono::duration<double>(seconds)),
                     rounds);
    return faults.summary();
}
