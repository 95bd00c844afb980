/// A compiler refuses this where the emulated cuSOLVER declares a function otherwise than CUDA.
#include <cusolverDn.h>
// clang-format off
#include "emulated_cusolver.hpp"
// clang-format on
