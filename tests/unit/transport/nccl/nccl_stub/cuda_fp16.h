/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for the CUDA Toolkit's: see cuda_runtime.h. */
