/*
 * matmul_cublas.h - products of matrices by cuBLASLt, prepared once for each shape.
 */
#ifndef DP_KERNELS_CUDA_CUBLAS_MATMUL_CUBLAS_H
#define DP_KERNELS_CUDA_CUBLAS_MATMUL_CUBLAS_H

#include "kernels/cuda/cublas/matmul_shape.h"
#include "kernels/device.h"

struct dp_matmuls;

DP_CHECKED dp_status dp_matmuls_create(struct dp_matmuls **out);
void dp_matmuls_destroy(struct dp_matmuls *matmuls);

/* Forgets what was prepared, which the stream is through with. */
void dp_matmuls_forget(struct dp_matmuls *matmuls);

/* Chooses an algorithm: plan_cublas.h. Twice for one shape costs nothing. m, n, k above 0. With
 * `sums` there may be no algorithm, or none that is faster than the product without, prepared
 * before, and a pass (sums_cublas.h); that is no error. */
DP_CHECKED dp_status dp_matmul_prepare(struct dp_stream *s, const struct dp_matmul *shape);

/* Whether it was prepared, and there is one. */
bool dp_matmul_has(const struct dp_stream *s, const struct dp_matmul *shape);

/* Chooses which pass undoes a rectifier before this product, which was prepared without sums, and
 * with them: sums_cublas.h. Twice costs nothing. */
DP_CHECKED dp_status dp_matmul_choose_mask(struct dp_stream *s, const struct dp_matmul *shape);

/* Whether that is the pass that makes the sums. */
bool dp_matmul_masks_in_sums(const struct dp_stream *s, const struct dp_matmul *shape);

/* bias in, or sums out, of shapes that have them. Errors: DP_ERR_INTERNAL (not prepared),
 * DP_ERR_CUDA. */
DP_CHECKED dp_status dp_matmul_run(struct dp_stream *s, const struct dp_matmul *shape, void *d,
                                   const void *a, const void *b, const void *bias, float *sums,
                                   float keep);

#endif
