# Tests that run the program itself.
if(TARGET tsdiag_program)
    tsdiag_tests(cli PARTS core output checkpoint)
    if(TARGET cli_tests)
        target_compile_definitions(cli_tests PRIVATE TSDIAG_PROGRAM="$<TARGET_FILE:tsdiag_program>")
        add_dependencies(cli_tests tsdiag_program)
    endif()
endif()
