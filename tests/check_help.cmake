# SPDX-License-Identifier: BSD-3-Clause
#
# Each script of the tree and each program that people start answers --help: on its standard
# output, with its name, and with status 0.
# cmake -DROOT=... -DPROGRAMS=a,b -P this
cmake_minimum_required(VERSION 3.25)

function(ask command name)
	execute_process(COMMAND ${command} --help RESULT_VARIABLE code TIMEOUT 60
	                OUTPUT_VARIABLE said ERROR_VARIABLE errors)
	if(NOT code EQUAL 0 OR NOT said MATCHES "${name}")
		message(SEND_ERROR "${command} --help ends with ${code}, and says "
		        "\"${said}\" and \"${errors}\"")
	endif()
endfunction()

file(GLOB_RECURSE files LIST_DIRECTORIES false
     ${ROOT}/.ci/* ${ROOT}/tests/* ${ROOT}/samples/* ${ROOT}/docs/*)
set(scripts 0)
foreach(file IN LISTS files)
	file(READ ${file} start LIMIT 64)
	if(NOT start MATCHES "^#!")
		continue()
	endif()
	math(EXPR scripts "${scripts} + 1")
	cmake_path(GET file FILENAME name)
	ask(${file} "${name}")
endforeach()
string(REGEX REPLACE ",+" ";" programs "${PROGRAMS}")
list(REMOVE_ITEM programs "")
foreach(program IN LISTS programs)
	cmake_path(GET program FILENAME name)
	ask(${program} "[Uu]sage: .*${name}")
endforeach()
list(LENGTH programs count)
if(scripts EQUAL 0 OR count EQUAL 0)
	message(FATAL_ERROR "${scripts} scripts below ${ROOT}, ${count} programs")
endif()
message(STATUS "${scripts} scripts, ${count} programs")
