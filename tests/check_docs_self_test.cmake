# SPDX-License-Identifier: BSD-3-Clause
#
# check_docs.cmake can fail: spoil a copy of a small tree in each way that it
# looks for, and see it found.  cmake -DROOT=<tree> -DWORK=<scratch>
# [-DCC=<compiler>] -P this
cmake_minimum_required(VERSION 3.25)

function(check result_p output_p)
	execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${WORK}/tree
	                        -DWORK=${WORK}/scratch -DCC=${CC}
	                        -P ${ROOT}/tests/check_docs.cmake
	                RESULT_VARIABLE result
	                OUTPUT_VARIABLE output ERROR_VARIABLE output)
	set(${result_p} ${result} PARENT_SCOPE)
	set(${output_p} "${output}" PARENT_SCOPE)
endfunction()

# With `from` made `to` in the file, the check says `words`.
function(spoil file from to words)
	file(READ ${WORK}/tree/${file} sound)
	string(REPLACE "${from}" "${to}" spoiled "${sound}")
	if(spoiled STREQUAL sound)
		message(SEND_ERROR "there is no ${from} in ${file}")
	endif()
	file(WRITE ${WORK}/tree/${file} "${spoiled}")
	check(result output)
	# Messages are broken into lines.
	string(REGEX REPLACE "[ \n]+" " " output "${output}")
	if(result EQUAL 0 OR NOT output MATCHES "${words}")
		message(SEND_ERROR "not found: ${words}\n${output}")
	else()
		message(STATUS "found: ${words}")
	endif()
	file(WRITE ${WORK}/tree/${file} "${sound}")
endfunction()

file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/tree/include/baton.h "#include <stddef.h>
/* baton_not(a function) */
BATON_API size_t baton_go(int how,
                          const char *where[])@
