# SPDX-License-Identifier: BSD-3-Clause
#
# Every shell script of the tree parses, and pleases shellcheck where that is
# installed.  cmake -DROOT=... -P this
cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE files LIST_DIRECTORIES false
     ${ROOT}/.ci/* ${ROOT}/tests/* ${ROOT}/samples/* ${ROOT}/docs/*)
find_program(SHELLCHECK shellcheck)
set(count 0)
foreach(file IN LISTS files)
	file(READ ${file} start LIMIT 64)
	if(NOT start MATCHES "^#!.*(bash|/sh|env sh)")
		continue()
	endif()
	math(EXPR count "${count} + 1")
	execute_process(COMMAND bash -n ${file} RESULT_VARIABLE code
	                ERROR_VARIABLE errors)
	if(NOT code EQUAL 0)
		message(SEND_ERROR "${file} does not parse:\n${errors}")
	endif()
	if(SHELLCHECK)
		execute_process(COMMAND ${SHELLCHECK} -x -P SCRIPTDIR ${file}
		                RESULT_VARIABLE code OUTPUT_VARIABLE errors
		                ERROR_VARIABLE errors)
		if(NOT code EQUAL 0)
			message(SEND_ERROR "${file}:\n${errors}")
		endif()
	endif()
endforeach()
if(count EQUAL 0)
	message(FATAL_ERROR "no shell scripts below ${ROOT}")
endif()
message(STATUS "${count} scripts (shellcheck: ${SHELLCHECK})")
