# SPDX-License-Identifier: BSD-3-Clause
#
# How tests are added.  All of these link the static library, see the internal
# headers (include/, the folders of CMakeLists.txt, tests/support/, tests/unit/support/), and are
# compiled with baton-flags.  A test skips by printing "SKIP: why" and exiting with 77.
#
#   baton_check_test(unit.request SOURCES test_request.c [LABELS unit]
#                    [TIMEOUT 60] [LIBRARIES ...] [DEFINITIONS ...] [ENV A=1])
#       A Check program that is a test by itself: target and CTest name are the
#       first argument.  LABELS defaults to the name up to its first dot.
#
#   baton_test_program(conform-mpi SOURCES main_mpi.c conform_p2p.c ... [MPI]
#                      [OWN ...] [LIBRARIES ...] [DEFINITIONS ...])
#       A Check program that is no test yet.  MPI: its sources include mpi.h.
#       The first source, and those that are its OWN, are compiled for it, with
#       the DEFINITIONS and what else is set for the target; the other sources
#       once for all programs that name them with the same libraries.
#
#   baton_run_test(conform.local.3 TARGET conform-local [ARGS -n 3]
#                  [LABELS ...] [TIMEOUT 120] [ENV A=1 B=2] [PROCESSORS 2])
#       Run a program as a test.
#
#   baton_skipped_test(unit.request reason.txt "no request today")
#       A test that cannot be built here: it skips with the reason that the file
#       has, if it is there, or else with this one.
#
#   baton_mpi_test(conform.mpi.3 RANKS 3 TARGET conform-mpi [ARGS ...]
#                  [LABELS ...] [TIMEOUT 120] [ENV A=1] [RECOVERY EXPECT regex])
#       Run a program under mpirun, as root or not, with more ranks than cores
#       or not, on Open MPI 4, 5 and MPICH.  RECOVERY: the death of a rank does
#       not end the job; mpirun's exit status says nothing then, so the test
#       passes when the output of the survivors matches EXPECT.  The label mpi
#       is added to the others.  Adds nothing when MPI is left out, so that
#       callers need no if(); the program it runs must be there only with MPI,
#       so put its baton_test_program(... MPI) into an if(BATON_HAVE_MPI).
#
# TIMEOUT is in seconds (default 60, mpi 120).  PROCESSORS are CTest's slots, of
# which tests/run has two for each processor, because most tests wait as long as
# they compute; a test whose ranks are threads takes two, one under mpirun, where
# ranks poll, one more than its ranks.

# Each test has a row in tests/tiers, which says in which build it runs when.

include(${CMAKE_CURRENT_LIST_DIR}/baton_tiers.cmake)

set(BATON_TEST_TIMEOUT 60)
set(BATON_TEST_TIMEOUT_MPI 120)
set(BATON_TEST_SCALE 1)
if(BATON_SANITIZE)
	set(BATON_TEST_SCALE 4)
endif()

# What a test sees of the library.
add_library(baton-internal INTERFACE)
target_link_libraries(baton-internal INTERFACE
	baton-static baton-flags Threads::Threads)
target_include_directories(baton-internal INTERFACE
	${baton_folders} ${PROJECT_SOURCE_DIR}/tests/support
	${PROJECT_SOURCE_DIR}/tests/unit/support)
if(BATON_HAVE_MPI)
	target_compile_definitions(baton-internal INTERFACE BATONI_WITH_MPI)
endif()

if(BATON_BUILD_TESTS)
	find_package(PkgConfig REQUIRED)
	pkg_check_modules(CHECK REQUIRED IMPORTED_TARGET check>=0.15)
endif()

# mpirun reads these, whichever it is; each ignores the others'.
set(BATON_MPI_ENVIRONMENT
	# Open MPI 4 and 5 refuse root without them.
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	# --oversubscribe --bind-to none, for 4 and for 5.
	OMPI_MCA_rmaps_base_oversubscribe=1
	OMPI_MCA_hwloc_base_binding_policy=none
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
	PRTE_MCA_hwloc_default_binding_policy=none)

