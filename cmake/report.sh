# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What tests/run reads out of CTest's report (--output-junit); sourced by it and by
# tests/check_run.cmake.

# The entities of XML, for awk.
report_plain='
	function plain(text) {
		gsub(/&lt;/, "<", text)
		gsub(/&gt;/, ">", text)
		gsub(/&quot;/, "\"", text)
		gsub(/&apos;/, "\047", text)
		gsub(/&amp;/, "\\&", text)
		return text
	}'

# report_results REPORT: a line for each test: "pass|fail|skip", the test, and for a skip the
# reason that it printed.
report_results() {
	awk "$report_plain"'
		function flush() {
			if (test != "")
				print result "\t" test "\t" reason
			test = ""
		}
		/<testcase / {
			flush()
			test = $0
			sub(/.*<testcase name="/, "", test)
			sub(/".*/, "", test)
			result = /status="run"/ ? "pass" : "fail"
			reason = ""
		}
		/<skipped message="SKIP_RETURN_CODE/ { result = "skip" }
		reason == "" && /SKIP: / {
			reason = $0
			sub(/.*SKIP: /, "", reason)
			sub(/<\/system-out>.*/, "", reason)
			reason = plain(reason)
		}
		END { flush() }' "$1"
}

# report_output REPORT TEST: what the test printed.
report_output() {
	awk -v test="<testcase name=\"$2\"" "$report_plain"'
		index($0, test) { on = 1; next }
		on && /<\/testcase>/ { exit }
		on && /<system-out>/ { inside = 1; sub(/.*<system-out>/, "") }
		on && inside {
			ends = sub(/<\/system-out>.*/, "")
			if (!ends || $0 != "")
				print plain($0)
			if (ends)
				exit
		}' "$1"
}

# why_failed REPORT TEST: CTest's word for it ("Timeout", "SEGFAULT"), which is not in the report
# but in what CTest printed, beside it: report.log.
why_failed() {
	awk -v test="$2" '
		$2 == "-" && $3 == test {
			sub(/^[^(]*\(/, "")
			sub(/\).*/, "")
			print
			exit
		}' "${1%.xml}.log"
}

# told_by LINES: of what a failed test printed (standard input), the lines that say which case
# failed and why, and its last three; LINES at most, and one that says how many were left out.
# These say it:
#
#   - "not ok", and the checks before it: lines that are indented, else the last ones;
#   - a failure of Check, an assertion, a failure of a script of CMake's, and the next lines;
#   - a report of a sanitizer, and the next lines: the stack.
#
# Where they are too many, the line that names the failure and the first check of each case come
# first, and earlier ones before later ones: what fails later often follows from them.
told_by() {
	awk -v most="$1" '
		# What names a failure is of rank 1, what explains it of rank 2.
		function mark(i, rank) {
			if (!(i in ranks) || ranks[i] > rank)
				ranks[i] = rank
		}
		function headline(i, explained_by) {
			mark(i, 1)
			while (explained_by-- > 0)
				mark(++i, 2)
		}
		function case_failed(i, from, n) {
			mark(NR, 1)
			for (i = from; i < NR; i++)
				if (line[i] ~ /^[ \t]+[^ \t]/ && n < 8)
					mark(i, n++ ? 2 : 1)
			for (i = NR - 8; n == 0 && i < NR; i++)
				if (i >= from)
					mark(i, 2)
		}
		{ line[NR] = $0 }
		/^not ok/ { case_failed(0, behind + 1, 0) }
		/^(not ok|ok|skip)[ \t]/ { behind = NR }
		/:[FE]:[^:]*:/ || /[Aa]ssert(ion)?[ (]/ || /FAILED/ { headline(NR, 0) }
		/CMake Error/ { headline(NR, 6) }
		/(ERROR|WARNING): [A-Za-z]*Sanitizer/ || /runtime error:/ { headline(NR, 14) }
		END {
			tail = NR - 3
			for (i = 1; i <= tail; i++)
				told += i in ranks
			for (i = NR - most + 1; told == 0 && i <= tail; i++)
				mark(i, 2)
			for (rank = 1; rank <= 2; rank++)
				for (i = 1; i <= tail; i++)
					if (ranks[i] == rank && kept < most - 3)
						kept += keep[i] = 1
			for (i = 1; i <= NR; i++)
				if (i > tail || i in keep)
					print line[i]
			if (told > kept)
				printf "(%d lines more that tell of failures)\n", told - kept
		}'
}
