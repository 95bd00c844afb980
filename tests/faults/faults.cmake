# Kills, full disks and the like, with a library preloaded into tsdiag (not under sanitizers, which must be loaded
# first).  .ci/run runs it for longer.
if(TARGET tsdiag_program AND NOT TSDIAG_SANITIZE)
    add_library(faults_shim MODULE faults/shim.cpp)
    target_link_libraries(faults_shim PRIVATE ${CMAKE_DL_LIBS})
    target_compile_options(faults_shim PRIVATE -U_FORTIFY_SOURCE)
    add_executable(faults faults/faults.cpp)
    target_include_directories(faults PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(faults PRIVATE fmt::fmt)
    target_compile_options(faults PRIVATE -Wall -Wextra)
    tsdiag_place(fault_shim $<TARGET_FILE:faults_shim>)
    target_link_libraries(faults PRIVATE tsdiag_places)
    if(TARGET tsdiag_mpi AND TSDIAG_MPIRUN)
        add_dependencies(faults tsdiag_mpi)
    endif()
    tsdiag_use_parts(faults output)
    add_dependencies(faults tsdiag_program faults_shim)
    add_test(NAME faults COMMAND faults --seconds 20 --seed 1)
    add_test(NAME faults_of_a_disk_that_lies_are_noticed
        COMMAND faults --seconds 0 --rounds 12 --seed 3 --kind "train, power cut")
    set_tests_properties(faults faults_of_a_disk_that_lies_are_noticed PROPERTIES TIMEOUT 300)
    set_tests_properties(faults_of_a_disk_that_lies_are_noticed PROPERTIES
        ENVIRONMENT TSDIAG_FAULT_LIES=1 PASS_REGULAR_EXPRESSION "FAILED: train, power cut, resumed: train, change")
endif()
