# SPDX-License-Identifier: BSD-3-Clause
#
# One page of docs/man as a manual page.  lowdown translates it: before that links become
# what they can be in a terminal, and after it tables are laid out for one.
# cmake -DLOWDOWN=program -DPAGE=docs/man/baton_send.3.md -DOUT=man3/baton_send.3
#       -DNAMES=baton_send(3),... -DVERSION=0.1.0 -DDOCDIR=share/doc/baton -P this
# NAMES are all that a page may link to.
cmake_minimum_required(VERSION 3.25)

# Brackets and semicolons have a meaning in CMake's lists: texts are searched without them.
string(ASCII 1 open)
string(ASCII 2 close)
string(ASCII 3 semicolon)
function(hide text_p)
	string(REPLACE "[" "${open}" text "${${text_p}}")
	string(REPLACE "]" "${close}" text "${text}")
	string(REPLACE ";" "${semicolon}" text "${text}")
	set(${text_p} "${text}" PARENT_SCOPE)
endfunction()
function(show text_p)
	string(REPLACE "${open}" "[" text "${${text_p}}")
	string(REPLACE "${close}" "]" text "${text}")
	string(REPLACE "${semicolon}" ";" text "${text}")
	set(${text_p} "${text}" PARENT_SCOPE)
endfunction()

# What stands for a link: the name of the page, or the name of the document's file.
function(in_place_of link text_p)
	string(REGEX MATCH "^.([^${close}]+).[(]([^)#]+)" ignored "${link}")
	set(words "${CMAKE_MATCH_1}")
	set(target "${CMAKE_MATCH_2}")
	if(target MATCHES "^([^/]+)[.]([13])[.]md$")
		set(name "${CMAKE_MATCH_1}(${CMAKE_MATCH_2})")
		if(words MATCHES "[(][13][)]$")
			set(name "${words}")
		endif()
		if(NOT name IN_LIST NAMES)
			message(FATAL_ERROR "${PAGE}: links to ${name}, which no page has")
		endif()
		string(REGEX REPLACE "^(.*)([(].[)])$" "**\\1**\\2" text "${name}")
	elseif(target MATCHES "^[.][.]/([^/]+[.]md)$")
		set(name ${CMAKE_MATCH_1})
		set(text ${name})
	else()
		message(FATAL_ERROR "${PAGE}: links to ${target}, which is neither a page "
		        "of docs/man nor a document of docs")
	endif()
	if(NOT words STREQUAL name)
		set(text "${words} (${text})")
	endif()
	set(${text_p} "${text}" PARENT_SCOPE)
endfunction()

get_filename_component(page ${PAGE} NAME)
string(REGEX MATCH "^(.*)[.](.)[.]md$" ignored ${page})
string(TOUPPER ${CMAKE_MATCH_1} title)
set(section ${CMAKE_MATCH_2})
string(REPLACE "," ";" NAMES "${NAMES}")

file(READ ${PAGE} text)
hide(text)
string(REGEX MATCHALL "${open}[^${open}${close}]+${close}[(][^ )]+[)]" links "${text}")
list(REMOVE_DUPLICATES links)
foreach(link IN LISTS links)
	in_place_of("${link}" instead)
	string(REPLACE "${link}" "${instead}" text "${text}")
endforeach()
if(links MATCHES "[(][.][.]/")
	string(APPEND text "\n\nDocuments (\\*.md) are installed in ${DOCDIR}/docs.\n")
endif()
show(text)

file(WRITE ${OUT}.md "${text}")
execute_process(COMMAND ${LOWDOWN} -s -tman --parse-no-intraemph --parse-no-metadata
	--parse-no-super --out-no-smarty -M title=${title} -M section=${section}
	-M source=baton\ ${VERSION} -M volume=Baton -M date= ${OUT}.md
	OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${OUT}.md)

# Names are not divided, and lines not stretched.
string(REGEX REPLACE "\n(.TH [^\n]*)\n" "\n\\1\n.nr HY 0\n.nh\n.ad l\n" text "${text}")
string(REGEX REPLACE "\n.S([HS])\n" "\n.S\\1 " text "${text}")
# The columns behind the first share what it leaves; a head of empty cells goes.
foreach(columns RANGE 2 6)
	math(EXPR others "${columns} - 1")
	foreach(width "" x)
		string(REPEAT " lb${width}" ${others} heads)
		string(REPEAT " l${width}" ${others} cells)
		set(format${width} "lb${heads}\nl${cells}.\n")
	endforeach()
	string(REPLACE "tab(|) expand allbox;\n${format}" "tab(|) allbox;\n${formatx}"
	       text "${text}")
endforeach()
if(text MATCHES "expand allbox")
	message(FATAL_ERROR "${PAGE}: lowdown writes a table of a form that is not known here")
endif()
string(REGEX REPLACE "lb lbx\n(l lx[.]\n)T{\nT}\\|T{\nT}\n" "\\1" text "${text}")
string(REPLACE "\n.TE\n.LP\n" "\n.TE\n.sp\n.LP\n" text "${text}")
# Few words are no block of text, to which tbl would give a third of the line.
hide(text)
string(REGEX MATCHALL "\nT{\n[^\n]+\nT}[|]" cells "${text}")
list(REMOVE_DUPLICATES cells)
foreach(cell IN LISTS cells)
	string(LENGTH "${cell}" length)
	if(length LESS 50)
		string(REGEX REPLACE "^\nT{\n(.*)\nT}[|]$" "\n\\1|" words "${cell}")
		string(REPLACE "${cell}" "${words}" text "${text}")
	endif()
endforeach()
show(text)
file(WRITE ${OUT} "${text}")
