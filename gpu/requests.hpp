#pragma once
#include <cstddef>
#include <map>
#include <span>
#include <string>

/// What is asked of a device, and the least time that it can take.
namespace tsdiag::gpu {

/// Requests of one kind.
struct Requests {
    std::size_t count = 0;
    double bytes = 0;  ///< operands read and results written, each once
    /// Of kernels: of the largest operand, or as launched; of products: multiplications.
    double elements = 0;
    double seconds = 0;  ///< as measured; 0: not measured

    Requests operator-(const Requests& o) const {
        return {count - o.count, bytes - o.bytes, elements - o.elements, seconds - o.seconds};
    }
};
/// By the name of the kernel, or "product float32", "product float64", "solution", "allocation",
/// "fill", "upload", "download", "wait": for work beside a download, on the emulated device.
struct RequestsOfAName : Requests {
    Requests first;  ///< of these the first, during which a device loads its code
};
using AllRequests = std::map<std::string, RequestsOfAName>;
/// Since the program started.  TSDIAG_DEVICE_REQUESTS=FILE: their `roofline` is written there when
/// it ends; a device then waits for every request, to measure it.
AllRequests requests();
/// `name`: a kernel's as launched, "(convert_kernel<To, From>)", or one of the others.
void add_request(const char* name, double bytes, double elements, double seconds);

/// Bytes and elements of the operands among the arguments of a kernel.
template <class T>
double bytes_of_argument(const T& x) {
    if constexpr (requires { x.bytes(); })
        return x.bytes();
    else
        return 0;
}
template <class T>
double elements_of_argument(const T& x) {
    if constexpr (requires { x.elements(); })
        return x.elements();
    else
        return 0;
}

/// Rates of a device, a second, from its data sheet.
struct Limits {
    const char* device;
    double bytes;             ///< of its memory
    double float32, float64;  ///< operations of kernels
    double products32, products64;
    double copied;  ///< bytes to and from the host
};
std::span<const Limits> known_limits();

/// Additions, multiplications and comparisons of a kernel for an element of its largest operand; a
/// function such as exp counts 20.
struct Operations {
    const char* kernel;
    double of_element;
    bool in_double;
};
/// Null where the list has no such kernel.
const Operations* operations_of(const std::string& kernel);

/// The least time of all these: that of their bytes or that of their operations.
double least_seconds(const std::string& name, const Requests& requests, const Limits& limits);
/// A table in Markdown, a row a name: count, megabytes, billions of operations, the least
/// microseconds on each device and, where measured, the microseconds, those of the first request,
/// and the ratio of the others to their least on the last device.
std::string roofline(const AllRequests& all, std::span<const Limits> limits);

}  // namespace tsdiag::gpu
