/*
 * ssp_clock.h - how far trainers are that go at their own pace, and which of them has to wait.
 *
 * A trainer's clock is how many of its gradients a server has applied. None may be more than
 * `bound` ahead of the slowest one: who is gets no weights until the others have come after it. So
 * the weights that step s is computed with hold all gradients of steps before s - bound, and
 * perhaps later ones.
 *
 * Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
 * server", NIPS 2013, section 3.
 */
#ifndef DP_COLLECTIVES_ASYNC_SSP_CLOCK_H
#define DP_COLLECTIVES_ASYNC_SSP_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum dp_ssp_state {
    DP_SSP_COMPUTES, /* it has weights, and has not brought the gradient of the next step */
    DP_SSP_WAITS,    /* its gradient was applied, and it wants new weights */
    DP_SSP_ENDED     /* it has brought its last one */
};

struct dp_ssp_trainer {
    uint64_t step; /* gradients applied, from the beginning of training */
    uint64_t seen; /* gradients of all that were in the weights it got last */
    enum dp_ssp_state state;
};

struct dp_ssp_clock {
    int count;                        /* trainers */
    uint64_t bound;                   /* steps */
    struct dp_ssp_trainer *ssp_clock; /* owned; [count] */
    uint64_t applied;                 /* gradients so far */
    int ended;                        /* trainers */
    uint64_t *histogram; /* owned; [bins]: gradients, by how many of other trainers were applied
                            between their weights and themselves */
    size_t bins;
};

/* The largest number of such gradients, plus 1. */
size_t dp_ssp_clock_bins(int count, uint64_t bound);

/* Errors: DP_ERR_NOMEM, and nothing is left behind. */
DP_CHECKED dp_status dp_ssp_clock_open(struct dp_ssp_clock *ssp_clock, int count, uint64_t bound);
void dp_ssp_clock_close(struct dp_ssp_clock *clock);

/* All trainers have done `step` steps, and hold the same weights. */
void dp_ssp_clock_begin(struct dp_ssp_clock *clock, uint64_t step);

/* The gradient of trainer `i` was applied; `last`: it wants no weights. */
void dp_ssp_clock_apply(struct dp_ssp_clock *clock, int i, bool last);

/* Whether trainer `i` waits and may have weights. */
bool dp_ssp_clock_may_go(const struct dp_ssp_clock *ssp_clock, int i);

/* It gets them. */
void dp_ssp_clock_go(struct dp_ssp_clock *clock, int i);

/* Steps that all trainers have done. */
uint64_t dp_ssp_clock_slowest(const struct dp_ssp_clock *clock);

/* The first step behind which all trainers can end who learn of it with the next weights they get:
 * whoever computes now gets none before its next gradient. */
uint64_t dp_ssp_clock_soonest(const struct dp_ssp_clock *clock);

#endif
