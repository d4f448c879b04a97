# SPDX-License-Identifier: BSD-3-Clause
#
# The layer rule of docs/design.md: which folder may see which, by what its files
# include, by the library that they name, and by the symbols that their objects need.
# And the circles of calls within a folder: no more files than `circle_max` in one.
# cmake -DROOT=<tree> [-DNM=<nm> -DOBJECTS=<object,object>] -P this
#
#   floors, each above the one before: base, contract, core, diag, ops, comm,
#   window/base, window/paths, window; a folder sees itself and what is beneath.
#   leaves (runtime/device/<name>/, transport/<name>/, transport/bootstrap/<name>/) see base
#   and contract; a transport <name> also the bootstrap <name>.  No folder sees a leaf:
#   runtime/parts.c lists them, and the folders from contract on need its tables.
cmake_minimum_required(VERSION 3.25)

set(floors base contract core diag ops comm window-base window-paths window)
set(circle_max 9)

# folder_of: the folder of a file, in folder_p; "" if it lies in none.
function(folder_of file folder_p)
	set(folder)
	if(file STREQUAL "runtime/parts.c")
		set(folder parts)
	elseif(file MATCHES "^runtime/(base|contract|core|diag|ops|comm)/")
		set(folder ${CMAKE_MATCH_1})
	elseif(file MATCHES "^runtime/device/([a-z]+)/")
		set(folder device-${CMAKE_MATCH_1})
	elseif(file MATCHES "^transport/bootstrap/([a-z]+)/")
		set(folder bootstrap-${CMAKE_MATCH_1})
	elseif(file MATCHES "^transport/([a-z]+)/")
		set(folder transport-${CMAKE_MATCH_1})
	elseif(file MATCHES "^window/(base|paths)/")
		set(folder window-${CMAKE_MATCH_1})
	elseif(file MATCHES "^window/")
		set(folder window)
	endif()
	set(${folder_p} "${folder}" PARENT_SCOPE)
endfunction()

# The folders whose headers a folder may include, and whose symbols its objects may need.
set(below)
foreach(folder IN LISTS floors)
	list(APPEND below ${folder})
	set(sees_${folder} ${below})
	set(needs_${folder} ${below} parts)
endforeach()
set(needs_base base)
set(sees_parts base contract core ops)
set(sees_leaf base contract)
set(needs_leaf base contract)

# allowed: the list that `kind` (sees, needs) gives a folder, in list_p.  A leaf has
# itself too, and the list of parts needs every leaf.
function(allowed kind folder list_p)
	if(folder MATCHES "^transport-(.*)")
		set(list ${${kind}_leaf} ${folder} bootstrap-${CMAKE_MATCH_1})
	elseif(folder MATCHES "^(device|bootstrap)-")
		set(list ${${kind}_leaf} ${folder})
	else()
		set(list ${${kind}_${folder}})
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
	folder_of(${file} folder)
	if(NOT folder)
		complain(${file} "lies in no folder")
		return()
	endif()
	allowed(sees ${folder} seen)
	foreach(include IN LISTS includes)
		if(NOT include MATCHES "^\"(.*)\"$")
			continue()
		endif()
		set(header ${CMAKE_MATCH_1})
		if(header STREQUAL "baton.h" OR header STREQUAL "baton_trace.h" OR
		   (header STREQUAL "baton_mpi.h" AND file MATCHES "mpi"))
			continue()
		endif()
		set(path ${path_of_${header}})
		set(of "no folder")
		if(path)
			folder_of(${path} of)
		endif()
		if(NOT of IN_LIST seen)
			complain(${file} "includes ${include} of ${of}, which "
			         "the folder ${folder} does not see")
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

# What nm says of all objects, by one process: lines of an object, a letter and a symbol.
function(read_symbols lines_p)
	execute_process(COMMAND ${NM} -A ${ARGN} OUTPUT_VARIABLE lines
	                COMMAND_ERROR_IS_FATAL ANY)
	string(REGEX MATCHALL "[^\n]+ [A-Za-z] batoni?_[A-Za-z0-9_]+" lines "${lines}")
	set(${lines_p} ${lines} PARENT_SCOPE)
