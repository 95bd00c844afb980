#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "program.hpp"
#include "tsdiag/json.hpp"

namespace tsdiag::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace fs = std::filesystem;

bool has_gnuplot() {
    const TemporaryDirectory folder;
    return Running::shell(folder.path(), "command -v gnuplot").wait().code == 0;
}

class Plot : public testing::Test {
  protected:
    void SetUp() override {
        if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
        measure("post-norm", "a.tsdiag");
    }
    void measure(const std::string& model, const std::string& out) {
        const Finished done =
            tsdiag(folder, {"probe", "random:" + model + ",d=16,heads=2,layers=3", "--tokens", "6",
                            "--trials", "4", "-o", out, "--no-report", "-q"});
        ASSERT_EQ(done.code, 0) << done.err;
    }
    /// Its caption.
    std::string plot(const std::vector<std::string>& words) {
        const Finished done = tsdiag(folder, with({"plot", "a.tsdiag"}, words));
        EXPECT_EQ(done.code, 0) << done.err;
        return done.out;
    }
    TemporaryDirectory folder;
};

/// The 4 bytes of a PNG at `at`.
long word_at(const std::string& png, std::size_t at) {
    long out = 0;
    for (std::size_t i = 0; i < 4; ++i)
        out = out * 256 + static_cast<unsigned char>(png.at(at + i));
    return out;
}

TEST_F(Plot, WithoutAFigureListsThemWithTheirPanels) {
    EXPECT_THAT(plot({}), testing::ContainsRegex("similarity +Token similarity.*t_sim; "));
    const Json listed = Json::parse(plot({"--json"}), "plot");
    const Json& first = listed["figures"].array().front();
    EXPECT_EQ(first["name"].string(), "similarity");
    EXPECT_EQ(first["panels"].array().front().string(), "t_sim");
    EXPECT_FALSE(listed.contains("out"));
}

TEST_F(Plot, EachFormatIsOneFileOfTheWidth) {
    const std::vector<std::string> words = {"similarity", "--panel", "t_sim", "--width", "3.25in"};
    for (const char* format : {"svg", "pdf", "png", "tikz"})
        plot(with(words, {"--format", format}));
    EXPECT_THAT(names_in(folder.path()),
                ElementsAre("a.tsdiag", "similarity-t_sim.pdf", "similarity-t_sim.png",
                            "similarity-t_sim.svg", "similarity-t_sim.tex"));
    const std::string svg = read_file(folder / "similarity-t_sim.svg");
    EXPECT_THAT(svg, HasSubstr("width=\"312\""));          // 96 pixels an inch
    EXPECT_THAT(svg, HasSubstr("font-size=\"10.67\""));    // 8 pt
    EXPECT_THAT(svg, Not(HasSubstr("token similarity")));  // the caption has the title
    const std::string pdf = read_file(folder / "similarity-t_sim.pdf");
    std::smatch box;
    ASSERT_TRUE(std::regex_search(pdf, box, std::regex("MediaBox \\[ *0 0 ([0-9.]+)")));
    EXPECT_EQ(std::stod(box[1]), 234);
    const std::string png = read_file(folder / "similarity-t_sim.png");
    EXPECT_EQ(word_at(png, 16), 975);  // IHDR: 300 pixels an inch
    const std::size_t size = png.find("pHYs");
    ASSERT_NE(size, std::string::npos);
    EXPECT_EQ(word_at(png, size + 4), 11811);  // the same, a metre
    EXPECT_THAT(read_file(folder / "similarity-t_sim.tex"),
                AllOf(HasSubstr("\\fontsize{8}{9.6}"), HasSubstr("\\end{tikzpicture}")));
}

