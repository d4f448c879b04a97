# SPDX-License-Identifier: BSD-3-Clause
#
# The layer rule of docs/design.md: who may include whom, and who may name which
# library.  cmake -DROOT=<tree> -P this
#
#   public headers <- base <- contracts <- engine <- window
#   leaves (device_*.c, transport/*.c) see base and contracts, never the engine;
#   the engine sees no leaf.
cmake_minimum_required(VERSION 3.25)

set(base field.h log.h launcher.h list.h mem.h config.h clock.h shm.h)
set(contracts device.h transport.h onesided.h)
# A leaf's own headers: those of its folder that begin with its name.
set(leaf_names local mpi nccl device_host device_cuda)
# runtime/ may include everything of runtime/, and of transport/ these.
set(engine_sees_of_transport transport.h registry.h)

# What a file may include beyond its layer, by name.
set(exception_transport/mpi_bootstrap.c comm.h registry.h thread.h baton_mpi.h)
set(exception_runtime/device_host.c thread.h)
set(exception_transport/mpi_family.c baton_mpi.h)
set(exception_transport/registry.c registry.h comm.h)
set(exception_transport/registry.h comm.h)

function(complain file text)
	message(SEND_ERROR "${file}: ${text}")
endfunction()

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

# A library may be named, and its headers included, by files of a pattern only.
function(check_library file code includes library owners header names)
	get_filename_component(name ${file} NAME)
	if(name MATCHES "${owners}")
		return()
	endif()
	foreach(include IN LISTS includes)
		if(include MATCHES "^[<\"]${header}")
			complain(${file} "includes ${include}: ${library} is "
			         "for files named ${owners}")
		endif()
	endforeach()
	if(code MATCHES "[^A-Za-z0-9_](${names})")
		complain(${file} "names ${CMAKE_MATCH_1}: ${library} is for "
		         "files named ${owners}")
	endif()
endfunction()

# The headers that a file may include by quotes, in allowed_p.
function(allowed_headers file allowed_p)
	get_filename_component(name ${file} NAME)
	get_filename_component(dir ${file} DIRECTORY)
	file(GLOB own RELATIVE ${ROOT}/${dir} ${ROOT}/${dir}/*.h)
	set(allowed baton.h ${base})
	if(name IN_LIST base)
		# Base sees base.
	elseif(name IN_LIST contracts)
		# So do the contracts, and each other.
		list(APPEND allowed ${contracts})
	elseif(dir STREQUAL "transport" OR name MATCHES "^device_")
		list(APPEND allowed ${contracts})
		foreach(leaf IN LISTS leaf_names)
			if(name MATCHES "^${leaf}")
				list(FILTER own INCLUDE REGEX "^${leaf}")
				list(APPEND allowed ${own})
			endif()
		endforeach()
	elseif(dir STREQUAL "runtime")
		list(FILTER own EXCLUDE REGEX "^device_")
		list(APPEND allowed ${own} ${engine_sees_of_transport})
	elseif(dir STREQUAL "window")
		file(GLOB engine RELATIVE ${ROOT}/runtime ${ROOT}/runtime/*.h)
		list(FILTER engine EXCLUDE REGEX "^device_")
		list(APPEND allowed ${own} ${engine} transport.h)
	endif()
	set(${allowed_p} ${allowed} ${exception_${file}} PARENT_SCOPE)
endfunction()

function(check_source file)
	read_source(${file} code includes)
	check_library(${file} "${code}" "${includes}" NCCL "nccl"
	              "nccl" "nccl[A-Z][A-Za-z]*|NCCL_[A-Z]+")
	check_library(${file} "${code}" "${includes}" MPI "mpi"
	              "mpi\\.h" "MPI_[A-Za-z]+")
	check_library(${file} "${code}" "${includes}" CUDA "cuda"
	              "cuda" "cu(da)?[A-Z][A-Za-z]+|CU_[A-Z]+")
	allowed_headers(${file} allowed)
	foreach(include IN LISTS includes)
		if(NOT include MATCHES "^\"(.*)\"$")
			continue()
		endif()
		if(NOT CMAKE_MATCH_1 IN_LIST allowed)
			complain(${file} "includes ${include}, which its layer "
			         "does not see")
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

check_public(include/baton.h "<stdbool.h>" "<stddef.h>" "<stdint.h>")
check_public(include/baton_mpi.h "\"baton.h\"" "<mpi.h>")
file(GLOB files RELATIVE ${ROOT}
     ${ROOT}/runtime/*.[ch] ${ROOT}/transport/*.[ch] ${ROOT}/window/*.[ch])
if(NOT files)
	message(FATAL_ERROR "no sources below ${ROOT}")
endif()
foreach(file IN LISTS files)
	check_source(${file})
endforeach()
list(LENGTH files count)
message(STATUS "looked at ${count} files of ${ROOT}")
