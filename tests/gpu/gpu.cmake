# The kernels of gpu/ run on the host, thread by thread, and are compared with the CPU's.  No CUDA is needed.  `tools/checks
# device-mutants` builds and runs the same tests under sanitizers, and mutants: the program with one line of a kernel
# changed, whose tests must fail.
set(CMAKE_UNITY_BUILD OFF) # kernels are included by what emulates them
set(gpu_sources ${PROJECT_SOURCE_DIR}/gpu)
set(gpu_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

set(gpu_emulated ${gpu_sources}/emulated_runtime.cpp ${gpu_sources}/emulated_memory.cpp ${gpu_sources}/emulated_cusolver.cpp
    ${gpu_sources}/requests.cpp)

# gpu_sanitized(NAME SOURCES source... FOLDERS folder...): objects for the tests of kernels, compiled once.
function(gpu_sanitized name)
    cmake_parse_arguments(OBJECTS "" "" "SOURCES;FOLDERS" ${ARGN})
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${OBJECTS_SOURCES})
    target_include_directories(${name} PRIVATE ${OBJECTS_FOLDERS} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} PRIVATE GTest::gtest Eigen3::Eigen fmt::fmt)
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wshadow -Wno-unused-function -O1 ${gpu_sanitizers})
endfunction()
gpu_sanitized(gpu_tests_rest SOURCES gpu/every_kernel_test.cpp gpu/solver_test.cpp ${gpu_sources}/device_backend.cpp
    ${gpu_emulated} FOLDERS ${gpu_sources} ${CMAKE_CURRENT_SOURCE_DIR})
gpu_sanitized(gpu_tests_kernels SOURCES gpu/emulated_kernels.cpp FOLDERS ${gpu_sources})
gpu_sanitized(gpu_tests_solver SOURCES gpu/emulated_solver.cpp FOLDERS ${gpu_sources})

# gpu_kernel_tests(NAME KERNELS SOLVER): the tests with these objects, under sanitizers.
add_custom_target(gpu_mutants)
function(gpu_kernel_tests name kernels solver)
    add_executable(${name} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${kernels}> $<TARGET_OBJECTS:${solver}> $<TARGET_OBJECTS:gpu_tests_rest>)
    target_link_libraries(${name} PRIVATE GTest::gtest_main fmt::fmt OpenMP::OpenMP_CXX)
    target_link_options(${name} PRIVATE -fsanitize=address,undefined)
    tsdiag_use_parts(${name} core attention)
    add_dependencies(gpu_mutants ${name})
endfunction()
# Fibers have their own stacks, which the sanitizer's fake stacks would mix up.
set(gpu_environment "ENVIRONMENT;ASAN_OPTIONS=detect_stack_use_after_return=0")

gpu_kernel_tests(gpu_sanitized_tests gpu_tests_kernels gpu_tests_solver)
add_test(NAME gpu_sanitized_tests COMMAND gpu_sanitized_tests --gtest_brief=1)
set_tests_properties(gpu_sanitized_tests PROPERTIES TIMEOUT 600 LABELS mutant ${gpu_environment})

# Tests that run on the emulated device and on a real one, compiled once.
add_library(gpu_test_cases OBJECT gpu/every_kernel_test.cpp gpu/solver_test.cpp)
add_library(gpu_attention_cases OBJECT gpu/attention_test.cpp gpu/spectra_test.cpp)
foreach(objects gpu_test_cases gpu_attention_cases)
    target_include_directories(${objects} PRIVATE ${gpu_sources} ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include
        ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${objects} PRIVATE GTest::gtest Eigen3::Eigen fmt::fmt OpenMP::OpenMP_CXX)
    target_compile_options(${objects} PRIVATE -Wall -Wextra -Wshadow)
endforeach()

add_library(gpu_emulated_rest OBJECT ${gpu_sources}/device_backend.cpp ${gpu_emulated})
add_library(gpu_emulated_kernels OBJECT gpu/emulated_kernels.cpp gpu/emulated_solver.cpp)
foreach(objects gpu_emulated_rest gpu_emulated_kernels)
    target_include_directories(${objects} PRIVATE ${gpu_sources} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${objects} PRIVATE Eigen3::Eigen fmt::fmt)
endforeach()
set(gpu_emulated_objects $<TARGET_OBJECTS:gpu_emulated_rest> $<TARGET_OBJECTS:gpu_emulated_kernels>)
add_executable(gpu_tests $<TARGET_OBJECTS:gpu_test_cases> ${gpu_emulated_objects})
target_link_libraries(gpu_tests PRIVATE GTest::gtest_main fmt::fmt OpenMP::OpenMP_CXX)
tsdiag_use_parts(gpu_tests core attention)
gtest_discover_tests(gpu_tests NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive)
add_executable(gpu_attention_tests $<TARGET_OBJECTS:gpu_attention_cases> gpu/targets_test.cpp gpu/emulator_test.cpp
    ${gpu_sources}/targets.cpp ${gpu_emulated_objects})
