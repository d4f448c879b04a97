# SPDX-License-Identifier: BSD-3-Clause
#
# Manual pages: every page of docs/man, translated by lowdown, under each name that its NAME
# has.  A name that is not its file's is a page of one line, which names the other one.
# Without lowdown the target baton-man is not there.
find_program(BATON_LOWDOWN lowdown DOC "lowdown, which makes manual pages of docs/man")
if(NOT BATON_LOWDOWN AND NOT BATON_BUILD_MAN STREQUAL "AUTO")
	message(FATAL_ERROR "BATON_BUILD_MAN is on, and there is no lowdown (Debian and "
	        "Ubuntu have it in lowdown)")
elseif(NOT BATON_LOWDOWN)
	message(STATUS "lowdown not found: building without the manual pages "
	               "(Debian and Ubuntu have it in lowdown)")
	return()
endif()

# baton_man_names(page names_p): what its NAME has before the dash.
function(baton_man_names page names_p)
	set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
	file(READ ${page} text)
	if(NOT text MATCHES "^# NAME\n\n([a-z0-9_, \n-]+) - [^#]*\n\n# SYNOPSIS\n")
		message(FATAL_ERROR "${page} does not begin with NAME, names, a dash, and SYNOPSIS")
	endif()
	string(REGEX MATCHALL "[a-z0-9_-]+" names "${CMAKE_MATCH_1}")
	set(${names_p} ${names} PARENT_SCOPE)
endfunction()

file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.md)
set(names)
set(outputs)
foreach(page IN LISTS pages)
	if(NOT page MATCHES "[.]([13])[.]md$")
		message(FATAL_ERROR "${page} is no page: it ends neither in .3.md nor in .1.md")
	endif()
	set(section ${CMAKE_MATCH_1})
	baton_man_names(${page} names_of_page)
	list(TRANSFORM names_of_page APPEND "(${section})")
	list(APPEND names ${names_of_page})
endforeach()
list(JOIN names "," names)

foreach(page IN LISTS pages)
	string(REGEX REPLACE "^.*/(.*)[.](.)[.]md$" "\\1;\\2" name_section ${page})
	list(GET name_section 0 name)
	list(GET name_section 1 section)
	set(folder ${PROJECT_BINARY_DIR}/man/man${section})
	set(out ${folder}/${name}.${section})
	add_custom_command(OUTPUT ${out}
		COMMAND ${CMAKE_COMMAND} -DLOWDOWN=${BATON_LOWDOWN} -DPAGE=${page}
			-DOUT=${out} "-DNAMES=${names}" -DVERSION=${PROJECT_VERSION}
			-DDOCDIR=${CMAKE_INSTALL_DATADIR}/doc/baton
			-P ${PROJECT_SOURCE_DIR}/cmake/man_page.cmake
		DEPENDS ${page} ${PROJECT_SOURCE_DIR}/cmake/man_page.cmake
		COMMENT "Manual page ${name}(${section})" VERBATIM)
	list(APPEND outputs ${out})
	set(installed ${out})
	baton_man_names(${page} others)
	list(REMOVE_ITEM others ${name})
	foreach(other IN LISTS others)
		file(CONFIGURE OUTPUT ${folder}/${other}.${section}
		     CONTENT ".so man${section}/${name}.${section}\n")
		list(APPEND installed ${folder}/${other}.${section})
	endforeach()
	set(component development)
	if(section EQUAL 1)
		set(component tools)
	endif()
	if(section EQUAL 3 OR TARGET baton-tool)
		install(FILES ${installed} COMPONENT ${component}
		        DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
	endif()
endforeach()
add_custom_target(baton-man ALL DEPENDS ${outputs})
