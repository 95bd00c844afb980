# Installs a build, then configures, builds and runs a consumer that finds tsdiag there.
#
#     cmake -D BUILD=folder -D WORK=folder -D CONFIG=name -D GENERATOR=name -D CXX=compiler -D SANITIZE=list
#           -D CUDA_LIBRARIES=folder -P packaging.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(flags "")
if(SANITIZE)
    set(flags -fsanitize=${SANITIZE})
endif()
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK}/consumer -G ${GENERATOR}
    -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${flags}
    -D CMAKE_BUILD_TYPE=${CONFIG})
run(${CMAKE_COMMAND} --build ${WORK}/consumer --config ${CONFIG})
run(${WORK}/consumer/consumer)
run(${WORK}/prefix/bin/tsdiag --version)

# The device library is opened from another folder than it was built in: it must still find cuBLAS, and does not load
# cuSOLVER, which it opens when it needs it.
file(GLOB library ${WORK}/prefix/lib/tsdiag/libtsdiag_cuda.so)
if(CUDA_LIBRARIES)
    execute_process(COMMAND readelf -d ${library} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "runpath: \\[([^]]*)\\]" found "${dynamic}")
    if(NOT CMAKE_MATCH_1 STREQUAL CUDA_LIBRARIES)
        message(FATAL_ERROR "${library}: its RUNPATH is '${CMAKE_MATCH_1}', expected '${CUDA_LIBRARIES}'")
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ldd ${library}
        OUTPUT_VARIABLE libraries COMMAND_ERROR_IS_FATAL ANY)
    if(NOT libraries MATCHES "libcublas\\.so[^\n]*=> /" OR libraries MATCHES "not found")
        message(FATAL_ERROR "${library}: cannot find its libraries:\n${libraries}")
    endif()
    if(libraries MATCHES "libcusolver|libcusparse|libnvJitLink")
        message(FATAL_ERROR "${library}: loads cuSOLVER or what it needs at once:\n${libraries}")
    endif()
elseif(library)
    message(FATAL_ERROR "${library}: was installed by a build without CUDA")
endif()
