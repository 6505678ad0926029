/*
 * nvtx_cuda.h - spans as NVTX ranges: Nsight Systems shows them above a GPU's work.
 *
 * Without a tool that listens a range costs a call. Source: NVIDIA Tools Extension, version 3,
 * whose headers come with the CUDA toolkit; nothing is linked.
 */
#ifndef DP_KERNELS_CUDA_STREAM_NVTX_CUDA_H
#define DP_KERNELS_CUDA_STREAM_NVTX_CUDA_H

#include <stdbool.h>

/* From now on spans of all threads are ranges, too, by their phase. False: this build has no
 * nvtx3. */
bool dp_cuda_show_spans(void);

#endif
