# SPDX-License-Identifier: BSD-3-Clause
#
# Install into an empty prefix, then build and run programs against what is
# there, from other directories: by find_package and by pkg-config, in C and in
# C++, shared and static, and the samples as a project of their own.  What is uninstalled
# is gone, and nothing else.
# cmake -DROOT=... -DBUILD=... -DWORK=... -DCC=... -DCXX=... -DGENERATOR=...
#       -DLIBDIR=lib -DWITH_MPI=ON [-DMPICC=... -DMPIEXEC=...] -P this
cmake_minimum_required(VERSION 3.25)

function(run)
	list(JOIN ARGN " " words)
	message(STATUS "${words}")
	execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
# What is installed can be moved.
file(RENAME ${WORK}/first ${WORK}/prefix)

set(mpi_header ${WORK}/prefix/include/baton_mpi.h)
if(WITH_MPI AND NOT EXISTS ${mpi_header})
	message(FATAL_ERROR "baton_mpi.h is not installed")
elseif(NOT WITH_MPI AND EXISTS ${mpi_header})
	message(FATAL_ERROR "baton_mpi.h is installed, and there is no MPI")
endif()

# The command finds the library of its tree.
if(EXISTS ${WORK}/prefix/bin/baton)
	execute_process(COMMAND ${WORK}/prefix/bin/baton info OUTPUT_VARIABLE info
	                COMMAND_ERROR_IS_FATAL ANY)
	if(NOT info MATCHES "${WORK}/prefix/bin/../${LIBDIR}/libbaton")
		message(FATAL_ERROR "baton info runs with another library: ${info}")
	endif()
endif()

set(options -G ${GENERATOR} -DCMAKE_C_COMPILER=${CC}
            -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_PREFIX_PATH=${WORK}/prefix
            -DMPI_C_COMPILER=${MPICC} -DMPIEXEC_EXECUTABLE=${MPIEXEC})
if(MPICXX)
	list(APPEND options -DMPI_CXX_COMPILER=${MPICXX})
endif()
# find_package.
run(${CMAKE_COMMAND} -S ${ROOT}/tests/package -B ${WORK}/package ${options}
    -DTARGET_MPI=${WITH_MPI})
run(${CMAKE_COMMAND} --build ${WORK}/package)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/package --output-on-failure
    --no-tests=error --timeout 60)
# The same from a project that has no C.
run(${CMAKE_COMMAND} -S ${ROOT}/tests/package/cxx -B ${WORK}/cxx ${options}
    -DTARGET_MPI=${WITH_MPI})
run(${CMAKE_COMMAND} --build ${WORK}/cxx)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/cxx --output-on-failure
    --no-tests=error --timeout 60)

# The samples.
run(${CMAKE_COMMAND} -S ${ROOT}/samples -B ${WORK}/samples ${options})
run(${CMAKE_COMMAND} --build ${WORK}/samples)

# pkg-config.
find_program(PKG_CONFIG NAMES pkg-config pkgconf REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${WORK}/prefix/${LIBDIR}/pkgconfig)
set(ENV{LD_LIBRARY_PATH} ${WORK}/prefix/${LIBDIR}:$ENV{LD_LIBRARY_PATH})
function(pkg_config flags_p)
	execute_process(COMMAND ${PKG_CONFIG} ${ARGN} baton
	                OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
	                COMMAND_ERROR_IS_FATAL ANY)
	separate_arguments(flags UNIX_COMMAND "${flags}")
	set(${flags_p} ${flags} PARENT_SCOPE)
endfunction()
set(pair ${ROOT}/tests/package/pair.c)
pkg_config(flags --cflags --libs)
run(${CC} -std=c11 -o ${WORK}/pair-c ${pair} ${flags})
run(${WORK}/pair-c)
run(${CXX} -std=c++17 -x c++ -o ${WORK}/pair-cxx ${pair} -x none ${flags})
run(${WORK}/pair-cxx)
# Static.  The shared library is away when this program runs, at the end.
pkg_config(flags --static --cflags --libs)
run(${CC} -std=c11 -o ${WORK}/pair-static ${pair} ${flags})
# Both run with the MPI that Baton was built with.
function(library_of name file path_p)
	execute_process(COMMAND ldd ${file} OUTPUT_VARIABLE libraries
	                COMMAND_ERROR_IS_FATAL ANY)
	string(REGEX MATCH "${name}[^ ]* => [^ \n]+" line "${libraries}")
	if(line STREQUAL "")
		message(FATAL_ERROR "${file} has no ${name}: ${libraries}")
	endif()
	string(REGEX REPLACE ".* => " "" path "${line}")
	set(${path_p} ${path} PARENT_SCOPE)
endfunction()
if(WITH_MPI)
	library_of(libmpi ${WORK}/prefix/${LIBDIR}/libbaton.so shared)
	library_of(libmpi ${WORK}/pair-static static)
	if(NOT shared STREQUAL static)
		message(FATAL_ERROR "libbaton.so takes ${shared}, and a program "
		                    "with libbaton.a takes ${static}")
	endif()
endif()
file(RENAME ${WORK}/prefix/${LIBDIR} ${WORK}/prefix/away)
run(${WORK}/pair-static)

# Uninstall.
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/gone)
file(WRITE ${WORK}/gone/share/doc/baton/mine "")
file(WRITE ${WORK}/gone/lib/mine "")
run(${CMAKE_COMMAND} --build ${BUILD} --target uninstall)
file(GLOB_RECURSE left RELATIVE ${WORK}/gone ${WORK}/gone/*)
if(NOT left STREQUAL "lib/mine;share/doc/baton/mine" OR EXISTS ${WORK}/gone/${LIBDIR}/cmake/baton)
	message(FATAL_ERROR "uninstall leaves ${left}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target uninstall
                RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(result EQUAL 0 OR NOT said MATCHES "nothing to uninstall")
	message(FATAL_ERROR "what is uninstalled can be uninstalled: ${said}")
endif()
