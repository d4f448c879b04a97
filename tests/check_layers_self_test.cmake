# SPDX-License-Identifier: BSD-3-Clause
#
# check_layers.cmake can fail: plant each kind of violation in a copy of the
# tree and see it found.  cmake -DROOT=<tree> -DWORK=<scratch> -DCC=<cc> -DNM=<nm> -P this
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

# An object that needs a symbol of a room that it does not see must be found.
function(plant_call file code)
	file(WRITE ${WORK}/called.c "void batoni_called(void) {}\n")
	file(WRITE ${WORK}/calls.c "${code}\n")
	set(objects)
	foreach(pair "${ARGN}" "${file}")
		set(source ${WORK}/called.c)
		if(pair STREQUAL "${file}")
			set(source ${WORK}/calls.c)
		endif()
		set(object ${WORK}/objects/${pair}.o)
		get_filename_component(dir ${object} DIRECTORY)
		file(MAKE_DIRECTORY ${dir})
		execute_process(COMMAND ${CC} -c -o ${object} ${source}
		                COMMAND_ERROR_IS_FATAL ANY)
		list(APPEND objects ${object})
	endforeach()
	list(JOIN objects "," objects)
	execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${WORK} -DNM=${NM}
	                        -DOBJECTS=${objects}
	                        -P ${ROOT}/tests/check_layers.cmake
	                RESULT_VARIABLE result
	                OUTPUT_VARIABLE output ERROR_VARIABLE output)
	set(result ${result} PARENT_SCOPE)
	set(output "${output}" PARENT_SCOPE)
endfunction()

set(call "void batoni_called(void); void batoni_calls(void); void batoni_calls(void) { batoni_called(); }")
function(refuse_call from to)
	plant_call(${from} "${call}" ${to})
	if(result EQUAL 0 OR NOT output MATCHES "${from}: needs batoni_called")
		message(SEND_ERROR "${from} calls ${to}, unseen:\n${output}")
	endif()
endfunction()
function(accept_call from to)
	plant_call(${from} "${call}" ${to})
	if(NOT result EQUAL 0)
		message(SEND_ERROR "${from} calls ${to}, refused:\n${output}")
	endif()
endfunction()

# A tree of the same shape and of few words, so that this test does not depend
# on what the real one holds.
file(REMOVE_RECURSE ${WORK})
file(COPY ${ROOT}/include DESTINATION ${WORK})
foreach(file runtime/core/engine.c runtime/core/engine.h runtime/core/op.h runtime/base/log.h
        runtime/contract/device.h runtime/contract/memory.h
        runtime/device/host/host.c runtime/contract/transport.h
        transport/local/local.c transport/mpi/mpi.c transport/mpi/mpi_private.h
        transport/bootstrap/mpi/bootstrap.c runtime/contract/registry.h runtime/contract/bootstrap.h
        runtime/comm/comm.h window/window.h window/window.c window/paths/put.c)
	file(WRITE ${WORK}/${file} "#include \"baton.h\"\n")
endforeach()
check(result output)
if(NOT result EQUAL 0)
	message(FATAL_ERROR "the sound tree is refused:\n${output}")
endif()

plant(runtime/core/engine.c "#include <mpi.h>")
plant(runtime/core/engine.c "int x = MPI_SUCCESS;")
plant(runtime/core/engine.c "#  include  <nccl.h>")
plant(transport/local/local.c "void f(void) { ncclGroupStart(); }")
plant(runtime/device/host/host.c "#include <cuda.h>")
plant(runtime/device/host/host.c "void f(void) { cuInit(0); }")
plant(transport/mpi/mpi.c "void f(void *s) { cudaStreamSynchronize(s); }")
plant(transport/local/local.c "#include \"engine.h\"")
plant(transport/local/local.c "#include \"op.h\"")
plant(transport/local/local.c "#include \"mpi_private.h\"")
plant(transport/mpi/mpi.c "#include \"comm.h\"")
plant(transport/bootstrap/mpi/bootstrap.c "#include \"comm.h\"")
plant(transport/bootstrap/mpi/bootstrap.c "#include \"mpi_private.h\"")
plant(runtime/device/host/host.c "#include \"op.h\"")
plant(runtime/core/engine.c "#include \"mpi_private.h\"")
plant(runtime/core/engine.c "#include \"../transport/local.h\"")
plant(runtime/core/engine.c "#include \"window.h\"")
plant(window/paths/put.c "#include \"window.h\"")
plant(runtime/base/log.h "#include \"engine.h\"")
plant(runtime/base/log.h "#include \"device.h\"")
plant(runtime/contract/device.h "#include \"op.h\"")
plant(runtime/contract/memory.h "#include \"op.h\"")
plant(runtime/contract/transport.h "#include \"engine.h\"")
plant(include/baton.h "#include <stdlib.h>")
plant(include/baton_mpi.h "#include <stdio.h>")

accept(transport/mpi/more.c "#include <mpi.h>\n#include \"mpi_private.h\"")
accept(transport/local/local.c "#include \"memory.h\"")
accept(transport/bootstrap/mpi/bootstrap.c "#include \"bootstrap.h\"\n#include \"log.h\"")
accept(window/window.c "#include \"op.h\"\n#include \"window.h\"")
accept(runtime/core/new.c "/* MPI_Isend */ // cuInit\nchar *s = \"MPI_Isend\";")
accept(runtime/core/new.c "int a = BATON_ERR_MPI, b = BATON_TRANSPORT_NCCL;")
accept(runtime/device/cuda/cuda.c "#include <cuda.h>\n#include \"device.h\"")

refuse_call(transport/local/local.c runtime/core/engine.c)
refuse_call(transport/mpi/mpi.c runtime/comm/comm.c)
refuse_call(transport/mpi/mpi.c transport/local/local.c)
refuse_call(transport/bootstrap/mpi/bootstrap.c transport/mpi/mpi.c)
refuse_call(transport/local/local.c transport/bootstrap/mpi/bootstrap.c)
refuse_call(runtime/device/host/host.c runtime/core/op.c)
refuse_call(runtime/core/engine.c transport/local/local.c)
refuse_call(runtime/core/engine.c window/paths/put.c)
refuse_call(runtime/base/log.c runtime/core/op.c)
accept_call(runtime/core/engine.c runtime/base/log.c)
accept_call(runtime/parts.c transport/local/local.c)
accept_call(runtime/core/op.c runtime/parts.c)
refuse_call(transport/local/local.c runtime/parts.c)
refuse_call(runtime/contract/registry.c transport/local/local.c)
refuse_call(window/paths/put.c window/wait.c)
refuse_call(window/base/link.c window/paths/put.c)
accept_call(window/wait.c window/paths/put.c)
accept_call(window/paths/put.c runtime/core/op.c)
accept_call(transport/mpi/mpi.c transport/mpi/body.c)
accept_call(transport/mpi/mpi.c transport/bootstrap/mpi/bootstrap.c)
