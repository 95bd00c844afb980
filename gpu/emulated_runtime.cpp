#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "emulated_memory.hpp"
#include "emulator.hpp"
#include "requests.hpp"
#include "runtime.hpp"
#include "tsdiag/error.hpp"

/// runtime.hpp on the host, for emulated kernels, as strict as CUDA may be:
///
/// - Work submitted by a thread is done when it waits, and not before; with
///   TSDIAG_EMULATED_STREAM=eager at once, as on an idle device.  That of a library has another
///   stream.
/// - Freed memory is filled with NaN when the stream reaches it, and reused at once.
/// - Products, copies and fills must lie in memory of the selected device, with sizes and strides
///   that cuBLAS accepts.  The order of a product's sums depends on its shape.  cuSOLVER:
///   emulated_cusolver.cpp.
///
/// Environment variables describe the machine:
///
///     TSDIAG_EMULATED_DEVICES   capabilities, "7.5,8.0", or "broken" for one that answers nothing
///     TSDIAG_EMULATED_MEMORY    bytes of a device
///     TSDIAG_EMULATED_TAKEN     of these, what other programs have
///
/// TSDIAG_EMULATED_COUNTS=FILE: the counts of kernels, products, routines of cuSOLVER, allocations,
/// uploads, downloads and waits beside these are written there when the program ends, a line each
/// (requests.cpp).
namespace tsdiag::gpu {
namespace {

std::vector<std::string> words_of(const char* text) {
    std::istringstream in(text);
    std::vector<std::string> words;
    for (std::string word; std::getline(in, word, ',');) words.push_back(word);
    return words;
}

/// Those that CUDA_VISIBLE_DEVICES names by number, up to the first that there is not, as by CUDA.
std::vector<std::string> said_devices() {
    const char* said = std::getenv("TSDIAG_EMULATED_DEVICES");
    std::vector<std::string> devices = words_of(said != nullptr ? said : "9.0");
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr) return devices;
    std::vector<std::string> seen;
    for (const std::string& number : words_of(visible)) {
        const std::size_t index =
            number.find_first_not_of("0123456789") == number.npos && !number.empty()
                ? std::stoul(number)
                : devices.size();
        if (index >= devices.size()) break;
        seen.push_back(devices[index]);
    }
    return seen;
}
bool is_broken(int index) { return said_devices().at(std::size_t(index)) == "broken"; }

thread_local int current = 0;
std::atomic<std::size_t> copied_to_host = 0;

/// Whether nothing is computed.
std::atomic<bool> counts_only = false;

using Work = std::function<void()>;

/// Pending work of threads that have ended, done at some later time.
struct Left {
    std::mutex mutex;
    std::vector<Work> work;
    static Left& all() {
        static auto& only = *new Left;  // a thread may outlive every other static object
        return only;
    }
};

void do_all(std::vector<Work> work) {
    for (const Work& one : work) one();
}
void do_what_was_left() {
    std::vector<Work> left;
    {
        const std::lock_guard lock(Left::all().mutex);
        left.swap(Left::all().work);
    }
    do_all(std::move(left));
}

/// The stream of a thread.
class Stream {
  public:
    Stream() { emulator::own_state(); }  // constructed first: the work uses it
    ~Stream() {
        const std::lock_guard lock(Left::all().mutex);
        std::ranges::move(waiting_, std::back_inserter(Left::all().work));
    }
    void add(Work work) {
        if (!counts_only) add_always(std::move(work));
    }
    void add_always(Work work) {
        constexpr std::size_t most = 20000;  // bounds the memory they hold
        waiting_.push_back(std::move(work));
        const char* said = std::getenv("TSDIAG_EMULATED_STREAM");
        const bool eager = said != nullptr && std::strcmp(said, "eager") == 0;
        if (eager || waiting_.size() > most) drain();
    }
    void drain() { do_all(std::exchange(waiting_, {})); }

  private:
    std::vector<Work> waiting_;
};
Stream& stream() {
    thread_local Stream own;
    return own;
}
/// Of what this thread has asked of a library.
Stream& stream_of_library() {
    thread_local Stream own;
    return own;
}

/// x rounded to the nearest number with so many mantissa bits after the point.
float rounded(float x, int bits) {
    const std::uint32_t unit = std::uint32_t{1} << (23 - bits), half = unit / 2;
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + half) & ~(unit - 1));
}

double factor(double x, Products) { return x; }
double factor(float x, Products products) {
    switch (products) {
        case Products::tf32:
            return double(rounded(x, 10));
        case Products::bf16:
            return double(rounded(x, 7));
        case Products::exact:
            break;
    }
    return double(x);
}

template <class T>
void multiply_as(const Product& p) {
    const bool backwards = (p.m + p.n + p.k + p.count) % 2 == 1;
    for (Index i = 0; i < p.count; ++i) {
        const T* a = static_cast<const T*>(p.a) + i * p.batch_a;
        const T* b = static_cast<const T*>(p.b) + i * p.batch_b;
        T* c = static_cast<T*>(p.c) + i * p.batch_c;
        for (Index r = 0; r < p.m; ++r)
            for (Index s = 0; s < p.n; ++s) {
                double sum = 0;
                for (Index j = 0; j < p.k; ++j) {
                    const Index k = backwards ? p.k - 1 - j : j;
                    sum +=
                        factor(p.transpose_a ? a[k * p.row_a + r] : a[r * p.row_a + k],
                               p.products) *
                        factor(p.transpose_b ? b[s * p.row_b + k] : b[k * p.row_b + s], p.products);
                }
                c[r * p.row_c + s] = T(p.alpha * sum);
            }
    }
}

