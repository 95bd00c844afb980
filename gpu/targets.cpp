#include "targets.hpp"

#include <fmt/format.h>

#include <charconv>

namespace tsdiag::gpu {
namespace {

bool runs_on_one(std::string_view target, Capability device) {
    int number = 0;
    const char* end = target.data() + target.size();
    const char* rest = std::from_chars(target.data(), end, number).ptr;
    const std::string_view kind(rest, std::size_t(end - rest));
    const Capability own{number / 10, number % 10};
    if (!kind.empty() && kind.front() == 'a') return device == own;
    const bool family = device.major == own.major && device.minor >= own.minor;
    if (kind == "-real" || (!kind.empty() && kind.front() == 'f')) return family;
    return family || device.major > own.major;
}

}  // namespace

bool runs_on(std::string_view targets, Capability device) {
    if (targets.empty()) return true;
    for (;;) {
        const std::size_t end = targets.find(',');
        if (runs_on_one(targets.substr(0, end), device)) return true;
        if (end == std::string_view::npos) return false;
        targets.remove_prefix(end + 1);
    }
}

std::string why_no_code(std::string_view targets, std::string_view name, Capability device) {
    if (runs_on(targets, device)) return {};
    return fmt::format(
        "{} has compute capability {}.{}, for which the library has no code (it was built for {})",
        name, device.major, device.minor, targets);
}

}  // namespace tsdiag::gpu
