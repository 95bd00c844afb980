# cmake --install BUILD --prefix PREFIX: the program, the library, its headers, and files for find_package(tsdiag).
include(CMakePackageConfigHelpers)
set(TSDIAG_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/tsdiag)

install(TARGETS tsdiag_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Manual pages and completions, by the program itself.
install(CODE "set(program \"$<TARGET_FILE:tsdiag_program>\")\nset(man \"${CMAKE_INSTALL_MANDIR}\")\nset(data \"${CMAKE_INSTALL_DATADIR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_manual.cmake)
install(TARGETS tsdiag tsdiag_private_deps tsdiag_image_deps tsdiag_lbfgs_deps tsdiag_icu_deps EXPORT tsdiag ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tsdiag NAMESPACE tsdiag:: FILE tsdiag-targets.cmake DESTINATION ${TSDIAG_PACKAGE})

if(TARGET tsdiag_cuda)
    install(TARGETS tsdiag_cuda LIBRARY DESTINATION lib/tsdiag) # where the program looks for it
endif()
if(TARGET tsdiag_mpi)
    install(TARGETS tsdiag_mpi LIBRARY DESTINATION lib/tsdiag)
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tsdiag-config.cmake.in
    ${PROJECT_BINARY_DIR}/tsdiag-config.cmake INSTALL_DESTINATION ${TSDIAG_PACKAGE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tsdiag-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tsdiag-config.cmake ${PROJECT_BINARY_DIR}/tsdiag-config-version.cmake
        DESTINATION ${TSDIAG_PACKAGE})

install(FILES README.md LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(FILES reports/vendor/LICENSES.txt DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME vega-licences.txt)

# cpack --config BUILD/CPackConfig.cmake: a package for Debian.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the authors of tsdiag <tsdiag@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS gnuplot-nox)
include(CPack)
