# SPDX-License-Identifier: BSD-3-Clause
#
# Every header compiles alone: all of them as C11, the public ones also as C++17, and
# the initialisers of baton.h in both.
# cmake -DROOT=... -DCC=... -DCXX=... [-DMPI_INCLUDES=dir,dir] -P this
cmake_minimum_required(VERSION 3.25)

set(strict -fsyntax-only -Wall -Wextra -Wpedantic -Wundef -Werror
           -pedantic-errors)
set(failed 0)

# Compile text, which is source in the language that command is for.
function(compiles what text)
	set(source ${WORK}/alone.c)
	file(WRITE ${source} "${text}")
	execute_process(COMMAND ${ARGN} ${source}
	                RESULT_VARIABLE code ERROR_VARIABLE errors)
	if(NOT code EQUAL 0)
		message(SEND_ERROR "${what} does not compile:\n${errors}")
		set(failed 1 PARENT_SCOPE)
	endif()
endfunction()

file(MAKE_DIRECTORY ${WORK})
set(c11 ${CC} -x c -std=c11 ${strict} -I${ROOT}/include)
set(cxx17 ${CXX} -x c++ -std=c++17 ${strict} -I${ROOT}/include)
set(internal ${CC} -x c -std=c11 -D_GNU_SOURCE ${strict} -I${ROOT}/include
             -I${ROOT}/runtime/base -I${ROOT}/runtime/contract -I${ROOT}/runtime/core
             -I${ROOT}/runtime/ops -I${ROOT}/runtime/comm -I${ROOT}/runtime/diag
             -I${ROOT}/runtime/device/host -I${ROOT}/runtime/device/cuda
             -I${ROOT}/transport/local -I${ROOT}/transport/mpi
             -I${ROOT}/transport/bootstrap/mpi -I${ROOT}/transport/bootstrap/socket
             -I${ROOT}/window/base
             -I${ROOT}/window/paths -I${ROOT}/window)
set(mpi)
string(REPLACE "," ";" MPI_INCLUDES "${MPI_INCLUDES}")
foreach(dir IN LISTS MPI_INCLUDES)
	list(APPEND mpi -isystem ${dir})
endforeach()

set(initialisers "#include <baton.h>
struct baton_comm_options comm = BATON_COMM_OPTIONS_INIT;
struct baton_op_options op = BATON_OP_OPTIONS_INIT;
struct baton_comm_options make(void);
struct baton_comm_options make(void)
{
	struct baton_comm_options made = BATON_COMM_OPTIONS_INIT;
	return made;
}
")
compiles("baton.h (C11)" "#include <baton.h>\n" ${c11})
compiles("baton.h (C++17)" "#include <baton.h>\n" ${cxx17})
compiles("baton_trace.h (C11)" "#include <baton_trace.h>\n" ${c11})
compiles("baton_trace.h (C++17)" "#include <baton_trace.h>\n" ${cxx17})
compiles("an initialiser of baton.h (C11)" "${initialisers}" ${c11})
compiles("an initialiser of baton.h (C++17)" "${initialisers}" ${cxx17})
if(MPI_INCLUDES)
	compiles("baton_mpi.h (C11)" "#include <baton_mpi.h>\n" ${c11} ${mpi})
	compiles("baton_mpi.h (C++17)" "#include <baton_mpi.h>\n"
	         ${cxx17} ${mpi})
endif()

file(GLOB_RECURSE headers RELATIVE ${ROOT} ${ROOT}/runtime/*.h
     ${ROOT}/transport/*.h ${ROOT}/window/*.h)
foreach(header IN LISTS headers)
	set(flags)
	if(header MATCHES "mpi")
		if(NOT MPI_INCLUDES)
			continue()
		endif()
		set(flags ${mpi})
	endif()
	# One that has macros alone would be an empty translation unit.
	compiles("${header}" "#include \"${ROOT}/${header}\"\nextern int more;\n"
	         ${internal} ${flags})
endforeach()
list(LENGTH headers count)
message(STATUS "baton.h and ${count} internal headers compile alone")
