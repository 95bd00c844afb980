# No two types share a name: else the linker silently keeps the functions of one of them for both, and the program
# crashes where the other is used.  A compiler reports it where it sees both.
#
#     cmake -D CXX=compiler [-D INCLUDES=folders of libraries] [-D ROOT=folder] -P tests/one_definition.cmake
#
# Compiles one unit that includes every header below ROOT, and searches for types of sources visible to other sources.
cmake_minimum_required(VERSION 3.25)
if(NOT ROOT)
    get_filename_component(ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
endif()
get_filename_component(ROOT ${ROOT} ABSOLUTE)

file(GLOB folders ${ROOT}/src/*)
file(GLOB_RECURSE headers ${ROOT}/include/tsdiag/*.hpp ${ROOT}/src/*.hpp ${ROOT}/probes/*.hpp ${ROOT}/reports/*.hpp ${ROOT}/gpu/*.hpp)
file(GLOB_RECURSE sources ${ROOT}/src/*.cpp ${ROOT}/probes/*.cpp ${ROOT}/reports/*.cpp ${ROOT}/gpu/*.cpp ${ROOT}/gpu/*.cu)
if(NOT headers OR NOT sources)
    message(FATAL_ERROR "No header or no source found below ${ROOT}")
endif()

# The kernels' headers require an instruction set and, without CUDA, the emulation.
set(words -std=c++20 -fsyntax-only -DTSDIAG_ISA=base -DTSDIAG_EMULATED -I${ROOT}/include)
foreach(folder IN LISTS folders) # a subfolder includes its folder's headers
    list(APPEND words -iquote ${folder})
endforeach()
foreach(folder IN LISTS INCLUDES)
    list(APPEND words -isystem ${folder})
endforeach()
set(unit "")
foreach(header IN LISTS headers)
    string(APPEND unit "#include \"${header}\"\n")
endforeach()
string(SHA1 name ${ROOT})
set(file ${CMAKE_CURRENT_BINARY_DIR}/one_definition_${name}.cpp)
file(WRITE ${file} "${unit}")
execute_process(COMMAND ${CXX} ${words} ${file} RESULT_VARIABLE status ERROR_VARIABLE said)
file(REMOVE ${file})
set(broken "")
if(NOT status EQUAL 0)
    list(APPEND broken "the headers do not compile in one unit:\n${said}")
endif()

# clang-format starts the contents of namespaces in the first column, and names their ends.
foreach(source IN LISTS sources)
    file(STRINGS ${source} lines REGEX
        "^(namespace {|}  // namespace$|(template <.*> )?(class|struct|union|enum|inline) )")
    set(hidden 0)
    foreach(line IN LISTS lines)
        if(line MATCHES "^namespace {")
            math(EXPR hidden "${hidden} + 1")
        elseif(line MATCHES "^}  // namespace$")
            math(EXPR hidden "${hidden} - 1")
        elseif(hidden EQUAL 0 AND NOT line MATCHES "^[a-z]+ ([A-Za-z_]+::|[A-Za-z_]+;)")
            list(APPEND broken "${source}: '${line}' is seen by other sources: a type or inline function of one source stands in an anonymous namespace")
        endif()
    endforeach()
endforeach()

if(broken)
    list(JOIN broken "\n" lines)
    message("${lines}")
    message(FATAL_ERROR "Two types may share a name below ${ROOT}")
endif()
list(LENGTH headers count)
message(STATUS "${count} headers compile in one unit, and no source shows a type of its own")
