# All dependencies come from the distribution (README names the packages), or header-only from CMAKE_PREFIX_PATH.
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Boost 1.70 REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(TOML_INCLUDE toml++/toml.h REQUIRED)
find_path(SPECTRA_INCLUDE Spectra/GenEigsSolver.h REQUIRED)

add_library(tsdiag_private_deps INTERFACE)
target_link_libraries(tsdiag_private_deps INTERFACE
    $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> $<BUILD_INTERFACE:Boost::headers>)

# oneDNN multiplies float32 matrices 1.3 times faster than Eigen, which replaces it if it is missing.  Its own package
# file is not used: it requires the headers of OpenCL, which nothing here needs.
find_path(DNNL_INCLUDE dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(DNNL_INCLUDE AND DNNL_LIBRARY)
    target_include_directories(tsdiag_private_deps INTERFACE $<BUILD_INTERFACE:${DNNL_INCLUDE}>)
    target_link_libraries(tsdiag_private_deps INTERFACE
        $<BUILD_INTERFACE:${DNNL_LIBRARY}> $<INSTALL_INTERFACE:dnnl>)
    target_compile_definitions(tsdiag_private_deps INTERFACE TSDIAG_ONEDNN)
endif()

# Files of images to train on (docs/train.md): without these libraries they are refused.
add_library(tsdiag_image_deps INTERFACE)
find_package(PNG)
if(PNG_FOUND)
    target_include_directories(tsdiag_image_deps INTERFACE $<BUILD_INTERFACE:${PNG_INCLUDE_DIRS}>)
    target_link_libraries(tsdiag_image_deps INTERFACE
        $<BUILD_INTERFACE:${PNG_LIBRARIES}> $<INSTALL_INTERFACE:png>)
    target_compile_definitions(tsdiag_image_deps INTERFACE TSDIAG_PNG)
endif()
find_path(TURBOJPEG_INCLUDE turbojpeg.h)
find_library(TURBOJPEG_LIBRARY turbojpeg)
if(TURBOJPEG_INCLUDE AND TURBOJPEG_LIBRARY)
    target_include_directories(tsdiag_image_deps INTERFACE $<BUILD_INTERFACE:${TURBOJPEG_INCLUDE}>)
    target_link_libraries(tsdiag_image_deps INTERFACE
        $<BUILD_INTERFACE:${TURBOJPEG_LIBRARY}> $<INSTALL_INTERFACE:turbojpeg>)
    target_compile_definitions(tsdiag_image_deps INTERFACE TSDIAG_JPEG)
endif()

# Without it the experiment that solves differential equations (poly.table6) is refused.
add_library(tsdiag_lbfgs_deps INTERFACE)
find_path(LBFGS_INCLUDE lbfgs.h)
find_library(LBFGS_LIBRARY lbfgs)
if(LBFGS_INCLUDE AND LBFGS_LIBRARY)
    target_include_directories(tsdiag_lbfgs_deps INTERFACE $<BUILD_INTERFACE:${LBFGS_INCLUDE}>)
    target_link_libraries(tsdiag_lbfgs_deps INTERFACE
        $<BUILD_INTERFACE:${LBFGS_LIBRARY}> $<INSTALL_INTERFACE:lbfgs>)
    target_compile_definitions(tsdiag_lbfgs_deps INTERFACE TSDIAG_LBFGS)
endif()
