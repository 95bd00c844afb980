#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../reports/process.hpp"
#include "folder.hpp"
#include "sample.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"

/// Opens the report in a browser without network access.
namespace tsdiag {
namespace {

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

TEST(ChromiumTest, ScriptsReachEveryFigureAndTheConsoleIsSilent) {
    if (browser().empty()) GTEST_SKIP() << "chromium is not installed";
    Folder folder;
    const Table table =
        test::sample_table({.layers = 6, .heads = 4, .tokens = 16, .samples = 2, .maps = 5});
    write_report(table, {}, folder.path);

    const Opened opened = open_in_browser(folder.path / "report.html", folder);

    EXPECT_THAT(opened.log, Not(HasSubstr("CONSOLE")));
    std::size_t drawn = 0;
    for (const FigureEntry* entry : figures()) drawn += entry->make(table).size();
    EXPECT_THAT(opened.page, HasSubstr("data-ready=\"" + std::to_string(drawn) + "\""));
}

/// The policy of the page admits its own script and style only.
TEST(ChromiumTest, WhatIsInjectedIsRefused) {
    if (browser().empty()) GTEST_SKIP() << "chromium is not installed";
    Folder folder;
    write_report(test::sample_table({.layers = 2, .heads = 2, .tokens = 8}), {}, folder.path);
    std::string page = slurp(folder.path / "report.html");
    const std::size_t at = page.find("</main>");
    ASSERT_NE(at, std::string::npos);
    page.insert(at, "<script>document.title = 'taken over'</script>");
    write_atomically(folder.path / "injected.html", page);

    const Opened opened = open_in_browser(folder.path / "injected.html", folder);

    EXPECT_THAT(opened.page, Not(HasSubstr("<title>taken over")));
    EXPECT_THAT(opened.page, HasSubstr("data-ready="));
    EXPECT_THAT(opened.log, HasSubstr("Content Security Policy"));
}

}  // namespace
}  // namespace tsdiag
