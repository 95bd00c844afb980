#include "tsdiag/units.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "layout.hpp"
#include "support/files.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Record, GivesBackEveryNumber) {
    const std::vector<std::uint64_t> counts = {0, 1, 127, 128, 300, ~std::uint64_t{0}};
    const std::vector<double> reals = {0.0,  -0.0,     0.1,       5e-324, 1.7976931348623157e308,
                                       -1.0, infinity, -infinity, 1 / 3.0};
    RecordWriter out;
    for (const std::uint64_t n : counts) out.count(n);
    for (const Index i : {Index(-1), Index(0), Index(1) << 40}) out.index(i);
    out.reals(reals);
    out.real(std::optional<double>());
    out.real(std::optional(2.5));
    out.text(std::string_view("a\0b", 3));
    const std::string bytes = out.take();
    RecordReader in(bytes, "bytes");
    for (const std::uint64_t n : counts) EXPECT_EQ(in.count(), n);
    for (const Index i : {Index(-1), Index(0), Index(1) << 40}) EXPECT_EQ(in.index(), i);
    const std::vector<double> read = in.reals();
    ASSERT_EQ(read.size(), reals.size());
    for (std::size_t i = 0; i < reals.size(); ++i) {
        EXPECT_EQ(read[i], reals[i]);
        EXPECT_EQ(std::signbit(read[i]), std::signbit(reals[i]));
    }
    EXPECT_EQ(in.maybe_real(), std::nullopt);
    EXPECT_EQ(in.maybe_real(), 2.5);
    EXPECT_EQ(in.text(), std::string("a\0b", 3));
    EXPECT_NO_THROW(in.end());
}

TEST(Record, RefusesLengthsBeyondItsBytes) {
    RecordWriter out;
    out.count(std::uint64_t{1} << 60);  // of a text or a vector
    const std::string bytes = out.take() + "abc";
    EXPECT_THROW(RecordReader(bytes, "b").text(), FormatError);
    EXPECT_THROW(RecordReader(bytes, "b").reals(), FormatError);
    EXPECT_THROW(RecordReader(bytes, "b").length(2), FormatError);
    const std::string endless(11, '\xff');
    EXPECT_THROW(RecordReader(endless, "b").count(), FormatError);
    EXPECT_THROW(RecordReader("", "b").flag(), FormatError);
    EXPECT_THROW(RecordReader("\2", "b").flag(), FormatError);
    EXPECT_THROW(RecordReader("ab", "b").end(), FormatError);
}

TEST(Part, EachUnitOfEachStageFallsToOne) {
    for (Index parts = 1; parts <= 7; ++parts) {
        std::vector<JobUnits::Tickets> all;
        for (Index part = 1; part <= parts; ++part) all.push_back(tickets_of_part(part, parts));
        for (Index stage = 0; stage < 9; ++stage) {
            const Index count = 1 + (stage * 5) % 13;
            std::multiset<Index> given;
            for (const auto& tickets : all)
                for (Index unit; (unit = tickets(stage, count)) < count;) given.insert(unit);
            EXPECT_EQ(Index(given.size()), count);
            EXPECT_EQ(std::set<Index>(given.begin(), given.end()).size(), given.size());
        }
    }
}

TEST(Part, SingleUnitsOfManyStagesGoToAll) {
    constexpr Index parts = 4;
    for (Index part = 1; part <= parts; ++part) {
        const auto tickets = tickets_of_part(part, parts);
        Index mine = 0;
        for (Index stage = 0; stage < 20; ++stage) mine += tickets(stage, 1) < 1 ? 1 : 0;
        EXPECT_EQ(mine, 5) << part;
    }
}

class Store : public testing::Test {
  protected:
    JobTitle title{{"figure", "tse.fig2"}, "settings", "avx2"};
    TemporaryDirectory folder;
    std::string result = folder / "out";
    std::vector<fs::path> files(const std::string& ending) {
        std::vector<fs::path> found;
        for (const auto& entry : fs::directory_iterator(units_folder(result) / title.digest()))
            if (entry.path().extension() == ending) found.push_back(entry.path());
        return found;
    }
    /// Does `work` until it has taken less than a second, for which a busy machine may let it wait:
    /// then nothing was written in between.
    template <class Work>
    void within_a_second(const Work& work) {
        const auto now = [] { return std::chrono::steady_clock::now(); };
        for (auto begin = now() - std::chrono::hours(1);
             now() - begin >= std::chrono::seconds(1);) {
            fs::remove_all(units_folder(result));
            begin = now();
            work();
        }
    }
    /// A store that has written units 0 and 1 of stage 0, and 3 of stage 2.
    void write_three() {
        within_a_second([&] {
            UnitStore store(result, title);
            store.stage(0, 2);
            store.keep(0, 0, "first", 0.5);
            store.keep(0, 1, std::string(1000, '\0'), 0.5);
            store.stage(2, 4);
            store.keep(2, 3, "", 1);
            store.flush("done");
        });
    }
};

