#pragma once
#include <string>

#include "tsdiag/tensor.hpp"

/// The number of threads and their wait policy.
namespace tsdiag::cli {

/// Restarts the program with OMP_WAIT_POLICY=passive, unless the user chose a policy: with other
/// processes running, threads that spin at a barrier take CPU time from those that they wait for.
/// OpenMP reads the variable before `main`, hence the restart.  Returns where it is set already or
/// the restart fails.  Cost: some milliseconds.
void wait_passively(char** argv);

/// "passive", or the user's choice.
std::string wait_policy();

/// Sets the number of threads to `wanted` (0: OMP_NUM_THREADS, else one per core), or to as many as
/// the process can start, with a message on standard error where those are fewer.
void use_threads(Index wanted);

}  // namespace tsdiag::cli
