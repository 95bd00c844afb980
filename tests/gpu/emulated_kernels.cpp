/// The kernels, compiled for the host.  A mutant (CMakeLists.txt) includes another folder.
#define TSDIAG_EMULATED
#include "dense.cu"
#include "elementwise.cu"
#include "krylov.cu"
#include "rows.cu"
#include "statistics.cu"
