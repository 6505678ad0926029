/*
 * param_groups.h - what an optimizer does differently for some parameters: without weight decay
 * (no_decay), and at a rate of each tensor's own (LARS, LAMB).
 *
 * Factors belong to blocks of DP_BLOCK elements, since tensors begin there, and buckets and ranks'
 * parts are cut only there. A tensor's norms are sums over its blocks, in order, however the blocks
 * are divided among ranks; so rates have the same bits on any number of ranks.
 */
#ifndef DP_RUNTIME_OPTIM_PARAM_GROUPS_H
#define DP_RUNTIME_OPTIM_PARAM_GROUPS_H

#include "runtime/optim/optimizer.h"

struct dp_param_groups {
    const struct dp_optimizer *optimizer; /* borrowed, as its options */
    const void *options;
    struct dp_stream *stream; /* borrowed */
    size_t blocks;            /* of the flat order */
    int tensor_count;
    /* All owned, in device memory. */
    float *decays;                    /* [blocks]; NULL: all parameters decay */
    float *rates;                     /* [blocks]; NULL: not layer-wise, as the next two */
    float *squares;                   /* [2, blocks] of weights, and of what measure() sums */
    struct dp_tensor_blocks *tensors; /* [tensor_count] */
};

/* Leaves *out NULL where all parameters are treated alike. Work is queued on `stream`. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_param_groups_create(const struct dp_flat *flat,
                                            const struct dp_optimizer *optimizer,
                                            const void *options, struct dp_stream *stream,
                                            struct dp_param_groups **out);
void dp_param_groups_destroy(struct dp_param_groups *groups);

/* Bytes that it allocates for a model of so many elements and tensors. */
size_t dp_param_groups_bytes(const struct dp_optimizer *optimizer, const void *options,
                             size_t trained, int tensor_count);

/* Points an update's factors at those of its range, which begins at element `begin`. NULL: there
 * are none. */
void dp_param_groups_apply(const struct dp_param_groups *groups, size_t begin,
                           struct dp_update *update);

/* The rates of a step, of a layer-wise optimizer: first zero the squares, if a rank measures only a
 * part; then measure every range; then, with all ranks' squares, find the rates. */
DP_CHECKED dp_status dp_param_groups_reset(struct dp_param_groups *groups);
DP_CHECKED dp_status dp_param_groups_measure(struct dp_param_groups *groups, size_t begin,
                                             const struct dp_update *update);
DP_CHECKED dp_status dp_param_groups_find_rates(struct dp_param_groups *groups,
                                                const struct dp_step_params *step_params);

#endif
