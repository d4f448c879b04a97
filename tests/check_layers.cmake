# SPDX-License-Identifier: BSD-3-Clause
#
# The layer rule of docs/design.md: which room may see which, by what its files
# include, by the library that they name, and by the symbols that their objects need.
# cmake -DROOT=<tree> [-DNM=<nm> -DOBJECTS=<object,object>] -P this
#
#   base <- contract <- engine (core, ops, comm, diag) <- window (base <- paths <- the rest)
#   leaves (runtime/device/<name>/, transport/<name>/,
#   transport/bootstrap/<name>/) see base and contract; a transport <name> also the bootstrap <name>.  The engine
#   sees no leaf: runtime/parts.c, which all may need, has their tables.
cmake_minimum_required(VERSION 3.25)

# room_of: the room of a file, in room_p; "" if it lies in none.
function(room_of file room_p)
	set(room)
	if(file STREQUAL "runtime/parts.c")
		set(room parts)
	elseif(file MATCHES "^runtime/(base|contract)/")
		set(room ${CMAKE_MATCH_1})
	elseif(file MATCHES "^runtime/(core|ops|comm|diag)/")
		set(room engine)
	elseif(file MATCHES "^runtime/device/([a-z]+)/")
		set(room device-${CMAKE_MATCH_1})
	elseif(file MATCHES "^transport/bootstrap/([a-z]+)/")
		set(room bootstrap-${CMAKE_MATCH_1})
	elseif(file MATCHES "^transport/([a-z]+)/")
		set(room transport-${CMAKE_MATCH_1})
	elseif(file MATCHES "^window/(base|paths)/")
		set(room window-${CMAKE_MATCH_1})
	elseif(file MATCHES "^window/")
		set(room window)
	endif()
	set(${room_p} "${room}" PARENT_SCOPE)
endfunction()

# The rooms whose headers a room may include, and whose symbols its objects may need.
set(sees_base base)
set(sees_contract base contract)
set(sees_leaf base contract)
set(sees_engine base contract engine)
set(sees_parts base contract engine)
set(sees_window-base base contract engine window-base)
set(sees_window-paths ${sees_window-base} window-paths)
set(sees_window ${sees_window-paths} window)
set(needs_base base)
set(needs_contract base contract parts)
set(needs_leaf base contract)
set(needs_engine base contract engine parts)
set(needs_window-base base contract engine parts window-base)
set(needs_window-paths ${needs_window-base} window-paths)
set(needs_window ${needs_window-paths} window)

# allowed: the list that `kind` (sees, needs) gives a room, in list_p.  A leaf has
# itself too, and the list of parts needs every leaf.
function(allowed kind room list_p)
	if(room MATCHES "^transport-(.*)")
		set(list ${${kind}_leaf} ${room} bootstrap-${CMAKE_MATCH_1})
	elseif(room MATCHES "^(device|bootstrap)-")
		set(list ${${kind}_leaf} ${room})
	else()
		set(list ${${kind}_${room}})
	endif()
	set(${list_p} ${list} PARENT_SCOPE)
endfunction()

function(complain file text)
	message(SEND_ERROR "${file}: ${text}")
endfunction()

# ---- what files include and name ----

# The file without comments, in code_p; its #include arguments, with their
# quotes or brackets, in includes_p.
function(read_source file code_p includes_p)
	file(READ ${ROOT}/${file} code)
	# Semicolons and square brackets have a meaning in CMake's lists.
	string(REGEX REPLACE "[][;]" " " code "${code}")
	string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " code "${code}")
	string(REGEX REPLACE "//[^\n]*" " " code "${code}")
	string(REGEX MATCHALL "#[ \t]*include[ \t]*[<\"][^>\"]*[>\"]"
	       includes "${code}")
	list(TRANSFORM includes REPLACE "^#[ \t]*include[ \t]*" "")
	# What is said in a string is not a use.
	string(REGEX REPLACE "\"([^\"\\\n]|\\\\.)*\"" "\"\"" code "${code}")
	set(${code_p} " ${code}" PARENT_SCOPE)
	set(${includes_p} "${includes}" PARENT_SCOPE)
endfunction()

# A library may be named, and its headers included, by files whose path has its name.
function(check_library file code includes library owner header names)
	if(file MATCHES "${owner}")
		return()
	endif()
	foreach(include IN LISTS includes)
		if(include MATCHES "^[<\"]${header}")
			complain(${file} "includes ${include}: ${library} is "
			         "for files named ${owner}")
		endif()
	endforeach()
	if(code MATCHES "[^A-Za-z0-9_](${names})")
		complain(${file} "names ${CMAKE_MATCH_1}: ${library} is for "
		         "files named ${owner}")
	endif()
