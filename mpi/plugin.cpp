#include <mpi.h>

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

MPI_Comm all = MPI_COMM_NULL;
MPI_Win counters = MPI_WIN_NULL;
int own = 0, number = 1;
std::mutex mutex;  // MPI_THREAD_SERIALIZED
std::atomic<bool> ended = false;
std::thread helper;

/// Waits without occupying a core, which another rank may need.
void wait_for(MPI_Request& request) {
    for (int done = 0; done == 0;) {
        {
            const std::lock_guard lock(mutex);
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
        if (done == 0) std::this_thread::sleep_for(500us);
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

void gather(const char* bytes, std::size_t size,
            void (*take)(void* to, const char* bytes, std::size_t size), void* to) {
    const int length = int(size);
    auto lengths = std::vector<int>(std::size_t(number)), starts = lengths;
    MPI_Request request = MPI_REQUEST_NULL;
    {
        const std::lock_guard lock(mutex);
        MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, all, &request);
    }
    wait_for(request);
    int whole = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        starts[i] = whole;
        whole += lengths[i];
    }
    auto received = std::vector<char>(std::size_t(whole));
    {
        const std::lock_guard lock(mutex);
        MPI_Iallgatherv(bytes, length, MPI_CHAR, received.data(), lengths.data(), starts.data(),
                        MPI_CHAR, all, &request);
    }
    wait_for(request);
    for (std::size_t i = 0; i < lengths.size(); ++i)
        take(to, received.data() + starts[i], std::size_t(lengths[i]));
}

void finish() {
    ended = true;
    if (helper.joinable()) helper.join();
    MPI_Win_unlock_all(counters);
    MPI_Win_free(&counters);
    MPI_Comm_free(&all);
    MPI_Finalize();
}

constexpr RanksPlugin plugin{.abi = ranks_abi,
                             .version = TSDIAG_VERSION,
                             .start = start,
                             .add = add,
                             .gather = gather,
                             .finish = finish};

}  // namespace
}  // namespace tsdiag

extern "C" __attribute__((visibility("default"))) const tsdiag::RanksPlugin* tsdiag_ranks_plugin() {
    return &tsdiag::plugin;
}
