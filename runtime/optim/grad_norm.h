/*
 * grad_norm.h - operations that need the whole gradient before any weight changes: clipping by
 * norm, and loss scaling, which skips steps whose gradient is not finite.
 *
 * Squares are summed over blocks of DP_BLOCK elements, and blocks are added in order, so that the
 * norm does not depend on how the gradient is cut into buckets.
 */
#ifndef DP_RUNTIME_OPTIM_GRAD_NORM_H
#define DP_RUNTIME_OPTIM_GRAD_NORM_H

#include <stdbool.h>

#include "kernels/device.h"
#include "kernels/flat.h"

struct dp_grad_norm {
    const struct dp_flat *flat; /* borrowed */
    double clip_norm;           /* 0: no clipping */
    bool checks;                /* a gradient that is not finite skips the step */
    size_t blocks;
    float *squares;           /* owned; device memory, [blocks] */
    double *sum, *read;       /* owned; [1]: of squares, on the device, and the host's copy */
    float *seen;              /* owned; the host's copy of squares if `checks` is set, else NULL; or
                               * squares itself */
    struct dp_stream *stream; /* borrowed */
    bool finite;              /* the squares that were added last */
    double norm;              /* of the last step, before clipping */
};

/* Squares are computed on `stream`. */
DP_CHECKED dp_status dp_grad_norm_create(const struct dp_flat *flat, double clip_norm, bool checks,
                                         struct dp_stream *stream, struct dp_grad_norm **out);
void dp_grad_norm_destroy(struct dp_grad_norm *grad_norm);

/* Sums the squares of one range of the gradient. */
DP_CHECKED dp_status dp_grad_norm_add(struct dp_grad_norm *grad_norm, struct dp_range range);

/* Zeroes the last step's squares, before the first range, if a rank adds only a part of the
 * gradient. */
DP_CHECKED dp_status dp_grad_norm_reset(struct dp_grad_norm *grad_norm);

/* Called after all ranges: adds the squares and copies the sum to grad_norm->read and ->finite.
 * Waits for the stream. */
DP_CHECKED dp_status dp_grad_norm_read(struct dp_grad_norm *grad_norm);

/* The same; then sets step_params->skip (the host's; unless it is set already), or multiplies
 * step_params->factor, which also applies to this gradient. As torch.nn.utils.clip_grad_norm_. */
DP_CHECKED dp_status dp_grad_norm_decide(struct dp_grad_norm *grad_norm,
                                         struct dp_step_params *step_params);

/* If `checks` is set: the first tensor, in backward's order, whose gradient was not finite at the
 * last read; NULL: none. */
const struct dp_tensor *dp_grad_norm_overflowed(const struct dp_grad_norm *grad_norm);

#endif
