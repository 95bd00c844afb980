file(GLOB cli CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.cpp)
find_package(Threads REQUIRED)
add_executable(tsdiag_program ${cli})
set_target_properties(tsdiag_program PROPERTIES OUTPUT_NAME tsdiag)
target_include_directories(tsdiag_program PRIVATE ${CLI11_INCLUDE})
target_link_libraries(tsdiag_program PRIVATE tsdiag Threads::Threads)
tsdiag_precompile(tsdiag_program waiting OPTIONS -Wall -Wextra -Wpedantic -Wshadow ${TSDIAG_QUICK_TO_COMPILE})
target_compile_definitions(tsdiag_program PRIVATE
    TSDIAG_VERSION="${PROJECT_VERSION}" TSDIAG_BUILD_TYPE="$<CONFIG>")
