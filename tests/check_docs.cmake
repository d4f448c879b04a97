# SPDX-License-Identifier: BSD-3-Clause
#
# The documents say what is there.  Every public function has a manual page
# whose synopsis is the header's prototype; pages name nothing that the headers
# do not have; the C in them compiles; links lead to files; the files and functions
# that CONTRIBUTING.md names are there; and the README's example is samples/hello.c.  In the pages docs/from-*.md, for those who come from
# another library, every block of C is a file of its own, and compiles: with the
# mpi.h of the build (without one, those that include it are left out) and with
# tests/docs/nccl.h.  The words that docs/glossary.md says are not used are in no
# document, no header of the interface and no source of the library.
# cmake -DROOT=<tree> -DWORK=<scratch> [-DCC=<compiler>]
#       [-DMPI_INCLUDES=dir,dir] -P this
cmake_minimum_required(VERSION 3.25)

# Of functions, and of commands.
set(command_sections NAME SYNOPSIS DESCRIPTION OPTIONS "EXIT STATUS" EXAMPLE "SEE ALSO")
set(sections NAME SYNOPSIS DESCRIPTION "RETURN VALUE" "STREAM ORDER" THREADS
             EXAMPLE "SEE ALSO")

function(complain file text)
	message(SEND_ERROR "${file}: ${text}")
endfunction()

# Blanks made one, and what has a meaning in CMake's lists made something else.
function(flatten text flat_p)
	string(REGEX REPLACE ";" "@" text "${text}")
	string(REGEX REPLACE "[][]" "|" text "${text}")
	string(REGEX REPLACE "[ \t\n]+" " " text "${text}")
	set(${flat_p} "${text}" PARENT_SCOPE)
endfunction()

# What stands between two strings after the n-th character; "" when there is no
# such place.  next_p: where it ends, or -1.
function(between text from to start part_p next_p)
	string(LENGTH "${from}" from_length)
	string(SUBSTRING "${text}" ${start} -1 rest)
	string(FIND "${rest}" "${from}" at)
	set(part "")
	set(next -1)
	if(NOT at EQUAL -1)
		math(EXPR begin "${at} + ${from_length}")
		string(SUBSTRING "${rest}" ${begin} -1 rest)
		string(FIND "${rest}" "${to}" length)
		string(SUBSTRING "${rest}" 0 ${length} part)
		if(NOT length EQUAL -1)
			math(EXPR next "${start} + ${begin} + ${length}")
		endif()
	endif()
	set(${part_p} "${part}" PARENT_SCOPE)
	set(${next_p} ${next} PARENT_SCOPE)
endfunction()

# Where the headers of others are that a page's C may include.
set(others -I${ROOT}/tests/docs -I${ROOT}/tests/unit/transport/nccl/nccl_stub
    -I${ROOT}/transport/nccl)
string(REPLACE "," ";" MPI_INCLUDES "${MPI_INCLUDES}")
foreach(dir IN LISTS MPI_INCLUDES)
	list(APPEND others -isystem ${dir})
endforeach()

# The C of a document that is a file of its own compiles.
function(check_c file text)
	set(start 0)
	while(CC AND NOT start EQUAL -1)
		between("${text}" "\n```c\n" "\n```\n" ${start} code start)
		if(NOT code MATCHES "^(/\\*|#include).*{")
			if(code AND file MATCHES "^docs/from-")
				complain(${file} "this C is no file of its own, \
which begins with an #include:\n${code}")
			endif()
			continue()
		endif()
		if(code MATCHES "#include <(baton_)?mpi.h>" AND NOT MPI_INCLUDES)
			continue()
		endif()
		file(WRITE ${WORK}/example.c "${code}\n")
		execute_process(COMMAND ${CC} -std=c11 -D_GNU_SOURCE -Wall
		                        -Wextra -Werror -fsyntax-only
		                        -I${ROOT}/include ${others}
		                        ${WORK}/example.c
		                RESULT_VARIABLE result ERROR_VARIABLE errors)
		if(NOT result EQUAL 0)
			complain(${file} "its C does not compile:\n${errors}")
		endif()
	endwhile()
endfunction()

