# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Completion for the command baton.

_baton() {
	local word=${COMP_WORDS[COMP_CWORD]} words i

	words='info doctor trace perf --help --usage --version'
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		info | doctor) words='--json --help --usage' ;;
		trace)
			words='--perfetto= --svg= --html= --from= --to= --run= --hang --json --help --usage'
			words+=" $(compgen -d -- "$word")"
			;;
		perf)
			words='latency bandwidth rate put puts ring alltoall overlap
			       --min-bytes --max-bytes --factor --window --iterations
			       --warmup --time --no-check --against --device --transport
			       --path --memory --ranks --json --csv --plot --help --usage'
			;;
		esac
	done
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _baton baton
