#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "tsdiag/ranks_plugin.hpp"

/// libtsdiag_mpi.so: the ranks of a command by MPI.
namespace tsdiag {
namespace {

using namespace std::chrono_literals;
using Take = void (*)(void* to, const char* bytes, std::size_t size);

MPI_Comm all = MPI_COMM_NULL;
MPI_Win counters = MPI_WIN_NULL;
int own = 0, number = 1;
std::mutex mutex;  // MPI_THREAD_SERIALIZED
std::atomic<bool> ended = false;
std::thread helper;

/// How long to rest between two looks: for another rank, and while all exchange what they have.
constexpr auto patient = 500us, eager = 20us;

/// Waits without occupying a core, which another rank may need.
void wait_for(MPI_Request& request, std::chrono::microseconds rest) {
    for (int done = 0; done == 0;) {
        {
            const std::lock_guard lock(mutex);
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
        if (done == 0) std::this_thread::sleep_for(rest);
    }
}

/// Where the network cannot add to remote memory, the rank that holds it does, while it is in a
/// function of MPI.
void help() {
    while (!ended) {
        {
            const std::lock_guard lock(mutex);
            int found = 0;
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, all, &found, MPI_STATUS_IGNORE);
        }
        std::this_thread::sleep_for(500us);
    }
}

/// MPI counts in int: messages are in pieces of so many bytes, the last one filled up.
constexpr std::size_t piece_bytes = 256;
MPI_Datatype piece = MPI_DATATYPE_NULL;
int pieces(std::int64_t bytes) { return int((std::size_t(bytes) + piece_bytes - 1) / piece_bytes); }

bool start(int* rank, int* size, int* local_rank, int* local_size, char* why, std::size_t room) {
    int provided = 0;
    // Open MPI would take SIGBUS, by which the program learns of a lost part of a file.
    setenv("OMPI_MCA_opal_signal", "6,8,11", 0);
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        std::snprintf(why, room, "MPI does not start");
        return false;
    }
    if (provided < MPI_THREAD_SERIALIZED) {
        std::snprintf(why, room, "this MPI allows no threads");
        return false;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &all);
    MPI_Comm_rank(all, &own);
    MPI_Comm_size(all, &number);
    MPI_Comm here = MPI_COMM_NULL;
    MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, own, MPI_INFO_NULL, &here);
    MPI_Comm_rank(here, local_rank);
    MPI_Comm_size(here, local_size);
    MPI_Comm_free(&here);
    MPI_Type_contiguous(int(piece_bytes), MPI_CHAR, &piece);
    MPI_Type_commit(&piece);
    std::int64_t* memory = nullptr;
    const MPI_Aint bytes = own == 0 ? MPI_Aint(ranks_counters) * MPI_Aint(sizeof *memory) : 0;
    MPI_Win_allocate(bytes, sizeof *memory, MPI_INFO_NULL, all, &memory, &counters);
    if (own == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, counters);
        for (int i = 0; i < ranks_counters; ++i) memory[i] = 0;
        MPI_Win_unlock(0, counters);
    }
    MPI_Barrier(all);
    MPI_Win_lock_all(0, counters);
    if (own == 0 && number > 1) helper = std::thread(help);
    *rank = own;
    *size = number;
    return true;
}

std::int64_t add(int counter, std::int64_t n) {
    std::int64_t before = 0;
    const std::lock_guard lock(mutex);
    MPI_Fetch_and_op(&n, &before, MPI_INT64_T, 0, counter, MPI_SUM, counters);
    MPI_Win_flush(0, counters);
    return before;
}

/// Messages side by side, each from a whole piece on.
struct Messages {
    explicit Messages(const std::vector<std::int64_t>& sizes) {
        int whole = 0;
        for (const std::int64_t size : sizes) {
            starts.push_back(whole);
            counts.push_back(pieces(size));
            whole += counts.back();
        }
        bytes.resize(std::size_t(whole) * piece_bytes);
    }
    char* message(std::size_t i) { return bytes.data() + std::size_t(starts[i]) * piece_bytes; }
    std::vector<int> starts, counts;
    std::vector<char> bytes;
};

template <class Begin>
void whole(const Begin& begin, std::chrono::microseconds rest) {
    MPI_Request request = MPI_REQUEST_NULL;
    {
        const std::lock_guard lock(mutex);
        begin(&request);
    }
    wait_for(request, rest);
}

void hand_over(Messages& received, const std::vector<std::int64_t>& sizes, Take take, void* to) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
        take(to, received.message(i), std::size_t(sizes[i]));
}

void gather(const char* bytes, std::size_t size, Take take, void* to) {
    const auto length = std::int64_t(size);
    auto sizes = std::vector<std::int64_t>(std::size_t(number));
    whole(
        [&](MPI_Request* request) {
            MPI_Iallgather(&length, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, all, request);
        },
        patient);
    Messages sent({length}), received(sizes);
    std::copy_n(bytes, size, sent.bytes.data());
    whole(
        [&](MPI_Request* request) {
            MPI_Iallgatherv(sent.bytes.data(), sent.counts[0], piece, received.bytes.data(),
                            received.counts.data(), received.starts.data(), piece, all, request);
        },
        eager);
    hand_over(received, sizes, take, to);
}

void exchange(const char* const* bytes, const std::size_t* lengths, Take take, void* to) {
    const std::vector<std::int64_t> out(lengths, lengths + number);
    auto in = out;
    whole(
        [&](MPI_Request* request) {
            MPI_Ialltoall(out.data(), 1, MPI_INT64_T, in.data(), 1, MPI_INT64_T, all, request);
        },
        patient);
    Messages sent(out), received(in);
    for (std::size_t i = 0; i < out.size(); ++i) std::copy_n(bytes[i], lengths[i], sent.message(i));
    whole(
        [&](MPI_Request* request) {
            MPI_Ialltoallv(sent.bytes.data(), sent.counts.data(), sent.starts.data(), piece,
                           received.bytes.data(), received.counts.data(), received.starts.data(),
                           piece, all, request);
        },
        eager);
    hand_over(received, in, take, to);
}

void finish() {
    ended = true;
    if (helper.joinable()) helper.join();
    MPI_Win_unlock_all(counters);
    MPI_Win_free(&counters);
    MPI_Type_free(&piece);
    MPI_Comm_free(&all);
    MPI_Finalize();
}

constexpr RanksPlugin plugin{.abi = ranks_abi,
                             .version = TSDIAG_VERSION,
                             .start = start,
                             .add = add,
                             .gather = gather,
                             .exchange = exchange,
                             .finish = finish};

}  // namespace
}  // namespace tsdiag

extern "C" __attribute__((visibility("default"))) const tsdiag::RanksPlugin* tsdiag_ranks_plugin() {
    return &tsdiag::plugin;
}
