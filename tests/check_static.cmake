# SPDX-License-Identifier: BSD-3-Clause
#
# The static library that users get (a release build of it alone, made here) can be linked by
# any compiler, and names no file of the machine that built it: no object is for link-time
# optimisation, and no string begins with the path of the sources or of the build.  Neither
# depends on the level of optimisation, so it is compiled at the fastest one.
# cmake -DROOT=... -DWORK=... -DCC=... -DGENERATOR=... -DOBJDUMP=... -DWITH_MPI=... -P this
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${CMAKE_COMMAND} -S ${ROOT} -B ${WORK} -G ${GENERATOR}
	-DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS_RELEASE=-O0 -DNDEBUG" -DCMAKE_C_COMPILER=${CC}
	-DBATON_WITH_MPI=${WITH_MPI} -DBATON_BUILD_TESTS=OFF
	-DBATON_BUILD_SAMPLES=OFF -DBATON_BUILD_BENCH=OFF
	COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK} --parallel 2
	--target baton-static COMMAND_ERROR_IS_FATAL ANY)
set(library ${WORK}/libbaton.a)

execute_process(COMMAND ${OBJDUMP} -h ${library} OUTPUT_VARIABLE sections
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT sections MATCHES "[.]text")
	message(FATAL_ERROR "${library} has no sections: ${sections}")
elseif(sections MATCHES "[.]gnu[.]lto_[^ \n]*")
	message(SEND_ERROR "${library} has ${CMAKE_MATCH_0}: it is for one "
	        "version of one compiler")
endif()
foreach(path ${ROOT} ${WORK})
	file(STRINGS ${library} found REGEX "${path}" LIMIT_COUNT 3)
	if(found)
		message(SEND_ERROR "${library} has paths of the build: ${found}")
	endif()
endforeach()
file(STRINGS ${library} found REGEX "BATON_ERR_[A-Z]+" LIMIT_COUNT 1)
if(NOT found)
	message(FATAL_ERROR "${library} has no text at all, so there was "
	        "nothing to be seen")
endif()
