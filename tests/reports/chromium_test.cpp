#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "../../reports/process.hpp"
#include "folder.hpp"
#include "sample.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"

/// Opens the report in a browser without network access.
namespace tsdiag {
namespace {

using test::count_of;
using test::Folder;
using test::slurp;
using testing::HasSubstr;
using testing::Not;

std::string browser() { return test::program({"chromium", "chromium-browser", "google-chrome"}); }

struct Opened {
    std::string page;  ///< the document after its scripts have run
    std::string log;   ///< the console's messages
};

/// Opens `file` headless; hosts cannot be resolved.
Opened open_in_browser(const std::filesystem::path& file, const Folder& folder) {
    const auto said = folder.path / "page.txt", log = folder.path / "log.txt";
    const std::string command =
        browser() +
        " --headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--user-data-dir='" +
        (folder.path / "profile").string() +
        "' --host-resolver-rules='MAP * ~NOTFOUND' --virtual-time-budget=20000 "
        "--enable-logging=stderr --dump-dom 'file://" +
        file.string() + "' >'" + said.string() + "' 2>'" + log.string() + "'";
    reports::run_program({"timeout", "120", "sh", "-c", command}, folder.path);
    return {slurp(said), slurp(log)};
}

/// The text between the start of the figure's plot and its caption.
std::string plot_of(const std::string& page, const std::string& name) {
    const std::size_t at = page.find("data-figure=\"" + name + "\"");
    if (at == std::string::npos) return {};
    return page.substr(at, page.find("<figcaption", at) - at);
}

std::size_t marks_in(const std::string& plot) {
    return count_of(plot, "<path") + count_of(plot, "<image");
}

TEST(ChromiumTest, EveryFigureIsDrawnAndTheConsoleIsSilent) {
    if (browser().empty()) GTEST_SKIP() << "chromium is not installed";
    Folder folder;
    const Table table =
        test::sample_table({.layers = 6, .heads = 4, .tokens = 16, .samples = 2, .maps = 3});
    write_report(table, {}, folder.path);

    const Opened opened = open_in_browser(folder.path / "report.html", folder);

    EXPECT_THAT(opened.log, Not(HasSubstr("CONSOLE")));
    EXPECT_THAT(opened.page, Not(HasSubstr("data-failed")));
    std::size_t drawn = 0;
    for (const FigureEntry* entry : figures())
        for (const Figure& f : entry->make(table)) {
            const std::string plot = plot_of(opened.page, f.name);
            EXPECT_THAT(plot, HasSubstr("<svg")) << f.name;
            EXPECT_THAT(plot, HasSubstr("role=\"img\"")) << f.name;
            EXPECT_THAT(plot, Not(HasSubstr("NaN"))) << f.name;
            EXPECT_GT(marks_in(plot), 5u) << f.name;
            for (const Plot& p : f.panels) {
                if (!p.grid) continue;
                if (p.grid->image)
                    EXPECT_GE(count_of(plot, "<image"), 1u) << f.name;
                else
                    EXPECT_GE(count_of(plot, "<path"), p.grid->values.size()) << f.name;
            }
            ++drawn;
        }
    EXPECT_THAT(opened.page, HasSubstr("data-drawn=\"" + std::to_string(drawn) + "\""));
}

TEST(ChromiumTest, LegendsNameEveryLine) {
    if (browser().empty()) GTEST_SKIP() << "chromium is not installed";
    Folder folder;
    const Table table = test::sample_table({.layers = 4, .heads = 2, .tokens = 8, .samples = 2});
    write_report(table, {}, folder.path);
    const Opened opened = open_in_browser(folder.path / "report.html", folder);
    const std::string plot = plot_of(opened.page, "escalation");
    for (const char* name : {"measured", "from est1", "from est2", "from est_mu"})
        EXPECT_THAT(plot, HasSubstr(std::string(">") + name + "</text>"));
}

TEST(ChromiumTest, ABrokenFigureIsNoticed) {
    if (browser().empty()) GTEST_SKIP() << "chromium is not installed";
    Folder folder;
    write_report(test::sample_table({.layers = 2, .heads = 2, .tokens = 8}), {}, folder.path);
    std::string page = slurp(folder.path / "report.html");
    const std::size_t at = page.find("\"concat\": [");
    ASSERT_NE(at, std::string::npos);
    page.replace(at, 8, "\"nonsen\"");
    write_atomically(folder.path / "broken.html", page);

    const Opened opened = open_in_browser(folder.path / "broken.html", folder);

    EXPECT_THAT(opened.page, HasSubstr("data-failed=\"1\""));
    EXPECT_THAT(opened.log, HasSubstr("CONSOLE"));
}

}  // namespace
}  // namespace tsdiag