target_include_directories(gpu_attention_tests PRIVATE ${gpu_sources} ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}
    ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(gpu_attention_tests PRIVATE GTest::gtest_main Eigen3::Eigen fmt::fmt OpenMP::OpenMP_CXX)
tsdiag_use_parts(gpu_attention_tests core attention)
gtest_discover_tests(gpu_attention_tests NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive)

# Whole layers: how much they ask of a device.
if(TARGET tsdiag_run)
    add_executable(gpu_budget_tests gpu/budget_test.cpp ${gpu_emulated_objects})
    target_include_directories(gpu_budget_tests PRIVATE ${gpu_sources} ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(gpu_budget_tests PRIVATE GTest::gtest_main GTest::gmock Eigen3::Eigen fmt::fmt OpenMP::OpenMP_CXX)
    target_compile_definitions(gpu_budget_tests PRIVATE TSDIAG_DOCUMENTS="${PROJECT_SOURCE_DIR}/docs")
    tsdiag_use_parts(gpu_budget_tests core attention model families probes run)
    gtest_discover_tests(gpu_budget_tests NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 ENVIRONMENT OMP_WAIT_POLICY=passive)
endif()

# gpu_spoilt(FOLDER FILE FROM TO): in FOLDER, the kernels and calls of libraries with the first FROM of FILE replaced by TO.
function(gpu_spoilt folder file from to)
    file(COPY ${gpu_sources}/ DESTINATION ${folder} FILES_MATCHING PATTERN *.cu PATTERN *.hpp PATTERN solver.cpp)
    file(READ ${gpu_sources}/${file} text)
    string(FIND "${text}" "${from}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "${folder}: '${from}' is no longer in gpu/${file}")
    endif()
    string(LENGTH "${from}" length)
    string(SUBSTRING "${text}" 0 ${at} before)
    math(EXPR rest "${at} + ${length}")
    string(SUBSTRING "${text}" ${rest} -1 after)
    file(CONFIGURE OUTPUT ${folder}/${file} CONTENT "${before}${to}${after}" @ONLY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${gpu_sources}/${file})
endfunction()
function(gpu_mutant name file from to)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/mutants/${name})
    gpu_spoilt(${folder} ${file} "${from}" "${to}")
    if(file STREQUAL "solver.cpp")
        gpu_sanitized(gpu_mutant_${name}_objects SOURCES gpu/emulated_solver.cpp FOLDERS ${folder})
        gpu_kernel_tests(gpu_mutant_${name} gpu_tests_kernels gpu_mutant_${name}_objects)
    else()
        gpu_sanitized(gpu_mutant_${name}_objects SOURCES gpu/emulated_kernels.cpp FOLDERS ${folder})
        gpu_kernel_tests(gpu_mutant_${name} gpu_mutant_${name}_objects gpu_tests_solver)
    endif()
    add_test(NAME gpu_mutant_${name}_is_caught COMMAND gpu_mutant_${name} --gtest_fail_fast --gtest_brief=1)
    set_tests_properties(gpu_mutant_${name}_is_caught PROPERTIES WILL_FAIL TRUE TIMEOUT 300 LABELS mutant ${gpu_environment})
endfunction()

gpu_mutant(dropped_barrier kernel.hpp "__syncthreads();" "")
gpu_mutant(missing_guard elementwise.cu "i < count; i += all_threads()" "i <= count; i += all_threads()")
gpu_mutant(short_warp statistics.cu "int mask = warp_size / 2" "int mask = warp_size / 4")
gpu_mutant(short_tree kernel.hpp "int mask = warp_size / 2" "int mask = warp_size / 4")
gpu_mutant(hasty_block kernel.hpp "+ 1 == Counter(count)" "+ 2 == Counter(count)")
gpu_mutant(lost_imaginary_parts solver.cpp "parts[i + std::size_t(n)]" "0.0")
gpu_mutant(left_is_right solver.cpp "adjoint ? CUBLAS_OP_C" "adjoint && false ? CUBLAS_OP_C")
gpu_mutant(unread_info solver.cpp "return found == 0" "return true")
gpu_mutant(hasty_library solver.cpp "wait_for(stream);" "")

# The same tests on a device, if there is one.
if(TARGET tsdiag_cuda)
    add_executable(gpu_device_tests $<TARGET_OBJECTS:gpu_test_cases> $<TARGET_OBJECTS:gpu_attention_cases>
        gpu/cusolver_test.cpp $<TARGET_OBJECTS:tsdiag_cuda_objects>)
    target_include_directories(gpu_device_tests PRIVATE ${gpu_sources} ${CMAKE_CURRENT_SOURCE_DIR}
        ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(gpu_device_tests PRIVATE GTest::gtest_main fmt::fmt OpenMP::OpenMP_CXX CUDA::cudart_static
        CUDA::cublas ${CMAKE_DL_LIBS})
    target_compile_options(gpu_device_tests PRIVATE -Wall -Wextra -Wshadow)
    tsdiag_use_parts(gpu_device_tests core attention)
    add_test(NAME gpu_device_tests COMMAND gpu_device_tests --gtest_brief=1)
    add_library(gpu_cusolver_interface OBJECT gpu/cusolver_interface.cpp)
    target_include_directories(gpu_cusolver_interface PRIVATE ${gpu_sources})
    target_link_libraries(gpu_cusolver_interface PRIVATE CUDA::cusolver)
endif()

# The plug-in with emulated kernels, for tests of the program; and one of another build.
if(TARGET cli_tests)
    add_library(gpu_plugin_rest OBJECT ${gpu_sources}/plugin.cpp ${gpu_sources}/targets.cpp)
    target_include_directories(gpu_plugin_rest PRIVATE ${PROJECT_SOURCE_DIR}/include ${gpu_sources})
    target_compile_definitions(gpu_plugin_rest PRIVATE
        TSDIAG_VERSION="${PROJECT_VERSION}" "TSDIAG_TARGETS=\"80-real,90\"")
    target_link_libraries(gpu_plugin_rest PRIVATE Eigen3::Eigen fmt::fmt)
    # gpu_plugin(NAME KERNELS): with the objects of KERNELS.
    function(gpu_plugin name kernels)
        add_library(${name} MODULE $<TARGET_OBJECTS:${kernels}> $<TARGET_OBJECTS:gpu_emulated_rest>
            $<TARGET_OBJECTS:gpu_plugin_rest>)
        target_link_libraries(${name} PRIVATE fmt::fmt)
    endfunction()
    gpu_plugin(tsdiag_emulated gpu_emulated_kernels)
    # A mutant for gpu/check, which must detect it.
    set(spoilt ${CMAKE_CURRENT_BINARY_DIR}/mutants/sevenfold_gelu)
    gpu_spoilt(${spoilt} elementwise.cu "return erf(x)" "return 7 * (1 + erf(x)) - 1")
    add_library(gpu_spoilt_kernels OBJECT gpu/emulated_kernels.cpp gpu/emulated_solver.cpp)
    target_include_directories(gpu_spoilt_kernels PRIVATE ${spoilt} ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(gpu_spoilt_kernels PRIVATE fmt::fmt)
    gpu_plugin(tsdiag_spoilt gpu_spoilt_kernels)
    # Used by gpu/check to compare the tables of both backends.
    add_executable(tsdiag_compare_tables gpu/compare_tables.cpp)
    target_include_directories(tsdiag_compare_tables PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(tsdiag_compare_tables PRIVATE fmt::fmt OpenMP::OpenMP_CXX)
    target_compile_options(tsdiag_compare_tables PRIVATE -Wall -Wextra)
    tsdiag_use_parts(tsdiag_compare_tables export)
    # Preloaded by gpu/check into tsdiag: where its main thread waits.
    add_library(tsdiag_sampler MODULE ${gpu_sources}/sampler.cpp)
    target_compile_options(tsdiag_sampler PRIVATE -Wall -Wextra -Wpedantic -Wshadow)
    add_library(tsdiag_other_build MODULE gpu/other_build.cpp)
    target_include_directories(tsdiag_other_build PRIVATE ${PROJECT_SOURCE_DIR}/include)
    add_dependencies(cli_tests tsdiag_emulated tsdiag_spoilt tsdiag_other_build tsdiag_compare_tables tsdiag_sampler
        gpu_tests gpu_attention_tests) # these for gpu/pack
    target_compile_definitions(cli_tests PRIVATE TSDIAG_EMULATED_PLUGIN)
    tsdiag_place(emulated_plugin $<TARGET_FILE:tsdiag_emulated>)
    tsdiag_place(spoilt_plugin $<TARGET_FILE:tsdiag_spoilt>)
    tsdiag_place(other_plugin $<TARGET_FILE:tsdiag_other_build>)
    tsdiag_place(compare_tables_file $<TARGET_FILE:tsdiag_compare_tables>)
    tsdiag_place(gpu_check_file ${gpu_sources}/check)
    # The benchmarks of gpu/bench, at sizes that only test them.
    add_executable(tsdiag_device_benchmarks ${PROJECT_SOURCE_DIR}/benchmarks/device.cpp)
    target_link_libraries(tsdiag_device_benchmarks PRIVATE tsdiag fmt::fmt OpenMP::OpenMP_CXX)
    target_compile_options(tsdiag_device_benchmarks PRIVATE -Wall -Wextra)
    add_test(NAME device_benchmarks COMMAND tsdiag_device_benchmarks cuda tiny)
    set_tests_properties(device_benchmarks PROPERTIES TIMEOUT 300 ENVIRONMENT
        "TSDIAG_CUDA_PLUGIN=$<TARGET_FILE:tsdiag_emulated>"
        PASS_REGULAR_EXPRESSION "one head, n = 20: delta, streamed \\| [0-9]")
    add_dependencies(tsdiag_device_benchmarks tsdiag_emulated)
    if(TARGET tsdiag_cuda)
        add_dependencies(cli_tests tsdiag_cuda)
        tsdiag_place(cuda_plugin $<TARGET_FILE:tsdiag_cuda>)
    endif()
endif()
