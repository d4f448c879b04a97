# SPDX-License-Identifier: BSD-3-Clause
#
# Find MPI, say what was decided, and learn how its launcher is called.
#   BATON_HAVE_MPI        ON when the MPI transport is built
#   BATON_MPI_LAUNCHER    openmpi4, openmpi5, hydra (MPICH) or other
#   BATON_MPI_GFORKER     with hydra: MPICH's launcher for one host, where it is; it does
#                         not kill the other ranks when one dies, as hydra 5.0 does
# Another MPI than the system's: -DMPI_C_COMPILER=/path/mpicc
# -DMPIEXEC_EXECUTABLE=/path/mpirun.

set(BATON_HAVE_MPI OFF)
if(BATON_WITH_MPI STREQUAL "AUTO")
	find_package(MPI COMPONENTS C QUIET)
	if(NOT MPI_C_FOUND)
		message(STATUS "MPI not found: building without the MPI "
		               "transport (Debian and Ubuntu have it in "
		               "libopenmpi-dev and openmpi-bin)")
	endif()
elseif(BATON_WITH_MPI)
	find_package(MPI COMPONENTS C REQUIRED)
else()
	message(STATUS "MPI transport left out (BATON_WITH_MPI is off)")
endif()

if(BATON_WITH_MPI AND MPI_C_FOUND)
	set(BATON_HAVE_MPI ON)
	# Open MPI answers root only with these two set.
	execute_process(COMMAND ${CMAKE_COMMAND} -E env
	                OMPI_ALLOW_RUN_AS_ROOT=1
	                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	                ${MPIEXEC_EXECUTABLE} --version
	                OUTPUT_VARIABLE launcher ERROR_VARIABLE launcher)
	if(launcher MATCHES "Open(RTE| MPI)\\) 4")
		set(BATON_MPI_LAUNCHER openmpi4)
	elseif(launcher MATCHES "Open(RTE| MPI)\\) 5")
		set(BATON_MPI_LAUNCHER openmpi5)
	elseif(launcher MATCHES "HYDRA")
		set(BATON_MPI_LAUNCHER hydra)
		cmake_path(GET MPIEXEC_EXECUTABLE PARENT_PATH tools)
		if(EXISTS ${tools}/mpiexec.gforker)
			set(BATON_MPI_GFORKER ${tools}/mpiexec.gforker)
		endif()
	else()
		set(BATON_MPI_LAUNCHER other)
	endif()
	message(STATUS "MPI transport: MPI ${MPI_C_VERSION} of "
	               "${MPI_C_COMPILER}, launcher ${BATON_MPI_LAUNCHER}")
endif()
