# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Completion for the command baton.

_baton() {
	local word=${COMP_WORDS[COMP_CWORD]} words i

	words='info doctor trace --help --usage --version'
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		info | doctor) words='--json --help --usage' ;;
		trace)
			words='--perfetto= --svg= --html= --from= --to= --run= --hang --json --help --usage'
			words+=" $(compgen -d -- "$word")"
			;;
		esac
	done
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _baton baton
