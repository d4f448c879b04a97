# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What samples/run and tests/run share; sourced by them.  Sets root (the tree)
# and jobs (processors), and has need_packages and configure.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)

# mpirun reads these, whichever MPI it is of; each ignores the others' (the same
# list as in baton_tests.cmake): root may run, more ranks than cores may run, and
# a rank may use all cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export PRTE_MCA_hwloc_default_binding_policy=none

say() {
	printf '== %s\n' "$*"
}

die() {
	printf '%s: %s\n' "$0" "$*" >&2
	exit 1
}

# answer_help FILE ARGUMENT...: --help prints what is at the top of the script, and ends it.
answer_help() {
	if [[ ${2-} == -h || ${2-} == --help ]]; then
		sed -n '4,/^set /s/^# \{0,1\}//p' "$1"
		exit
	fi
}

have_package() {
	[[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == *" installed" ]]
}

# Make sure that these packages are there: as root through apt-get, asking for
# nothing; another user is told what is missing.  Where all are there, nothing
# is called, so no network is needed.
need_packages() {
	local package missing=()

	if ! command -v dpkg-query >/dev/null; then
		say "this is no Debian or Ubuntu: taking it that there are: $*"
		return
	fi
	for package; do
		have_package "$package" || missing+=("$package")
	done
	[[ ${#missing[@]} -gt 0 ]] || return 0
	if [[ $(id -u) != 0 ]]; then
		die "missing packages; as root: apt-get install ${missing[*]}"
	fi
	say "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -q -o Acquire::Retries=3 update &&
		apt-get -q -y -o Acquire::Retries=3 --no-install-recommends \
			install "${missing[@]}" ||
		die "apt-get could not install ${missing[*]}"
}

# configure PRESET [cmake's options]: Ninja and ccache where they are there, unless the
# folder has been configured with something else before.
configure() {
	local version

	version=$(cmake --version | awk 'NR == 1 { print $3 }')
	if [[ $(printf '%s\n' 3.25 "$version" | sort -V | head -n 1) != 3.25 ]]; then
		die "CMake 3.25 or newer is needed, and this one is $version"
	fi
	if command -v ninja >/dev/null; then
		export CMAKE_GENERATOR=${CMAKE_GENERATOR:-Ninja}
	fi
	if command -v ccache >/dev/null; then
		export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache}
		export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
	fi
	(cd "$root" && cmake --preset "$@")
}