TEST_F(Plot, PrintsACaptionWithWhatWasMeasured) {
    const std::string caption = plot({"similarity", "-o", "whole.pdf"});
    EXPECT_THAT(caption, AllOf(HasSubstr("(a) t_sim: token similarity; (b) "),
                               HasSubstr("random:post-norm,d=16,heads=2,layers=3"),
                               HasSubstr("4 trials with 1 sample each of 6 tokens"),
                               HasSubstr("seed 0"), HasSubstr("Bands: 95 % intervals")));
    const Json run = Json::parse(read_file(folder / "a.tsdiag/run.json"), "run.json");
    EXPECT_THAT(caption,
                HasSubstr("Measured with tsdiag " + run["tsdiag"].string() + " (tsdiag probe)."));
    EXPECT_THAT(plot({"similarity", "-o", "whole.tex"}),
                AllOf(HasSubstr("t\\_sim"), HasSubstr("95 \\%")));
    const Json printed = Json::parse(plot({"similarity", "-o", "again.svg", "--json"}), "plot");
    EXPECT_EQ(printed["out"].string(), "again.svg");
    EXPECT_EQ(printed["caption"].string() + "\n", caption);
    EXPECT_THAT(read_file(folder / "again.svg"), AllOf(HasSubstr(">(a)<"), HasSubstr(">(b)<")));
}

TEST_F(Plot, LinesAreToldApartInGrey) {
    // one line is black: blue is that of figures on the screen
    plot({"mixing", "--panel", "delta", "-o", "one.svg"});
    EXPECT_THAT(read_file(folder / "one.svg"), Not(HasSubstr("rgb(  0, 114, 178)")));
    // lines in an order have dashes: of three layers and the reference all but the first
    plot({"accumulation", "--panel", "local_acc", "-o", "order.svg"});
    const std::string svg = read_file(folder / "order.svg");
    std::set<std::string> dashes;
    const std::regex dash("stroke-dasharray=.([0-9.,]+)");
    for (std::sregex_iterator at(svg.begin(), svg.end(), dash), end; at != end; ++at)
        dashes.insert((*at)[1]);
    EXPECT_EQ(dashes.size(), 3u);
}

TEST_F(Plot, AnOverlayHasTheLinesOfBoth) {
    measure("pre-norm", "b.tsdiag");
    const std::string caption =
        plot({"mixing", "--panel", "delta", "--overlay", "b.tsdiag", "-o", "both.svg"});
    EXPECT_THAT(read_file(folder / "both.svg"), AllOf(HasSubstr(">a<"), HasSubstr(">b<")));
    EXPECT_THAT(caption, AllOf(HasSubstr("a: random:post-norm"), HasSubstr("b: random:pre-norm")));
    plot({"similarity", "--overlay", "b.tsdiag", "--labels", "post,pre", "-o", "named.svg"});
    const std::string named = read_file(folder / "named.svg");
    // with one line in common, the names of the results say all
    for (const char* name : {"post", "pre"})
        EXPECT_TRUE(std::regex_search(named, std::regex(">" + std::string(name) + "(: out)?<")))
            << name;
    const Finished cells = tsdiag(
        folder, {"plot", "a.tsdiag", "heads_mixing", "--overlay", "b.tsdiag", "-o", "cells.svg"});
    EXPECT_EQ(cells.code, 2);
    EXPECT_THAT(cells.err, HasSubstr("cannot lie over others"));
}

