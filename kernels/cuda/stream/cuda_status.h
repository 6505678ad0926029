/*
 * cuda_status.h - from results of CUDA and cuBLAS to dp_status: one converter for each library.
 */
#ifndef DP_KERNELS_CUDA_STREAM_CUDA_STATUS_H
#define DP_KERNELS_CUDA_STREAM_CUDA_STATUS_H

#include "base/status.h"

/* DP_OK for success; else logs `call` with what CUDA says about it. Errors: DP_ERR_NOMEM (device
 * memory), DP_ERR_UNAVAILABLE (no GPU, driver too old), DP_ERR_CUDA. */
DP_CHECKED dp_status dp_from_cuda(const char *file, int line, const char *call, int code);
DP_CHECKED dp_status dp_from_cublas(const char *file, int line, const char *call, int code);

#define DP_CUDA(call) dp_from_cuda(__FILE__, __LINE__, #call, (int)(call))
#define DP_CUBLAS(call) dp_from_cublas(__FILE__, __LINE__, #call, (int)(call))

#endif
