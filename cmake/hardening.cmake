# The program reads files of strangers: what an overflow could reach is guarded or read-only. Sanitizers guard better,
# and do not go with these.
if(TSDIAG_SANITIZE OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    return()
endif()
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64") # indirect calls and returns, where processor and kernel watch them
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fcf-protection=full>)
endif()
# Checks of sizes in the C library; it needs an optimised build.
add_compile_definitions($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:_FORTIFY_SOURCE=3>)
add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
