# Every file of the repository that a document names is there, those of the recipes of docs/architecture.md among them.
#
#     cmake [-D ROOT=folder] -P tests/named_files.cmake
#
# Reads the words between backquotes that begin with a folder of the repository; * stands for any characters. Documents that
# tell of the past (decisions, changes, earlier measurements) may name what was there.
cmake_minimum_required(VERSION 3.25)
if(NOT ROOT)
    get_filename_component(ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
endif()
get_filename_component(ROOT ${ROOT} ABSOLUTE)
set(broken "")
set(read 0)

file(GLOB documents RELATIVE ${ROOT} ${ROOT}/*.md ${ROOT}/docs/*.md)
list(FILTER documents EXCLUDE REGEX "^(CHANGELOG|docs/decisions|docs/performance-history)\\.md$")
foreach(document IN LISTS documents)
    file(READ ${ROOT}/${document} text)
    string(REPLACE ";" " " text "${text}")
    string(REPLACE "[" "<" text "${text}")
    string(REPLACE "]" ">" text "${text}")
    string(REGEX MATCHALL
        "`(include|src|probes|reports|tests|docs|gpu|mpi|cmake|tools|benchmarks|examples|notebooks_cpp|python|conda)/[^` \n]*`"
        names "${text}")
    foreach(name IN LISTS names)
        math(EXPR read "${read} + 1")
        string(REPLACE "`" "" name "${name}")
        if(name MATCHES "[*]")
            file(GLOB found ${ROOT}/${name})
        else()
            set(found "")
            if(EXISTS ${ROOT}/${name})
                set(found ${name})
            endif()
        endif()
        if(NOT found)
            list(APPEND broken "${document}: names ${name}, which is not there")
        endif()
    endforeach()
endforeach()

if(read EQUAL 0)
    message(FATAL_ERROR "No document below ${ROOT} names a file")
endif()
if(broken)
    list(REMOVE_DUPLICATES broken)
    list(JOIN broken "\n" lines)
    message("${lines}")
    message(FATAL_ERROR "Documents name files that are not there")
endif()
message(STATUS "${read} names of files in documents, all of them are there")
