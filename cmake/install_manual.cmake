# Run by cmake --install with `tsdiag`, the program, and `man` and `data`, folders below the prefix.
set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
execute_process(COMMAND ${tsdiag} manual --out ${root}/${man}/man1 OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(place bash=bash-completion/completions/tsdiag zsh=zsh/site-functions/_tsdiag
        fish=fish/vendor_completions.d/tsdiag.fish)
    string(REPLACE "=" ";" place ${place})
    list(POP_FRONT place shell file)
    execute_process(COMMAND ${tsdiag} completion ${shell} OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
    file(WRITE ${root}/${data}/${file} "${script}")
endforeach()
