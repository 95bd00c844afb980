#include <fmt/format.h>

#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {

const Backend& open_backend(std::string_view name) {
    if (name == "cpu" || name == "auto") return cpu();
    if (name == "cuda" || name.starts_with("cuda:"))
        throw NotAvailable("device 'cuda' is not part of this build of tsdiag; use --device cpu");
    throw UsageError(
        fmt::format("device '{}' is unknown; expected auto, cpu, cuda or cuda:N", name));
}

std::vector<std::pair<std::string, std::string>> list_backends() {
    return {{"cpu", cpu().description()}};
}

}  // namespace tsdiag
