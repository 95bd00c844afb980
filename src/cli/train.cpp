#include "tsdiag/train.hpp"

#include <fmt/format.h>

#include <chrono>

#include "commands.hpp"
#include "interruption.hpp"
#include "json_outputs.hpp"
#include "result_files.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

/// A line on standard error: the step, its loss and gradient norm, the time left.
class Live {
  public:
    Live(const TrainCommand& command) : command_(command) {}
    ~Live() { clear(); }
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;

    void update(const TrainStep& step) {
        if (command_.quiet) return;
        const Clock::time_point now = Clock::now();
        if (first_ == 0) first_ = step.step - 1;
        const Index steps = command_.train.steps, done = step.step - first_;
        const bool known = command_.train.epochs == 0;  // what steps are, epochs do not tell
        const double seconds = std::chrono::duration<double>(now - start_).count();
        std::string text =
            fmt::format("step {}{}  loss {:.4f}  |g| {:.3g}", step.step,
                        known ? fmt::format("/{}", steps) : "", step.loss, step.grad_norm);
        if (known)
            text += fmt::format("  {} left",
                                duration(seconds * double(steps - step.step) / double(done)));
        if (error_is_terminal()) {
            if (now - last_ < std::chrono::milliseconds(100) && (!known || step.step < steps))
                return;
            std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
            drawn_ = true;
        } else if (command_.verbose && now - last_ > std::chrono::seconds(10)) {
            say("tsdiag: " + text);
        } else {
            return;
        }
        last_ = now;
    }
    void clear() {
        if (drawn_) std::fputs("\r\x1b[K", stderr);
        drawn_ = false;
    }

  private:
    using Clock = std::chrono::steady_clock;
    const TrainCommand& command_;
    Clock::time_point start_ = Clock::now(), last_ = start_;
    Index first_ = 0;
    bool drawn_ = false;
};

/// Accepts a new or empty directory, one to resume in, or one that may be overwritten.
void prepare(const TrainCommand& command) {
    const fs::path out = command.train.directory;
    place_of_folder(out);
    if (command.train.resume) {
        if (!fs::is_directory(out))
            throw UsageError(fmt::format("--resume: {} is not a directory.", out.string()));
        return;
    }
    if (!fs::exists(out) || fs::is_empty(out)) return;
    if (!command.force)
        throw UsageError(fmt::format(
            "{}: is not empty; pass --resume to continue a run, or --force to start over.",
            out.string()));
}

}  // namespace

int run_command(const TrainCommand& command) {
    if (command.threads > 0) use_threads(command.threads);
    prepare(command);
    const FolderLock lock(command.train.directory);  // held until the page is written
    TrainOptions options = command.train;
    Live live(command);
    options.progress = [&](const TrainStep& step) {
        live.update(step);
        return !is_interrupted();
    };
    defer_interruption();
    TrainResult result = train(options);
    live.clear();
    if (!result.finished && is_interrupted()) {
        say(
            fmt::format("tsdiag: interrupted after step {}, which is saved; the same command with "
                        "--resume, without --force, goes on.",
                        result.steps.back().step));
        return 130;
    }
    const PlainPage page = training_page(result);
    OutputFolder directory(
        options.directory,
        {.writes = {"run.json", "report.html", "figures/*"}, .force = true, .in_place = true});
    for (const std::string& line : write_plain_page(page, directory.temporary(), command.look))
        if (!command.quiet) say("tsdiag: " + printable(line));
    write_description(described(result.run), directory.temporary(), "run.json", lock.folder());
    directory.commit();
    print_json("train", Json()
                            .set("out", options.directory.string())
                            .set("findings", findings_json(page.findings)));
    if (command.quiet) return 0;
    print(findings_text(page.findings, command.verbose));
    print(fmt::format("\n{}\n", printable((options.directory / "report.html").string())));
    return 0;
}

}  // namespace tsdiag::cli
