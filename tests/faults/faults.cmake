# Kills, full disks and the like, with a library preloaded into tsdiag (not under sanitizers, which must be loaded
# first).  .ci/run gives it two minutes.
if(TARGET tsdiag_program AND NOT TSDIAG_SANITIZE)
    add_library(faults_shim MODULE faults/shim.cpp)
    target_link_libraries(faults_shim PRIVATE ${CMAKE_DL_LIBS})
    target_compile_options(faults_shim PRIVATE -U_FORTIFY_SOURCE)
    add_executable(faults faults/faults.cpp)
    target_include_directories(faults PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(faults PRIVATE fmt::fmt)
    target_compile_options(faults PRIVATE -Wall -Wextra)
    target_compile_definitions(faults PRIVATE TSDIAG_PROGRAM="$<TARGET_FILE:tsdiag_program>"
        TSDIAG_SHIM="$<TARGET_FILE:faults_shim>")
    tsdiag_use_parts(faults output)
    add_dependencies(faults tsdiag_program faults_shim)
    add_test(NAME faults COMMAND faults --seconds 15 --seed 1)
    set_tests_properties(faults PROPERTIES TIMEOUT 300)
endif()
