#include "../../src/cli/program.hpp"  // tests/cli has one, too
#include "fuzz.hpp"
#include "tsdiag/output.hpp"

/// A directory for `tsdiag report`: run.json and its tables, in one input. The digests of the
/// tables are corrected, else no mutated input passes them.

using namespace tsdiag;

namespace {

constexpr const char* names[] = {"run.json",  "metrics.csv",   "curves.csv",
                                 "steps.csv", "gradients.csv", "evaluations.csv"};

std::string with_digests(std::string_view run, const std::vector<std::string_view>& files) {
    std::string out(run);
    fuzz::accepts([&] {
        Json json = Json::parse(run, "run.json");
        Json tables = Json::Object{};
        for (std::size_t i = 1; i < files.size(); ++i) tables.set(names[i], sha256(files[i]));
        out = json.set("tables", std::move(tables)).dump();
    });
    return out;
}

}  // namespace

void examine(std::string_view input) {
    const std::filesystem::path directory = fuzz::folder().path() / "run";
    std::filesystem::create_directories(directory);
    const std::vector<std::string_view> files = fuzz::parts(input, std::size(names));
    fuzz::folder().write("run/run.json", with_digests(files[0], files));
    for (std::size_t i = 1; i < files.size(); ++i)
        fuzz::folder().write(std::string("run/") + names[i], files[i]);
    fuzz::accepts([&] { cli::Program({"report", directory.string()}).command().run(); });
}
