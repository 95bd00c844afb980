#pragma once
#include <string>

/// Where the tests find their data and the files that they run; "" for what this build does not
/// have. The paths of a checkout and its build are compiled into one source (tests/places.cmake):
/// the objects of the tests are equal in every checkout, and a compiler cache serves all of them.
namespace tsdiag::test {

std::string test_data();    ///< the folder tests/data
std::string shared_data();  ///< the folder of real checkpoints beside the checkout; may be absent
std::string program_file();
std::string mpirun_file();
std::string fault_shim();
std::string emulated_plugin();
std::string spoilt_plugin();
std::string other_plugin();
std::string cuda_plugin();
std::string gpu_check_file();
std::string compare_tables_file();

}  // namespace tsdiag::test