function(check_links file text)
	get_filename_component(dir ${ROOT}/${file} DIRECTORY)
	# Brackets have a meaning in CMake's lists.
	string(REPLACE "](" "(link:" text "${text}")
	string(REGEX REPLACE "[][;]" " " text "${text}")
	string(REGEX MATCHALL "\\(link:[^)# ]+" links "${text}")
	list(TRANSFORM links REPLACE "^.link:" "")
	foreach(link IN LISTS links)
		if(NOT link MATCHES "^https?:" AND NOT EXISTS ${dir}/${link})
			complain(${file} "links to ${link}, which is not there")
		endif()
	endforeach()
endfunction()

function(check_words file text)
	string(REGEX MATCHALL "(baton_[a-z0-9_]+|BATON_[A-Z0-9_]+)" words
	       "${text}")
	list(REMOVE_DUPLICATES words)
	list(REMOVE_ITEM words ${variables})
	foreach(word IN LISTS words)
		# One that ends in _ stands for a family.
		set(end "[^A-Za-z0-9_]")
		if(word MATCHES "_$")
			set(end "")
		endif()
		if(NOT headers MATCHES "[^A-Za-z0-9_]${word}${end}")
			complain(${file} "names ${word}, which no header has")
		endif()
	endforeach()
endfunction()

# The sections are there, in this order; else `false` in good_p.
function(check_sections file text good_p)
	set(start 0)
	foreach(section IN LISTS ARGN)
		between("${text}" "# ${section}\n" "" ${start} ignored start)
		if(start EQUAL -1)
			complain(${file} "has no ${section}, or not in its place")
			set(${good_p} FALSE PARENT_SCOPE)
			return()
		endif()
	endforeach()
	set(${good_p} TRUE PARENT_SCOPE)
endfunction()

# The page of a command: baton-info.1.md is of `baton info`.
function(check_command_page file)
	file(READ ${ROOT}/${file} text)
	check_sections(${file} "${text}" good ${command_sections})
	check_words(${file} "${text}")
	get_filename_component(name ${file} NAME)
	string(REPLACE ".1.md" "" name ${name})
	if(NOT text MATCHES "^# NAME\n\n${name} - ")
		complain(${file} "its NAME does not begin with ${name}")
	endif()
	string(REGEX REPLACE "^baton-?" "" command ${name})
	if(command AND NOT tool_commands MATCHES "\n\t{\"${command}\", ")
		complain(${file} "tools/main.c has no command ${command}")
	endif()
endfunction()

# The page's functions, of its NAME, in names_p.
function(check_page file names_p)
	file(READ ${ROOT}/${file} text)
	check_sections(${file} "${text}" good ${sections})
	if(NOT good)
		return()
	endif()
	check_words(${file} "${text}")
	between("${text}" "# NAME\n" "# SYNOPSIS" 0 head ignored)
	between("${text}" "# SYNOPSIS\n" "# DESCRIPTION" 0 synopsis ignored)
	flatten("${synopsis}" synopsis)
	string(REGEX REPLACE " - .*" "" head "${head}")
	string(REGEX MATCHALL "baton_[a-z0-9_]+" names "${head}")
	string(REGEX MATCHALL "[^ *]+\\(" prototypes "${synopsis}")
	list(FILTER prototypes INCLUDE REGEX "^baton_")
	list(TRANSFORM prototypes REPLACE "\\($" "")
	get_filename_component(first ${file} NAME)
	string(REPLACE ".3.md" "" first ${first})
	if(NOT "${head}" MATCHES "^[ \n]*${first}(,| *$|\n)")
		complain(${file} "its NAME does not begin with ${first}")
	endif()
	foreach(name IN LISTS names)
		if(NOT name IN_LIST prototypes)
			complain(${file} "${name} is in NAME, not in SYNOPSIS")
		endif()
	endforeach()
	foreach(name IN LISTS prototypes)
		if(NOT name IN_LIST names)
			complain(${file} "${name} is in SYNOPSIS, not in NAME, so man does \
not find it")
		endif()
	endforeach()
	string(REGEX MATCHALL "(enum|struct|const|size_t|int|void) [^@]*@"
	       prototypes_text "${synopsis}")
	foreach(prototype IN LISTS prototypes_text)
		string(FIND "${declarations}" "${prototype}" at)
		if(at EQUAL -1)
			complain(${file} "not so in a header: ${prototype}")
		endif()
	endforeach()
	set(${names_p} ${prototypes} PARENT_SCOPE)
