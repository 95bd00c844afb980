# cmake -D SOURCE=... -D OUT=... -P commit.cmake: the commit that is built, as a header that changes only with it.
cmake_minimum_required(VERSION 3.25)
set(commit "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=10 --exclude=*
        WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(found)
        set(commit ${found})
    endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#pragma once\n#define TSDIAG_COMMIT \"${commit}\"\n")