/// One operand of a product: `rows` rows of `cols` numbers.
void require_operand(const Product& p, const char* name, const void* data, Index rows, Index cols,
                     Index row, Index batch) {
    const auto refuse = [name](const std::string& what) {
        throw Error("cuBLAS: operand " + std::string(name) + " of a product " + what);
    };
    if (rows < 0 || cols < 0) refuse("has a negative size");
    if (row < std::max<Index>(1, cols)) refuse("has rows that overlap");
    if (batch < 0) refuse("goes backwards");
    if (rows == 0 || cols == 0 || p.count == 0) return;
    const auto element = Index(bytes_of(p.type));
    if (reinterpret_cast<std::uintptr_t>(data) % std::size_t(element) != 0)
        refuse("is not aligned");
    const Index last = (p.count - 1) * batch + (rows - 1) * row + cols;
    emulator::require_inside(data, std::size_t(last * element), selected(), name);
}

void require_product(const Product& p) {
    if (p.count < 0) throw Error("cuBLAS: a negative number of products");
    require_operand(p, "a", p.a, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.row_a,
                    p.batch_a);
    require_operand(p, "b", p.b, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.row_b,
                    p.batch_b);
    require_operand(p, "c", p.c, p.m, p.n, p.row_c, p.batch_c);
    if (p.count > 1 && p.m > 0 && p.n > 0 && p.batch_c < (p.m - 1) * p.row_c + p.n &&
        p.row_c < (p.count - 1) * p.batch_c + p.n)
        throw Error("cuBLAS: the results of a product overlap");
}

}  // namespace

void emulator::only_count(bool count) {
    synchronise();
    counts_only = count;
}
void emulator::enqueue(std::function<void()> work) { stream().add(std::move(work)); }
void emulator::enqueue_solution(std::function<void()> routine) {
    add_request("solution", 0, 0, 0);
    stream_of_library().add(std::move(routine));
}

const bool emulated = true;
int count_devices(std::string& why) {
    const std::size_t count = said_devices().size();
    if (count == 0) why = "no NVIDIA device was found";
    return int(count);
}
std::string name_of(int) { return "emulated device"; }
Capability capability(int index) {
    if (is_broken(index)) return {9, 0};
    Capability found;
    char point = 0;
    std::istringstream(said_devices().at(std::size_t(index))) >> found.major >> point >>
        found.minor;
    return found;
}
void open(int index) { select(index); }
void select(int index) {
    if (is_broken(index)) throw Error("CUDA: cudaSetDevice failed: the device does not answer");
    current = index;
}
int selected() { return current; }
std::string describe(int index) {
    const Capability has = capability(index);
    return "emulated on the host, compute capability " + std::to_string(has.major) + "." +
           std::to_string(has.minor);
}

void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    add_request("allocation", double(bytes), 0, 0);
    auto [data, ready] = emulator::take(bytes, selected());
    if (ready) stream().add_always(std::move(ready));
    return data;
}
void release(void* data) {
    if (data != nullptr) stream().add_always(emulator::give(data, selected()));
}
void trim() { synchronise(); }
void* allocate_host(std::size_t bytes) { return bytes > 0 ? std::malloc(bytes) : nullptr; }
void release_host(void* data) { std::free(data); }
std::size_t free_bytes() { return emulator::free_bytes(); }
std::size_t all_bytes() { return emulator::all_bytes(); }

void to_device(void* device, const void* host, std::size_t bytes) {
    if (bytes == 0) return;
    add_request("upload", double(bytes), 0, 0);
    emulator::require_inside(device, bytes, selected(), "a copy to the device");
    const auto* begin = static_cast<const std::byte*>(host);
    stream().add([device, copy = std::vector<std::byte>(begin, begin + bytes)] {
        std::memcpy(device, copy.data(), copy.size());
    });
}
void to_device_staged(void* device, const void* host, std::size_t bytes) {
    to_device(device, host, bytes);
}
void to_host(void* host, const void* device, std::size_t bytes) {
    copied_to_host += bytes;
    if (bytes == 0) return;
    add_request("download", double(bytes), 0, 0);
    emulator::require_inside(device, bytes, selected(), "a copy from the device");
    stream().drain();
    if (counts_only)
        std::memset(host, 0, bytes);
    else
        std::memcpy(host, device, bytes);
    do_what_was_left();
}
void clear(void* device, std::size_t bytes) {
    if (bytes == 0) return;
    add_request("fill", double(bytes), 0, 0);
    emulator::require_inside(device, bytes, selected(), "a fill");
    stream().add([device, bytes] { std::memset(device, 0, bytes); });
}
void synchronise() {
    add_request("wait", 0, 0, 0);
    stream().drain();
    do_what_was_left();
}
void settle() noexcept {
    try {
        stream().drain();
    } catch (const std::exception&) {  // a failure of work that nobody waits for
    }
}
void* new_stream() { return new char; }
void wait_for(void*) { stream_of_library().drain(); }
std::size_t bytes_to_host() { return copied_to_host; }

void multiply(const Product& p) {
    require_product(p);
    add_request(p.name(), p.bytes(), p.multiplications(), 0);
    stream().add([p] {
        if (p.type == Type::f32)
            multiply_as<float>(p);
        else
            multiply_as<double>(p);
    });
}

void require_launched(const char*) {}

}  // namespace tsdiag::gpu