endfunction()

# ---- the headers -----------------------------------------------------------

file(MAKE_DIRECTORY ${WORK})
set(headers)
foreach(header baton.h baton_mpi.h baton_trace.h)
	file(READ ${ROOT}/include/${header} text)
	string(APPEND headers " ${header} ${text}\n")
endforeach()
flatten("${headers}" headers)
string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " declarations
       "${headers}")
string(REGEX MATCHALL "BATON_API [^(@]*[ *]baton_[a-z0-9_]+\\(" declared
       "${declarations}")
list(TRANSFORM declared REPLACE "^.*[ *](baton_[a-z0-9_]+)\\($" "\\1")
string(REPLACE "BATON_API " "" declarations "${declarations}")
flatten("${declarations}" declarations)
if(NOT declared)
	message(FATAL_ERROR "no declarations found in ${ROOT}/include")
endif()

# ---- the environment variables -----------------------------------------------

# The list of config.h, as the rows of a table; their names in `variables`.
file(READ ${ROOT}/runtime/base/config.h text)
flatten("${text}" text)
string(REGEX REPLACE "[ \\\\]+" " " text "${text}")
string(REPLACE "\" \"" "" text "${text}")
string(REGEX MATCHALL "X.[a-z]+, [a-z_]+, BATON_[A-Z_]+, \"[^\"]*\", \"[^\"]*\", \"[^\"]*\"" rows
       "${text}")
list(TRANSFORM rows REPLACE "^X.[a-z]+, [a-z_]+, (BATON_[A-Z_]+), \"([^\"]*)\", \"([^\"]*)\", \"([^\"]*)\"$"
                            "| \\1 | \\2 | \\3 | \\4 |")
set(variables ${rows})
list(TRANSFORM variables REPLACE "^. (BATON_[A-Z_]+) .*" "\\1")
if(NOT variables)
	message(FATAL_ERROR "no list of variables found in runtime/base/config.h")
endif()
file(READ ${ROOT}/docs/semantics.md text)
between("${text}" "\n## Environment variables\n" "\n\n## " 0 text ignored)
string(REPLACE "`" "" text "${text}")
string(REGEX MATCHALL "\n. BATON_[^\n]*" told "${text}")
list(TRANSFORM told REPLACE "^\n" "")
foreach(row IN LISTS rows)
	if(NOT row IN_LIST told)
		complain(docs/semantics.md "has no such row: ${row}")
	endif()
endforeach()
foreach(row IN LISTS told)
	if(NOT row IN_LIST rows)
		complain(docs/semantics.md "no variable of config.h: ${row}")
	endif()
endforeach()

# ---- the pages -------------------------------------------------------------

