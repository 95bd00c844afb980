#pragma once
#include <cstddef>
#include <cstdint>

/// Interface of the MPI library, exported as a function `const RanksPlugin* ()` named
/// `ranks_entry`.  The program opens it when a launcher has started several ranks, so that it needs
/// no MPI to run alone.
namespace tsdiag {

/// To be incremented with any change of RanksPlugin.
constexpr std::uint32_t ranks_abi = 2;
constexpr const char* ranks_entry = "tsdiag_ranks_plugin";

/// Counters that ranks share; each is 0 when a job begins.
constexpr int ranks_counters = 1 << 16;

struct RanksPlugin {
    std::uint32_t abi;    ///< ranks_abi of its build
    const char* version;  ///< of tsdiag; must be that of the program
    /// Joins the ranks; collective.  `local`: among those of this machine.  False: `why` says what
    /// failed.
    bool (*start)(int* rank, int* size, int* local_rank, int* local_size, char* why,
                  std::size_t room);
    /// Adds to a counter and returns what it was; by any thread, without the help of other ranks.
    std::int64_t (*add)(int counter, std::int64_t n);
    /// Hands the bytes of every rank to every rank, in their order; collective.
    void (*gather)(const char* bytes, std::size_t size,
                   void (*take)(void* to, const char* bytes, std::size_t size), void* to);
    /// Hands bytes[r] to rank r; `take` gets what each rank has sent here, in their order;
    /// collective.
    void (*exchange)(const char* const* bytes, const std::size_t* sizes,
                     void (*take)(void* to, const char* bytes, std::size_t size), void* to);
    void (*finish)();  ///< collective
};

}  // namespace tsdiag
