# SPDX-License-Identifier: BSD-3-Clause
#
# tests/run tells at its end which case failed and why, whatever the tests print behind that: a
# record of CI may have the end alone.  It runs here in a small tree, whose tests fail in each way.
# cmake -DROOT=<tree> -DWORK=<scratch> -P this
cmake_minimum_required(VERSION 3.25)

set(tree ${WORK}/tree)
file(REMOVE_RECURSE ${WORK})
file(COPY ${ROOT}/tests/run DESTINATION ${tree}/tests)
file(COPY ${ROOT}/cmake/prepare.sh ${ROOT}/cmake/report.sh DESTINATION ${tree}/cmake)
file(COPY ${ROOT}/CMakePresets.json DESTINATION ${tree})
# Nothing is installed for this.
file(WRITE ${WORK}/bin/dpkg-query "#!/bin/sh\necho ok installed\n")
file(CHMOD ${WORK}/bin/dpkg-query PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

file(WRITE ${tree}/CMakeLists.txt [==[
cmake_minimum_required(VERSION 3.25)
project(run LANGUAGES NONE)
enable_testing()
add_custom_target(tests-first)
function(case name)
	add_test(NAME ${name} COMMAND sh ${CMAKE_SOURCE_DIR}/${name}.sh)
	set_tests_properties(${name} PROPERTIES LABELS first SKIP_RETURN_CODE 77)
endfunction()
foreach(name suite twice unit script stack none killed late passes skips)
	case(${name})
endforeach()
set_tests_properties(late PROPERTIES TIMEOUT 1)
]==])

# A suite whose case fails long before its end, as the one of which CI's record had the end alone.
file(WRITE ${tree}/suite.sh [==[
for i in $(seq 200); do echo "ok      first.case_$i (0.001 s)"; done
echo "baton: warning: noise"
echo "    conform_queue.c:310: the_case: rank 1 of 2: n is 0 & \"m\" <1>, expected 1"
echo "    conform_queue.c:311: the_case: rank 1 of 2: it follows"
echo "not ok  queue.the_case (0.014 s)"
for i in $(seq 300); do echo "ok      later.case_$i (0.001 s)"; done
echo "500 passed, 1 failed, 8 skipped"
exit 1
]==])
# More than is told: the first checks of both cases are there.
file(WRITE ${tree}/twice.sh [==[
for i in $(seq 90); do echo "    a.c:$i: check_of_a"; done
echo "not ok  a.fails"
for i in $(seq 90); do echo "    b.c:$i: check_of_b"; done
echo "not ok  b.fails"
for i in $(seq 90); do echo "ok      c.passes"; done
exit 1
]==])
file(WRITE ${tree}/unit.sh [==[
echo "../tests/unit/test_x.c:17:F:claims:it_holds:0: Assertion 'a == b' failed: a == 1, b == 2"
for i in $(seq 90); do echo "ok it_holds_$i"; done
exit 1
]==])
file(WRITE ${tree}/script.sh [==[
echo "CMake Error at check_docs.cmake:12 (message):"
echo "  baton_send has no page"
for i in $(seq 90); do echo "-- line $i"; done
exit 1
]==])
file(WRITE ${tree}/stack.sh [==[
echo "WARNING: ThreadSanitizer: data race (pid=17)"
echo "    #0 in_the_stack near.c:17"
for i in $(seq 90); do echo "ok      d.passes"; done
exit 66
]==])
file(WRITE ${tree}/none.sh "seq 1000 1500; exit 1\n")
file(WRITE ${tree}/killed.sh "kill -SEGV $$\n")
file(WRITE ${tree}/late.sh "echo it hangs; exec sleep 60\n")
file(WRITE ${tree}/passes.sh "echo not ok; echo passes_anyway\n")
file(WRITE ${tree}/skips.sh "echo 'SKIP: no <GPU>'; exit 77\n")

set(ENV{PATH} ${WORK}/bin:$ENV{PATH})
execute_process(COMMAND ${tree}/tests/run TIMEOUT 100 RESULT_VARIABLE code
                OUTPUT_VARIABLE said ERROR_VARIABLE errors)
if(NOT code EQUAL 1)
	message(SEND_ERROR "tests/run ends with ${code}: ${errors}")
endif()

# What is told: all that stands behind the last skipped test.
string(FIND "${said}" "skipped: dev: skips: no <GPU>\n" at REVERSE)
if(at EQUAL -1)
	message(FATAL_ERROR "the skipped test is not there:\n${said}")
endif()
string(SUBSTRING "${said}" ${at} -1 told)
string(REGEX MATCHALL "\n" lines "${told}")
list(LENGTH lines count)
if(count GREATER 150)
	message(SEND_ERROR "${count} lines are told of 8 tests")
endif()
foreach(words IN ITEMS
		"== dev: suite (Failed)\n    conform_queue.c:310: the_case: rank 1 of 2: n is 0 & \"m\" <1>, expected 1\n    conform_queue.c:311: the_case: rank 1 of 2: it follows\nnot ok  queue.the_case (0.014 s)\n"
		"500 passed, 1 failed, 8 skipped\n"
		"    a.c:1: check_of_a\n" "not ok  a.fails\n"
		"    b.c:1: check_of_b\n" "not ok  b.fails\n"
		" lines more that tell of failures)\n"
		"test_x.c:17:F:claims:it_holds:0: Assertion 'a == b' failed"
		"CMake Error at check_docs.cmake:12 (message):\n  baton_send has no page\n"
		"WARNING: ThreadSanitizer: data race (pid=17)\n    #0 in_the_stack near.c:17\n"
		"\n1499\n1500\n"
		"== dev: late (Timeout)\nit hangs\n"
		"== dev: killed (SEGFAULT)\n"
		"FAILED:  dev: suite\n" "FAILED:  dev: late\n")
	string(FIND "${told}" "${words}" at)
	if(at EQUAL -1)
		message(SEND_ERROR "\"${words}\" is not in\n${told}")
	endif()
endforeach()
foreach(words IN ITEMS "passes_anyway" "noise" "first.case_7 ")
	string(FIND "${told}" "${words}" at)
	if(NOT at EQUAL -1)
		message(SEND_ERROR "\"${words}\" is in\n${told}")
	endif()
endforeach()
if(NOT told MATCHES "\n1 passed, 8 failed, 1 skipped\n$")
	message(SEND_ERROR "the last line is another one:\n${told}")
endif()
