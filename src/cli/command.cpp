#include "command.hpp"

#include <fmt/format.h>

#include <array>

#include "tsdiag/families.hpp"
#include "tsdiag/run.hpp"

/// The list of commands, in the order of `tsdiag --help`.
// clang-format off
#define TSDIAG_COMMANDS(X)  \
    X(probe_command)        \
    X(watch_command)        \
    X(figure_command)       \
    X(train_command)        \
    X(gradients_command)    \
    X(inspect_command)      \
    X(init_command)         \
    X(list_command)         \
    X(info_command)         \
    X(report_command)       \
    X(plot_command)         \
    X(export_command)       \
    X(compare_command)      \
    X(check_command)        \
    X(merge_command)        \
    X(status_command)       \
    X(submit_command)       \
    X(trace_hook_command)   \
    X(completion_command)   \
    X(manual_command)
// clang-format on

namespace tsdiag::cli {

#define TSDIAG_DECLARE(name) extern const CommandEntry name;
TSDIAG_COMMANDS(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE

std::span<const CommandEntry* const> commands() {
#define TSDIAG_ADDRESS(name) &cli::name,
    static constexpr std::array all{TSDIAG_COMMANDS(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
    return all;
}

std::vector<std::string>& command_line() {
    static std::vector<std::string> words;
    return words;
}

std::vector<std::string> random_models() {
    std::vector<std::string> out;
    for (const ArchitectureEntry* entry : architectures())
        if (entry->random_names)
            for (const std::string_view name : entry->random_names())
                out.push_back(fmt::format("random:{}", name));
    return out;
}

}  // namespace tsdiag::cli