endfunction()

# The source of an object, relative to the tree, in source_p.
function(source_of object source_p)
	string(REGEX MATCH "(runtime|transport|window)/[a-z_/]+\\.c" source "${object}")
	set(${source_p} ${source} PARENT_SCOPE)
endfunction()

# A file of the same folder that another one calls, once.
function(note_call source callee)
	get_property(callees GLOBAL PROPERTY callees_${source})
	if(NOT callee STREQUAL source AND NOT callee IN_LIST callees)
		set_property(GLOBAL APPEND PROPERTY callees_${source} ${callee})
	endif()
endfunction()

# A file needs a symbol of another one: its folder sees that one's.
function(check_need source symbol source_of_symbol)
	folder_of("${source}" folder)
	folder_of("${source_of_symbol}" of)
	if(folder STREQUAL "" OR folder STREQUAL "parts")
		return()
	endif()
	allowed(needs ${folder} folders)
	if(of STREQUAL folder)
		note_call(${source} ${source_of_symbol})
	endif()
	if(NOT of IN_LIST folders)
		complain(${source} "needs ${symbol} of ${of}, which "
		         "the folder ${folder} does not see")
	endif()
endfunction()

function(check_objects)
	if(NOT ARGN)
		return()
	endif()
	foreach(object IN LISTS ARGN)
		source_of(${object} source)
		if(NOT source)
			complain(${object} "is of no folder")
		endif()
	endforeach()
	read_symbols(symbols ${ARGN})
	foreach(line IN LISTS symbols)
		if(line MATCHES "^(.*):.* [BDRTVWCG] (batoni?_[A-Za-z0-9_]+)$")
			source_of(${CMAKE_MATCH_1} source_of_${CMAKE_MATCH_2})
		endif()
	endforeach()
	foreach(line IN LISTS symbols)
		if(line MATCHES "^(.*):.* U (batoni?_[A-Za-z0-9_]+)$")
			set(symbol ${CMAKE_MATCH_2})
			source_of(${CMAKE_MATCH_1} source)
			check_need("${source}" ${symbol} "${source_of_${symbol}}")
		endif()
	endforeach()
endfunction()

# ---- circles of calls ----

# The files of its folder that a file reaches by calls, in files_p.
function(reached_from source files_p)
	set(reached)
	set(open ${source})
	while(open)
		list(POP_FRONT open file)
		get_property(callees GLOBAL PROPERTY callees_${file})
		list(REMOVE_ITEM callees ${reached} "")
		list(APPEND reached ${callees})
		list(APPEND open ${callees})
	endwhile()
	set(${files_p} ${reached} PARENT_SCOPE)
endfunction()

# The length of the longest circle, in longest_p.
function(check_circles longest_p)
	set(longest 0)
	set(sources)
	foreach(object IN LISTS ARGN)
		source_of(${object} source)
		list(APPEND sources ${source})
		reached_from("${source}" reached_${source})
	endforeach()
	foreach(source IN LISTS sources)
		set(circle)
		foreach(file IN LISTS reached_${source})
			if(source IN_LIST reached_${file})
				list(APPEND circle ${file})
			endif()
		endforeach()
		list(LENGTH circle length)
		if(length GREATER longest)
			set(longest ${length})
		endif()
		if(length GREATER circle_max)
			list(SORT circle)
			list(JOIN circle " " files)
			complain(${source} "is in a circle of calls of ${length} "
			         "files, more than ${circle_max}: ${files}")
		endif()
	endforeach()
	set(${longest_p} ${longest} PARENT_SCOPE)
endfunction()

check_public(include/baton.h "<stdbool.h>" "<stddef.h>" "<stdint.h>")
check_public(include/baton_mpi.h "\"baton.h\"" "<mpi.h>")
check_public(include/baton_trace.h "<stdint.h>")
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
check_circles(longest ${objects})
list(LENGTH files count)
list(LENGTH objects count_objects)
message(STATUS "looked at ${count} files of ${ROOT}, and ${count_objects} objects; the longest "
               "circle of calls has ${longest} files")
