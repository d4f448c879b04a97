# SPDX-License-Identifier: BSD-3-Clause
#
# How tests are added.  All of these link the static library, see the internal
# headers (include/, the rooms of CMakeLists.txt, tests/support/), and are compiled
# with baton-flags.  A test skips by printing "SKIP: why" and exiting with 77.
#
#   baton_check_test(unit.request SOURCES test_request.c [LABELS unit]
#                    [TIMEOUT 60] [LIBRARIES ...] [DEFINITIONS ...] [ENV A=1])
#       A Check program that is a test by itself: target and CTest name are the
#       first argument.  LABELS defaults to the name up to its first dot.
#
#   baton_test_program(conform-mpi SOURCES main_mpi.c conform_p2p.c ... [MPI]
#                      [LIBRARIES ...] [DEFINITIONS ...])
#       A Check program that is no test yet.  MPI: its sources include mpi.h.
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
# TIMEOUT is in seconds (default 60, mpi 120).

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
	${baton_rooms} ${PROJECT_SOURCE_DIR}/tests/support)
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

set(BATON_SANITIZE_ENVIRONMENT
	# The slow unwinder gets through libraries without frame pointers, so
	# that lsan.supp can see whose leak it is.
	ASAN_OPTIONS=detect_stack_use_after_return=1:fast_unwind_on_malloc=0
	LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0
	# A process with threads sleeps at its exit, by default for a second, to
	# see races there; each test of a unit test is a process.
	TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp:halt_on_error=1:atexit_sleep_ms=50
	UBSAN_OPTIONS=print_stacktrace=1)

function(baton_test_program target)
	cmake_parse_arguments(PARSE_ARGV 1 arg "MPI" ""
	                      "SOURCES;LIBRARIES;DEFINITIONS")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${target}: ${arg_UNPARSED_ARGUMENTS}?")
	endif()
	add_executable(${target} ${arg_SOURCES})
	target_link_libraries(${target} PRIVATE
		baton-internal ${arg_LIBRARIES} PkgConfig::CHECK
		$<$<BOOL:${arg_MPI}>:MPI::MPI_C>)
	target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
endfunction()

# The properties that all tests have.
function(baton_test_properties name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;PROCESSORS"
	                      "LABELS;ENV")
	if(NOT arg_LABELS)
		string(REGEX REPLACE "\\..*" "" arg_LABELS ${name})
	endif()
	list(REMOVE_DUPLICATES arg_LABELS)
	set(environment ${arg_ENV})
	if(BATON_SANITIZE)
		list(APPEND environment ${BATON_SANITIZE_ENVIRONMENT})
	endif()
	if(NOT arg_PROCESSORS)
		set(arg_PROCESSORS 1)
	endif()
	set_tests_properties(${name} PROPERTIES
		LABELS "${arg_LABELS}"
		TIMEOUT ${arg_TIMEOUT}
		PROCESSORS ${arg_PROCESSORS}
		SKIP_RETURN_CODE 77
		ENVIRONMENT "${environment}")
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
	baton_test_properties(${name} TIMEOUT ${timeout}
		PROCESSORS ${arg_PROCESSORS}
		LABELS ${arg_LABELS}
		ENV CK_DEFAULT_TIMEOUT=${timeout} ${arg_ENV})
endfunction()

function(baton_check_test name)
	cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;PROCESSORS"
	                      "SOURCES;LIBRARIES;DEFINITIONS;LABELS;ENV")
	if(arg_UNPARSED_ARGUMENTS)
		message(FATAL_ERROR "${name}: ${arg_UNPARSED_ARGUMENTS}?")
	endif()
	baton_test_program(${name} SOURCES ${arg_SOURCES}
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
	if(arg_RECOVERY AND NOT arg_EXPECT)
		message(FATAL_ERROR "${name}: RECOVERY needs EXPECT")
	endif()
	set(recovery)
	if(arg_RECOVERY AND BATON_MPI_LAUNCHER MATCHES "openmpi")
		set(recovery --enable-recovery)
	elseif(arg_RECOVERY AND BATON_MPI_LAUNCHER STREQUAL "hydra")
		set(recovery -disable-auto-cleanup)
	endif()
	# timeout(1) inside CTest's own: mpirun has to be told by a signal that
	# it can catch, or it leaves its processes behind.
	add_test(NAME ${name} COMMAND
		timeout --foreground --kill-after=10 ${timeout}
		${MPIEXEC_EXECUTABLE} ${recovery}
		${MPIEXEC_NUMPROC_FLAG} ${arg_RANKS}
		$<TARGET_FILE:${arg_TARGET}> ${arg_ARGS})
	baton_test_properties(${name} TIMEOUT ${ctest_timeout}
		PROCESSORS ${arg_RANKS}
		LABELS ${arg_LABELS} mpi
		ENV CK_DEFAULT_TIMEOUT=${timeout} ${BATON_MPI_ENVIRONMENT}
			${arg_ENV})
	if(arg_EXPECT)
		set_tests_properties(${name} PROPERTIES
			PASS_REGULAR_EXPRESSION "${arg_EXPECT}")
	endif()
endfunction()
