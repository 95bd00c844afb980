/// The calls of cuSOLVER, compiled for the host.  A mutant (gpu.cmake) includes another folder.
#define TSDIAG_EMULATED
#include "solver.cpp"