file(GLOB pages RELATIVE ${ROOT} ${ROOT}/docs/man/*.3.md)
file(GLOB command_pages RELATIVE ${ROOT} ${ROOT}/docs/man/*.1.md)
file(GLOB strays RELATIVE ${ROOT} ${ROOT}/docs/man/*)
list(REMOVE_ITEM strays ${pages} ${command_pages})
if(strays)
	complain("${strays}" "is no page: it ends neither in .3.md nor in .1.md")
endif()
if(command_pages)
	file(READ ${ROOT}/tools/main.c tool_commands)
endif()
foreach(page IN LISTS command_pages)
	check_command_page(${page})
endforeach()
string(REGEX MATCHALL "\n\t{\"[a-z]+\", " commands "${tool_commands}")
foreach(command IN LISTS commands)
	string(REGEX REPLACE "[^a-z]" "" command "${command}")
	if(NOT EXISTS ${ROOT}/docs/man/baton-${command}.1.md)
		message(SEND_ERROR "baton ${command} has no page in docs/man")
	endif()
endforeach()
set(covered)
foreach(page IN LISTS pages)
	check_page(${page} names)
	list(APPEND covered ${names})
endforeach()
foreach(name IN LISTS declared)
	if(NOT name IN_LIST covered)
		message(SEND_ERROR "${name} has no page in docs/man")
	endif()
endforeach()

# ---- all documents ---------------------------------------------------------

file(GLOB documents RELATIVE ${ROOT} ${ROOT}/*.md ${ROOT}/docs/*.md
     ${ROOT}/samples/*.md)
foreach(document IN LISTS documents pages command_pages)
	file(READ ${ROOT}/${document} text)
	check_c(${document} "${text}")
	check_links(${document} "${text}")
	if(document MATCHES "^docs/from-")
		check_words(${document} "${text}")
	endif()
endforeach()

# ---- the map for contributors ------------------------------------------------

# The files and functions that it names are there.  NAME and FOLDER stand for any.
if(EXISTS ${ROOT}/CONTRIBUTING.md)
	file(READ ${ROOT}/CONTRIBUTING.md text)
	string(REGEX MATCHALL
	       "`(include|runtime|transport|window|tools|tests|docs)/[a-z0-9_./]+`"
	       named "${text}")
	list(TRANSFORM named REPLACE "`" "")
	list(REMOVE_DUPLICATES named)
	foreach(file IN LISTS named)
		if(NOT EXISTS ${ROOT}/${file})
			complain(CONTRIBUTING.md "names ${file}, which is not there")
		endif()
	endforeach()
	file(GLOB_RECURSE code ${ROOT}/include/*.h ${ROOT}/runtime/*.[ch]
	     ${ROOT}/transport/*.[ch] ${ROOT}/window/*.[ch])
	string(REGEX MATCHALL "`[a-z_]+[(][)]`" functions "${text}")
	foreach(function IN LISTS functions)
		string(REGEX REPLACE "[`()]" "" function "${function}")
		set(found)
		foreach(file IN LISTS code)
			file(STRINGS ${file} found REGEX "(^|[^a-z_])${function}[(]" LIMIT_COUNT 1)
			if(found)
				break()
			endif()
		endforeach()
		if(NOT found)
			complain(CONTRIBUTING.md "names ${function}(), which is not there")
		endif()
	endforeach()
endif()

# ---- the words that are not used -----------------------------------------------

# The first column of the glossary's last table; as one expression over text in
# small letters, with its blanks made one, between two blanks.
file(READ ${ROOT}/docs/glossary.md text)
between("${text}" "\n## Words that are not used\n" "\n## " 0 text ignored)
string(REGEX MATCHALL "\n. `[^|]*" cells "${text}")
string(REGEX MATCHALL "`[^`]+`" banned "${cells}")
string(REPLACE "`" "" banned "${banned}")
if(NOT banned)
	message(FATAL_ERROR "no words found in docs/glossary.md")
endif()
string(REPLACE ";" "|" banned_expression "${banned}")

function(check_banned file)
	file(READ ${ROOT}/${file} text)
	string(TOLOWER "${text}" text)
	# A comment's frame and a document's quotes are no part of a phrase.
	string(REGEX REPLACE "[ \t\n*`]+" " " text "${text}")
	string(REGEX REPLACE "[][;]" " " text "${text}")
	string(REGEX MATCHALL "[^a-z0-9_](${banned_expression})[^a-z0-9_]" found " ${text} ")
	list(TRANSFORM found REPLACE "^.(.*).$" "\\1")
	list(REMOVE_DUPLICATES found)
	foreach(word IN LISTS found)
		complain(${file} "uses \"${word}\": see the last table of docs/glossary.md")
	endforeach()
endfunction()

file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/include/*.h ${ROOT}/runtime/*.[ch]
     ${ROOT}/transport/*.[ch] ${ROOT}/window/*.[ch])
set(worded ${documents} ${pages} ${command_pages} ${sources})
# What was done is told in the words of its time.
list(REMOVE_ITEM worded docs/glossary.md CHANGELOG.md)
foreach(file IN LISTS worded)
	check_banned(${file})
endforeach()

file(READ ${ROOT}/README.md readme)
file(READ ${ROOT}/samples/hello.c hello)
string(FIND "${readme}" "\n```c\n${hello}```\n" at)
if(at EQUAL -1)
	complain(README.md "its example is not samples/hello.c")
endif()
list(LENGTH declared count)
list(LENGTH pages page_count)
message(STATUS "${count} functions on ${page_count} pages")
