/*
 * grad_norm.h - what must look at the whole gradient before any weight changes: clipping by norm,
 * and loss scaling, which leaves out steps whose gradient is not finite.
 *
 * Sums of squares are taken over blocks of DP_BLOCK elements and added in their order, so that the
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
    float *seen;              /* owned; the host's copy of them, or squares itself */
    struct dp_stream *stream; /* borrowed */
    double norm;              /* of the last step, before clipping */
};

/* The stream is the one that looks. */
DP_CHECKED dp_status dp_grad_norm_create(const struct dp_flat *flat, double clip_norm, bool checks,
                                         struct dp_stream *stream, struct dp_grad_norm **out);
void dp_grad_norm_destroy(struct dp_grad_norm *grad_norm);

/* Looks at one range of the gradient. */
DP_CHECKED dp_status dp_grad_norm_add(struct dp_grad_norm *grad_norm, struct dp_range range);

/* Forgets the last step's squares: before the first look, where a rank looks at a part only. */
DP_CHECKED dp_status dp_grad_norm_reset(struct dp_grad_norm *grad_norm);

/* Brings what it has seen to the host. Waits for the stream. */
DP_CHECKED dp_status dp_grad_norm_fetch(struct dp_grad_norm *grad_norm);

/* All squares are there: reads them, and sets step parameters->skip (the host's; if it is not
 * set yet), or multiplies step parameters->factor, which applies to the gradient already. As
 * torch.nn.utils.clip_grad_norm_. */
DP_CHECKED dp_status dp_grad_norm_decide(struct dp_grad_norm *grad_norm,
                                         struct dp_step_params *step_params);

/* Of what was read: the tensor, in order of backward, whose gradient is the first that is not
 * finite; NULL: none. */
const struct dp_tensor *dp_grad_norm_overflowed(const struct dp_grad_norm *grad_norm);

#endif