set(BATON_ASAN_OPTIONS ASAN_OPTIONS=detect_stack_use_after_return=1)
# The slow unwinder gets through libraries without frame pointers, so that
# lsan.supp can see whose leak it is.  Programs that start no MPI do without:
# unwinding is most of the time of a test that allocates much.
set(BATON_ASAN_OPTIONS_MPI ${BATON_ASAN_OPTIONS}:fast_unwind_on_malloc=0)
set(BATON_SANITIZE_ENVIRONMENT
	LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0
	# A process with threads sleeps at its exit, by default for a second, to
	# see races there; each test of a unit test is a process.
	TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp:halt_on_error=1:atexit_sleep_ms=50
	UBSAN_OPTIONS=print_stacktrace=1)

function(baton_test_program target)
	cmake_parse_arguments(PARSE_ARGV 1 arg "MPI" ""
	                      "SOURCES;OWN;LIBRARIES;DEFINITIONS")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${target}: ${arg_UNPARSED_ARGUMENTS}?")
	endif()
	list(POP_FRONT arg_SOURCES first)
	add_executable(${target} ${first} ${arg_OWN})
	set_target_properties(${target} PROPERTIES BATON_MPI ${arg_MPI})
	if(arg_MPI)
		list(APPEND arg_LIBRARIES MPI::MPI_C)
	endif()
	target_link_libraries(${target} PRIVATE
		baton-internal ${arg_LIBRARIES} PkgConfig::CHECK)
	target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
	foreach(source IN LISTS arg_SOURCES)
		baton_share_object(object ${source} ${arg_LIBRARIES})
		target_link_libraries(${target} PRIVATE ${object})
	endforeach()
endfunction()

# baton_share_object(name_p source [libraries]): an object that several programs link,
# compiled once for those that have the same libraries, whose headers it sees.
function(baton_share_object name_p source)
	cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE file)
	cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
		OUTPUT_VARIABLE name)
	string(JOIN "-" name ${name} ${ARGN})
	string(MAKE_C_IDENTIFIER "object-${name}" name)
	if(NOT TARGET ${name})
		add_library(${name} OBJECT EXCLUDE_FROM_ALL ${file})
		target_link_libraries(${name} PRIVATE
			baton-internal ${ARGN} PkgConfig::CHECK)
	endif()
	set(${name_p} ${name} PARENT_SCOPE)
endfunction()

# The properties that all tests have.  PROGRAMS: targets that it runs; ARGS: what may name
# others by $<TARGET_FILE:...>.
function(baton_test_properties name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "NO_MPI" "TIMEOUT;PROCESSORS"
	                      "LABELS;ENV;PROGRAMS;ARGS")
	baton_tier(${name} tier PROGRAMS ${arg_PROGRAMS}
		TEXT ${arg_ARGS} ${arg_ENV})
	if(NOT arg_LABELS)
		string(REGEX REPLACE "\\..*" "" arg_LABELS ${name})
	endif()
	list(REMOVE_DUPLICATES arg_LABELS)
	set(environment ${arg_ENV})
	if(BATON_SANITIZE)
		if(arg_NO_MPI)
			list(APPEND environment ${BATON_ASAN_OPTIONS})
		else()
			list(APPEND environment ${BATON_ASAN_OPTIONS_MPI})
		endif()
		list(APPEND environment ${BATON_SANITIZE_ENVIRONMENT})
	endif()
	if(NOT arg_PROCESSORS)
		set(arg_PROCESSORS 1)
	endif()
	set_tests_properties(${name} PROPERTIES
		LABELS "${arg_LABELS};${tier}"
		TIMEOUT ${arg_TIMEOUT}
		PROCESSORS ${arg_PROCESSORS}
		SKIP_RETURN_CODE 77
		ENVIRONMENT "${environment}")
	# What finds most faults comes first where others run, too.
	if(tier STREQUAL "first")
		set_tests_properties(${name} PROPERTIES COST 1000)
	endif()
endfunction()

# Check's own time limit for one test function is 4 s, too short on a busy
# machine and under a sanitizer: the CTest one is to be the first that bites.
function(baton_run_test name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET;TIMEOUT;PROCESSORS"
	                      "ARGS;LABELS;ENV")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${name}: ${arg_UNPARSED_ARGUMENTS}?")
	endif()
	if(NOT arg_TIMEOUT)
		set(arg_TIMEOUT ${BATON_TEST_TIMEOUT})
	endif()
	math(EXPR timeout "${arg_TIMEOUT} * ${BATON_TEST_SCALE}")
	add_test(NAME ${name} COMMAND ${arg_TARGET} ${arg_ARGS})
	# A sample may start MPI by itself.
	get_target_property(mpi ${arg_TARGET} BATON_MPI)
	set(no_mpi)
	if(mpi STREQUAL "FALSE" AND NOT "mpi" IN_LIST arg_LABELS)
		set(no_mpi NO_MPI)
	endif()
	baton_test_properties(${name} ${no_mpi} TIMEOUT ${timeout}
		PROCESSORS ${arg_PROCESSORS}
		LABELS ${arg_LABELS}
		PROGRAMS ${arg_TARGET} ARGS ${arg_ARGS}
		ENV CK_DEFAULT_TIMEOUT=${timeout} ${arg_ENV})
