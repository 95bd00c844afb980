# The program reads untrusted files: it is hardened against overflows. Sanitizers protect better, and are not compatible
# with these options.
if(TSDIAG_SANITIZE OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    return()
endif()
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64") # control-flow protection, where processor and kernel support it
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fcf-protection=full>)
endif()
# Size checks in the C library; they need an optimised build.
add_compile_definitions($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:_FORTIFY_SOURCE=3>)
add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
