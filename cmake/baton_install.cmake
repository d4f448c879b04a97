# SPDX-License-Identifier: BSD-3-Clause
#
# What is installed: headers (baton_mpi.h only where the library has MPI), both
# libraries, the CMake package, baton.pc, the licence and the documents.  The components
# library, development, which is the default, and tools, whose files tools/ has, are
# packages of their own (baton_package.cmake).
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/baton)

install(FILES include/baton.h include/baton_trace.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(BATON_HAVE_MPI)
	install(FILES include/baton_mpi.h
	        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()

# Two export files: who links the shared library needs neither Threads nor MPI
# to be found, who links the static one does.
install(TARGETS baton EXPORT baton-shared
        LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS baton-static EXPORT baton-static)
install(EXPORT baton-shared NAMESPACE baton:: DESTINATION ${package_dir}
        FILE baton-shared.cmake)
install(EXPORT baton-static NAMESPACE baton:: DESTINATION ${package_dir}
        FILE baton-static.cmake)

configure_package_config_file(cmake/baton-config.cmake.in
	${PROJECT_BINARY_DIR}/baton-config.cmake
	INSTALL_DESTINATION ${package_dir}
	NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
	${PROJECT_BINARY_DIR}/baton-config-version.cmake
	COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/baton-config.cmake
              ${PROJECT_BINARY_DIR}/baton-config-version.cmake
        DESTINATION ${package_dir})

# Paths in baton.pc are relative to the file, so that the tree can be moved.
file(RELATIVE_PATH pc_prefix
     ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(pc_libs_private "-pthread")
foreach(library IN LISTS CMAKE_DL_LIBS)
	string(APPEND pc_libs_private " -l${library}")
endforeach()
if(BATON_HAVE_MPI)
	foreach(library IN LISTS MPI_C_LIBRARIES)
		string(APPEND pc_libs_private " ${library}")
	endforeach()
	# Where the loader finds it, if that is no place of the system's: else a program would
	# run with another MPI, or not at all.
	string(APPEND pc_libs_private " ${MPI_C_LINK_FLAGS}")
endif()
foreach(file baton.pc baton-shared.pc)
	configure_file(cmake/${file}.in ${PROJECT_BINARY_DIR}/${file} @ONLY)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/baton.pc ${PROJECT_BINARY_DIR}/baton-shared.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# They lie as in the repository, so that their links lead somewhere; scripts of the
# repository would find nothing there.
set(documents ${CMAKE_INSTALL_DATADIR}/doc/baton)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${documents})
install(DIRECTORY docs samples DESTINATION ${documents}
        PATTERN run EXCLUDE PATTERN fetch EXCLUDE PATTERN ".*" EXCLUDE)

if(PROJECT_IS_TOP_LEVEL)
	add_custom_target(uninstall COMMAND ${CMAKE_COMMAND}
		-DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
		-P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
endif()
