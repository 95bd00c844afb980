#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tsdiag/cluster.hpp"

namespace tsdiag {
namespace {

/// A word of a shell.
std::string quoted(const std::string& word) {
    constexpr std::string_view plain = "-_./:=,+@%";
    const bool simple = !word.empty() && std::ranges::all_of(word, [&](char c) {
        return std::isalnum((unsigned char)(c)) != 0 || plain.find(c) != plain.npos;
    });
    if (simple) return word;
    std::string out = "'";
    for (const char c : word) c == '\'' ? out += "'\\''" : out += c;
    return out + "'";
}

std::string command_of(const SubmitOptions& options) {
    std::string line = quoted(options.program);
    for (const std::string& word : options.words) line += " " + quoted(word);
    return line;
}

}  // namespace

std::string sbatch_script(const SubmitOptions& o) {
    std::string text = "#!/bin/bash\n";
    const auto option = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) text += fmt::format("#SBATCH --{}={}\n", name, value);
    };
    option("job-name", quoted(o.name));
    option("time", o.time);
    option("partition", o.partition);
    option("account", o.account);
    if (o.parts == 0) {
        option("nodes", std::to_string(o.nodes));
        option("ntasks-per-node", std::to_string(o.tasks_per_node));
    } else {
        option("array", fmt::format("1-{}", o.parts));
        option("ntasks", "1");
    }
    if (o.cpus_per_task > 0) option("cpus-per-task", std::to_string(o.cpus_per_task));
    text += "#SBATCH --requeue\n#SBATCH --open-mode=append\n\n";
    if (o.parts == 0)
        return text + "# After a requeue it goes on with the units that are finished.\nsrun " +
               command_of(o) + "\n";
    return text + "# Afterwards: " + quoted(o.program) + " merge " + quoted(o.result) + "\n" +
           command_of(o) + fmt::format(" --part \"$SLURM_ARRAY_TASK_ID/{}\"\n", o.parts);
}

}  // namespace tsdiag
