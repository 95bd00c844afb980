# The target `tidy`: clang-tidy over every source of the program and its library.
find_program(TSDIAG_CLANG_TIDY NAMES clang-tidy-19 clang-tidy)
if(TSDIAG_CLANG_TIDY)
    add_custom_target(tidy COMMAND ${PROJECT_SOURCE_DIR}/tools/tidy ${TSDIAG_CLANG_TIDY} ${PROJECT_BINARY_DIR}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} USES_TERMINAL VERBATIM)
endif()
