#include <fmt/format.h>

#include "tsdiag/cluster.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

/// As a word of the shell on a line of its script.
std::string word_of(std::string_view text) {
    if (const std::string seen = visible(text); seen != text)
        throw UsageError(fmt::format(
            "submit: '{}' has a control character or is not UTF-8, which a batch script cannot "
            "have; rename the file, or pass a text by --text-file.",
            seen));
    return shell_word(text);
}

/// As Slurm reads it on a line of #SBATCH, where white space, quotes, \ and # mean something.
std::string plain(std::string_view name, const std::string& value) {
    std::string word = word_of(value);
    if (word != value)
        throw UsageError(fmt::format(
            "submit: --{}: '{}' has other characters than letters, digits and _ - . / : , = + @ %, "
            "which a line of #SBATCH cannot have; check it.",
            name, value));
    return word;
}

std::string command_of(const SubmitOptions& options) {
    std::string line = word_of(options.program);
    for (const std::string& word : options.words) line += " " + word_of(word);
    return line;
}

}  // namespace

std::string sbatch_script(const SubmitOptions& o) {
    std::string text = "#!/bin/bash\n";
    const auto option = [&](std::string_view name, const std::string& value) {
        if (!value.empty()) text += fmt::format("#SBATCH --{}={}\n", name, plain(name, value));
    };
    option("job-name", o.name);
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
    return text + "# Afterwards: " + word_of(o.program) + " merge " + word_of(o.result) + "\n" +
           command_of(o) + fmt::format(" --part \"$SLURM_ARRAY_TASK_ID/{}\"\n", o.parts);
}

}  // namespace tsdiag
