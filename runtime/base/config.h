/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The environment variables: all of them, in one list.  They are read and checked once
 * per process.  A value that is not allowed is warned about, and is as if not set.  An unknown
 * variable whose name begins with BATON_ is warned about too, unless it ends in _ROOT, _DIR or
 * _HOME, which package managers set, and does not begin as a known one does (BATON_TRACE_DIR).
 *
 * The list serves whoever asks for it too (baton_variable, which `baton info` prints), the
 * sentences about misspelt names, and the table in docs/semantics.md, which has the same rows
 * (tests/check_docs.cmake).
 */
#ifndef BATONI_CONFIG_H
#define BATONI_CONFIG_H

#include <stdint.h>

#include "log.h"

/* X(kind, field of batoni_config, name, values allowed, what holds where it is not set, meaning).  The
 * kind says how the value is stored (store_* in config.c).  The first is read first: it says
 * whether the others' warnings are written. */
#define BATONI_VARIABLES(X)                                                   \
	X(choice, log_level, BATON_LOG, "none, error, warning, info, debug",  \
	  "warning",                                                          \
	  "what is written to standard error")                                \
	X(bit, window_path, BATON_WINDOW_PATH, "direct, vmwrite, message, native", \
	  "the best path to each peer",                                       \
	  "the only path of puts and signals, the same in all processes")     \
	X(flag, engine_puts, BATON_PUTS, "auto, engine",                      \
	  "auto",                                                             \
	  "what carries out puts and signals of streams to memory that these " \
	  "reach: the stream itself where it can, or always the engine")      \
	X(flag, dump_on_signal, BATON_DUMP_ON, "SIGUSR2",                     \
	  "none",                                                             \
	  "the signal that dumps every communicator to standard error")       \
	X(word, device, BATON_DEVICE, "host, cuda",                           \
	  "host",                                                             \
	  "the device of communicators that ask for BATON_DEVICE_AUTO")       \
	X(word, transport, BATON_TRANSPORT, "auto, nccl, near",               \
	  "auto",                                                             \
	  "what moves messages of communicators that ask for "                \
	  "BATON_TRANSPORT_AUTO. nccl, on the CUDA device: NCCL, over MPI, "  \
	  "the local transport or the side channel. near, between processes " \
	  "without MPI: memory that they share. With nccl and no "            \
	  "BATON_DEVICE, the device of BATON_DEVICE_AUTO is cuda")            \
	X(choice, message_path, BATON_MESSAGE_PATH, "auto, near, mpi",        \
	  "auto, which is near between ranks of one node, else MPI",          \
	  "what carries messages between processes: memory that they share, " \
	  "which all ranks must be able to (near), or MPI. The same on all "  \
	  "ranks, else their creation is INVALID")                            \
	X(text, cuda_library, BATON_CUDA_LIBRARY, "a file",                   \
	  "libcuda.so.1",                                                     \
	  "the library of the CUDA driver")                                   \
	X(text, nccl_library, BATON_NCCL_LIBRARY, "a file",                   \
	  "the one that the program has loaded, else libnccl.so.2",           \
	  "the library of NCCL")                                              \
	X(number, nccl_lanes, BATON_NCCL_LANES, "1 to 64",                    \
	  "as many as are of use",                                            \
	  "options.nccl_lanes of communicators that do not say")              \
	X(flag, nccl_lists, BATON_NCCL_LISTS, "0, 1",                         \
	  "as the option says",                                               \
	  "1: communicators on NCCL carry lists of tensors, as with the "     \
	  "option nccl_lists. The same on all ranks, else their creation is " \
	  "INVALID")                                                          \
	X(flag, check, BATON_CHECK, "0, 1",                                   \
	  "as the option says",                                               \
	  "1: communicators are in checked mode, as with the option check. "  \
	  "The same on all ranks, else their creation is INVALID")            \
	X(flag, nvtx, BATON_NVTX, "0, 1",                                     \
	  "0",                                                                \
	  "1: each operation is drawn as ranges of NVTX, for NVIDIA's tools, " \
	  "if Baton was built with -DBATON_WITH_NVTX=ON")                     \
	X(text, trace, BATON_TRACE, "a directory",                            \
	  "none",                                                             \
	  "where each rank keeps what its communicators do, in files that "   \
	  "outlive it, for baton trace. Best in memory, as /dev/shm is")      \
	X(number, trace_operations, BATON_TRACE_OPERATIONS, "256 to 16777216", \
	  "16384",                                                            \
	  "how many operations such a file keeps, the latest, of 128 bytes each") \
	X(text, interface, BATON_INTERFACE, "an interface, or an address",    \
	  "MASTER_ADDR, or the first interface that is up, loopback last",    \
	  "where a process listens for ranks of other processes, without MPI") \
	X(number, port, BATON_PORT, "1 to 65535",                             \
	  "none",                                                             \
	  "the port of rank 0 at MASTER_ADDR, with RANK and WORLD_SIZE")      \
	X(secret, secret, BATON_SECRET, "16 to 4095 characters",              \
	  "none",                                                             \
	  "what the ranks of such a job prove to each other")                 \
	X(choice, mpi_cuda, BATON_MPI_CUDA, "auto, staged, direct",           \
	  "auto, which asks MPI whether it is CUDA-aware",                    \
	  "whether device memory goes to MPI as it is (direct) or through "   \
	  "pinned memory (staged)")                                           \
	X(number, staging_chunk, BATON_STAGING_CHUNK, "4096 to 67108864",     \
	  "524288",                                                           \
	  "bytes of a chunk of pinned memory, through which device memory is " \
	  "staged")                                                           \
	X(number, staging_chunks, BATON_STAGING_CHUNKS, "1 to 4096",          \
	  "16",                                                               \
	  "chunks of a communicator for each direction")                      \
	X(choice, staging_maps, BATON_STAGING_MAPS, "kept, all, none",        \
	  "kept",                                                             \
	  "which device memory long messages to processes of the same node "  \
	  "leave by one copy: what may be freed while the peer has it mapped " \
	  "(kept), or also that of cuMemAlloc, which the program then frees " \
	  "only behind the communicator (all)")

