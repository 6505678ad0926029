/*
 * sums_cublas.h - chooses how the gradient of a bias is summed: by the product's epilogue (BGRADB),
 * or by a separate pass; and by which of two passes a rectifier is undone before.
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

/*
 * *pays: the pass that sums also undoes the rectifier, and the product is plain; else a pass of its
 * own does, before product and sums as chosen above. `with_sums` is NULL, or `missing`, if these
 * are a plain product and a pass. Otherwise as above; without measuring the passes are separate,
 * which takes the fewest launches.
 */
DP_CHECKED dp_status dp_cublas_mask_pays(struct dp_stream *s,
                                         const struct dp_cublas_plan *with_sums,
                                         const struct dp_cublas_plan *plain, bool *pays);

#endif