TEST_F(Store, GivesBackWhatAnotherProcessKept) {
    write_three();
    UnitStore again(result, title);
    EXPECT_EQ(again.read(), 3);
    EXPECT_EQ(again.find(0, 0), "first");
    EXPECT_EQ(again.find(0, 1), std::string(1000, '\0'));
    EXPECT_EQ(again.find(2, 3), "");
    EXPECT_EQ(again.find(0, 3), std::nullopt);
    again.remove();
    EXPECT_FALSE(fs::exists(units_folder(result)));
}

/// As ranks do that end when others begin.
TEST_F(Store, IsMadeWhileOthersRemoveWhatIsEmpty) {
    std::atomic<bool> done = false;
    std::thread other([&] {
        while (!done) UnitStore(result, title);
    });
    for (int i = 0; i < 50; ++i) {
        UnitStore store(result, title);
        store.stage(0, 1);
        store.keep(0, 0, "first", 0.5);
        EXPECT_NO_THROW(store.flush("done"));
        store.remove();
    }
    done = true;
    other.join();
}

TEST_F(Store, IsBesideTheResultHoweverItIsNamed) {
    const fs::path expected = fs::weakly_canonical(folder.path()) / ".out.tsdiag-units";
    for (const std::string& name : {result, result + "/", folder / "x/../out", folder / "./out"})
        EXPECT_EQ(units_folder(name), expected) << name;
}

TEST_F(Store, IsNotCreatedByLessThanASecondOfWork) {
    within_a_second([&] {
        UnitStore store(result, title);
        store.keep(0, 0, "x", 0.001);
    });
    EXPECT_FALSE(fs::exists(units_folder(result)));
}

TEST_F(Store, KeepsNothingOfAProcessAloneThatFailsAtOnce) {
    for (const bool alone : {true, false}) {
        within_a_second([&] {
            UnitStore store(result, title);
            if (alone) store.set_best_effort();
            store.keep(0, 0, "x", 0.001);
            store.flush("failed");
        });
        EXPECT_EQ(fs::exists(units_folder(result)), !alone);
    }
}

TEST_F(Store, OfAProcessAloneGoesOnWhereNothingCanBeWritten) {
    { std::ofstream(units_folder(result)) << "no folder"; }
    UnitStore alone(result, title), shared(result, title);
    alone.set_best_effort();
    for (UnitStore* store : {&alone, &shared}) store->keep(0, 0, "x", 1);
    EXPECT_NO_THROW(alone.flush());
    EXPECT_NO_THROW(alone.flush("done"));
    EXPECT_THROW(shared.flush(), Error);
}

TEST_F(Store, OtherSettingsNumericsAndVersionsAreOtherJobs) {
    write_three();
    for (const JobTitle& other : {JobTitle{title.words, "others", title.numerics},
                                  JobTitle{title.words, title.settings, "avx512"}})
        EXPECT_EQ(UnitStore(result, other).read(), 0);
    EXPECT_EQ(UnitStore(result, {{"check"}, title.settings, title.numerics}).read(), 3);
    const JobTitle wider{title.words, title.settings, "avx512"};
    EXPECT_THAT(UnitStore(result, wider).other_numerics(), testing::ElementsAre("avx2"));
}

TEST_F(Store, DifferentResultsOfAUnitNameBothHosts) {
    write_three();
    UnitStore other(result, title);
    other.keep(0, 0, "second", 1);
    other.flush();
    UnitStore store(result, title);
    try {
        store.read();
        FAIL();
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("different results of unit 0 of stage 0"));
    }
}

TEST_F(Store, DamagedFilesAreComputedAgain) {
    write_three();
    const fs::path file = files(".units").at(0);
    const std::string whole = read_file(file);
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string torn = whole.substr(0, at), other = whole;
        other[at] = char(other[at] ^ 0x10);
        for (const std::string& bytes : {torn, other}) {
            write_file(file, bytes);
            EXPECT_EQ(UnitStore(result, title).read(), 0) << at;
        }
    }
    for (const char* name : {"a.units", "b.worker", "job.json"})
        write_file(file.parent_path() / name, "{\"host\": 3");
    write_file(file, whole);
    EXPECT_EQ(UnitStore(result, title).read(), 3);
    EXPECT_TRUE(job_status(result).empty()) << "its job.json is damaged";
}

