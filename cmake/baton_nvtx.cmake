# SPDX-License-Identifier: BSD-3-Clause
#
# NVTX, NVIDIA's ranges for its tools: a header, and nothing to link.  Sets
# BATON_HAVE_NVTX and BATON_NVTX_INCLUDE_DIR.  AUTO takes the header where it is
# (CUDA Toolkit, the system, or .cache/nvtx, where tests/fetch_nvtx puts it), and says
# so where it is not.

set(BATON_WITH_NVTX OFF CACHE STRING "Ranges of NVTX: AUTO, ON or OFF")
set_property(CACHE BATON_WITH_NVTX PROPERTY STRINGS AUTO ON OFF)
set(BATON_HAVE_NVTX FALSE)
if(BATON_WITH_NVTX)
	file(GLOB toolkits /usr/local/cuda/include /usr/local/cuda-*/include)
	find_path(BATON_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
		HINTS ENV CUDA_HOME ENV CUDA_PATH
		PATH_SUFFIXES include
		PATHS ${toolkits} ${PROJECT_SOURCE_DIR}/.cache/nvtx/include)
	if(BATON_NVTX_INCLUDE_DIR)
		set(BATON_HAVE_NVTX TRUE)
		message(STATUS "NVTX: ${BATON_NVTX_INCLUDE_DIR}")
	elseif(BATON_WITH_NVTX STREQUAL "AUTO")
		message(STATUS "no nvtx3/nvToolsExt.h: built without the ranges "
		               "of NVTX (tests/fetch_nvtx, CUDA Toolkit)")
	else()
		message(FATAL_ERROR
			"BATON_WITH_NVTX is ${BATON_WITH_NVTX}, and there is no "
			"nvtx3/nvToolsExt.h: install CUDA Toolkit, or the "
			"package nvidia-nvtx of the Python package index, and "
			"set BATON_NVTX_INCLUDE_DIR")
	endif()
endif()
