/*
 * sums_cublas.h - chooses between a product with an epilogue that also sums a factor (BGRADB), and
 * a plain product and a separate pass for the sums.
 */
#ifndef DP_KERNELS_CUDA_CUBLAS_SUMS_CUBLAS_H
#define DP_KERNELS_CUDA_CUBLAS_SUMS_CUBLAS_H

#include "kernels/cuda/cublas/plan_cublas.h"

/*
 * *pays: the epilogue is used. Uses the stream's choice. Else, if choices are open, measures both
 * and notes the faster one. Else the epilogue is used. `plain` is the plan without sums.
 * Errors: DP_ERR_NOMEM (choices), DP_ERR_CUDA.
 */
DP_CHECKED dp_status dp_cublas_sums_pay(struct dp_stream *s, const struct dp_cublas_plan *with_sums,
                                        const struct dp_cublas_plan *plain, bool *pays);

#endif
