# Is the program hardened as in cmake/hardening.cmake?
#
#     cmake -D PROGRAM=file -P tests/hardening.cmake
cmake_minimum_required(VERSION 3.25)
find_program(READELF readelf REQUIRED)

# expect(REGEX WHAT OPTIONS...): readelf OPTIONS prints a line that matches.
function(expect regex what)
    execute_process(COMMAND ${READELF} ${ARGN} -W ${PROGRAM} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    if(NOT text MATCHES "${regex}")
        message(SEND_ERROR "${PROGRAM}: ${what}: no line of readelf ${ARGN} matches '${regex}'")
    endif()
endfunction()

expect("Position-Independent Executable" "is loaded at the same address each time" -l)
expect("GNU_RELRO" "has tables of addresses that can be written over" -l)
expect("BIND_NOW|Flags:.*NOW" "resolves functions late, so that their table stays writable" -d)
expect("GNU_STACK[^\n]* RW " "has an executable stack" -l)
expect("__stack_chk_fail" "does not watch its stack" --dyn-syms)
expect("__[a-z]+_chk" "calls the C library without checks of sizes" --dyn-syms)