endfunction()

function(check_source file)
	read_source(${file} code includes)
	check_library(${file} "${code}" "${includes}" NCCL "nccl"
	              "nccl" "nccl[A-Z][A-Za-z]*|NCCL_[A-Z]+")
	check_library(${file} "${code}" "${includes}" MPI "mpi"
	              "mpi\\.h" "MPI_[A-Za-z]+")
	check_library(${file} "${code}" "${includes}" CUDA "cuda"
	              "cuda" "cu(da)?[A-Z][A-Za-z]+|CU_[A-Z]+")
	check_library(${file} "${code}" "${includes}" NVTX "nvtx"
	              "nvtx3/" "nvtx[A-Z][A-Za-z]*|NVTX_[A-Z]+")
	room_of(${file} room)
	if(NOT room)
		complain(${file} "lies in no room")
		return()
	endif()
	allowed(sees ${room} seen)
	foreach(include IN LISTS includes)
		if(NOT include MATCHES "^\"(.*)\"$")
			continue()
		endif()
		set(header ${CMAKE_MATCH_1})
		if(header STREQUAL "baton.h" OR
		   (header STREQUAL "baton_mpi.h" AND file MATCHES "mpi"))
			continue()
		endif()
		set(path ${path_of_${header}})
		set(of "no room")
		if(path)
			room_of(${path} of)
		endif()
		if(NOT of IN_LIST seen)
			complain(${file} "includes ${include} of ${of}, which "
			         "the room ${room} does not see")
		endif()
	endforeach()
endfunction()

# A public header includes exactly these.
function(check_public file)
	read_source(${file} code includes)
	list(SORT includes)
	if(NOT includes STREQUAL "${ARGN}")
		complain(${file} "includes ${includes}, and should: ${ARGN}")
	endif()
endfunction()

# ---- what objects need ----

# The symbols of an object, by nm's letters that match `letters`, in symbols_p.
function(symbols_of object letters symbols_p)
	execute_process(COMMAND ${NM} ${object} OUTPUT_VARIABLE lines
	                COMMAND_ERROR_IS_FATAL ANY)
	string(REGEX MATCHALL " ${letters} batoni_[A-Za-z0-9_]+" symbols "${lines}")
	list(TRANSFORM symbols REPLACE "^ . " "")
	set(${symbols_p} ${symbols} PARENT_SCOPE)
endfunction()

# The source of an object, relative to the tree, in source_p.
function(source_of object source_p)
	string(REGEX MATCH "(runtime|transport|window)/[a-z_/]+\\.c" source "${object}")
	set(${source_p} ${source} PARENT_SCOPE)
endfunction()

function(check_objects)
	foreach(object IN LISTS ARGN)
		source_of(${object} source)
		if(NOT source)
			complain(${object} "is of no room")
			continue()
		endif()
		symbols_of(${object} "[BDRTVWCG]" defined)
		room_of(${source} room)
		foreach(symbol IN LISTS defined)
			set(room_of_${symbol} ${room})
		endforeach()
	endforeach()
	foreach(object IN LISTS ARGN)
		source_of(${object} source)
		room_of(${source} room)
		if(room STREQUAL "parts")
			continue()
		endif()
		allowed(needs ${room} rooms)
		symbols_of(${object} "U" needed)
		foreach(symbol IN LISTS needed)
			if(NOT room_of_${symbol} IN_LIST rooms)
				complain(${source} "needs ${symbol} of "
				         "${room_of_${symbol}}, which the room "
				         "${room} does not see")
			endif()
		endforeach()
	endforeach()
endfunction()

check_public(include/baton.h "<stdbool.h>" "<stddef.h>" "<stdint.h>")
check_public(include/baton_mpi.h "\"baton.h\"" "<mpi.h>")
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/runtime/*.[ch]
     ${ROOT}/transport/*.[ch] ${ROOT}/window/*.[ch])
if(NOT files)
	message(FATAL_ERROR "no sources below ${ROOT}")
endif()
foreach(file IN LISTS files)
	if(file MATCHES "([^/]+\\.h)$")
		set(path_of_${CMAKE_MATCH_1} ${file})
	endif()
endforeach()
foreach(file IN LISTS files)
	check_source(${file})
endforeach()
string(REPLACE "," ";" objects "${OBJECTS}")
check_objects(${objects})
list(LENGTH files count)
list(LENGTH objects count_objects)
message(STATUS "looked at ${count} files of ${ROOT}, and ${count_objects} objects")
