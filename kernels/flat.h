/*
 * flat.h - one order for weights, gradient and optimizer state.
 *
 * [0, trained) are the parameters. Each tensor begins at a multiple of DP_BLOCK; the gaps stay
 * zero. [trained, total) is the tail: batch statistics, loss, correct answers, stop requests and
 * agreement hashes of the step, summed over ranks together with the gradient.
 */
#ifndef DP_KERNELS_FLAT_H
#define DP_KERNELS_FLAT_H

#include <stddef.h>

#include "kernels/step_params.h"
#include "kernels/tensor.h"

/* The first 1/DP_DEFERRED_PART of a large tensor's gradient may be shared after the tail. A
 * gradient can be shared from the tensor's own backward until its next forward, and that is the
 * share of forward: backward of the layers before it takes about twice as long as forward. */
enum { DP_DEFERRED_PART = 3 };

struct dp_range {
    size_t begin, count;
};

#define DP_AVERAGE_NAME "ema" /* in files, as a slot */

struct dp_flat {
    const struct dp_tensor *tensors; /* borrowed from the model */
    int tensor_count;
    size_t trained, total, owned; /* owned < trained where the optimizer is sharded */
    enum dp_type type;            /* the compute type */
    void *weights;                /* [trained] compute type; what layers read */
    float *running;               /* [statistics] running means and variances of batch norm */
    float *grad;                  /* [total]; peers on a node can read it */
    float *master;                /* [owned]; is `weights` under fp32 */
    float *slots[2];              /* [owned] optimizer state; NULL where not needed */
    float *average;               /* [trained] of the weights; NULL where it is not wanted */
};

/* The arguments of an optimizer, which does not know offsets or ranks. */
struct dp_update {
    float *master;
    void *weights; /* compute type, written in the same pass; may be master itself */
    const float *grad;
    float *slots[2];
    size_t count;
    const struct dp_step_params *step_params; /* device memory: lr, factor, skip, applied */
    /* Factors of each block of DP_BLOCK elements [ceil(count / DP_BLOCK)], in device memory; NULL:
     * 1 everywhere. */
    const float *decays; /* of the weight decay */
    const float *rates;  /* of what the weights change by: see the operations */
};

#endif
