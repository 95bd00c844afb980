# Numbers are cast in one way, as a call: double(x), std::size_t(n).
#
#     cmake [-D ROOT=folder] -P tests/one_cast.cmake
#
# Fails with a line for each static_cast of a source below ROOT to a type of numbers that has one word.
cmake_minimum_required(VERSION 3.25)
if(NOT ROOT)
    get_filename_component(ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
endif()
get_filename_component(ROOT ${ROOT} ABSOLUTE)

set(sources "")
foreach(folder IN ITEMS include src probes reports gpu mpi tests notebooks_cpp benchmarks examples)
    foreach(ending IN ITEMS hpp cpp cuh cu)
        file(GLOB_RECURSE found RELATIVE ${ROOT} ${ROOT}/${folder}/*.${ending})
        list(APPEND sources ${found})
    endforeach()
endforeach()
list(FILTER sources EXCLUDE REGEX "^tests/one_cast/")
if(NOT sources)
    message(FATAL_ERROR "No source found below ${ROOT}")
endif()

set(numbers "double|float|int|unsigned|char|Index|T|To|uInt|off_t|(std::)?(size_t|ptrdiff_t|uintptr_t|streamsize|streamoff|u?int(8|16|32|64)_t)")
set(broken 0)
foreach(source IN LISTS sources)
    file(STRINGS ${ROOT}/${source} lines REGEX "static_cast<(${numbers})>")
    foreach(line IN LISTS lines)
        string(REGEX MATCH "static_cast<[^>]*>" cast "${line}")
        message("${source}: ${cast}: a number is cast as a call")
        math(EXPR broken "${broken} + 1")
    endforeach()
endforeach()
if(broken)
    message(FATAL_ERROR "${broken} casts of numbers are written in another way")
endif()
list(LENGTH sources count)
message(STATUS "${count} sources cast numbers in one way")
