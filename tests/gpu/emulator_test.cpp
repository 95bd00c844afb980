#include "emulator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "emulated_cusolver.hpp"
#include "runtime.hpp"
#include "tsdiag/error.hpp"

/// Faults that the emulator must detect, since nothing else does.
namespace tsdiag::gpu {
namespace {

using emulator::launch;

/// Sets an environment variable for its lifetime.
class Said {
  public:
    Said(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ~Said() { unsetenv(name_); }

  private:
    const char* name_;
};

struct Doubles {
    explicit Doubles(std::size_t count)
        : bytes(count * sizeof(double)), data(static_cast<double*>(allocate(bytes))) {}
    ~Doubles() { release(data); }
    Doubles(const Doubles&) = delete;
    Doubles& operator=(const Doubles&) = delete;
    std::vector<double> host() const {
        std::vector<double> values(bytes / sizeof(double));
        to_host(values.data(), data, bytes);
        return values;
    }
    std::size_t bytes;
    double* data;
};

void fill(double* out, double value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }
void copy(double* out, const double* in) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

TEST(Emulator, DoesNothingBeforeItIsWaitedFor) {
    const Doubles x(64);
    launch("fill", fill, 1, 64, x.data, 5.0);
    EXPECT_TRUE(std::isnan(x.data[3]));  // the host can look in the emulator only
    synchronise();
    EXPECT_EQ(x.data[3], 5);
}

TEST(Emulator, ShowsNothingOfAThreadThatHasNotWaited) {
    for (const bool waits : {false, true}) {
        const Doubles x(64);
        synchronise();  // earlier work on this memory
        double seen = 0;
        std::thread other([&] {
            launch("fill", fill, 1, 64, x.data, 5.0);
            if (waits) synchronise();
            std::thread([&] { seen = x.host().front(); }).join();
        });
        other.join();
        EXPECT_EQ(std::isnan(seen), !waits);
    }
}

TEST(Emulator, DoesWhatAThreadLeavesBehindAtSomeTime) {
    const Doubles x(64);
    synchronise();
    std::thread([&] { launch("fill", fill, 1, 64, x.data, 5.0); }).join();
    EXPECT_TRUE(std::isnan(x.host().front()));  // this thread has not synchronised
    EXPECT_EQ(x.host().front(), 5);
}

TEST(Emulator, FillsFreedMemoryAndUsesItAgain) {
    void* first = allocate(4096 + 8);
    clear(first, 4096 + 8);
    release(first);
    void* second = allocate(4096 + 8);
    EXPECT_EQ(second, first);
    double value = 0;
    to_host(&value, second, sizeof value);
    EXPECT_TRUE(std::isnan(value));
    release(second);
}

TEST(Emulator, ShowsMemoryThatAnotherThreadFreesTooEarly) {
    const Doubles y(64);
    auto* x = static_cast<double*>(allocate(64 * sizeof(double)));
    launch("fill", fill, 1, 64, x, 5.0);
    synchronise();
    launch("copy", copy, 1, 64, y.data, static_cast<const double*>(x));
    std::thread([&] {
        release(x);
        synchronise();
    }).join();
    EXPECT_TRUE(std::isnan(y.host().front()));
}

TEST(Emulator, RefusesCopiesThatLeaveTheMemory) {
    Doubles x(8);
    double host[16] = {};
    EXPECT_THROW(to_host(host, x.data + 1, x.bytes), Error);
    EXPECT_THROW(to_device(x.data - 1, host, x.bytes), Error);
    EXPECT_THROW(to_host(host, host, 8), Error);
    EXPECT_THROW(clear(x.data + 8, 1), Error);
    void* freed = allocate(24);
    release(freed);
    EXPECT_THROW(to_host(host, freed, 8), Error);
    EXPECT_THROW(release(freed), Error);
}

TEST(Emulator, KeepsDevicesApart) {
    const Said two("TSDIAG_EMULATED_DEVICES", "9.0,9.0");
    void* x = allocate(8);
    double host = 0;
    select(1);
    EXPECT_THROW(to_host(&host, x, 8), Error);
    EXPECT_THROW(release(x), Error);
    select(0);
    release(x);
}

TEST(Emulator, RefusesProductsThatCublasWould) {
    const Doubles a(12), b(12), c(16);
    Product sound;
    sound.type = Type::f64;
    sound.m = sound.n = 4, sound.k = 3, sound.count = 1;
    sound.a = a.data, sound.b = b.data, sound.c = c.data;
    sound.row_a = 3, sound.row_b = 4, sound.row_c = 4;
    multiply(sound);
    synchronise();
    const auto spoilt = [&](auto change) {
        Product p = sound;
        change(p);
        EXPECT_THROW(multiply(p), Error);
    };
    spoilt([](Product& p) { p.row_a = 2; });
    spoilt([](Product& p) { p.transpose_b = true, p.row_b = 2; });
    spoilt([](Product& p) { p.m = -1; });
    spoilt([](Product& p) { p.count = -1; });
    spoilt([](Product& p) { p.row_c = 5; });  // ends beyond c
    spoilt([](Product& p) { p.count = 2, p.batch_a = 1; });
    spoilt([](Product& p) { p.count = 2, p.batch_c = 3; });  // overlapping
    spoilt([](Product& p) { p.a = static_cast<const char*>(p.a) + 4; });
    spoilt([](Product& p) { p.b = &p; });
}

/// A sound call of Xgeev, to be spoilt.
struct Geev {
    cusolverDnHandle_t handle = nullptr;
    cusolverDnParams_t params = nullptr;
    cusolverEigMode_t left = CUSOLVER_EIG_MODE_NOVECTOR;
    void* stream = new_stream();
    std::int64_t n = 3, asked_n = 3, lda = 3, ldvl = 1;
    cudaDataType type = CUDA_R_64F;
    Doubles a{9}, w{6}, info{1}, work{64};
    void *matrix = a.data, *values = w.data, *result = info.data, *device = work.data;
    std::vector<double> own = std::vector<double>(64);
    void* host = own.data();
    std::size_t on_device = work.bytes, on_host = own.size() * sizeof(double);

