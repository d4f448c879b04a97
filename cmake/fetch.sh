# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What the scripts share that bring files of packages into .cache/, where nothing is
# installed; sourced by them, behind prepare.sh.  Their messages go to the file $log.

# find_pip FOLDER: sets python to one that has pip: the machine's, or that of a virtual
# environment in FOLDER.
find_pip() {
	for python in python3 "$1/venv/bin/python3"; do
		"$python" -m pip --version >>"$log" 2>&1 && return
	done
	# It ends the subshell where the package cannot be installed.
	(need_packages python3-venv) && python3 -m venv "$1/venv" >>"$log" 2>&1
}

# pip_quietly ARGUMENT...
pip_quietly() {
	"$python" -m pip "$1" --quiet --disable-pip-version-check --retries 1 \
		--timeout 15 "${@:2}" >>"$log" 2>&1
}

# debian_package FOLDER SUITE COMPONENT PACKAGE: download a package of Debian's and unpack it in
# FOLDER/PACKAGE.  The machine's own lists of packages are neither read nor changed.
debian_package() {
	local work=$1 package=$4 apt

	mkdir -p "$work/lists/partial" "$work/archives/partial"
	printf 'deb [signed-by=%s] %s %s %s\n' "$debian_keys" \
		http://deb.debian.org/debian "$2" "$3" >"$work/sources.list"
	apt=(apt-get -q -o Dir::State::Lists="$work/lists"
		-o Dir::Cache="$work"
		-o Dir::Etc::SourceList="$work/sources.list"
		-o Dir::Etc::SourceParts=- -o APT::Sandbox::User=
		-o Acquire::Retries=1 -o Acquire::http::Timeout=15)
	"${apt[@]}" update >>"$log" 2>&1 &&
		(cd "$work" && "${apt[@]}" download "$package" >>"$log" 2>&1) &&
		dpkg-deb -x "$(find "$work" -maxdepth 1 -name "${package}_*.deb" \
			-print -quit)" "$work/$package" >>"$log" 2>&1
}
debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg

# Can packages of Debian's be had?
have_debian() {
	command -v apt-get >/dev/null && [[ -e $debian_keys ]]
}
