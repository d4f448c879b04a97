# SPDX-License-Identifier: BSD-3-Clause
#
# The shared library shows the functions that the public headers declare: those,
# all of those, and nothing else; the static one defines nothing outside
# baton_ and batoni_.
# cmake -DROOT=... -DNM=... -DSHARED=... -DSTATIC=... -DHEADERS=a.h,b.h -P this
cmake_minimum_required(VERSION 3.25)

# The defined symbols of a library that others can link to, in names_p.
function(symbols library names_p)
	execute_process(COMMAND ${NM} -g --defined-only --format=posix ${ARGN}
	                        ${library}
	                OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
	string(REGEX MATCHALL "(^|\n)[A-Za-z_][^ \n]* [A-Z]" lines "${output}")
	set(names)
	foreach(line IN LISTS lines)
		string(REGEX REPLACE "^\n?([^ @]*).* ([A-Z])$" "\\1;\\2" pair
		       "${line}")
		list(GET pair 0 name)
		list(GET pair 1 kind)
		# A is the name of the version itself.
		if(NOT kind STREQUAL "A")
			list(APPEND names ${name})
		endif()
	endforeach()
	list(SORT names)
	set(${names_p} ${names} PARENT_SCOPE)
endfunction()

set(declared)
string(REPLACE "," ";" HEADERS "${HEADERS}")
foreach(header IN LISTS HEADERS)
	file(READ ${ROOT}/include/${header} text)
	string(REGEX REPLACE "[][;]" " " text "${text}")
	string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " text "${text}")
	string(REGEX REPLACE "#[^\n]*" " " text "${text}")
	string(REGEX MATCHALL "BATON_API[^(]*[^A-Za-z0-9_]baton_[a-z0-9_]+\\("
	       functions "${text}")
	list(TRANSFORM functions REPLACE "^.*(baton_[a-z0-9_]+)\\($" "\\1")
	list(APPEND declared ${functions})
	# One that is declared without BATON_API would be hidden.
	string(REGEX MATCHALL "[ *\n]baton_[a-z0-9_]+\\(" all "${text}")
	list(LENGTH all all_count)
	list(LENGTH functions functions_count)
	if(NOT all_count EQUAL functions_count)
		message(SEND_ERROR "${header}: ${all_count} functions, "
		        "${functions_count} of them with BATON_API")
	endif()
endforeach()
list(SORT declared)
if(NOT declared)
	message(FATAL_ERROR "no declarations found in ${HEADERS}")
endif()

symbols(${SHARED} shown -D)
set(missing ${declared})
list(REMOVE_ITEM missing ${shown})
set(extra ${shown})
list(REMOVE_ITEM extra ${declared})
foreach(name IN LISTS missing)
	message(SEND_ERROR "${name} is declared, but the library has it not")
endforeach()
foreach(name IN LISTS extra)
	message(SEND_ERROR "${name} is shown, but no public header declares it")
endforeach()

symbols(${STATIC} names)
list(FILTER names EXCLUDE REGEX "^batoni?_")
# What a sanitizer adds to each object is not ours.
list(FILTER names EXCLUDE REGEX "^__(odr_asan|asan|tsan|ubsan)")
# NVTX's header defines its own, weak: a program has them once, from whichever library.
list(FILTER names EXCLUDE REGEX
     "^(nvtx[A-Za-z0-9_]+_v3|InitializeInjectionNvtx2_fnptr)$")
foreach(name IN LISTS names)
	message(SEND_ERROR "the static library defines ${name}")
endforeach()
list(LENGTH declared count)
message(STATUS "${count} functions are declared and shown")
