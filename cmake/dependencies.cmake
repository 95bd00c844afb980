# All dependencies come from the distribution (tools/setup-debian names the packages), or header-only from CMAKE_PREFIX_PATH.
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(fmt REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Boost 1.70 REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(TOML_INCLUDE toml++/toml.h REQUIRED)
find_path(SPECTRA_INCLUDE Spectra/GenEigsSolver.h REQUIRED)

# tsdiag_optional(TARGET LIBRARY HEADER DEFINITION): where header and library are found, `target` has both.
function(tsdiag_optional target library header definition)
    string(TOUPPER ${library} name)
    find_path(${name}_INCLUDE ${header})
    find_library(${name}_LIBRARY ${library})
    if(${name}_INCLUDE AND ${name}_LIBRARY)
        target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${${name}_INCLUDE}>)
        target_link_libraries(${target} INTERFACE
            $<BUILD_INTERFACE:${${name}_LIBRARY}> $<INSTALL_INTERFACE:${library}>)
        target_compile_definitions(${target} INTERFACE ${definition})
    endif()
endfunction()

add_library(tsdiag_private_deps INTERFACE)
target_link_libraries(tsdiag_private_deps INTERFACE
    $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> $<BUILD_INTERFACE:Boost::headers>)

# oneDNN multiplies float32 matrices 1.3 times faster than Eigen, which replaces it if it is missing.  Its own package
# file is not used: it requires the headers of OpenCL, which nothing here needs.
tsdiag_optional(tsdiag_private_deps dnnl dnnl.h TSDIAG_ONEDNN)

# Pictures (docs/pictures.md): without its library a format is refused.
add_library(tsdiag_image_deps INTERFACE)
find_package(PNG)
if(PNG_FOUND)
    target_include_directories(tsdiag_image_deps INTERFACE $<BUILD_INTERFACE:${PNG_INCLUDE_DIRS}>)
    target_link_libraries(tsdiag_image_deps INTERFACE
        $<BUILD_INTERFACE:${PNG_LIBRARIES}> $<INSTALL_INTERFACE:png>)
    target_compile_definitions(tsdiag_image_deps INTERFACE TSDIAG_PNG)
endif()
tsdiag_optional(tsdiag_image_deps turbojpeg turbojpeg.h TSDIAG_JPEG)
tsdiag_optional(tsdiag_image_deps webp webp/decode.h TSDIAG_WEBP)

# Without it the experiment that solves differential equations (poly.table6) is refused.
add_library(tsdiag_lbfgs_deps INTERFACE)
tsdiag_optional(tsdiag_lbfgs_deps lbfgs lbfgs.h TSDIAG_LBFGS)

# Texts beyond ASCII and regular expressions of tokenizers: without ICU they are refused.
add_library(tsdiag_icu_deps INTERFACE)
find_package(ICU COMPONENTS i18n uc)
if(ICU_FOUND)
    target_include_directories(tsdiag_icu_deps INTERFACE $<BUILD_INTERFACE:${ICU_INCLUDE_DIRS}>)
    target_link_libraries(tsdiag_icu_deps INTERFACE
        "$<BUILD_INTERFACE:${ICU_LIBRARIES}>" $<INSTALL_INTERFACE:icui18n> $<INSTALL_INTERFACE:icuuc>)
    target_compile_definitions(tsdiag_icu_deps INTERFACE TSDIAG_ICU)
endif()