TEST_F(Store, StatusTellsWhatIsDone) {
    write_three();
    const std::vector<JobStatus> jobs = job_status(result);
    ASSERT_EQ(jobs.size(), 1u);
    EXPECT_EQ(jobs[0].done, 3);
    EXPECT_EQ(jobs[0].known, 6);
    EXPECT_NEAR(jobs[0].unit_seconds, 2.0 / 3, 1e-15);
    EXPECT_EQ(jobs[0].words, title.words);
    EXPECT_EQ(fs::path(jobs[0].result), fs::weakly_canonical(result));
    ASSERT_EQ(jobs[0].workers.size(), 1u);
    EXPECT_EQ(jobs[0].workers[0].state, "done");
    EXPECT_EQ(jobs[0].workers[0].units, 3);
    EXPECT_LT(jobs[0].workers[0].age, 60);
    // Also from the folder that holds the result.
    EXPECT_EQ(job_status(folder.path()).size(), 1u);
}

/// What one process says is what another would say again.
TEST_F(Store, DescriptionsComeBack) {
    write_three();
    const auto comes_back = [](auto record, const fs::path& file, int indent) {
        const std::string text = read_file(file);
        const Json json = Json::parse(text, file.string());
        record = read_fields<decltype(record)>(json, file.string());
        EXPECT_EQ(fields_json(record).dump(indent) + "\n", text) << file;
        for (const auto& [name, value] : json.object()) {
            Json other = json;
            other.set(name, true);
            try {
                record = read_fields<decltype(record)>(other, file.string());
                ADD_FAILURE() << name;
            } catch (const FormatError& error) {
                EXPECT_THAT(error.what(), HasSubstr("in member '" + name + "'"));
            }
        }
    };
    const fs::path worker = files(".worker").at(0);
    comes_back(units::WorkerFile(), worker, -1);
    comes_back(units::JobFile(), worker.parent_path() / units::job_file, 2);
}

TEST_F(Store, MergingWhatIsMissingIsRefused) {
    write_three();
    UnitStore store(result, title);
    store.read();
    JobUnits units(store, true);
    EXPECT_NO_THROW(units.begin(2));
    EXPECT_EQ(units.find(0), "first");
    try {
        units.begin(5);
        FAIL();
    } catch (const MissingUnits& error) {
        EXPECT_THAT(error.what(), HasSubstr("5 of 5 units are missing"));
    }
    JobUnits jumped(store, true);
    jumped.go_to(2);
    EXPECT_THROW(jumped.begin(4), MissingUnits);  // unit 3 alone is there
    JobTitle wider = title;
    wider.numerics = "avx512";
    UnitStore empty(result, wider);
    JobUnits none(empty, true);
    try {
        none.begin(2);
        FAIL();
    } catch (const MissingUnits& error) {
        EXPECT_THAT(error.what(), HasSubstr("--mixed"));
        EXPECT_THAT(error.what(), HasSubstr("avx2"));
    }
}

/// A finished job sweeps those beside it that nobody has gone on with for two weeks.
TEST_F(Store, SweepsWhatWasGivenUpLongAgo) {
    const auto keep_in = [&](const char* settings) {
        UnitStore store(result, {{"figure"}, settings, "none"});
        store.stage(0, 2);
        store.keep(0, 0, "record", 1);
        store.flush("failed");
        return store.folder();
    };
    const auto age = [](const fs::path& job, std::chrono::hours by) {
        const auto then = fs::file_time_type::clock::now() - by;
        for (const auto& file : fs::directory_iterator(job)) fs::last_write_time(file, then);
        fs::last_write_time(job, then);
    };
    const fs::path old = keep_in("old"), mixed = keep_in("mixed"), recent = keep_in("recent");
    { std::ofstream(mixed / "notes.txt") << "mine"; }
    age(old, std::chrono::days(15));
    age(mixed, std::chrono::days(15));
    age(recent, std::chrono::days(13));
    UnitStore store(result, {{"figure"}, "now", "none"});
    store.keep(0, 0, "record", 1);
    store.flush("done");
    store.remove();
    EXPECT_FALSE(fs::exists(store.folder()));
    EXPECT_FALSE(fs::exists(old));
    EXPECT_TRUE(fs::exists(recent / "job.json"));
    EXPECT_FALSE(fs::exists(mixed / "job.json"));
    EXPECT_TRUE(fs::exists(mixed / "notes.txt"));  // a file of a user stays
    EXPECT_EQ(UnitStore(result, {{"figure"}, "recent", "none"}).read(), 1);
}

}  // namespace
}  // namespace tsdiag::test
