# TSDIAG_MPI=AUTO builds mpi/ where an MPI is installed, ON requires it, OFF disables it.
set(TSDIAG_MPI AUTO CACHE STRING "Ranks by MPI: AUTO, ON or OFF")
set_property(CACHE TSDIAG_MPI PROPERTY STRINGS AUTO ON OFF)
set(TSDIAG_HAS_MPI FALSE)
if(TSDIAG_MPI STREQUAL "OFF")
    return()
endif()
set(MPI_CXX_SKIP_MPICXX TRUE) # its C++ bindings are not used
find_package(MPI 3.0 QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
    set(TSDIAG_HAS_MPI TRUE)
elseif(TSDIAG_MPI STREQUAL "ON")
    message(FATAL_ERROR "TSDIAG_MPI=ON: no MPI of at least version 3.0 was found")
endif()
