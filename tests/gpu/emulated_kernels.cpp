/// The kernels themselves, compiled for the host.  A mutant (CMakeLists.txt) has another folder.
#define TSDIAG_EMULATED
#include "elementwise.cu"
#include "rows.cu"
#include "statistics.cu"
