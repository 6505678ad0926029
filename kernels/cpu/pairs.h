/*
 * pairs.h - labels that are pairs of classes, as output_loss in kernels/ops.h has them: for
 * softmax.c and output_loss.c.
 */
#ifndef DP_KERNELS_CPU_PAIRS_H
#define DP_KERNELS_CPU_PAIRS_H

#include <string.h>

#include "kernels/ops.h"

struct dp_pair {
    size_t first, other;
    float share, rest; /* of first, and of other */
};

/* pair [DP_PAIR_WORDS] */
static inline struct dp_pair dp_pair_of(const int32_t *pair)
{
    struct dp_pair p = {(size_t)pair[0], (size_t)pair[1], 0, 0};

    memcpy(&p.share, &pair[2], sizeof(p.share));
    p.rest = 1 - p.share;
    return p;
}

/* The target of output `c`. */
static inline double dp_pair_target(const struct dp_pair *p, size_t c)
{
    return (p->first == c ? (double)p->share : 0) + (p->other == c ? (double)p->rest : 0);
}

/* output_loss of classes or pairs with DP_LOSS_SOFTMAX; in softmax.c, whose parts it is made of. */
DP_CHECKED dp_status dp_cpu_softmax_pairs(const struct dp_output_loss *how, float *dx, float *loss,
                                          float *score, const float *x, const int32_t *labels,
                                          float scale, float keep);

#endif