enum { BATONI_CONFIG_FILE_BYTES = 4096, BATONI_CONFIG_WORD_BYTES = 16 };

enum batoni_mpi_cuda {
	BATONI_MPI_CUDA_AUTO,
	BATONI_MPI_CUDA_STAGED,
	BATONI_MPI_CUDA_DIRECT
};

enum batoni_staging_maps {
	BATONI_STAGING_MAPS_KEPT,
	BATONI_STAGING_MAPS_ALL,
	BATONI_STAGING_MAPS_NONE
};

enum batoni_message_path {
	BATONI_MESSAGE_PATH_AUTO,
	BATONI_MESSAGE_PATH_NEAR,
	BATONI_MESSAGE_PATH_MPI
};

struct batoni_config {
	enum batoni_log_level log_level;
	unsigned window_path; /* a BATON_WINDOW_PATH_* bit; 0: not set */
	bool engine_puts; /* BATON_PUTS=engine */
	bool dump_on_signal;
	char device[BATONI_CONFIG_WORD_BYTES]; /* "": not set */
	char transport[BATONI_CONFIG_WORD_BYTES];
	enum batoni_message_path message_path;
	char cuda_library[BATONI_CONFIG_FILE_BYTES]; /* "": not set */
	char nccl_library[BATONI_CONFIG_FILE_BYTES];
	uint32_t nccl_lanes; /* 0: not set */
	bool nccl_lists; /* BATON_NCCL_LISTS=1 */
	bool check; /* BATON_CHECK=1 */
	bool nvtx;  /* BATON_NVTX=1 */
	char trace[BATONI_CONFIG_FILE_BYTES]; /* "": not set */
	uint32_t trace_operations; /* 0: not set */
	char interface[BATONI_CONFIG_FILE_BYTES];
	uint32_t port; /* 0: not set */
	char secret[BATONI_CONFIG_FILE_BYTES];
	enum batoni_mpi_cuda mpi_cuda;
	uint32_t staging_chunk, staging_chunks; /* 0: not set */
	enum batoni_staging_maps staging_maps;
};

/* Any thread. */
const struct batoni_config *batoni_config(void);

/* Read a decimal number, of digits alone, from `least` to `most`.  False: the text is none, and
 * *number_p unchanged. */
bool batoni_number_read(const char *text, unsigned long least,
                        unsigned long most, uint32_t *number_p);

#endif
