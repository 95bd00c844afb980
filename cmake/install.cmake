# cmake --install BUILD --prefix PREFIX: the program, the library, its headers, and files for find_package(tsdiag).
# Components: program, development, and cuda and mpi where they are built; cmake/packages.cmake packs them.
include(CMakePackageConfigHelpers)
set(TSDIAG_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/tsdiag)

install(TARGETS tsdiag_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
# Manual pages and completions, by the program itself.
install(CODE "set(tsdiag \"$<TARGET_FILE:tsdiag_program>\")\nset(man \"${CMAKE_INSTALL_MANDIR}\")\nset(data \"${CMAKE_INSTALL_DATADIR}\")"
    COMPONENT program)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_manual.cmake COMPONENT program)
install(FILES python/tsdiag.py DESTINATION ${CMAKE_INSTALL_DATADIR}/tsdiag COMPONENT program)
install(FILES README.md LICENSE CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT program PATTERN site EXCLUDE)

install(TARGETS tsdiag tsdiag_private_deps tsdiag_image_deps tsdiag_lbfgs_deps tsdiag_icu_deps EXPORT tsdiag
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT tsdiag NAMESPACE tsdiag:: FILE tsdiag-targets.cmake DESTINATION ${TSDIAG_PACKAGE} COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tsdiag-config.cmake.in
    ${PROJECT_BINARY_DIR}/tsdiag-config.cmake INSTALL_DESTINATION ${TSDIAG_PACKAGE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tsdiag-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tsdiag-config.cmake ${PROJECT_BINARY_DIR}/tsdiag-config-version.cmake
        DESTINATION ${TSDIAG_PACKAGE} COMPONENT development)

foreach(plugin cuda mpi)
    if(TARGET tsdiag_${plugin})
        install(TARGETS tsdiag_${plugin} LIBRARY DESTINATION lib/tsdiag COMPONENT ${plugin}) # where the program looks for it
    endif()
endforeach()
