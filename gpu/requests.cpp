#include "requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string_view>
#include <vector>

namespace tsdiag::gpu {
namespace {

constexpr Limits h100{"H100", 3.35e12, 66.9e12, 33.5e12, 66.9e12, 66.9e12, 55e9},
    h200{"H200", 4.8e12, 66.9e12, 33.5e12, 66.9e12, 66.9e12, 55e9};
constexpr std::array all_limits{h100, h200};

// Counted in the sources; `block_reduce` and index arithmetic are not.
constexpr std::array all_operations{Operations{"adamw_kernel", 14, false},
                                    Operations{"affine_kernel", 2, false},
                                    Operations{"binary_kernel", 1, false},
                                    Operations{"column_sum_kernel", 1, true},
                                    Operations{"convert_kernel", 0, false},
                                    Operations{"copy_kernel", 0, false},
                                    Operations{"distances_kernel", 3, true},
                                    Operations{"draw_kernel", 50, true},
                                    Operations{"expand_kernel", 0, false},
                                    Operations{"extend_kernel", 8, true},
                                    Operations{"fill_kernel", 0, false},
                                    Operations{"gather_kernel", 0, false},
                                    Operations{"groups_kernel", 1, false},
                                    Operations{"heads_kernel", 1, false},
                                    Operations{"hide_kernel", 2, false},
                                    Operations{"krylov_kernel", 6, true},
                                    Operations{"krylov_rows_kernel", 4, true},
                                    Operations{"krylov_sum_kernel", 1, true},
                                    Operations{"map_sum_kernel", 25, false},
                                    Operations{"matvec_kernel", 2, true},
                                    Operations{"matvec_transposed_kernel", 2, true},
                                    Operations{"merge_kernel", 0, false},
                                    Operations{"nonfinite_kernel", 3, false},
                                    Operations{"norm_derivative_kernel", 18, true},
                                    Operations{"normalise_kernel", 9, true},
                                    Operations{"rotate_kernel", 24, true},
                                    Operations{"row_max_kernel", 1, false},
                                    Operations{"row_fields_kernel", 50, true},
                                    Operations{"row_sum_kernel", 1, true},
                                    Operations{"softmax_derivative_kernel", 4, true},
                                    Operations{"softmax_kernel", 24, true},
                                    Operations{"squares_kernel", 2, true},
                                    Operations{"state_moments_kernel", 12, true},
                                    Operations{"sum_rows_kernel", 11, true},
                                    Operations{"traces_kernel", 2, true},
                                    Operations{"transpose_kernel", 0, false},
                                    Operations{"tridiagonal_kernel", 6, true},
                                    Operations{"unary_derivative_kernel", 45, false},
                                    Operations{"unary_kernel", 22, false},
                                    Operations{"survey_kernel", 4, true},
                                    Operations{"windows_kernel", 2, true}};

double operations(const std::string& name, const Requests& r) {
    if (name.starts_with("product")) return 2 * r.elements;
    const Operations* of = operations_of(name);
    return of == nullptr ? 0 : of->of_element * r.elements;
}

/// Requests of the program, written at its end where that is asked for.
class Log {
  public:
    void add(std::string name, const Requests& more) {
        const std::lock_guard lock(mutex_);
        RequestsOfAName& r = all_[std::move(name)];
        if (r.count == 0) r.first = more;
        r.count += more.count;
        r.bytes += more.bytes;
        r.elements += more.elements;
        r.seconds += more.seconds;
    }
    AllRequests all() const {
        const std::lock_guard lock(mutex_);
        return all_;
    }
    ~Log() {
        if (const char* file = std::getenv("TSDIAG_DEVICE_REQUESTS"))
            std::ofstream(file) << roofline(all_, all_limits);
        const char* file = std::getenv("TSDIAG_EMULATED_COUNTS");
        if (file == nullptr) return;
        std::map<std::string, std::size_t> sums;
        for (const auto& [name, r] : all_)
            sums[operations_of(name) ? "kernels" : name.substr(0, name.find(' ')) + 's'] += r.count;
        std::ofstream out(file);
        for (const char* kind :
             {"kernels", "products", "solutions", "allocations", "uploads", "downloads", "waits"})
            out << kind << ' ' << sums[kind] << '\n';
    }

