# Installs a build, then configures, builds and runs a consumer that finds tsdiag there.
#
#     cmake -D BUILD=folder -D WORK=folder -D CONFIG=name -D GENERATOR=name -D CXX=compiler -D SANITIZE=list
#           -P packaging.cmake
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
