# SPDX-License-Identifier: BSD-3-Clause
#
# check_layers.cmake can fail: plant each kind of violation in a copy of the
# tree and see it found.  cmake -DROOT=<tree> -DWORK=<scratch> -P this
cmake_minimum_required(VERSION 3.25)

function(check result_p output_p)
	execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${WORK} -P
	                        ${ROOT}/tests/check_layers.cmake
	                RESULT_VARIABLE result
	                OUTPUT_VARIABLE output ERROR_VARIABLE output)
	set(${result_p} ${result} PARENT_SCOPE)
	set(${output_p} "${output}" PARENT_SCOPE)
endfunction()

# One line more in one file must be found, and the file named.
function(plant file line)
	set(before)
	if(EXISTS ${WORK}/${file})
		file(READ ${WORK}/${file} before)
	endif()
	file(WRITE ${WORK}/${file} "${before}\n${line}\n")
	check(result output)
	if(result EQUAL 0 OR NOT output MATCHES "${file}: ")
		message(SEND_ERROR "not found in ${file}: ${line}\n${output}")
	else()
		message(STATUS "found in ${file}: ${line}")
	endif()
	file(REMOVE ${WORK}/${file})
	if(before)
		file(WRITE ${WORK}/${file} "${before}")
	endif()
endfunction()

# And these must not be.
function(accept file line)
	file(WRITE ${WORK}/${file} "${line}\n")
	check(result output)
	if(NOT result EQUAL 0)
		message(SEND_ERROR "refused in ${file}: ${line}\n${output}")
	endif()
	file(REMOVE ${WORK}/${file})
endfunction()

# A tree of the same shape and of few words, so that this test does not depend
# on what the real one holds.
file(REMOVE_RECURSE ${WORK})
file(COPY ${ROOT}/include DESTINATION ${WORK})
foreach(file runtime/engine.c runtime/engine.h runtime/op.h runtime/log.h
        runtime/device.h runtime/device_host.c transport/transport.h
        transport/local.c transport/mpi.c transport/mpi.h
        transport/mpi_bootstrap.c transport/registry.h runtime/comm.h)
	file(WRITE ${WORK}/${file} "#include \"baton.h\"\n")
endforeach()
check(result output)
if(NOT result EQUAL 0)
	message(FATAL_ERROR "the sound tree is refused:\n${output}")
endif()

plant(runtime/engine.c "#include <mpi.h>")
plant(runtime/engine.c "int x = MPI_SUCCESS;")
plant(runtime/engine.c "#  include  <nccl.h>")
plant(transport/local.c "void f(void) { ncclGroupStart(); }")
plant(runtime/device_host.c "#include <cuda.h>")
plant(runtime/device_host.c "void f(void) { cuInit(0); }")
plant(transport/mpi.c "void f(void *s) { cudaStreamSynchronize(s); }")
plant(transport/local.c "#include \"engine.h\"")
plant(transport/local.c "#include \"op.h\"")
plant(transport/mpi.c "#include \"comm.h\"")
plant(runtime/device_host.c "#include \"op.h\"")
plant(runtime/engine.c "#include \"mpi.h\"")
plant(runtime/engine.c "#include \"../transport/local.h\"")
plant(runtime/log.h "#include \"engine.h\"")
plant(runtime/device.h "#include \"op.h\"")
plant(transport/transport.h "#include \"engine.h\"")
plant(include/baton.h "#include <stdlib.h>")
plant(include/baton_mpi.h "#include <stdio.h>")
plant(runtime/new.c "#include \"window.h\"")

accept(transport/mpi_more.c "#include <mpi.h>\n#include \"mpi.h\"")
accept(transport/mpi_bootstrap.c "#include \"comm.h\"\n#include \"registry.h\"")
accept(runtime/new.c "/* MPI_Isend */ // cuInit\nchar *s = \"MPI_Isend\";")
accept(runtime/new.c "int a = BATON_ERR_MPI, b = BATON_TRANSPORT_NCCL;")
accept(runtime/device_cuda.c "#include <cuda.h>\n#include \"device.h\"")
