# SPDX-License-Identifier: BSD-3-Clause
#
# man finds each function of the headers and each command by its name, no page makes it
# warn, and its index has each name with what it is.
# cmake -DROOT=<tree> -DWORK=<scratch> -DMAN=<program> -DLEXGROG=<program>
#       -DPAGES=<folder of man1 and man3> -P this
cmake_minimum_required(VERSION 3.25)

# What man says when it formats pages: nothing, if they are good.
function(warnings said_p)
	execute_process(COMMAND ${MAN} --warnings -E UTF-8 -Tutf8 -Z -l ${ARGN}
	                WORKING_DIRECTORY ${PAGES} OUTPUT_QUIET ERROR_VARIABLE said)
	set(${said_p} "${said}" PARENT_SCOPE)
endfunction()

# Every name of a section is found here, and stands in the index of all pages.
function(check_names section)
	if(NOT ARGN)
		message(FATAL_ERROR "no names of section ${section}: nothing was looked at")
	endif()
	execute_process(COMMAND ${MAN} -M ${PAGES} -w ${section} ${ARGN}
	                RESULT_VARIABLE result OUTPUT_VARIABLE found ERROR_VARIABLE said)
	string(REGEX MATCHALL "[^\n]+" found "${found}")
	list(FILTER found INCLUDE REGEX "^${PAGES}/")
	list(LENGTH found found)
	list(LENGTH ARGN count)
	if(NOT result EQUAL 0 OR NOT found EQUAL count)
		message(SEND_ERROR "man finds ${found} of ${count} names: ${said}")
	endif()
	foreach(name IN LISTS ARGN)
		if(NOT index MATCHES "\"${name} - [^\"]")
			message(SEND_ERROR "apropos would not find ${name}:\n${index}")
		endif()
	endforeach()
	message(STATUS "${count} names of section ${section}")
endfunction()

# The pages that are no line with the name of another one.
file(GLOB pages RELATIVE ${PAGES} ${PAGES}/man1/*.1 ${PAGES}/man3/*.3)
set(own)
foreach(page IN LISTS pages)
	file(READ ${PAGES}/${page} start LIMIT 4)
	if(NOT start STREQUAL ".so ")
		list(APPEND own ${page})
	endif()
endforeach()
execute_process(COMMAND ${LEXGROG} ${own} WORKING_DIRECTORY ${PAGES} OUTPUT_VARIABLE index)

set(functions)
foreach(header baton.h baton_mpi.h)
	file(READ ${ROOT}/include/${header} text)
	string(REGEX MATCHALL "BATON_API [a-z][^(;]*[ \n*]baton_[a-z0-9_]+[(]" declared "${text}")
	list(TRANSFORM declared REPLACE "^.*[ \n*](baton_[a-z0-9_]+).$" "\\1")
	list(APPEND functions ${declared})
endforeach()
check_names(3 ${functions})
file(READ ${ROOT}/tools/main.c text)
string(REGEX MATCHALL "\n\t{\"[a-z]+\", " commands "${text}")
list(TRANSFORM commands REPLACE "[^a-z]" "")
list(TRANSFORM commands PREPEND "baton-")
check_names(1 baton ${commands})

warnings(said ${own})
if(said)
	message(SEND_ERROR "${said}")
endif()
# It would have said so.
file(WRITE ${WORK}/bad.1 ".TH BAD 1\n.SH NAME\nbad \\- a page\n.no_such_macro\n")
warnings(said ${WORK}/bad.1)
if(NOT said MATCHES "no_such_macro")
	message(FATAL_ERROR "man does not warn of what is wrong: ${said}")
endif()
