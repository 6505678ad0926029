#include "kernels/cuda/stream/cuda_status.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

/* A failure is also kept for cudaGetLastError(), where the next launch would find it. */
dp_status dp_from_cuda(const char *file, int line, const char *call, int code)
{
    dp_status status = DP_ERR_CUDA;

    if (code == (int)cudaSuccess) {
        return DP_OK;
    }
    (void)cudaGetLastError();
    if (code == (int)cudaErrorMemoryAllocation) {
        status = DP_ERR_NOMEM;
    } else if (code == (int)cudaErrorNoDevice || code == (int)cudaErrorInsufficientDriver) {
        status = DP_ERR_UNAVAILABLE;
    }
    return dp_fail(file, line, status, "%s: %s (%s)", call, cudaGetErrorString((cudaError_t)code),
                   cudaGetErrorName((cudaError_t)code));
}

dp_status dp_from_cublas(const char *file, int line, const char *call, int code)
{
    if (code == (int)CUBLAS_STATUS_SUCCESS) {
        return DP_OK;
    }
    return dp_fail(file, line, code == (int)CUBLAS_STATUS_ALLOC_FAILED ? DP_ERR_NOMEM : DP_ERR_CUDA,
                   "%s: %s", call, cublasLtGetStatusString((cublasStatus_t)code));
}
