# SPDX-License-Identifier: BSD-3-Clause
#
# Packages for Debian and Ubuntu, from any build: cpack -G DEB, or all of it by
# cmake --workflow --preset package, whose library lies where several architectures can.
#   libbaton0.1      the library.  Its name is that of the soname, which is of a minor
#                    version; the next one can be installed beside it.  It is linked with the
#                    MPI of the build, so it depends on that one's package (dpkg-shlibdeps
#                    finds it); jobs without MPI run as well, and the CUDA driver and NCCL are
#                    looked for when a program asks for them.
#   libbaton-dev     headers, static library, CMake package, baton.pc, manual pages of the
#                    functions, documents.  baton_mpi.h and the static library need the
#                    MPI's own development package.
#   baton-tools      the command, its manual pages and its completion
set(version ${PROJECT_VERSION}-1)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME baton)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "asynchronous, stream-ordered point-to-point communication")
set(CPACK_PACKAGE_CONTACT "The Baton authors <maintainers@baton.invalid>" CACHE STRING
    "Who maintains the packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_THREADS 0)
set(CPACK_COMPONENTS_ALL library development)
if(TARGET baton-tool)
	list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SOURCE baton)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/package_files.cmake)
set(CPACK_BATON_SOURCE_DIR ${PROJECT_SOURCE_DIR})

get_target_property(soversion baton SOVERSION)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libbaton${soversion})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
# The loader's index is renewed; programs that were linked with it need this package.
set(control ${PROJECT_BINARY_DIR}/package_control)
file(CONFIGURE OUTPUT ${control}/triggers CONTENT "activate-noawait ldconfig\n")
file(CONFIGURE OUTPUT ${control}/shlibs
     CONTENT "libbaton ${soversion} libbaton${soversion} (>= ${version})\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${control}/triggers ${control}/shlibs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
"Messages, signals and puts between ranks are enqueued on streams of the host
or of CUDA, return at once, and give back requests that can be polled, waited
for, cancelled and collected.  Ranks are threads or processes of one host, or
of several hosts over MPI or NCCL.  This is the shared library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libbaton-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_LIBRARY_PACKAGE_NAME} (= ${version})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
"What programs are built with that use the library Baton: headers, the static
library, files for CMake and pkg-config, manual pages of the functions, and
documents.")
if(BATON_HAVE_MPI)
	# The package that has mpi.h: that of an MPI which Debian does not have is left out.
	find_file(BATON_MPI_H mpi.h PATHS ${MPI_C_INCLUDE_DIRS} NO_DEFAULT_PATH)
	execute_process(COMMAND dpkg-query -S ${BATON_MPI_H} OUTPUT_VARIABLE owner ERROR_QUIET)
	if(owner MATCHES "^([a-z0-9.+-]+)[:,]")
		string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", ${CMAKE_MATCH_1}")
	endif()
endif()

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME baton-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "bash-completion, gnuplot-nox")
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS
    "${CPACK_DEBIAN_LIBRARY_PACKAGE_NAME} (= ${version})")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
"The command baton looks at the library Baton from outside: what is built in
and found on this machine, and what its speed and safety rest on.")
# Libraries of several architectures can lie beside each other.
if(CMAKE_LIBRARY_ARCHITECTURE AND CMAKE_INSTALL_LIBDIR MATCHES "/${CMAKE_LIBRARY_ARCHITECTURE}$")
	set(CPACK_DEBIAN_LIBRARY_PACKAGE_MULTIARCH same)
	set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_MULTIARCH same)
endif()
include(CPack)
