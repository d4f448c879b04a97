# SPDX-License-Identifier: BSD-3-Clause
#
# baton-flags: how all C of this project is compiled; link it PRIVATE.  Warnings
# are errors where CMAKE_COMPILE_WARNING_AS_ERROR is set (the dev presets).

add_library(baton-flags INTERFACE)
target_compile_features(baton-flags INTERFACE c_std_11)
target_compile_definitions(baton-flags INTERFACE _GNU_SOURCE)
target_compile_options(baton-flags INTERFACE
	# Strict C11 whatever the compiler's default is; set here rather than by
	# C_EXTENSIONS, so that it is part of the one target.
	$<$<COMPILE_LANGUAGE:C>:-std=c11>
	$<$<COMPILE_LANG_AND_ID:C,GNU,Clang>:-Wall -Wextra -Wpedantic -Wshadow
	-Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla
	-Wcast-qual -Wformat=2 -Wswitch-enum>
	$<$<COMPILE_LANG_AND_ID:C,Clang>:-Wthread-safety>)

if(BATON_SANITIZE STREQUAL "address+undefined")
	set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all
	             -fno-omit-frame-pointer)
elseif(BATON_SANITIZE STREQUAL "thread")
	set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT BATON_SANITIZE STREQUAL "")
	message(FATAL_ERROR "BATON_SANITIZE is \"${BATON_SANITIZE}\"; it can be "
	                    "empty, address+undefined or thread")
endif()
target_compile_options(baton-flags INTERFACE ${sanitize})
target_link_options(baton-flags INTERFACE ${sanitize})

# In programs the leak check has to know the libraries to the end.
if(BATON_SANITIZE STREQUAL "address+undefined")
	set(program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
	target_sources(baton-flags INTERFACE
		$<${program}:${PROJECT_SOURCE_DIR}/tests/support/keep_loaded.c>)
	target_link_options(baton-flags INTERFACE
		$<${program}:LINKER:--export-dynamic-symbol=dlclose>)
endif()