TEST_F(Plot, RefusesWithWhatToDo) {
    const auto refused = [&](const std::vector<std::string>& words, const std::string& why,
                             int code = 2, const std::vector<std::string>& environment = {}) {
        const Finished done = tsdiag(folder, with({"plot"}, words), environment);
        EXPECT_EQ(done.code, code);
        EXPECT_THAT(done.err, HasSubstr(why));
        EXPECT_THAT(done.out, IsEmpty());
        expect_one_sentence(done.err);
    };
    refused({"a.tsdiag", "similarty"}, "did you mean similarity?");
    refused({"a.tsdiag", "similarity", "--panel", "t_sin"}, "did you mean t_sim?");
    refused({"a.tsdiag", "similarity", "--panel", "nothing"}, "it has t_sim, ");
    refused({"a.tsdiag", "similarity", "--format", "gif"}, "expected pdf, svg, png or tikz");
    refused({"a.tsdiag", "similarity", "-o", "a.gif"}, "add --format");
    refused({"a.tsdiag", "similarity", "--width", "3"}, "--width: '3' is not a length");
    refused({"a.tsdiag", "similarity", "-o", "a.pdf", "--format", "svg"}, "expected .svg");
    refused({"a.tsdiag", "--panel", "t_sim"}, "need a FIGURE");
    refused({"a.tsdiag", "similarity", "--overlay", "a.tsdiag"}, "the same name");
    refused({"absent", "similarity"}, "is not a directory", 1);
    write_file(folder / "taken.pdf", "mine");
    refused({"a.tsdiag", "similarity", "-o", "taken.pdf"}, "--force");
    // without gnuplot
    refused({"a.tsdiag", "similarity"}, "install gnuplot-nox", 3, {"PATH=" + folder / "a.tsdiag"});
    EXPECT_THAT(names_in(folder.path()), ElementsAre("a.tsdiag", "taken.pdf"));
    EXPECT_EQ(read_file(folder / "taken.pdf"), "mine");
    plot({"similarity", "-o", "taken.pdf", "--force"});
    EXPECT_EQ(read_file(folder / "taken.pdf").substr(0, 5), "%PDF-");
}

TEST_F(Plot, SaysOfAComparisonAndAnExaminationWhatToDo) {
    measure("pre-norm", "b.tsdiag");
    const auto refused = [&](const std::vector<std::string>& words, const std::string& why,
                             int code) {
        const Finished done = tsdiag(folder, words);
        EXPECT_EQ(done.code, code);
        EXPECT_THAT(done.err, HasSubstr(why));
        expect_one_sentence(done.err);
    };
    refused({"plot", "a.tsdiag", "similarity", "--overlay", "b.tsdiag", "--labels", "a,"},
            "has an empty name", 2);
    tsdiag(folder, {"compare", "a.tsdiag", "b.tsdiag", "-o", "compared", "-q"});
    refused({"plot", "compared"}, "plot one of them with --overlay", 1);
    tsdiag(folder, {"check", "devil.eq59", "--trials", "20", "-o", "checked", "-q"});
    for (const char* command : {"plot", "report"})
        refused({command, "checked"}, "was written by tsdiag check", 1);
}

TEST_F(Plot, DrawsSeriesTrainingsAndExperiments) {
    ASSERT_EQ(
        tsdiag(folder, {"train", "random:gpt2,layers=2,d=16,heads=2", "--data", "copy", "--tokens",
                        "9", "--steps", "6", "--probe-every", "2", "-o", "run", "-q"})
            .code,
        0);
    ASSERT_EQ(
        tsdiag(folder, {"probe", "run", "--samples", "3", "-o", "series", "--no-report", "-q"})
            .code,
        0);
    ASSERT_EQ(
        tsdiag(folder, {"figure", "law.lambda2", "--trials", "2", "-o", "figures", "-q"}).code, 0);
    const auto drawn = [&](const std::string& result, const std::string& figure) {
        const Finished done = tsdiag(folder, {"plot", result, figure, "--force", "-o", "a.svg"});
        EXPECT_EQ(done.code, 0) << done.err;
        EXPECT_THAT(read_file(folder / "a.svg"), HasSubstr("</svg>"));
        return done.out;
    };
    EXPECT_THAT(drawn("run", "learning"), HasSubstr("trained on copy with batches of "));
    EXPECT_THAT(drawn("series", "trajectory_t_sim_out"),
                AllOf(HasSubstr("Numbers of run ("), HasSubstr("3 checkpoints, step 2 to 6")));
    EXPECT_THAT(drawn("series", "similarity"),
                AllOf(HasSubstr("Numbers of step-6 ("), HasSubstr("step 6")));
    const Finished listed = tsdiag(folder, {"plot", "figures/law.lambda2"});
    const std::string first = listed.out.substr(0, listed.out.find(' '));
    EXPECT_THAT(drawn("figures/law.lambda2", first),
                AllOf(HasSubstr("experiment law.lambda2"), HasSubstr("trials = 2")));
}

}  // namespace
}  // namespace tsdiag::test
