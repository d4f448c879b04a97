# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Completion for the command baton.

_baton() {
	local word=${COMP_WORDS[COMP_CWORD]} words i

	words='info doctor --help --usage --version'
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		info | doctor) words='--json --help --usage' ;;
		esac
	done
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _baton baton
