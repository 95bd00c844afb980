#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "program.hpp"
#include "tsdiag/run_record.hpp"

/// What the program writes of a run is what its readers write of it again.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;

std::set<std::string> kinds_seen;

/// Of each description below `folder` that was written since `begin`; those that a test has written
/// itself are older.
void expect_descriptions_come_back(const fs::path& folder, fs::file_time_type begin) {
    std::error_code failed;
    for (fs::recursive_directory_iterator
             at(folder, fs::directory_options::skip_permission_denied, failed),
         end;
         !failed && at != end; at.increment(failed)) {
        const fs::path& file = at->path();
        const bool named = file.filename() == "run.json" || file.filename() == "claims.json";
        std::error_code gone;  // another process may replace it
        if (!named || !at->is_regular_file(gone) || fs::last_write_time(file, gone) < begin)
            continue;
        const std::string text = read_file(file);
        if (text.empty()) continue;
        const RunRecord run = Json::parse(text, file.string(), longest_result);
        EXPECT_EQ(run.json().dump(2) + "\n", text) << file;
        kinds_seen.emplace(name(run.kind));
    }
}

/// Before the first test: every run of this program's tests is looked at.
const bool looks = [] {
    after_run = expect_descriptions_come_back;
    return true;
}();

/// One command of each kind, so that this holds of all where no other test runs.
TEST(Records, OfEveryKindComeBack) {
    ASSERT_TRUE(looks);
    TemporaryDirectory folder;
    const std::string model = "random:gpt2,d=8,heads=2,layers=1,tokens=16,vocab=16";
    write_file(folder / "log.csv", "step,grad_norm\n1,1\n2,3\n3,2\n4,5\n5,3\n6,4\n7,2\n8,3\n");
    const std::vector<std::vector<std::string>> commands = {
        {"probe", model, "--tokens", "4", "--samples", "3", "--probes", "similarity", "-o", "a"},
        {"probe", model, "--tokens", "4", "--samples", "3", "--probes", "similarity", "--seed", "1",
         "-o", "b"},
        {"train", model, "--data", "copy:4", "--tokens", "8", "--steps", "2", "--batch", "2",
         "--seed", "18446744073709551615", "-o", "train"},
        {"gradients", "log.csv", "-o", "gradients"},
        {"compare", "a", "b", "--assert", "t_sim@out:last < 2", "--out", "compare"},
        {"check", "devil.eq59", "--n", "2", "--d", "1", "--trials", "2", "--out", "check"},
        {"figure", "tse.fig2", "--trials", "2", "--reading", "d=16", "--reading", "heads=2",
         "--reading", "layers=2", "--out", "figures"}};
    for (const std::vector<std::string>& words : commands) {
        const Finished done = tsdiag(folder, words);
        EXPECT_EQ(done.code, 0) << words.front() << ": " << done.err;
    }
    for (const char* kind : {"probe", "train", "gradients", "compare", "check", "figure"})
        EXPECT_TRUE(kinds_seen.contains(kind)) << kind;
}

}  // namespace
}  // namespace tsdiag::test
