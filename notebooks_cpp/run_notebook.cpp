#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tsdiag/json.hpp"

/// Runs the cells of a notebook in one session of clang-repl and compares their output with the
/// stored outputs of the notebook.
///
///     run_notebook check|store NOTEBOOK CLANG_REPL LIBRARY INCLUDE WORK EXAMPLES
///
/// `check` fails where a cell does not compile, does not finish, or prints something else.  Of a
/// figure only the description is compared: the digits of an SVG depend on the machine.  `store`
/// writes the outputs into the notebook.
namespace {

using tsdiag::Json;
namespace fs = std::filesystem;

constexpr std::string_view done = "@@done ", figure = "[figure] ";

std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw std::runtime_error(fmt::format("{}: cannot be read", file.string()));
    return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, std::string_view text) {
    std::ofstream out(file, std::ios::binary);
    out << text;
    if (!out.flush()) throw std::runtime_error(fmt::format("{}: cannot be written", file.string()));
}

/// "a\nb" as ["a\n", "b"], the way notebooks store text.
Json lines_of(std::string_view text) {
    Json::Array lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    return lines;
}

std::string text_of(const Json& lines) {
    if (lines.is_string()) return lines.string();
    std::string text;
    for (const Json& line : lines.array()) text += line.string();
    return text;
}

std::string quoted(const std::string& word) {
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

struct Session {
    std::string repl, library, include;
    fs::path work;

    /// The output of each completed cell.
    std::vector<std::string> run(const std::vector<std::string>& cells) const {
        std::string script = "#include <cstdio>\n";
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string name = fmt::format("cell_{}.inc", i + 1);
            write(work / name, fmt::format("{}\nstd::printf(\"{}{}\\n\"); std::fflush(stdout);\n",
                                           cells[i], done, i + 1));
            script += fmt::format("#include \"{}\"\n", name);
        }
        write(work / "script.txt", script + "%quit\n");
        const std::string command = fmt::format(
            "cd {} && LD_PRELOAD={} {} -Xcc -std=c++20 -Xcc -O1 -Xcc -I{} -Xcc -I. "
            "<script.txt 2>errors.txt",
            quoted(work.string()), quoted(library), quoted(repl), quoted(include));
        FILE* pipe = popen(command.c_str(), "r");
        if (pipe == nullptr) throw std::runtime_error("no child process can be started");
        std::string text(std::size_t(1) << 16, '\0'), all;
        while (const std::size_t n = fread(text.data(), 1, text.size(), pipe))
            all.append(text, 0, n);
        pclose(pipe);  // clang-repl exits with 0 even where a cell fails
        std::vector<std::string> outputs;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string marker = fmt::format("{}{}\n", done, i + 1);
            const std::size_t end = all.find(marker);
            if (end == std::string::npos) break;
            outputs.push_back(all.substr(0, end));
            all.erase(0, end + marker.size());
        }
        return outputs;
    }
};

/// The outputs of a cell as a notebook stores them: text streams, with figures between them.
Json outputs_of(std::string_view printed, const fs::path& work) {
    Json::Array outputs;
    std::string text;
    const auto flush = [&] {
        if (text.empty()) return;
        outputs.push_back(
            Json().set("name", "stdout").set("output_type", "stream").set("text", lines_of(text)));
        text.clear();
    };
    const Json lines = lines_of(printed);
    for (const Json& line : lines.array()) {
        const std::string& words = line.string();
        if (!words.starts_with(figure)) {
            text += words;
            continue;
        }
        flush();
        const std::string file =
            words.substr(figure.size(), words.find(' ', figure.size()) - figure.size());
        Json data;
        data.set("image/svg+xml", lines_of(read(work / file))).set("text/plain", lines_of(words));
        outputs.push_back(Json()
                              .set("data", std::move(data))
                              .set("metadata", Json::Object{})
                              .set("output_type", "display_data"));
    }
    flush();
    return outputs;
}

/// The part of stored outputs that is compared.
std::string shown(const Json& outputs) {
    std::string text;
    for (const Json& output : outputs.array())
        text += text_of(output.contains("data") ? output["data"]["text/plain"] : output["text"]);
    return text;
}

std::vector<std::string> sources(const Json& notebook) {
    std::vector<std::string> cells;
    for (const Json& cell : notebook["cells"].array())
        if (cell["cell_type"].string() == "code") cells.push_back(text_of(cell["source"]));
    return cells;
}

/// The first cell whose output differs from the stored one.
std::optional<std::string> difference(const Json& notebook, const std::vector<std::string>& printed,
                                      const fs::path& work) {
    std::size_t i = 0;
    for (const Json& cell : notebook["cells"].array()) {
        if (cell["cell_type"].string() != "code") continue;
        const std::string now = shown(outputs_of(printed[i], work)),
                          stored = shown(cell["outputs"]);
        ++i;
        if (now != stored)
            return fmt::format("cell {} prints\n{}\nand the notebook stores\n{}", i, now, stored);
    }
    return {};
}

Json with_outputs(const Json& notebook, const std::vector<std::string>& printed,
                  const fs::path& work) {
    Json::Array cells;
    int i = 0;
    for (Json cell : notebook["cells"].array()) {
        if (cell["cell_type"].string() == "code") {
            const std::string& text = printed[std::size_t(i)];
            cell.set("execution_count", ++i).set("outputs", outputs_of(text, work));
        }
        cells.push_back(std::move(cell));
    }
    Json out = notebook;
    return out.set("cells", std::move(cells));
}

int run(const std::vector<std::string>& arguments) {
    if (arguments.size() != 7)
        throw std::runtime_error(
            "expected check|store NOTEBOOK CLANG_REPL LIBRARY INCLUDE WORK EXAMPLES");
    const fs::path file = arguments[1], work = arguments[5];
    fs::remove_all(work);
    fs::create_directories(work);
    fs::create_directory_symlink(arguments[6], work / "examples");
    fs::copy_file(file.parent_path() / "show.hpp", work / "show.hpp");

    const Json notebook = Json::parse(read(file), file.string());
    const std::vector<std::string> cells = sources(notebook);
    const std::vector<std::string> printed =
        Session{arguments[2], arguments[3], arguments[4], work}.run(cells);
    if (printed.size() != cells.size())
        throw std::runtime_error(fmt::format("cell {} of {} does not come to its end:\n{}\n{}",
                                             printed.size() + 1, cells.size(),
                                             cells[printed.size()], read(work / "errors.txt")));
    if (arguments[0] == "store") {
        write(file, with_outputs(notebook, printed, work).dump(1) + "\n");
    } else if (const auto found = difference(notebook, printed, work)) {
        throw std::runtime_error(*found);
    }
    fmt::print("{}: {} cells\n", file.filename().string(), cells.size());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run({argv + 1, argv + argc});
    } catch (const std::exception& error) {
        fmt::print(stderr, "run_notebook: {}\n", error.what());
        return 1;
    }
}