    Geev() {
        cusolverDnCreate(&handle);
        cusolverDnSetStream(handle, static_cast<cudaStream_t>(stream));
        cusolverDnCreateParams(&params);
        const std::vector<double> numbers = {2, 0, 0, 1, 3, 0, 1, 1, 4};
        to_device(a.data, numbers.data(), a.bytes);
    }
    void run() {
        synchronise();
        const auto none = CUSOLVER_EIG_MODE_NOVECTOR;
        std::size_t d = 0, h = 0;
        if (asked_n > 0)
            cusolverDnXgeev_bufferSize(handle, params, left, none, asked_n, type, matrix, lda, type,
                                       values, type, nullptr, ldvl, type, nullptr, 1, type, &d, &h);
        cusolverDnXgeev(handle, params, left, none, n, type, matrix, lda, type, values, type,
                        nullptr, ldvl, type, nullptr, 1, type, device, on_device, host, on_host,
                        static_cast<int*>(result));
        wait_for(stream);
    }
};

TEST(Emulator, RefusesCallsThatCusolverWould) {
    {
        Geev sound;
        sound.run();
        std::vector<double> values = sound.w.host();
        std::sort(values.begin(), values.begin() + 3);
        EXPECT_NEAR(values[0] + values[1] + values[2], 9, 1e-14);
        EXPECT_NEAR(values[0], 2, 1e-14);
        EXPECT_TRUE(std::isnan(sound.a.host().front()));  // overwritten
        EXPECT_TRUE(std::isnan(sound.own.front()));
    }
    const auto spoilt = [](auto change) {
        Geev call;
        const auto changed = [&] {
            change(call);
            call.run();
        };
        EXPECT_THROW(changed(), Error);
    };
    spoilt([](Geev& c) { c.left = CUSOLVER_EIG_MODE_VECTOR; });
    spoilt([](Geev& c) { c.params = nullptr; });
    spoilt([](Geev& c) { c.handle = nullptr; });
    spoilt([](Geev& c) { cusolverDnCreate(&c.handle); });  // without a stream
    spoilt([](Geev& c) { cusolverDnSetStream(c.handle, cudaStreamPerThread); });
    spoilt([](Geev& c) { c.asked_n = 0; });
    spoilt([](Geev& c) { c.asked_n = 2; });
    spoilt([](Geev& c) { c.lda = 2; });
    spoilt([](Geev& c) { c.lda = 4; });  // ends beyond a
    spoilt([](Geev& c) { c.ldvl = 0; });
    spoilt([](Geev& c) { c.type = CUDA_C_64F; });
    spoilt([](Geev& c) { c.matrix = c.own.data(); });
    spoilt([](Geev& c) { c.values = c.own.data(); });
    spoilt([](Geev& c) { c.result = c.own.data(); });
    spoilt([](Geev& c) { c.device = c.own.data(); });
    spoilt([](Geev& c) { c.device = c.w.data; });
    spoilt([](Geev& c) { c.host = c.work.data; });
    spoilt([](Geev& c) { c.host = nullptr; });
    spoilt([](Geev& c) { c.on_device = 8; });
    spoilt([](Geev& c) { c.on_host = 8; });
}

TEST(Emulator, KeepsHandlesToTheirDevice) {
    const Said two("TSDIAG_EMULATED_DEVICES", "9.0,9.0");
    Geev call;
    select(1);
    EXPECT_THROW(call.run(), Error);
    select(0);
    call.run();
}

TEST(Emulator, SumsAProductInAnOrderOfItsShape) {
    // Summed from the left 1, from the right 0.
    const std::vector<double> factors = {1e16, 1, -1e16, 1}, ones = {1, 1, 1, 1, 1, 1, 1, 1};
    const Doubles a(4), b(8), c(2);
    to_device(a.data, factors.data(), a.bytes);
    to_device(b.data, ones.data(), b.bytes);
    std::vector<double> found;
    for (const Index n : {1, 2}) {
        Product p;
        p.type = Type::f64;
        p.m = 1, p.n = n, p.k = 4, p.count = 1;
        p.a = a.data, p.b = b.data, p.c = c.data;
        p.row_a = 4, p.row_b = n, p.row_c = n;
        multiply(p);
        found.push_back(c.host().front());
    }
    EXPECT_NE(found[0], found[1]);
}

TEST(Emulator, RefusesLaunchesThatADeviceWould) {
    const Doubles x(64);
    for (const auto& [grid, block] : {std::pair<std::int64_t, int>{0, 64},
                                      {std::int64_t{1} << 31, 64},
                                      {-1, 64},
                                      {1, 0},
                                      {1, 2048},
                                      {1, 33}})
        EXPECT_THROW(launch("fill", fill, grid, block, x.data, 5.0), std::runtime_error)
            << grid << " " << block;
}

void barrier_in_a_branch(double*) {
    if (threadIdx.x < 32) __syncthreads();
}
void exchange_in_a_branch(double* out) {
    if (threadIdx.x % 2 == 0) *out = __shfl_xor_sync(0xFFFFFFFFU, 1.0, 2);
}
void exchange_of_some(double* out) { *out = __shfl_xor_sync(0x0000FFFFU, 1.0, 2); }

TEST(Emulator, RefusesThreadsThatPart) {
    const Doubles x(1);
    for (const auto kernel : {barrier_in_a_branch, exchange_in_a_branch, exchange_of_some}) {
        launch("parting", kernel, 1, 64, x.data);
        EXPECT_THROW(synchronise(), std::runtime_error);
    }
    const Doubles y(32);  // and goes on
    launch("fill", fill, 1, 32, y.data, 7.0);
    EXPECT_EQ(y.host().back(), 7);
}

/// out[i]: the execution order of this thread among all.
void take_numbers(double* out, double* count) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = (*count)++;
}
/// Each warp reads what the other writes, without a barrier.
void race_between_warps(double* out) {
    __shared__ double of_warp[2];
    const unsigned own = threadIdx.x / 32;
    if (threadIdx.x == 0) of_warp[0] = of_warp[1] = 0;
    __syncthreads();
    of_warp[own] = 1;
    out[threadIdx.x] = of_warp[1 - own];
}

std::vector<double> numbers_taken() {
    const Doubles out(4 * 64), count(1);
    clear(count.data, count.bytes);
    launch("take_numbers", take_numbers, 4, 64, out.data, count.data);
    return out.host();
}

TEST(Emulator, RunsBlocksWarpsAndLanesInAnyOrder) {
    const std::vector<double> forward = numbers_taken();
    for (std::size_t i = 0; i < forward.size(); ++i) EXPECT_EQ(forward[i], double(i));
    {
        const Said reverse("TSDIAG_EMULATED_ORDER", "reverse");
        std::vector<double> found = numbers_taken();
        std::ranges::reverse(found);
        EXPECT_EQ(found, forward);
    }
    const Said shuffled("TSDIAG_EMULATED_ORDER", "7");
    std::vector<double> found = numbers_taken(), again = numbers_taken();
    EXPECT_NE(found, forward);
    EXPECT_NE(found, again);
    std::ranges::sort(found);
    EXPECT_EQ(found, forward);
}

TEST(Emulator, ShowsARaceBetweenWarps) {
    const Doubles out(64);
    launch("race_between_warps", race_between_warps, 1, 64, out.data);
    const std::vector<double> forward = out.host();
    const Said reverse("TSDIAG_EMULATED_ORDER", "reverse");
    launch("race_between_warps", race_between_warps, 1, 64, out.data);
    EXPECT_NE(out.host(), forward);
}

}  // namespace
}  // namespace tsdiag::gpu