endfunction()

function(baton_check_test name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;PROCESSORS"
	                      "SOURCES;OWN;LIBRARIES;DEFINITIONS;LABELS;ENV")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${name}: ${arg_UNPARSED_ARGUMENTS}?")
	endif()
	baton_test_program(${name} SOURCES ${arg_SOURCES} OWN ${arg_OWN}
		LIBRARIES ${arg_LIBRARIES} DEFINITIONS ${arg_DEFINITIONS})
	baton_run_test(${name} TARGET ${name} TIMEOUT ${arg_TIMEOUT}
		PROCESSORS ${arg_PROCESSORS} LABELS ${arg_LABELS}
		ENV ${arg_ENV})
endfunction()

function(baton_skipped_test name file reason)
	if(EXISTS ${file})
		file(STRINGS ${file} reason LIMIT_COUNT 1)
	endif()
	add_test(NAME ${name} COMMAND sh -c "echo \"SKIP: $1\" && exit 77" sh
		"${reason}")
	baton_test_properties(${name} TIMEOUT ${BATON_TEST_TIMEOUT})
endfunction()

function(baton_mpi_test name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "RECOVERY"
	                      "TARGET;TIMEOUT;RANKS;EXPECT" "ARGS;LABELS;ENV")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${name}: ${arg_UNPARSED_ARGUMENTS}?")
	endif()
	if(NOT BATON_HAVE_MPI)
		return()
	endif()
	if(NOT arg_LABELS)
		string(REGEX REPLACE "\\..*" "" arg_LABELS ${name})
	endif()
	if(NOT arg_TIMEOUT)
		set(arg_TIMEOUT ${BATON_TEST_TIMEOUT_MPI})
	endif()
	math(EXPR timeout "${arg_TIMEOUT} * ${BATON_TEST_SCALE}")
	math(EXPR ctest_timeout "${timeout} + 30")
	math(EXPR slots "${arg_RANKS} + 1")
	if(arg_RECOVERY AND NOT arg_EXPECT)
		message(FATAL_ERROR "${name}: RECOVERY needs EXPECT")
	endif()
	set(launcher ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${arg_RANKS})
	if(arg_RECOVERY AND BATON_MPI_LAUNCHER MATCHES "openmpi")
		list(INSERT launcher 1 --enable-recovery)
	elseif(arg_RECOVERY AND BATON_MPI_GFORKER)
		# It sends the survivors these signals.
		set(launcher ${BATON_MPI_GFORKER} -n ${arg_RANKS}
			sh -c "trap '' INT QUIT && exec \"$@\"" sh)
	elseif(arg_RECOVERY AND BATON_MPI_LAUNCHER STREQUAL "hydra")
		list(INSERT launcher 1 -disable-auto-cleanup)
	endif()
	# timeout(1) inside CTest's own: mpirun has to be told by a signal that
	# it can catch, or it leaves its processes behind.
	add_test(NAME ${name} COMMAND
		timeout --foreground --kill-after=10 ${timeout}
		${launcher}
		$<TARGET_FILE:${arg_TARGET}> ${arg_ARGS})
	baton_test_properties(${name} TIMEOUT ${ctest_timeout}
		PROCESSORS ${slots}
		LABELS ${arg_LABELS} mpi
		PROGRAMS ${arg_TARGET} ARGS ${arg_ARGS}
		ENV CK_DEFAULT_TIMEOUT=${timeout} ${BATON_MPI_ENVIRONMENT}
			BATON_MESSAGE_PATH=mpi ${arg_ENV})
	if(arg_EXPECT)
		set_tests_properties(${name} PROPERTIES
			PASS_REGULAR_EXPRESSION "${arg_EXPECT}")
	endif()
endfunction()
