#pragma once
#include <string>

#include "tsdiag/tensor.hpp"

/// How many threads work, and how they wait for one another.
namespace tsdiag::cli {

/// Starts the program again with OMP_WAIT_POLICY=passive, unless its user chose a policy: threads
/// that spin at a barrier take the processor from those that they wait for as soon as any other
/// process is busy.  OpenMP reads the variable before `main`, hence again.  Returns where it is set
/// already or the program cannot be started again.  Cost: some milliseconds.
void wait_passively(char** argv);

/// "passive", or what the user chose.
std::string wait_policy();

/// Lets `wanted` threads work (0: OMP_NUM_THREADS, else one a core), or as many as this machine
/// lets the process start; says so on standard error where those are fewer.
void use_threads(Index wanted);

}  // namespace tsdiag::cli
