#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tsdiag/cluster.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

std::string command_of(const SubmitOptions& options) {
    std::string line = shell_word(options.program);
    for (const std::string& word : options.words) line += " " + shell_word(word);
    return line;
}

}  // namespace

std::string sbatch_script(const SubmitOptions& o) {
    std::string text = "#!/bin/bash\n";
    const auto option = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) text += fmt::format("#SBATCH --{}={}\n", name, value);
    };
    option("job-name", shell_word(o.name));
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
    return text + "# Afterwards: " + shell_word(o.program) + " merge " + shell_word(o.result) +
           "\n" + command_of(o) + fmt::format(" --part \"$SLURM_ARRAY_TASK_ID/{}\"\n", o.parts);
}

}  // namespace tsdiag