  private:
    mutable std::mutex mutex_;
    AllRequests all_;
} log;

}  // namespace

AllRequests requests() { return log.all(); }

void add_request(const char* name, double bytes, double elements, double seconds) {
    const std::string_view launched = name;
    const std::size_t begin = launched.starts_with('(') ? 1 : 0,
                      end = std::min(launched.find('<'), launched.size());
    log.add(std::string(launched.substr(begin, end - begin)), {1, bytes, elements, seconds});
}

std::span<const Limits> known_limits() { return all_limits; }

const Operations* operations_of(const std::string& kernel) {
    const auto at =
        std::ranges::find(all_operations, std::string_view(kernel),
                          [](const Operations& o) { return std::string_view(o.kernel); });
    return at == all_operations.end() ? nullptr : &*at;
}

double least_seconds(const std::string& name, const Requests& r, const Limits& limits) {
    if (name == "upload" || name == "download") return r.bytes / limits.copied;
    if (name == "allocation" || name == "wait") return 0;
    const Operations* of = operations_of(name);
    const double rate = name == "product float32"        ? limits.products32
                        : name == "product float64"      ? limits.products64
                        : of != nullptr && of->in_double ? limits.float64
                                                         : limits.float32;
    return std::max(r.bytes / limits.bytes, operations(name, r) / rate);
}

std::string roofline(const AllRequests& all, std::span<const Limits> limits) {
    const bool measured =
        std::ranges::any_of(all, [](const auto& x) { return x.second.seconds > 0; });
    std::string head = "| request | count | MB | 10⁹ operations |", rule = "|---|---:|---:|---:|";
    for (const Limits& l : limits) {
        head += fmt::format(" {}, µs |", l.device);
        rule += "---:|";
    }
    if (measured) {
        head += " measured, µs | its first | ratio of others |";
        rule += "---:|---:|---:|";
    }
    std::string out = head + '\n' + rule + '\n';
    std::vector<double> sums(limits.size() + 1, 0.0);
    double first = 0, least_of_first = 0;
    for (const auto& [name, r] : all) {
        if (r.count == 0 || name == "allocation" || name == "wait") continue;
        out += fmt::format("| {} | {} | {:.1f} | {:.2f} |", name, r.count, r.bytes / 1e6,
                           operations(name, r) / 1e9);
        for (std::size_t i = 0; i < limits.size(); ++i) {
            const double least = least_seconds(name, r, limits[i]);
            out += fmt::format(" {:.1f} |", 1e6 * least);
            sums[i] += least;
        }
        sums.back() += r.seconds;
        const Requests others = r - r.first;
        first += r.first.seconds;
        least_of_first += least_seconds(name, r.first, limits.back());
        if (measured)
            out += fmt::format(
                " {:.1f} | {:.1f} | {} |", 1e6 * r.seconds, 1e6 * r.first.seconds,
                others.count == 0
                    ? "-"
                    : fmt::format("{:.1f}",
                                  others.seconds / least_seconds(name, others, limits.back())));
        out += '\n';
    }
    out += "| all | | | |";
    for (std::size_t i = 0; i < limits.size(); ++i) out += fmt::format(" {:.1f} |", 1e6 * sums[i]);
    if (measured)
        out += fmt::format(" {:.1f} | {:.1f} | {:.1f} |", 1e6 * sums.back(), 1e6 * first,
                           (sums.back() - first) / (sums[limits.size() - 1] - least_of_first));
    return out + '\n';
}

}  // namespace tsdiag::gpu
