# SPDX-License-Identifier: BSD-3-Clause
#
# What only a package has, put beside the files that cpack has installed for it: the
# copyright and the changelogs; manual pages are compressed.  cpack runs this.
function(compress file)
	execute_process(COMMAND gzip -9n ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

if(NOT CPACK_GENERATOR STREQUAL "DEB")
	return()
endif()

file(READ ${CPACK_BATON_SOURCE_DIR}/LICENSE license)
string(REGEX MATCH "Copyright .c. ([^\n]+)" ignored "${license}")
set(holder ${CMAKE_MATCH_1})
string(REGEX REPLACE "^.*Copyright[^\n]*\n\n" "" license "${license}")
string(REGEX REPLACE "\n\n" "\n.\n" license "${license}")
string(STRIP "${license}" license)
string(REPLACE "\n" "\n " license "${license}")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
	string(TOUPPER ${component} upper)
	set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
	set(root ${CPACK_TEMPORARY_DIRECTORY}/${component}${CPACK_PACKAGING_INSTALL_PREFIX})
	if(NOT EXISTS ${root})
		message(FATAL_ERROR "cpack has installed nothing in ${root}")
	endif()
	set(doc ${root}/share/doc/${package})
	# The whole text is in copyright.
	file(REMOVE ${root}/share/doc/baton/LICENSE)
	file(WRITE ${doc}/copyright
	     "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
	     "Upstream-Name: Baton\n\nFiles: *\nCopyright: ${holder}\n"
	     "License: BSD-3-Clause\n ${license}\n")
	if(EXISTS ${root}/share/doc/baton/samples/data/digits.txt)
		file(APPEND ${doc}/copyright
		     "\nFiles: samples/data/digits.txt\n"
		     "Copyright: 1998 E. Alpaydin, C. Kaynak\nLicense: CC-BY-4.0\n"
		     " Creative Commons Attribution 4.0 International,\n"
		     " https://creativecommons.org/licenses/by/4.0/legalcode\n .\n"
		     " Optical Recognition of Handwritten Digits, UCI Machine Learning\n"
		     " Repository, https://doi.org/10.24432/C50P49.  samples/data/README.md says\n"
		     " what was changed.\n")
	endif()
	file(WRITE ${doc}/changelog.Debian
	     "baton (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; "
	     "urgency=medium\n\n  * Packages of this version; changelog.gz has what is new.\n\n"
	     " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
	compress(${doc}/changelog.Debian)
	file(COPY_FILE ${CPACK_BATON_SOURCE_DIR}/CHANGELOG.md ${doc}/changelog)
	compress(${doc}/changelog)
	file(GLOB pages ${root}/share/man/*/*.[13])
	foreach(page IN LISTS pages)
		compress(${page})
	endforeach()
endforeach()
