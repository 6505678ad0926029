/*
 * plan_cublas.h - one product of one shape, and the algorithm of cuBLASLt that computes it.
 *
 * cuBLASLt's matrices are column-major: a row-major product d = a b is computed as d' = b' a',
 * where transposing costs nothing.
 */
#ifndef DP_KERNELS_CUDA_CUBLAS_PLAN_CUBLAS_H
#define DP_KERNELS_CUDA_CUBLAS_PLAN_CUBLAS_H

#include <cublasLt.h>

#include "kernels/algo_choices.h"
#include "kernels/cuda/cublas/matmul_shape.h"
#include "kernels/cuda/stream/scratch_cuda.h"

struct dp_cublas_plan {
    struct dp_matmul shape;
    cublasLtHandle_t handle; /* borrowed */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t left, right, result; /* of cuBLASLt: left is b, right is a */
    cublasLtMatmulAlgo_t algo;
    size_t workspace_bytes; /* that it wants */
    bool missing;           /* no algorithm, or none that is fast enough; only with `sums` */
    bool tried_masks;       /* masks_in_sums was chosen: dp_matmul_choose_mask() */
    bool masks_in_sums;
};

/*
 * Takes the algorithm that the stream's choices have, if cuBLASLt accepts it for this shape and it
 * runs; else, where they are open, the fastest of cuBLASLt's proposals that run, measured on arrays
 * of this size; else its first proposal. shape->type is that of the stream. On error nothing is
 * left behind. Errors: DP_ERR_UNAVAILABLE (there is none), DP_ERR_NOMEM, DP_ERR_CUDA.
 */
DP_CHECKED dp_status dp_cublas_plan_create(struct dp_stream *s, cublasLtHandle_t handle,
                                           const struct dp_matmul *shape,
                                           struct dp_cublas_plan *out);
void dp_cublas_plan_destroy(struct dp_cublas_plan *plan);

/* The key of a choice: `what` and everything that the proposed algorithms depend on, as in "product
 * 128x1024x784 nt fp32 bias relu". */
void dp_cublas_key(const struct dp_stream *s, const char *what, const struct dp_matmul *shape,
                   char key[DP_ALGO_CHOICE_KEY]);

/* d = op(a) op(b) ..., as dp_matmul_run(), of a plan that is not missing. beside: the bias that is
 * read, or the sums that are written. */
DP_CHECKED dp_status dp_cublas_plan_run(struct dp_stream *s, const struct dp_cublas_plan *plan,
                                        const struct dp_cuda_scratch *workspace, void *d,
                                        const void *a, const void *b, const void *beside,
                                        float keep);

#endif