" )
file(READ ${WORK}/tree/include/baton.h header)
string(REPLACE "@" ";" header "#define BATON_API\n${header}")
file(WRITE ${WORK}/tree/include/baton.h "${header}")
file(WRITE ${WORK}/tree/include/baton_mpi.h "/* nothing */\n")
file(WRITE ${WORK}/tree/include/baton_trace.h "/* nothing */\n")
file(WRITE ${WORK}/tree/samples/hello.c "int main(void) { return 0; }\n")
file(WRITE ${WORK}/tree/README.md "See [it](docs/man/baton_go.3.md).

```c
int main(void) { return 0; }
```
")
file(WRITE ${WORK}/tree/CONTRIBUTING.md
     "Read `samples/FOLDER/a.c` and `include/baton.h`: `baton_go()` is there.\n")
file(WRITE ${WORK}/tree/docs/from-it.md "# From it

```c
#include <baton.h>

size_t go(void) { return baton_go(1, NULL)@ }
```
")
file(READ ${WORK}/tree/docs/from-it.md text)
string(REPLACE "@" ";" text "${text}")
file(WRITE ${WORK}/tree/docs/from-it.md "${text}")
file(WRITE ${WORK}/tree/runtime/base/config.h "#define BATONI_VARIABLES(X) \\
	X(choice, log, BATON_LOG, \"none, all\", \\
	  \"all\", \"what \" \\
	  \"is written\")
")
file(WRITE ${WORK}/tree/docs/semantics.md "# Semantics

## Environment variables

| variable | values | not set | meaning |
|---|---|---|---|
| `BATON_LOG` | `none`, `all` | `all` | what is written |
")
file(WRITE ${WORK}/tree/docs/glossary.md "# Glossary

## Words that are not used

| not | but |
|---|---|
| `gizmo`, `gizmos` | device |
| `so are all` | all |
| `gadget below`, `place of a gadget` | lower; location |
")
file(WRITE ${WORK}/tree/transport/it/it.c "/* A device.\n * It is there. */\n")
set(semicolon ";")
file(WRITE ${WORK}/tree/docs/man/baton_go.3.md "# NAME

baton_go - go

# SYNOPSIS

```c
#include <baton.h>

size_t baton_go(int how, const char *where[])${semicolon}
```

# DESCRIPTION
# RETURN VALUE
# STREAM ORDER
# THREADS
# EXAMPLE

```c
#include <baton.h>

size_t twice(int how) { return 2 * baton_go(how, NULL)${semicolon} }
```

# SEE ALSO
")
file(WRITE ${WORK}/tree/tools/main.c "commands[] = {\n\t{\"look\", look_main},\n")
file(WRITE ${WORK}/tree/docs/man/baton-look.1.md "# NAME

baton-look - look

# SYNOPSIS
# DESCRIPTION
# OPTIONS
# EXIT STATUS
# EXAMPLE
# SEE ALSO
")
check(result output)
if(NOT result EQUAL 0)
	message(FATAL_ERROR "the sound tree is refused:\n${output}")
endif()

set(page docs/man/baton_go.3.md)
spoil(include/baton.h "where[])" "where[]);\nBATON_API int baton_new(void)"
      "baton_new has no page")
spoil(CONTRIBUTING.md "baton.h" "baton_old.h" "names include/baton_old.h, which is not there")
spoil(CONTRIBUTING.md "baton_go()" "baton_went()" "names baton_went.., which is not there")
spoil(${page} "# THREADS\n" "baton_gone\n# THREADS\n"
      "names baton_gone, which no header has")
spoil(${page} "int how, const" "long how, const" "not so in a header")
spoil(${page} "baton_go - go" "baton_go, baton_not - go"
      "baton_not is in NAME, not in SYNOPSIS")
spoil(${page} "baton_go - go" "baton_not - go"
      "baton_go is in SYNOPSIS, not in NAME")
spoil(${page} "baton_go - go" "baton - go" "does not begin with baton_go")
spoil(${page} "# STREAM ORDER\n" "" "has no STREAM ORDER")
spoil(docs/man/baton-look.1.md "# OPTIONS\n" "" "has no OPTIONS")
spoil(docs/man/baton-look.1.md "baton-look - " "baton - " "does not begin with baton-look")
spoil(docs/man/baton-look.1.md "# OPTIONS\n" "# OPTIONS\nbaton_gone\n" "names baton_gone")
spoil(tools/main.c "{\"look\"," "{\"see\"," "tools/main.c has no command look")
spoil(tools/main.c "{\"look\"," "{\"see\"," "baton see has no page")
spoil(docs/from-it.md "return baton_go" "return BATON_NONE + baton_go"
      "names BATON_NONE, which no header has")
spoil(docs/semantics.md "`all` |" "`none` |" "has no such row: . BATON_LOG")
spoil(docs/semantics.md "| `BATON_LOG`" "| `BATON_NEW` | a file | new |\n| `BATON_LOG`"
      "no variable of config.h: . BATON_NEW")
spoil(runtime/base/config.h "none, all" "none, some" "has no such row: . BATON_LOG")
spoil(README.md "baton_go.3.md" "baton_no.3.md" "links to docs/man/baton_no")
spoil(README.md "return 0" "return 1" "example is not samples/hello.c")
spoil(docs/semantics.md "# Semantics" "# Gizmos" "semantics.md: uses .gizmos.: see")
spoil(include/baton_mpi.h "nothing" "no gizmo" "baton_mpi.h: uses .gizmo.")
spoil(transport/it/it.c "It is there" "So\n * are all" "it.c: uses .so are all.")
spoil(transport/it/it.c "It is there" "The gadget\n * below is there" "it.c: uses .gadget below.")
spoil(transport/it/it.c "It is there" "The place of\n * a gadget" "it.c: uses .place of a gadget.")
spoil(${page} "baton_go - go" "baton_go - go, a `gizmo`" "baton_go.3.md: uses .gizmo.")
spoil(docs/glossary.md "Words that are not" "Words not" "no words found in docs/glossary.md")
if(CC)
	spoil(docs/from-it.md "baton_go(1, NULL)" "baton_go(1)"
	      "from-it.md: its C does not compile")
	spoil(docs/from-it.md "#include <baton.h>\n\n" ""
	      "this C is no file of its own")
	spoil(${page} "baton_go(how, NULL)" "baton_go(how)"
	      "its C does not compile")
endif()
