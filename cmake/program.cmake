file(GLOB_RECURSE cli CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.cpp)
find_package(Threads REQUIRED)
set(commit ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D OUT=${PROJECT_BINARY_DIR}/generated/tsdiag_commit.h
    -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake)
execute_process(COMMAND ${commit}) # for what reads sources without a build
add_custom_target(tsdiag_commit BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/tsdiag_commit.h COMMAND ${commit}
    COMMENT "The commit that is built")
add_executable(tsdiag_program ${cli})
# Two units: the templates of CLI11 take most of the time of each, however few its sources are.
set_target_properties(tsdiag_program PROPERTIES OUTPUT_NAME tsdiag UNITY_BUILD_BATCH_SIZE 22)
add_dependencies(tsdiag_program tsdiag_commit)
target_include_directories(tsdiag_program PRIVATE ${PROJECT_SOURCE_DIR}/src/cli ${CLI11_INCLUDE} ${TOML_INCLUDE} ${PROJECT_BINARY_DIR}/generated)
target_link_libraries(tsdiag_program PRIVATE tsdiag Threads::Threads)
tsdiag_precompile(tsdiag_program waiting OPTIONS -Wall -Wextra -Wpedantic -Wshadow ${TSDIAG_QUICK_TO_COMPILE})
target_compile_definitions(tsdiag_program PRIVATE
    TSDIAG_VERSION="${PROJECT_VERSION}" TSDIAG_BUILD_TYPE="$<CONFIG>")
# It alone changes with each commit.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cli/version.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
