# cmake --install BUILD --prefix PREFIX: the program, the library, its headers, and files for find_package(tsdiag).
include(CMakePackageConfigHelpers)
set(TSDIAG_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/tsdiag)

install(TARGETS tsdiag_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS tsdiag tsdiag_private_deps tsdiag_image_deps EXPORT tsdiag ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tsdiag NAMESPACE tsdiag:: FILE tsdiag-targets.cmake DESTINATION ${TSDIAG_PACKAGE})

if(TARGET tsdiag_cuda)
    install(TARGETS tsdiag_cuda LIBRARY DESTINATION lib/tsdiag) # where the program looks for it
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tsdiag-config.cmake.in
    ${PROJECT_BINARY_DIR}/tsdiag-config.cmake INSTALL_DESTINATION ${TSDIAG_PACKAGE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tsdiag-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tsdiag-config.cmake ${PROJECT_BINARY_DIR}/tsdiag-config-version.cmake
        DESTINATION ${TSDIAG_PACKAGE})

install(FILES README.md LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs)
install(FILES reports/vendor/LICENSES.txt DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME vega-licences.txt)
